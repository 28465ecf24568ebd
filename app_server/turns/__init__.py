"""Threads at work: turns from input to exactly one completion.

Knows: threads, models, MCP tools, approvals.
Does not know: connections, JSON-RPC, who listens; it speaks to clients through `ThreadClients`.
"""
