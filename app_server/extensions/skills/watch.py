"""Notices when skills change on disk.

Source: docs/skills.md, "Changes".
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import anyio
import anyio.abc
import anyio.to_thread

from app_server.observability.log_context import start_apart
from app_server.runtime.loader import LoadFailed, load

logger = logging.getLogger(__name__)

MAX_ROOTS = 256
"""Folders that are watched; of more, the ones last asked about."""

QUIET_MS = 200
"""Changes that follow each other within this time are one."""


def _watchfiles() -> ModuleType:
    import watchfiles

    return watchfiles


class SkillWatch:
    """Watches the roots that somebody asked about, from the first of them on."""

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
