"""What a turn may do to this machine: what confines it, and when the user is asked.

Knows settings, rules and what a command line says. Does not know: processes, clients, turns. No I/O
but for the files of rules.
"""
