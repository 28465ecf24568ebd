"""The Agent Client Protocol: the adapter of Codex, with this server behind it."""
