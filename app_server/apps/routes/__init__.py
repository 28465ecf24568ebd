"""The loopback MCP servers that apps become: one route for each app, made anew with each inventory."""
