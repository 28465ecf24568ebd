"""Makes folders that survive a loss of power. Everything here blocks."""

import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Write the entries of a folder to the disk.

    Raises:
        OSError: the disk refused.
    """
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, and write their entries to the disk.

    Raises:
        OSError: one of them cannot be made.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)
