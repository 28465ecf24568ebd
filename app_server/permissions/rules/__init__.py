"""Rules of the user about commands: read from files, matched, learned.

Does not know: who runs commands, who is asked.
"""
