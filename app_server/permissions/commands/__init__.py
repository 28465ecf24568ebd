"""Which commands are known to be harmless, and which to be dangerous. No I/O.

Does not know: who is asked, what confines a command.
"""
