"""What the official MCP conformance suite is run with: a client, and what cannot pass yet."""
