"""Permissions of a turn on this machine: its sandbox policy, and the approvals of the user.

Knows settings, rules and what a command line says. Does not know: processes, clients, turns. No I/O
but for the files of rules.
"""
