"""Machines on the wire: files, processes and search on the server's own, environments elsewhere."""
