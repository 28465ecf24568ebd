"""Paths as people write them, with `~` for a home folder."""

import os
from pathlib import Path


def expand_user(path: str | Path) -> Path:
    """Put home folders in the place of `~` and `~NAME` at the beginning.

    Where there is no such user, or no home folder, the path stays as it is, as in shells;
    `Path.expanduser` raises RuntimeError then.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111
