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
"""Files and folders that are watched: those of the server, then of plugins, then the profiles of
threads, then those of projects."""

MAX_TRIES = 10
"""Of watching folders that come and go meanwhile."""

_Place: TypeAlias = tuple[str, Path | None]
"""The folder of a thread, and the file of the profile that it was loaded with."""

MakeWatches: TypeAlias = "Callable[[anyio.abc.TaskGroup], FileWatches]"


class SettingsWatch:
    """The watch of one server's files, from the first loaded thread on."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stirred = anyio.Event()
        """Set when there may be something that threads have not followed."""
        self._plugins_changed = False
        self._watches: FileWatches | None = None
        self._places: frozenset[_Place] = frozenset()
        """Of the threads whose files are watched."""
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
            places = self._places_of_threads()
            if not places <= self._places:
                is_first = not self._places
                await self._watch(places)
                # What was changed before is looked for once more.
                self._plugins_changed |= is_first
                self._stir()

    async def _follow(self) -> None:
        services = self._services
        if self._plugins_changed:
            # Folders that are new are watched before they are read.
            await self._watch(self._places_of_threads())
            self._plugins_changed = False
            await services.plugins.load()
        # Whoever reads a file that cannot be used has the clients warned.
        with suppress(ConfigError, LoadFailed):
            await services.configuration.read()
        await services.sessions.follow_files()

    def _places_of_threads(self) -> frozenset[_Place]:
        return frozenset(
            (session.log.state.settings.cwd, session.servers.profile_file)
            for session in self._services.sessions
        )

    async def _watch(self, places: frozenset[_Place]) -> None:
        """Have watched what the server, the projects and the threads have files in."""
        async with self._watching:
            try:
                if self._watches is None:
                    self._watches = (await load(_make_watches))(self._services.tasks)
                before, found = None, None
                for _ in range(MAX_TRIES):
                    # What came before its folder was watched is found by another look.
                    before, found = (
                        found,
                        await anyio.to_thread.run_sync(self._wanted, [*places]),
                    )
                    if found == before:
                        break
                    await self._watches.follow("settings", found[0], self._settings_stirred)
                    await self._watches.follow("plugins", found[1], self._plugins_stirred)
                self._places = places
            except (LoadFailed, OSError) as exc:
                if not self._has_failed:
                    logger.warning("edits of settings are noticed with the next request: %s", exc)
                self._has_failed = True

    def _wanted(self, places: Sequence[_Place]) -> tuple[Sequence[Path], Sequence[Path]]:
        services = self._services
        own, plugins = services.configuration.files, services.plugins.store.folders()
        plugins = plugins[: MAX_PATHS - len(own)]
        profiles = sorted({profile for _, profile in places if profile is not None})
        folders = sorted({folder for folder, _ in places})
        projects = [file for folder in folders for file in project_files(Path(folder))]
        left = MAX_PATHS - len(own) - len(plugins)
        return [*dict.fromkeys([*own, *[*profiles, *projects][:left]])], plugins


def _make_watches() -> MakeWatches:
    # With the first thread.
    from app_server.host.files.watching import FileWatches, Pace

    pace = Pace(step_ms=STEP_MS, merge_ms=MERGE_MS, wait_ms=WAIT_MS)
    return partial(FileWatches, pace=pace)
