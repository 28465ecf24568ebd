"""Folders in which something is put together before it is moved to its place as a whole.

Everything here blocks: call it in a worker thread.
Source: docs/plugins.md, "Installing", "Repositories".
"""

import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

LEFT_AFTER_S = 3_600.0
"""A folder that is older was left by a process that was killed."""


def make_staging(parent: Path) -> Path:
    """Make a folder of its own below `parent`, and delete what was left there long ago.

    Raises:
        OSError
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in parent.iterdir():
        # Another process may clear away, too.
        with suppress(FileNotFoundError):
            if folder.lstat().st_mtime < time.time() - LEFT_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=parent))
