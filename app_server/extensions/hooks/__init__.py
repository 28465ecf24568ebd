"""Hooks: commands of the user's that run on events of threads, and can stop or change what happens.

Knows where hooks are declared, which are trusted, how one runs and what its output means. Does not
know: threads, turns, clients.
"""
