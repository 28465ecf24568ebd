"""Why something is not done to a file, where the system has no word for it."""

import os
from pathlib import Path


class PathRefused(Exception):
    """The request makes no sense for what is at the path; the text says why."""


def refuse_database(
    path: str | Path, found: os.stat_result, in_use: frozenset[tuple[int, int]]
) -> None:
    """Refuse a file of a database that the server has open (`runtime/files/open_databases.py`).

    Raises:
        PathRefused: it is one.
    """
    if (found.st_dev, found.st_ino) in in_use:
        raise PathRefused(
            f"path `{path}` is a database that this server has open: "
            "copy it when the server has stopped"
        )
