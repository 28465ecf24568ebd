"""Tools of MCP servers: names, schemas, how a model is shown them, search, calls."""
