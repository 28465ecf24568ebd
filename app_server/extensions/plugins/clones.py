"""Marketplaces that were fetched from repositories: a folder for each below the home folder.

Everything here blocks: call it in a worker thread. Paths are those of Codex.
Source: docs/plugins.md, "Repositories".
"""

import shutil
from pathlib import Path

from app_server.extensions.plugins.staging import make_staging, put_in_place


class ClonedMarketplaces:
    """The fetched marketplaces of one home folder."""

    def __init__(self, home: Path) -> None:
        self.root = home / ".tmp" / "marketplaces"

    def folder(self, name: str) -> Path:
        """Return where a marketplace is, or would be."""
        return self.root / name

    def make_staging(self) -> Path:
        """Make a folder with the folder `new` in it, on the same disk; the caller removes it.

        Raises:
            OSError
        """
        staging = make_staging(self.root / ".staging")
        (staging / "new").mkdir()
        return staging

    def put(self, staging: Path, name: str) -> None:
        """Put `new` in the place of a marketplace, whole; what was there is at `new` then.

        Raises:
            OSError: nothing has changed.
        """
        put_in_place(staging / "new", self.folder(name))

    def put_back(self, staging: Path, name: str) -> None:
        """Undo `put`.

        Raises:
            OSError
        """
        folder, old = self.folder(name), staging / "new"
        if old.exists():
            put_in_place(old, folder)
        else:
            folder.rename(old)

    def remove(self, name: str) -> Path | None:
        """Delete a marketplace; returns where it was, None if it was not there.

        Raises:
            OSError
        """
        folder = self.folder(name)
        if not folder.is_dir():
            return None
        staging = self.make_staging()
        try:
            folder.rename(staging / "old")
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return folder
