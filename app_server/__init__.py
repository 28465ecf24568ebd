"""The app-server: packages joined by `server`, started by `cli`.

docs/architecture.md has the map.
"""
