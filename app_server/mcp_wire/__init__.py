"""The client side of MCP: messages, requests and their answers, Streamable HTTP.

Knows: JSON-RPC, HTTP, bounds.  Does not know: which servers there are, tools, sign-ins, processes.
In and out: one message at a time, on two streams.
"""
