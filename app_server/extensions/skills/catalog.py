"""Skills of a folder: its project's, its user's, and those of roots that a client added.

Files are read for every question; nothing is kept that could be out of date.
Source: docs/skills.md.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import anyio
import anyio.abc
import anyio.to_thread

from app_server.extensions.skills.folders import (
    FoundSkill,
    SkillRoot,
    Skills,
    project_roots,
    read_roots,
    user_roots,
)
from app_server.observability.log_context import start_apart
from app_server.runtime.loader import LoadFailed, load

MAX_EXTRA_ROOTS = 64

PluginSkills: TypeAlias = Callable[[Mapping[str, Any], str | None], Sequence[FoundSkill]]
"""Gives the skills of the plugins that settings, and perhaps a thread, have."""


class SkillCatalog:
    """Finds skills, and notices when they change."""

    def __init__(
        self,
        home: Path,
        user_home: Path,
        of_plugins: PluginSkills,
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
    ) -> list[FoundSkill]:
        """Read the skills that are on for a thread. This blocks: call it in a worker thread."""
        roots = [*(project_roots(folder) if folder is not None else ()), *self._shared()]
        found = [*read_roots(roots).found, *self._of_plugins(settings, thread_id)]
        return [one for one in found if one.is_enabled(settings)]

    def _read(self, folders: Sequence[Path]) -> tuple[Sequence[Path], list[Skills]]:
        shared = self._shared()
        per_folder = [[*project_roots(folder), *shared] for folder in folders]
        every = dict.fromkeys(root.path for roots in per_folder for root in roots)
        return list(every), [read_roots(roots) for roots in per_folder]

    def _shared(self) -> Sequence[SkillRoot]:
        return user_roots(self._home, self._user_home, self._extra)


logger = logging.getLogger(__name__)

MAX_ROOTS = 256
"""Folders that are watched; of more, the ones last asked about."""

QUIET_MS = 200
"""Changes that follow each other within this time are one."""


def _watchfiles() -> ModuleType:
    import watchfiles

    return watchfiles


class SkillWatch:
    """Watch the roots of skills, from the first query on."""

    def __init__(self, tasks: anyio.abc.TaskGroup, notify: Callable[[], None]) -> None:
        """`tasks` owns the watching; `notify` is called after a change, and never waits."""
        self._tasks = tasks
        self._notify = notify
        self._roots: OrderedDict[Path, None] = OrderedDict()
        self._restart: anyio.Event | None = None

    def follow(self, roots: Sequence[Path]) -> None:
        """Watch these roots too; never waits. One that is not there yet is noticed when it is."""
        new = [root for root in roots if root not in self._roots]
        for root in roots:
            self._roots[root] = None
            self._roots.move_to_end(root)
        while len(self._roots) > MAX_ROOTS:
            self._roots.popitem(last=False)
        if not new:
            return
        if self._restart is None:
            self._restart = anyio.Event()
            start_apart(self._tasks, self._watch)
        else:
            self._restart.set()

    async def _watch(self) -> None:
        try:
            watchfiles = await load(_watchfiles)
            before: set[Path] | None = None
            while True:
                self._restart = restart = anyio.Event()
                there, coming = await anyio.to_thread.run_sync(_places, list(self._roots))
                if before is not None and there != before:
                    self._notify()
                before = there
                async with anyio.create_task_group() as tasks:
                    if there:
                        tasks.start_soon(self._watch_whole, watchfiles, there, restart)
                    if coming:
                        tasks.start_soon(_wait_for, watchfiles, coming, restart)
                    try:
                        await restart.wait()
                    finally:
                        # Threads that watch notice this at once, and a cancellation after 5 s.
                        restart.set()
        except (LoadFailed, OSError) as exc:
            logger.warning("changes of skills are not noticed: %s", exc)
            self._restart = None

    async def _watch_whole(
        self, watchfiles: ModuleType, roots: set[Path], restart: anyio.Event
    ) -> None:
        options = {"watch_filter": None, "debounce": QUIET_MS, "stop_event": restart}
        async for _ in watchfiles.awatch(*roots, ignore_permission_denied=True, **options):
            self._notify()
            if not await anyio.to_thread.run_sync(lambda: all(root.is_dir() for root in roots)):
                restart.set()


async def _wait_for(watchfiles: ModuleType, roots: set[Path], restart: anyio.Event) -> None:
    """Set `restart` when the next folder on the way to one of the roots is made."""
    expected: set[str] = set()
    parents: set[Path] = set()
    for root in roots:
        child = root
        while not child.parent.is_dir():
            child = child.parent
        expected.add(str(child))
        parents.add(child.parent)
    options = {"recursive": False, "debounce": QUIET_MS, "stop_event": restart}
    changes = watchfiles.awatch(
        *parents,
        watch_filter=lambda change, path: path in expected,
        ignore_permission_denied=True,
        **options,
    )
    async for _ in changes:
        restart.set()


def _places(roots: Sequence[Path]) -> tuple[set[Path], set[Path]]:
    """Split roots into existing and missing ones."""
    there = {root for root in roots if root.is_dir()}
    return there, {root for root in roots if root not in there}
