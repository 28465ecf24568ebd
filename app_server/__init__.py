"""The app-server: packages joined by `server`, started by `cli`.

docs/architecture.md has the map.
"""

VERSION = "0.1.0"
"""The version of this package; pyproject.toml reads it from here."""
