"""Contract of extensions: the MCP servers that they register while the server runs.

Knows: its own shapes and bounds.  Does not know: any package above it, and no extension by name.
In: registrations of contributors.  Out: the same, validated, to whoever resolves servers.
"""
