"""The interface that Codex had before threads and turns: conversations, and `codex/event/…`.

A translation between two wires: requests of the one become requests of the other, and back. Does
not know: threads, turns, connections; it sees messages alone.
"""
