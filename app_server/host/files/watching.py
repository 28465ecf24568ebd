"""Watches of clients on paths, with one native watcher for all of them.

A folder is watched with what is directly in it, a file through its folder, since editors replace
files, and what does not exist through the nearest folder that does. When other folders are to be
watched, a second native watcher is begun before the first one is read for the last time, so that no
change falls between them.
Source: docs/tools.md, "Host methods"; https://watchfiles.helpmanuals.io/api/rust_backend/.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import anyio
import anyio.abc
import anyio.to_thread

from app_server.host.files.work import PathRefused
from app_server.observability.log_context import start_apart
from app_server.runtime.loader import load

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPath:
    """A path, as it was when it was looked at."""

    path: Path
    """As the client calls it."""
    folders: frozenset[str]
    """To be watched, each with what is directly in it."""
    names: frozenset[str]
    """The real paths behind the path; empty while its folder is missing."""
    signs: frozenset[str]
    """After changes of these there may be something else at the path."""
    inside: str | None
    """The real path of the folder at the path; None if there is no folder."""
    exists: bool

    def changed(self, changes: Set[str], by_folder: dict[str, list[str]]) -> Sequence[str]:
        """Return the changes to report: the path, and names in its folder."""
        changed = [str(self.path)] if changes & self.names else []
        if self.inside is not None:
            changed += [f"{self.path}/{name}" for name in by_folder.get(self.inside, ())]
        return changed

    def may_have_moved(self, changes: Set[str]) -> bool:
        """Whether other folders may have to be watched after these changes."""
        return bool(changes & (self.signs | self.folders))


def look_at(path: Path) -> WatchedPath:
    """Inspect a path and choose the folder to watch for it."""
    nearest = path.parent
    missing = path
    while not nearest.is_dir():
        nearest, missing = nearest.parent, nearest
    folder = os.path.realpath(nearest)
    named = os.path.join(folder, missing.name)  # noqa: PTH118
    real = os.path.realpath(path)
    is_folder, exists = path.is_dir(), path.exists()
    folders, names = {folder}, {named} if missing == path else set()
    if exists:
        folders.add(real if is_folder else os.path.dirname(real))  # noqa: PTH120
        names.add(real)
    if is_folder and real == named:
        # The end of a folder is reported to who watches it.
        folders.remove(folder)
    return WatchedPath(
        path=path,
        folders=frozenset(folders),
        names=frozenset(names),
        signs=frozenset({named, *names}),
        inside=real if is_folder else None,
        exists=exists,
    )


logger = logging.getLogger(__name__)

MAX_WATCHES = 64
"""Of one owner."""

MERGE_MS = 200
"""Changes within this time are reported together."""

STEP_MS = 50
"""Without a further change for this long, changes are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Times of a native watcher, which wakes up after each step."""

    step_ms: int = STEP_MS
    merge_ms: int = MERGE_MS
    wait_ms: int = MERGE_MS
    """Without a change for this long, the event loop has its turn."""


AT_ONCE = Pace()
"""For clients that show what a folder holds."""

MAX_PATHS = 1000
"""Reported at once; of more than these, the watched path alone is reported."""

MAX_CHARS = 256 * 1024
"""Of these paths together."""

AGAIN_S = 1.0
"""Before another native watcher is begun after one has failed."""

BEGIN_TRIES = 10
"""For folders that come and go while a watch begins."""

OnChange: TypeAlias = Callable[[Sequence[str]], None]
"""Takes the paths that changed, in order."""

Owner: TypeAlias = Hashable


@dataclass(slots=True, eq=False)
class _Watch:
    watched: WatchedPath
    on_change: OnChange


class FileWatches:
    """All watches of one server. Used from its event loop alone."""

    def __init__(self, tasks: anyio.abc.TaskGroup, pace: Pace = AT_ONCE) -> None:
        """`tasks` owns the reading of changes, which lasts as long as there are watches."""
        self._tasks = tasks
        self._pace = pace
        self._stop_waiting = threading.Event()
        """Set when the native watcher that is waited for is no longer the one to wait for."""
        self._watches: dict[Owner, dict[str, _Watch]] = {}
        self._native: list[RustNotify] = []
        """The newest watches `_folders`; older ones are to be read once more."""
        self._folders: frozenset[str] = frozenset()
        self._changing = anyio.Lock()
        self._is_reading = False
        self._thread = anyio.CapacityLimiter(1)

    async def add(self, owner: Owner, watch_id: str, path: Path, on_change: OnChange) -> None:
        """Watch a path: call `on_change` with each change from now on.

        Raises:
            PathRefused: the owner has a watch of this id, or MAX_WATCHES of them.
            OSError: the system has no more watches to give.
        """
        watched = await anyio.to_thread.run_sync(look_at, path)
        of_owner = self._watches.setdefault(owner, {})
        if watch_id in of_owner:
            raise PathRefused(f"watchId already exists: {watch_id}")
        if len(of_owner) >= MAX_WATCHES:
            raise PathRefused(f"a connection has at most {MAX_WATCHES} watches")
        watch = of_owner[watch_id] = _Watch(watched, on_change)
        try:
            await self._begin([watch])
        except BaseException:
            self.remove(owner, watch_id)
            raise
        self._read_soon()

    async def follow(self, owner: Owner, paths: Sequence[Path], on_change: OnChange) -> None:
        """Replace the watches of an owner by watches of these paths.

        The caller bounds the number of paths.

        Raises:
            OSError: the system has no more watches to give; the owner has none now.
        """
        all_watched = await anyio.to_thread.run_sync(_look_at_all, paths)
        self._watches[owner] = {
            str(watched.path): _Watch(watched, on_change) for watched in all_watched
        }
        try:
            await self._begin(list(self._watches[owner].values()))
        except BaseException:
            self.remove_all(owner)
            raise
        self._read_soon()

    def _read_soon(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            start_apart(self._tasks, self._read)

    def remove(self, owner: Owner, watch_id: str) -> None:
        """End one watch; it may be gone already."""
        of_owner = self._watches.get(owner, {})
        of_owner.pop(watch_id, None)
        if not of_owner:
            self._watches.pop(owner, None)

    def remove_all(self, owner: Owner) -> None:
        """End all watches of an owner."""
        self._watches.pop(owner, None)

    @property
    def count(self) -> int:
        """Watches of all clients."""
        return sum(map(len, self._watches.values()))

    def _all(self) -> list[_Watch]:
        return [watch for of_owner in self._watches.values() for watch in of_owner.values()]

    async def _begin(self, watches: Sequence[_Watch]) -> None:
        """Start missing watches; paths may change until they are watched."""
        for attempt in range(1, BEGIN_TRIES + 1):
            try:
                await self._follow()
            except FileNotFoundError:
                if attempt == BEGIN_TRIES:
                    raise
            moved = await self._move(watches)
            if not moved and all(watch.watched.folders <= self._folders for watch in watches):
                return

    async def _follow(self) -> None:
        """Have the folders of all watches watched, and no others."""
        async with self._changing:
            folders = frozenset[str]().union(*(watch.watched.folders for watch in self._all()))
            if folders == self._folders:
                return
            notify = await load(_rust_notify)

            def begin() -> "RustNotify":
                try:
                    return notify(sorted(folders), False, False, 0, False, True)
                except RuntimeError as exc:
                    # The system has a bound on native watchers of a user.
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from exc

            self._native.append(await anyio.to_thread.run_sync(begin))
            self._folders = folders
            self._stop_waiting.set()

    async def _read(self) -> None:
        try:
            while self._watches:
                try:
                    changes = await anyio.to_thread.run_sync(
                        self._wait, limiter=self._thread, abandon_on_cancel=True
                    )
                except RuntimeError as exc:
                    # The system's notifications failed: what changed meanwhile is not known.
                    logger.warning("changes of files may have been missed: %s", exc)
                    await self._begin_again()
                    continue
                changed = self._notify(changes)
                await self._look_again(changes, changed)
        finally:
            self._stop_waiting.set()
            self._is_reading = False
            self._native, self._folders = [], frozenset()

    async def _begin_again(self) -> None:
        """Watch with another native watcher, as soon as there is one, and have all look again."""
        self._native.clear()
        while self._watches and not self._native:
            await anyio.sleep(AGAIN_S)
            await self._look_again(frozenset(), frozenset())
        for watch in self._all():
            watch.on_change([str(watch.watched.path)])

    def _wait(self) -> frozenset[str]:
        """Wait for changes, for a bounded time; runs in a thread."""
        self._stop_waiting.clear()
        native = self._native
        while len(native) > 1:
            oldest = native.pop(0)
            changes = _read_native(oldest, Pace(step_ms=1, wait_ms=1), None)
            oldest.close()
            if changes:
                return changes
        return _read_native(native[0], self._pace, self._stop_waiting)

    def _notify(self, changes: frozenset[str]) -> Set[_Watch]:
        by_folder: dict[str, list[str]] = {}
        notified = set[_Watch]()
        for path in changes:
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder or "/", []).append(name)
        for watch in self._all():
            if changed := watch.watched.changed(changes, by_folder):
                watch.on_change(_bounded(str(watch.watched.path), changed))
                notified.add(watch)
        return notified

    async def _look_again(self, changes: frozenset[str], notified: Set[_Watch]) -> None:
        """Inspect watched paths again after a change, and watch what they are now.

        A watch in `notified` is not notified again that something has come or gone.
        """
        watches = [watch for watch in self._all() if watch.watched.may_have_moved(changes)]
        if not self._native or changes & self._folders:
            # What has the name of a watched folder may be another one now.
            self._folders = frozenset()
        existed = {watch: watch.watched.exists for watch in watches if watch not in notified}
        try:
            for _ in range(BEGIN_TRIES):
                moved = await self._move(watches)
                await self._follow()
                if not moved:
                    break
        except OSError:
            # A folder has gone since the look. Its end is among the changes to come.
            self._folders = frozenset()
        # Notified at last: what its owner does then is watched already.
        for watch in self._all():
            if watch in existed and watch.watched.exists != existed[watch]:
                watch.on_change([str(watch.watched.path)])

    async def _move(self, watches: Sequence[_Watch]) -> bool:
        """Look at paths again; says whether that makes a difference."""
        if not watches:
            return False
        paths = [watch.watched.path for watch in watches]
        all_watched = await anyio.to_thread.run_sync(_look_at_all, paths)
        moved = any(w.watched != watched for w, watched in zip(watches, all_watched, strict=True))
        for watch, watched in zip(watches, all_watched, strict=True):
            watch.watched = watched
        return moved


def _rust_notify() -> "type[RustNotify]":
    from watchfiles._rust_notify import RustNotify

    return RustNotify


def _look_at_all(paths: Sequence[Path]) -> list[WatchedPath]:
    return [look_at(path) for path in paths]


def _read_native(watcher: "RustNotify", pace: Pace, stop: threading.Event | None) -> frozenset[str]:
    found = watcher.watch(pace.merge_ms, pace.step_ms, pace.wait_ms, stop)
    return frozenset(path for _, path in found) if isinstance(found, set) else frozenset()


def _bounded(path: str, changed: Sequence[str]) -> Sequence[str]:
    if len(changed) > MAX_PATHS or sum(map(len, changed)) > MAX_CHARS:
        return [path]
    return sorted(set(changed))
