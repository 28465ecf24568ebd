"""The app-server: packages joined by `server`, started by `cli`.

docs/architecture.md has the map.
"""

VERSION = "0.1.0"
"""This package's version; tests compare it with pyproject.toml."""
