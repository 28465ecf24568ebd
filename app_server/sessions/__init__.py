"""Loaded threads: the session of each, the registry of all, queue, inbox, goals, compaction."""
