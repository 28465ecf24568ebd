"""Threads on disk and in memory: logs, the state they add up to, the index over them.

Knows: rollouts, SQLite, writer locks.
Does not know: clients, models, MCP, how a turn runs.
"""
