"""Signing in to MCP servers behind a URL, and keeping the tokens.

Knows: OAuth 2.1 as MCP uses it, authorization servers, the file and the keyring with tokens.
Does not know: clients, threads, methods. Secrets leave this package in requests to the server that
they are for, and nowhere else: not in texts of errors, not in logs.
"""
