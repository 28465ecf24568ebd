"""The launcher: an agent with an app-server of its own beside it, both ended together.

Knows: command lines, ports, processes. Does not know: threads, signals, the inside of a server.
Source: docs/receiver.md, "The launcher".
"""
