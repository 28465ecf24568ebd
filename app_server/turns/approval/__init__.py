"""Whether a tool may run, and what MCP servers ask the user."""
