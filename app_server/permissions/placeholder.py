"""Empty folders that stand for something protected that is not there, and how they are known.

Sandboxes make them (app_server/host/sandbox/linux/placeholders.py). They are on the disk while a
command runs, so whoever looks for a project's `.git`, `.codex` or `.agents` has to look past them.
Source: docs/tools.md, "Sandbox".
"""

import os
import stat
from pathlib import Path

MODE = stat.S_ISVTX | 0o755
"""Mode of a placeholder: no other program gives a folder for one user the sticky bit. Its user can
use it, should a server that was killed have left it behind."""


def is_placeholder(found: os.stat_result) -> bool:
    """Whether a folder is one, going by its mode."""
    return stat.S_ISDIR(found.st_mode) and found.st_mode & (stat.S_ISVTX | 0o022) == stat.S_ISVTX


def is_there(path: Path) -> bool:
    """Whether a path exists, also as a dangling link, and is no placeholder."""
    try:
        return not is_placeholder(path.lstat())
    except OSError:
        return False
