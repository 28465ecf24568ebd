"""What a shell script says, as far as a grammar can tell: its commands, and what they read.

Does not know: what is allowed, who runs it.
"""
