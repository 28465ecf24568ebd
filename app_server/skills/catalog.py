"""The skills that a folder has: its project's, its user's, and those of roots that a client added.

Files are read for every question; nothing is kept that could be out of date. Light: what reads them
is imported with the first question.
Source: docs/skills.md.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.abc
import anyio.to_thread

from app_server.runtime.loader import load
from app_server.skills.watch import SkillWatch

if TYPE_CHECKING:
    from app_server.skills.folders import Skills

MAX_EXTRA_ROOTS = 64


class SkillCatalog:
    """Finds skills, and notices when they change."""

    def __init__(
        self,
        home: Path,
        user_home: Path,
        tasks: anyio.abc.TaskGroup,
        changed: Callable[[], None],
    ) -> None:
        """`tasks` owns the watching; `changed` is called after a change, and never waits."""
        self._home = home.absolute()
        self._user_home = user_home
        self._changed = changed
        self._extra: tuple[Path, ...] = ()
        self._watch = SkillWatch(tasks, changed)

    @property
    def extra_roots(self) -> Sequence[Path]:
        """Folders that a client added; they are forgotten when the server ends."""
        return self._extra

    def set_extra_roots(self, roots: Sequence[Path]) -> None:
        """Replace the folders that a client added; one that is not there has no skills."""
        if tuple(roots) != self._extra:
            self._extra = tuple(roots)
            self._changed()

    async def of(self, folders: Sequence[Path], *, watch: bool = True) -> "list[Skills]":
        """Read the skills of each folder; with `watch` changes of them are noticed from now on."""
        read = await load(_reader)
        roots, skills = await anyio.to_thread.run_sync(
            partial(read, folders, self._home, self._user_home, self._extra)
        )
        if watch:
            self._watch.follow(roots)
        return skills


def _reader() -> "Callable[..., tuple[Sequence[Path], list[Skills]]]":
    from app_server.skills.folders import read_folders

    return read_folders
