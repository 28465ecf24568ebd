"""The app-server: rooms joined by server.py, entered through cli.py.

docs/architecture.md has the map.
"""
