"""MCP servers: what is configured, what runs, what the model may call, and how a call travels.

Knows: MCP, processes, HTTP, names and schemas of tools.
Does not know: JSON-RPC clients, turns, models, and where a server came from: no name and no vendor
is special here.
"""
