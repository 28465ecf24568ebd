"""The skills that a folder has: its project's, its user's, and those of roots that a client added.

Files are read for every question; nothing is kept that could be out of date.
Source: docs/skills.md.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio.abc
import anyio.to_thread

from app_server.extensions.skills.folders import (
    Found,
    Root,
    Skills,
    project_roots,
    read_roots,
    user_roots,
)
from app_server.extensions.skills.watch import SkillWatch

MAX_EXTRA_ROOTS = 64

OfPlugins: TypeAlias = Callable[[Mapping[str, Any], str | None], Sequence[Found]]
"""Gives the skills of the plugins that settings, and perhaps a thread, have."""


class SkillCatalog:
    """Finds skills, and notices when they change."""

    def __init__(
        self,
        home: Path,
        user_home: Path,
        of_plugins: OfPlugins,
        tasks: anyio.abc.TaskGroup,
        changed: Callable[[], None],
    ) -> None:
        """`tasks` owns the watching; `changed` is called after a change, and never waits."""
        self._home = home.absolute()
        self._user_home = user_home
        self._of_plugins = of_plugins
        self._changed = changed
        self._extra: tuple[Path, ...] = ()
        self._watch = SkillWatch(tasks, changed)

    def set_extra_roots(self, roots: Sequence[Path]) -> None:
        """Replace the folders that a client added, until the server ends.

        One that is not there has no skills.
        """
        if tuple(roots) != self._extra:
            self._extra = tuple(roots)
            self._changed()

    async def of(self, folders: Sequence[Path], settings: Mapping[str, Any]) -> list[Skills]:
        """Read the skills of each folder; changes of them are noticed from now on."""
        read = partial(self._read, folders)
        roots, skills = await anyio.to_thread.run_sync(read)
        self._watch.follow(roots)
        of_plugins = self._of_plugins(settings, None)
        return [Skills([*one.found, *of_plugins], one.problems) for one in skills]

    def enabled(
        self, folder: Path | None, settings: Mapping[str, Any], thread_id: str
    ) -> list[Found]:
        """Read the skills that are on for a thread. This blocks: call it in a worker thread."""
        roots = [*(project_roots(folder) if folder is not None else ()), *self._shared()]
        found = [*read_roots(roots).found, *self._of_plugins(settings, thread_id)]
        return [one for one in found if one.is_enabled(settings)]

    def _read(self, folders: Sequence[Path]) -> tuple[Sequence[Path], list[Skills]]:
        shared = self._shared()
        per_folder = [[*project_roots(folder), *shared] for folder in folders]
        every = dict.fromkeys(root.path for roots in per_folder for root in roots)
        return list(every), [read_roots(roots) for roots in per_folder]

    def _shared(self) -> Sequence[Root]:
        return user_roots(self._home, self._user_home, self._extra)
