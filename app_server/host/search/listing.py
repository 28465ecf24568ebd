"""A list of paths, made ready for matching: sorted, and in small letters without accents.

Source: docs/tools.md, "Host methods".
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property


def fold(text: str) -> str:
    """Return a text of the same length in which letters are compared."""
    if text.isascii():
        return text.lower()
    return "".join(map(_fold_one, text))


def _fold_one(letter: str) -> str:
    # Some letters have several in small: each stays one, so that places stay what they are.
    return unicodedata.normalize("NFD", letter)[0].lower()[0]


class Listing:
    """Files and folders below one root. Never changes."""

    def __init__(self, root: str, files: Iterable[str], folders: Iterable[str]) -> None:
        """Take paths below `root`, in any order."""
        self.root = root
        self.files: Sequence[str] = sorted(files)
        self.folders: Sequence[str] = sorted(folders)

    @cached_property
    def names(self) -> Sequence[str]:
        """The folded names of the files, in the order of the files."""
        return [path[path.rfind("/") + 1 :] for path in _fold_all(self.files)]

    @cached_property
    def paths(self) -> Sequence[str]:
        """The folded paths of the files, then those of the folders, in their orders."""
        return [*_fold_all(self.files), *self.folded_folders]

    @cached_property
    def folded_folders(self) -> Sequence[str]:
        """The folded paths of the folders, in their order."""
        return _fold_all(self.folders)

    def path(self, place: int) -> str:
        """Return what stands at a place of `paths`, as it is written."""
        count = len(self.files)
        return self.files[place] if place < count else self.folders[place - count]

    def is_file(self, place: int) -> bool:
        """Whether a file stands at a place of `paths`."""
        return place < len(self.files)


def _fold_all(texts: Sequence[str]) -> Sequence[str]:
    # One call for all is ten times as fast; no path has a NUL.
    joined = "\0".join(texts)
    if not texts or not joined.isascii():
        return [fold(text) for text in texts]
    return joined.lower().split("\0")
