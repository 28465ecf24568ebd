"""Loaded threads: the session of each, the registry of all, their turns, queue and inbox."""
