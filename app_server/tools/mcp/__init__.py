"""Tools about the MCP servers of a thread: their own tools, their resources, their skills."""
