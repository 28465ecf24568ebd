"""Shell scripts, as far as a grammar can parse them: their commands, and what these read.

Does not know: what is allowed, who runs it.
"""
