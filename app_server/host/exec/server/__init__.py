"""Exec server: processes, files and connections for its clients, within their policies."""
