"""Hooks: commands of the user that run on events of threads, and may stop or change them.

Knows where hooks are declared, which are trusted, how one runs and what its output means. Does not
know: threads, turns, clients.
"""
