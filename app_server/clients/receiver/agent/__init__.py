"""The side of the agent: its app-server, its thread, and the ways of a signal into it."""
