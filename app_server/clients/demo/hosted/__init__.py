"""A small hosted endpoint of apps, to try things out with: MCP, a directory, files; all in memory.

Knows: MCP, HTTP, what the real endpoint answers.  Does not know: the server that uses it.
"""
