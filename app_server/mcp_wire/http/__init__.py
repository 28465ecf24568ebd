"""MCP servers behind a URL: Streamable HTTP over one of two senders of HTTP requests."""
