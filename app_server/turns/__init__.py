"""Parts of a turn: requests to its model, calls, approvals, items; the slot of its thread.

Knows: threads, models, MCP tools, approvals.
Does not know: connections, JSON-RPC, who is subscribed; `ThreadClients` stands for all clients.
"""
