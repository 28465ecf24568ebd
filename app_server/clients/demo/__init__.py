"""The demo: a real server, a real MCP server, a client, and every step of a conversation checked.

Uses the server as anybody would: as a child process, over its WebSocket.
"""
