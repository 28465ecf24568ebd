"""The receiver bridge: signals of a router into the thread of an agent on this machine.

Knows: the router's stream, the app-server as its client, MCP on stdio, a ledger on disk.
Does not know: the inside of a server, turns, models. It starts no server and stops none.
Source: docs/receiver.md.
"""
