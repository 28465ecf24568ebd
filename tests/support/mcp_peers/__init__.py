"""MCP servers for tests, the other side of their sign-in, and what is asked of them."""
