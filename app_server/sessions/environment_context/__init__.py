"""Environment context of a thread's model: read here, sent with turns.

Knows: files of instructions, the machine's shell and time zone. Does not know: clients.
"""
