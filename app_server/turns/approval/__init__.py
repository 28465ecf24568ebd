"""Approvals of commands, patches, tools and hosts; questions of MCP servers to the user."""
