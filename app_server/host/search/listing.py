"""A list of paths, made ready for matching: in small letters without accents.

Source: docs/tools.md, "Host methods".
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeAlias


def fold(text: str) -> str:
    """Return a text of the same length in which letters are compared."""
    if text.isascii():
        return text.lower()
    return "".join(map(_fold_one, text))


def _fold_one(letter: str) -> str:
    # Some letters have several in small: each stays one, so that places stay what they are.
    return unicodedata.normalize("NFD", letter)[0].lower()[0]


Folder: TypeAlias = tuple[str, Sequence[str]]
"""Its path below the root with a slash behind it, empty for the root; the names of its files."""


class Listing:
    """Files and folders below one root. Never changes."""

    def __init__(self, root: str, folders: Iterable[Folder]) -> None:
        """Take the folders that are in `root`, and `root` itself, in any order."""
        self.root = root
        self._folders = list(folders)
        self.files: Sequence[str] = [
            prefix + name for prefix, names in self._folders for name in names
        ]
        self.folders: Sequence[str] = [prefix[:-1] for prefix, _ in self._folders if prefix]

    @cached_property
    def names(self) -> Sequence[str]:
        """The folded names of the files, in the order of the files."""
        return _fold_all([name for _, names in self._folders for name in names])

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
