"""Tools of MCP servers: names, schemas, how a model is told of them, search, calls."""
