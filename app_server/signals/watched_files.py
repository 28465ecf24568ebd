"""Files that wake threads: what each was, and what has happened to it since.

The native watcher only says when to look: what has changed is what a look finds, so a change while
no server ran is found too, and one that was taken back is not.
Source: docs/wakes.md, "Files".
"""

import stat
from pathlib import Path
from typing import Literal, TypeAlias

import anyio.abc
import anyio.to_thread

from app_server.host.files.watching import FileWatches, Pace
from app_server.threads.wakes import StoredWake

Change: TypeAlias = Literal["created", "modified", "deleted"]

PACE = Pace(wait_ms=1000)

ABSENT = ""


def look_at(path: Path) -> str:
    """Describe what is at a path, so that a change makes another text; ABSENT: nothing. Blocks.

    Size and time of a file, and of a folder what is directly in it, as its time says.

    Raises:
        OSError: it cannot be seen.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    size = 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    return f"{found.st_ino}:{found.st_mtime_ns}:{size}"


def change_between(before: str, now: str) -> Change | None:
    """Return what has happened between two looks."""
    if before == now:
        return None
    if before == ABSENT:
        return "created"
    return "deleted" if now == ABSENT else "modified"


class WatchedFiles:
    """The paths of wakes, watched by this server."""

    def __init__(self, tasks: anyio.abc.TaskGroup, changed: anyio.Event) -> None:
        """`tasks` owns the watcher."""
        self._watches = FileWatches(tasks, PACE)
        self._watched = set[str]()
        self.changed = changed
        """Set with each change; whoever waits for it puts the next one here."""
        self.touched = set[str]()
        """Ids of wakes whose paths may have changed since they were last looked at."""

    async def watch(self, wake_id: str, path: Path) -> None:
        """Watch the path of a wake; it counts as touched, as it may have changed before.

        Raises:
            OSError: the system has no more watches to give.
        """

        def note(_: object) -> None:
            self.touched.add(wake_id)
            self.changed.set()

        await self._watches.add(wake_id, "wake", path, note)
        self._watched.add(wake_id)
        self.touched.add(wake_id)

    def is_watched(self, wake_id: str) -> bool:
        """Whether the path of a wake is watched."""
        return wake_id in self._watched

    def keep(self, wakes: set[str]) -> None:
        """End the watches of all other wakes."""
        for wake_id in self._watched - wakes:
            self.end(wake_id)

    def end(self, wake_id: str) -> None:
        """End the watch of a wake; it may be gone already."""
        self._watches.remove_all(wake_id)
        self._watched.discard(wake_id)
        self.touched.discard(wake_id)


async def news_of(wake: StoredWake, path: Path) -> tuple[str, Change | None]:
    """Look at the path of a wake; return what it is now, and what has happened to it.

    Raises:
        OSError: it cannot be seen.
    """
    now = await anyio.to_thread.run_sync(look_at, path)
    return now, change_between(wake.seen, now)
