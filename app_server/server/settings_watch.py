"""Has loaded threads follow the files of their settings, and the plugins in the home.

Running turns look at the files before each of their model requests; this is for idle threads, and
for clients, which are warned of a broken file when it is saved.
Source: docs/config.md, "An edited file".
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import anyio
import anyio.to_thread

from app_server.config.values import ConfigError
from app_server.handlers.services import Services
from app_server.permissions.project_config import project_files
from app_server.runtime.loader import LoadFailed, load

if TYPE_CHECKING:
    from app_server.host.files.watching import FileWatches

logger = logging.getLogger(__name__)

STEP_MS = 1000
"""Between two looks of the native watcher, which keep the processor awake; and the time for which a
file must be left alone before it is read."""

MERGE_MS = 5000
"""A file that is written without a pause is read all the same after this time."""

WAIT_MS = 60_000
"""Without a change for this long, the event loop has its turn."""

MAX_PATHS = 2048
"""Files and folders that are watched: those of the server, then of plugins, then of projects."""

MAX_TRIES = 10
"""Of watching folders that come and go meanwhile."""

MakeWatches: TypeAlias = "Callable[[anyio.abc.TaskGroup], FileWatches]"


class SettingsWatch:
    """The watch of one server's files, from the first loaded thread on."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stirred = anyio.Event()
        """Set when there may be something that threads have not followed."""
        self._plugins_changed = False
        self._watches: FileWatches | None = None
        self._folders: frozenset[str] = frozenset()
        """Of the threads whose projects are watched."""
        self._watching = anyio.Lock()
        self._has_failed = False

    async def run(self) -> None:
        """Watch until cancelled."""
        self._services.configuration.on_change(self._stir)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_with_threads)
            while True:
                await self._stirred.wait()
                self._stirred = anyio.Event()
                await self._follow()

    def _stir(self) -> None:
        self._stirred.set()

    def _settings_stirred(self, _: Sequence[str]) -> None:
        self._stir()

    def _plugins_stirred(self, _: Sequence[str]) -> None:
        self._plugins_changed = True
        self._stir()

    async def _watch_with_threads(self) -> None:
        sessions = self._services.sessions
        while True:
            await sessions.loaded.wait()
            sessions.loaded = anyio.Event()
            folders = self._folders_of_threads()
            if not folders <= self._folders:
                is_first = not self._folders
                await self._watch(folders)
                # What was changed before is looked for once more.
                self._plugins_changed |= is_first
                self._stir()

    async def _follow(self) -> None:
        services = self._services
        if self._plugins_changed:
            # Folders that are new are watched before they are read.
            await self._watch(self._folders_of_threads())
            self._plugins_changed = False
            await services.plugins.load()
        # Whoever reads a file that cannot be used has the clients warned.
        with suppress(ConfigError, LoadFailed):
            await services.configuration.read()
        await services.sessions.follow_files()

    def _folders_of_threads(self) -> frozenset[str]:
        return frozenset(session.log.state.settings.cwd for session in self._services.sessions)

    async def _watch(self, folders: frozenset[str]) -> None:
        """Have watched what the server and the projects in folders have files in."""
        async with self._watching:
            try:
                if self._watches is None:
                    self._watches = (await load(_make_watches))(self._services.tasks)
                before, found = None, None
                for _ in range(MAX_TRIES):
                    # What came before its folder was watched is found by another look.
                    before, found = (
                        found,
                        await anyio.to_thread.run_sync(self._wanted, sorted(folders)),
                    )
                    if found == before:
                        break
                    await self._watches.follow("settings", found[0], self._settings_stirred)
                    await self._watches.follow("plugins", found[1], self._plugins_stirred)
                self._folders = folders
            except (LoadFailed, OSError) as exc:
                if not self._has_failed:
                    logger.warning("edits of settings are noticed with the next request: %s", exc)
                self._has_failed = True

    def _wanted(self, folders: Sequence[str]) -> tuple[Sequence[Path], Sequence[Path]]:
        services = self._services
        own, plugins = services.configuration.files, services.plugins.store.folders()
        plugins = plugins[: MAX_PATHS - len(own)]
        projects = [file for folder in folders for file in project_files(Path(folder))]
        left = MAX_PATHS - len(own) - len(plugins)
        return [*dict.fromkeys([*own, *projects[:left]])], plugins


def _make_watches() -> MakeWatches:
    # With the first thread.
    from app_server.host.files.watching import FileWatches, Pace

    pace = Pace(step_ms=STEP_MS, merge_ms=MERGE_MS, wait_ms=WAIT_MS)
    return partial(FileWatches, pace=pace)
