"""What threads are given from outside: apps, plugins, skills, hooks and MCP servers."""
