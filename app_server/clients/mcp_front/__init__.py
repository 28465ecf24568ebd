"""The app-server offered as an MCP server on stdio: the tools `codex` and `codex-reply`.

It starts an ordinary server in this process and is a client of it, over a pipe in memory.
Knows: messages of MCP, requests and events of the app-server. Does not know: what is behind them.
Source: docs/mcp_server.md.
"""
