"""How an MCP server is spoken to: messages, conversations, Streamable HTTP.

Knows: JSON-RPC, HTTP, bounds.  Does not know: which servers there are, tools, sign-ins, processes.
In and out: one message at a time, on two streams.
"""
