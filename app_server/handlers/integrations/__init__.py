"""Methods about apps, plugins, skills, hooks and MCP servers."""
