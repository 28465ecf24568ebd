"""Checks of a store, for commands."""

from pathlib import Path

from app_server.threads.checks import StoreChecks
from app_server.threads.files.repair import FileChecks


def store_checks(home: Path) -> StoreChecks:
    """Return the checks of the store of a home."""
    return FileChecks(home)
