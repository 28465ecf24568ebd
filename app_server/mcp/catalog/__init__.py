"""Which MCP servers a thread has: from config.toml, from extensions, within managed policy."""
