"""The Agent Client Protocol, with its Python SDK as the client."""
