"""What the model of a thread is told of the place where it works: read here, told at turns' starts.

Knows: files of instructions, the machine's shell and time zone. Does not know: clients.
"""
