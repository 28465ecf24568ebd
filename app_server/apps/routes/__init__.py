"""The loopback MCP servers that apps become: a route for each, new ones for each inventory."""
