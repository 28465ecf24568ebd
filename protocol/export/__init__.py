"""JSON Schema and TypeScript for client authors, made from the tables in `contract`.

Knows the types and their marks. Does not know the server; nothing here runs while it serves.
"""
