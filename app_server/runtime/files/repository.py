"""Which folders Git takes for repositories. Everything here blocks.

Source: gitrepository-layout(5).
"""

from pathlib import Path

MAX_ANCESTORS = 64
"""Folders that are looked at, from one up to the root of its repository."""


def is_repository(folder: Path) -> bool:
    """Whether a folder has a `.git` that Git would take for one.

    An empty one, as a sandbox makes it where nothing may be made, is none.
    """
    git = folder / ".git"
    try:
        return git.is_file() or (git / "HEAD").is_file()
    except OSError:
        # What may not be looked at is nobody's project.
        return False


def repository_of(folder: Path) -> Path | None:
    """Return the nearest folder, itself or above, that is a repository."""
    return next(filter(is_repository, (folder, *folder.parents)[:MAX_ANCESTORS]), None)


def folders_of_project(folder: Path) -> list[Path]:
    """Return a folder and its parents up to its repository, the nearest first.

    Outside of repositories that is the folder alone.
    """
    root = repository_of(folder)
    if root is None:
        return [folder]
    ancestors = [folder, *folder.parents]
    return ancestors[: ancestors.index(root) + 1]
