"""mcpServer/*, mcpServerStatus/*: MCP servers as clients list, call and reload them."""
