"""The files behind the settings of a loaded thread, looked at for changes between model requests.

A look takes a stat of each file on the event loop; only what has changed is read, in a worker.
Source: docs/config.md, "An edited file".
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread

from app_server.config.effective import Configuration
from app_server.config.unchanged import QUIET_S, Stamp, is_settled, stamp_of
from app_server.config.values import ChosenProfile, Config, ConfigError
from app_server.permissions.project_config import (
    ProjectLayer,
    project_files,
    read_project_layers,
)

UNSEEN = -1
"""No number of changes: whatever there is has not been seen."""

MAX_READS = 10
"""Of files that somebody writes all the time; then what was in force stays until the next look."""


class NewSettings(NamedTuple):
    """Settings of the files, without those of requests."""

    base: Config
    """Of the user and the administrator, with the command line on top."""
    projects: Sequence[ProjectLayer]
    chosen: ChosenProfile | None
    """The profile that the thread was loaded with."""


class LiveSettings:
    """The files of the user, the administrator and the project, for one thread."""

    def __init__(
        self, configuration: Configuration, folder: str, chosen: ChosenProfile | None = None
    ) -> None:
        """Prepare; the first look finds a change.

        `folder` is where the thread works, and `chosen` the profile of its own, if it has one.
        """
        self._chosen = chosen
        self._configuration = configuration
        self._folder = folder
        self._changes = UNSEEN
        """Changes of the files of all threads that were seen here."""
        self._files: Sequence[Path] = ()
        """The files that the project has or may get, and the thread's own profile."""
        self._stamps: Sequence[Stamp | None] | None = None
        """Of these files when they were read; None: they have to be read again."""
        self._seen: Mapping[Path, Stamp | None] | None = None
        """Stamps of all files at the last look, if an edit since then would have changed one."""

    async def changed(self) -> NewSettings | None:
        """Return the settings if they have changed and are usable, else None.

        One call at a time: what one reads is not new to another.

        All clients are warned of a file of the user or the administrator that cannot be used
        (app_server/handlers/server/lifecycle.py).

        Raises:
            ConfigError: a file of the project, or the thread's own profile, cannot be used.
        """
        for _ in range(MAX_READS):
            before = self._look()
            if before == self._seen:
                return None
            if (left_s := _unquiet_s(before)) > 0:
                await anyio.sleep(left_s)
                before = self._look()
            try:
                found = await self._read()
            except ConfigError:
                if before.items() <= self._look().items():
                    raise
            else:
                if before.items() <= self._look().items():
                    now_ns = time.time_ns()
                    is_sure = all(is_settled(stamp, now_ns) for stamp in before.values())
                    self._seen = before if is_sure else None
                    return found
            # It was written meanwhile: an editor may have begun with an empty file.
            self._changes = UNSEEN
        return None

    def forget(self) -> None:
        """Have the next look find a change: it is to be tried with other settings on top."""
        self._changes, self._seen = UNSEEN, None

    async def _read(self) -> NewSettings | None:
        try:
            base = await self._configuration.read_as_is()
        except ConfigError:
            return None
        changes = self._configuration.changes
        if changes == self._changes and self._stamps == [stamp_of(file) for file in self._files]:
            return None
        self._changes = changes
        return await anyio.to_thread.run_sync(self._read_own, base)

    def _look(self) -> Mapping[Path, Stamp | None]:
        """Stat the files of the user, and the project's that were read before."""
        return {file: stamp_of(file) for file in (*self._configuration.files, *self._files)}

    def _read_own(self, base: Config) -> NewSettings:
        files, now_ns = project_files(Path(self._folder)), time.time_ns()
        self._files = files if self._chosen is None else [*files, self._chosen.file]
        stamps = [stamp_of(file) for file in self._files]
        # What changes while it is read has another stamp by the next look.
        self._stamps = stamps if all(is_settled(stamp, now_ns) for stamp in stamps) else None
        projects = read_project_layers(base, self._folder)
        chosen = self._chosen
        return NewSettings(
            base, projects, None if chosen is None else self._configuration.read_again(chosen)
        )


def _unquiet_s(stamps: Mapping[Path, Stamp | None]) -> float:
    """Return for how long the file that was written last is to be left alone."""
    newest_ns = max(stamp.modified_ns if stamp else 0 for stamp in stamps.values())
    age_s = time.time() - newest_ns / 1e9
    return QUIET_S - age_s if 0 <= age_s < QUIET_S else 0
