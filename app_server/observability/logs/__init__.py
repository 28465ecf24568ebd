"""The log of the process: its settings, what every line says, what no line may say.

Knows: lines, levels, the folders of the server by name. Does not know: what is logged.
"""
