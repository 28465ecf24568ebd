"""Threads on the wire: what they are, how they begin and change, lists, history, goals, queues."""
