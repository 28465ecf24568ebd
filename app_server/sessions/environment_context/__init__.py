"""What the model of a thread is shown of the place where it works: read here, sent with turns.

Knows: files of instructions, the machine's shell and time zone. Does not know: clients.
"""
