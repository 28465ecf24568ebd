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
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    # After all are made: the first takes the others along, and a disk is waited for once.
    for folder in reversed(missing):
        sync_folder(folder.parent)
