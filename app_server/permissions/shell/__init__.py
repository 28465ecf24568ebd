"""Shell scripts as a grammar parses them: their commands, and the files these read.

Does not know: what is allowed, who runs it.
"""
