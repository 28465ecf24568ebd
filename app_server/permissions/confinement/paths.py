"""Absolute paths as texts: what is in what, how deep, and which names may be the same."""

import unicodedata


def is_in(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder, or something in it."""
    return folder in ("/", path) or path.startswith(f"{folder}/")


def depth_of(path: str) -> int:
    """Return how many folders an absolute path has; 0 for the root."""
    return 0 if path == "/" else path.count("/")


def folded(text: str) -> str:
    """Return one form of names that some file systems take for one: case, composed letters."""
    return unicodedata.normalize("NFD", text).casefold()


def ways_to(path: str) -> list[str]:
    """Return the folders that an absolute path is in, nearest first, `/` last."""
    ways = []
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        ways.append(path)
    return ways
