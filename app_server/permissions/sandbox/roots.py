"""Roots of sandbox policies, pinned by device and inode, and the secrets of this machine.

A process in a sandbox cannot swap a pinned root for another folder. A file of the home keeps the
identities over restarts. `MachinePaths` has the home, temporary folders and secrets.
Source: docs/tools.md, "Roots are pinned", "Sandbox".
"""

import json
import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from app_server.config.values import Config
from app_server.permissions.sandbox.paths import is_in, ways_to
from app_server.runtime.files.disk import sync_folder
from app_server.runtime.files.opening import open_regular
from app_server.runtime.files.secret import StoreFailed, lock_held, write_private
from app_server.runtime.user_paths import expand_user

logger = logging.getLogger(__name__)

Identity: TypeAlias = tuple[int, int]
"""Device and inode of a folder."""

NOT_A_FOLDER: Identity = (0, 0)
"""Identity of a file: saving it often replaces its inode."""

MAX_LINKS = 40
"""On the way to one path, as Linux has it."""


@dataclass(frozen=True, slots=True)
class ResolvedRoot:
    """Result of resolving a path."""

    real: str
    identity: Identity | None
    """None: nothing was there."""
    through: tuple[str, ...]
    """The folders in which the parts of the path were looked up, those of links included; the
    folders that these are in were passed too."""
    links: tuple[str, ...] = field(default=(), compare=False)
    """Folders of `through` in which a part of the path was a link."""
    is_stored: bool = field(default=False, compare=False)
    """Whether it was read from a file, and not seen since."""


def look(path: str) -> ResolvedRoot:
    """Follow the links of an absolute path, and return its target and identity."""
    here, followed = "/", 0
    through: dict[str, None] = {}
    links: dict[str, None] = {}
    ahead = deque(_parts(path))
    while ahead:
        name = ahead.popleft()
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - texts, for speed
            continue
        through.pop(os.path.dirname(here), None)  # noqa: PTH120
        through[here] = None
        there = f"{here.rstrip('/')}/{name}"
        try:
            target = None if followed >= MAX_LINKS else os.readlink(there)  # noqa: PTH115
        except (OSError, ValueError):
            target = None
        if target is None:
            here = there
            continue
        followed += 1
        links[here] = None
        if target.startswith("/"):
            here = "/"
        ahead.extendleft(reversed(_parts(target)))
    return ResolvedRoot(here, _identity(here), tuple(through), tuple(links))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _identity(path: str) -> Identity | None:
    """Return the identity of a path; None for a link."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return identity_of(found)


def identity_of(found: os.stat_result) -> Identity | None:
    """Return the identity by which something is pinned; None for a link, which never is."""
    if stat.S_ISDIR(found.st_mode):
        return found.st_dev, found.st_ino
    return None if stat.S_ISLNK(found.st_mode) else NOT_A_FOLDER


FILE = "places.jsonl"
"""In a server's home."""

LOCK = "index/places.lock"

LOCK_S = 5.0
"""For other servers of the home, which write for milliseconds."""

MAX_BYTES = 32 << 20
"""Bytes read of a file; what it has beyond is not known."""

FULL_BYTES = 8 << 20
"""Of a file that is written anew, as it says much twice."""


Entry: TypeAlias = tuple[str, ResolvedRoot] | frozenset[str]
"""A path and its target, or folders that a process in a sandbox can write to."""


class PinnedRootsFile:
    """File of pinned roots, which all servers of a home append to. All methods block."""

    def __init__(self, home: Path, *, lock_s: float = LOCK_S, full_bytes: int = FULL_BYTES) -> None:
        """Wait for others for `lock_s`; a file of `full_bytes` is written anew."""
        self._lock_s = lock_s
        self._full_bytes = full_bytes
        self._path = home / FILE
        self._lock = home / LOCK
        self._seen = (0, 0)
        """The inode of the file and its size, when it was looked at last."""
        self._offset = 0
        """Up to where it is known, in bytes."""

    def news(self) -> list[Entry]:
        """Return the entries since the last call; damaged lines are left out."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - once for each place, for speed
        except OSError:
            return []
        if self._seen == (found.st_ino, found.st_size):
            return []
        return self._read()

    def add(self, entries: Sequence[Entry], everything: Iterable[Entry]) -> list[Entry]:
        """Append, or write `everything` where the file is full; gives what others had appended.

        Raises:
            StoreFailed: the disk refused, or the file is no regular one.
        """
        with lock_held(self._lock, self._lock_s):
            news = self.news()
            if self._offset > self._full_bytes:
                self._write([*everything, *news, *entries])
            else:
                self._append(b"".join(map(_line, entries)))
        return news

    def write(self, everything: Iterable[Entry]) -> list[Entry]:
        """Write the file anew; gives what others had appended, which is in it too.

        Raises:
            StoreFailed: the disk refused.
        """
        with lock_held(self._lock, self._lock_s):
            news = self.news()
            self._write([*everything, *news])
        return news

    def _read(self) -> list[Entry]:
        try:
            file = open_regular(self._path)
        except OSError as exc:
            logger.warning("the pinned places of %s cannot be read: %s", self._path, exc.strerror)
            return []
        if file is None:
            return []
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._seen[0] or found.st_size < self._offset:
                self._offset = 0
            self._seen = found.st_ino, found.st_size
            file.seek(self._offset)
            text = file.read(MAX_BYTES)
        end = text.rfind(b"\n") + 1
        self._offset += end
        entries = [_entry(line) for line in text[:end].splitlines() if line]
        if None in entries:
            logger.warning("%d lines of %s are damaged", entries.count(None), self._path)
        return [entry for entry in entries if entry is not None]

    def _append(self, lines: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                number = file.fileno()
                found = os.fstat(number)
                is_whole = not found.st_size or os.pread(number, 1, found.st_size - 1) == b"\n"
                file.write(lines if is_whole else b"\n" + lines)
                file.flush()
                os.fsync(number)
                self._offset = os.fstat(number).st_size
                self._seen = found.st_ino, self._offset
            sync_folder(self._path.parent)
        except OSError as exc:
            raise StoreFailed(f"{self._path}: {exc.strerror}") from exc

    def _write(self, entries: Iterable[Entry]) -> None:
        lines = list(map(_line, entries))
        size = sum(map(len, lines))
        first = 0
        while size > self._full_bytes:
            size -= len(lines[first])
            first += 1
        write_private(self._path, b"".join(lines[first:]))
        self._offset = size
        try:
            self._seen = self._path.stat().st_ino, size
        except OSError as exc:
            raise StoreFailed(f"{self._path}: {exc.strerror}") from exc


def _line(entry: Entry) -> bytes:
    document: dict[str, Any]
    if isinstance(entry, frozenset):
        document = {"writable": sorted(entry)}
    else:
        path, pinned = entry
        document = {
            "path": path,
            "real": pinned.real,
            "identity": pinned.identity,
            "through": pinned.through,
        }
    return json.dumps(document).encode() + b"\n"


def _entry(line: bytes) -> Entry | None:
    """Read a line; None for one that is damaged."""
    try:
        found = json.loads(line)
        if "writable" in found:
            return frozenset(_texts(found["writable"]))
        identity = found["identity"]
        if identity is not None:
            device, inode = identity
            identity = int(device), int(inode)
        path, real = _texts([found["path"], found["real"]])
        return path, ResolvedRoot(real, identity, _texts(found["through"]), is_stored=True)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _texts(found: Sequence[Any]) -> tuple[str, ...]:
    if not all(isinstance(text, str) and text.startswith("/") for text in found):
        raise ValueError
    return tuple(found)


T = TypeVar("T")


MAX_PINNED = 4096
"""Paths that are remembered, and folders that are known to be writable in a sandbox."""


class RootChanged(Exception):
    """A root is another folder than it was; the text names it, and says what to do."""


class PinnedRoots:
    """Pinned roots of one home, also after a restart. All methods block, and may run in threads.

    A root is pinned when it is first named. After that it is a folder of the same identity, at the
    same real path, or it is refused. A root that no sandbox can have changed is pinned anew.
    """

    def __init__(self, file: PinnedRootsFile | None = None, max_pinned: int = MAX_PINNED) -> None:
        """With a file all servers of its home know the same; without one this ends with `self`.

        At most `max_pinned` paths of each kind are held.
        """
        self._file = file
        self._max_pinned = max_pinned
        self._pinned: dict[str, ResolvedRoot] = {}
        """By the path as it was given, the one used last at the end."""
        self._looked_at: dict[str, ResolvedRoot] = {}
        """Paths that no policy has named so far. A model may name any number of them, which must
        not evict the roots of policies."""
        self._checked: dict[str, None] = {}
        """The paths of `checked`, the one used last at the end."""
        self._reach: set[str] = set()
        """Folders that a process in a sandbox could write to."""
        self._is_behind = False
        """Whether the file could not be written, so that it lacks something."""
        self._lock = threading.Lock()

    def pin(self, paths: Iterable[str], *, anew: bool = True) -> None:
        """Pin roots that the user or a client has named.

        A pinned root is pinned again if `anew`. One that leads elsewhere than before stays as it
        was if a process in a sandbox may have changed that; so does one that was never pinned.
        """
        with self._lock:
            self._follow()
            changed: list[Entry] = []
            for path in paths:
                if not anew and path in self._pinned:
                    continue
                found, before = look(path), self._known(path)
                if path not in self._pinned and self._way_out(found) is not None:
                    # The link may be from a sandbox, which must not gain a root by it.
                    self._looked_at.pop(path, None)
                elif before is None or found.real == before.real or not self._is_reached(before):
                    changed += self._keep(path, found)
            self._store(changed)

    def look_at(self, paths: Iterable[str]) -> list[str]:
        """Return the real paths, and pin each that is not pinned already.

        They are kept by real path, apart from the roots of policies until a policy names them.
        """
        with self._lock:
            self._follow()
            found = [self._pinned.get(path) or look(path) for path in paths]
            for pinned in found:
                if self._known(pinned.real) is None:
                    self._put(self._looked_at, pinned.real, pinned)
            return [pinned.real for pinned in found]

    def renew(self) -> None:
        """Pin the roots again that this server has checked; those of other servers stay."""
        self.pin(list(self._checked))

    def checked(self, path: str) -> ResolvedRoot:
        """Compare a root with its pinned identity and return it; without identity if it is gone.

        Raises:
            RootChanged: it is another folder.
        """
        with self._lock:
            self._follow()
            self._put(self._checked, path, None)
            found, pinned = look(path), self._known(path)
            if pinned is not None and found.identity is None and found.real == pinned.real:
                # It may come back; another folder there is not it.
                return found
            kept = self._first(path, found) if pinned is None else self._kept(path, pinned, found)
            self._store(self._keep(path, kept))
            return kept

    def can_be_written(self, folders: Iterable[str]) -> None:
        """Record that processes in a sandbox can write to real folders from now on."""
        with self._lock:
            self._follow()
            added = frozenset(folders) - self._reach
            if added:
                self._reach |= added
                self._bound_reach()
                self._store([added])

    def _first(self, path: str, found: ResolvedRoot) -> ResolvedRoot:
        way_out = self._way_out(found)
        if way_out is not None:
            raise RootChanged(
                f"`{path}` leads to `{found.real}` by a link in `{way_out}`, where commands of a "
                "sandbox can write, so nothing is done in this sandbox. Name the folder that is "
                "meant"
            )
        return found

    def _kept(self, path: str, pinned: ResolvedRoot, found: ResolvedRoot) -> ResolvedRoot:
        if found.real != pinned.real:
            if pinned.identity is None:
                # It was not there yet, and a link does not make it a root.
                return pinned
            raise RootChanged(
                f"`{path}` led to `{pinned.real}` when the sandbox was set, and leads to "
                f"`{found.real}` now, so nothing is done in this sandbox. Put it back, or name the "
                "folder that is meant"
            )
        if found.identity == pinned.identity:
            return replace(pinned, is_stored=False)
        if (
            pinned.identity is None
            or not self._is_reached(pinned)
            or _is_another_disk(pinned, found)
        ):
            return found
        raise RootChanged(
            f"`{path}` is not the folder that it was when the sandbox was set, so nothing is done "
            "in this sandbox. If it may be used as it is now, name it again (`cwd` or the sandbox "
            "policy of turn/start or thread/resume)"
        )

    def _is_reached(self, pinned: ResolvedRoot) -> bool:
        return any(True for folder in pinned.through for _ in self._writable_above(folder))

    def _way_out(self, found: ResolvedRoot) -> str | None:
        """Return the folder of a link that a process in a sandbox may have made."""
        for folder in found.links:
            writable = list(self._writable_above(folder))
            if writable and not any(is_in(found.real, root) for root in writable):
                return folder
        return None

    def _writable_above(self, folder: str) -> Iterator[str]:
        return (above for above in (folder, *ways_to(folder)) if above in self._reach)

    def _known(self, path: str) -> ResolvedRoot | None:
        return self._pinned.get(path) or self._looked_at.get(path)

    def _keep(self, path: str, pinned: ResolvedRoot) -> list[Entry]:
        """Keep a root; returns the entries that the file lacks."""
        self._looked_at.pop(path, None)
        before = self._pinned.get(path)
        self._put(self._pinned, path, pinned)
        return [] if before == pinned else [(path, pinned)]

    def _put(self, roots: dict[str, T], path: str, pinned: T) -> None:
        """Put a root at the end, and drop the least recently used beyond the bound."""
        roots.pop(path, None)
        roots[path] = pinned
        if len(roots) > self._max_pinned:
            del roots[next(iter(roots))]

    def _bound_reach(self) -> None:
        """Bound the reach: drop nested folders, then missing ones, or else take `/`."""
        if len(self._reach) > self._max_pinned:
            self._reach -= {one for one in self._reach if not self._reach.isdisjoint(ways_to(one))}
        if len(self._reach) > self._max_pinned:
            self._reach = {one for one in self._reach if os.path.lexists(one)}
        if len(self._reach) > self._max_pinned:
            self._reach = {"/"}

    def _follow(self) -> None:
        """Load the entries that other servers have appended."""
        if self._file is not None:
            self._take(self._file.news())

    def _take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, frozenset):
                self._reach |= entry
            else:
                self._put(self._pinned, *entry)
        self._bound_reach()

    def _store(self, entries: list[Entry]) -> None:
        """Append changed entries; a failed write is repeated with the next change."""
        if self._file is None or not (entries or self._is_behind):
            return
        everything: list[Entry] = [*self._pinned.items(), frozenset(self._reach)]
        try:
            if self._is_behind:
                news = self._file.write(everything)
            else:
                news = self._file.add(entries, everything)
        except StoreFailed as exc:
            if not self._is_behind:
                logger.warning("the roots of sandboxes are not stored: %s", exc)
            self._is_behind = True
        else:
            self._is_behind = False
            self._take([*news, *entries])


def _is_another_disk(pinned: ResolvedRoot, found: ResolvedRoot) -> bool:
    """Whether the disk of a stored folder has another number now, or the folder is on another one.

    Some file systems get a new number with each boot or mount, and so do those of containers.
    A process in a sandbox cannot move a folder of another disk to a root: rename(2), EXDEV.
    """
    if pinned.identity is None or found.identity is None or not pinned.is_stored:
        return False
    folders = NOT_A_FOLDER not in (pinned.identity, found.identity)
    return folders and pinned.identity[0] != found.identity[0]


SLASH_TMP = "/tmp"  # noqa: S108 - the policies name this folder

SECRETS_OF_USERS = (
    ".ssh",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".netrc",
    ".pgpass",
    ".config/containers/auth.json",
    ".docker/config.json",
)
"""Below the home of the user: keys and tokens of programs that speak for that user elsewhere."""

SECRETS_OF_HOMES = ("auth.json", ".credentials.json", "app-server.sock")
"""In our home, and in that of Codex: tokens of the account and of MCP servers, and the socket at
which whoever reaches it is a client, who may have commands run without a sandbox."""

SERVICE_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/dbus",
    "/run/docker.sock",
    "/run/initctl",
    "/run/libvirt",
    "/run/lxd",
    "/run/podman",
    "/run/snapd.socket",
    "/run/systemd/private",
    "/var/lib/incus/unix.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
)
"""Sockets, or their folders, of services that start programs outside of our sandboxes."""

RUNTIME_NAMES = (
    "at-spi",
    "bus",
    "containerd",
    "dbus-1",
    "docker.sock",
    "gcr",
    "gnupg",
    "keyring",
    "podman",
    "systemd",
)
"""In the folder that `XDG_RUNTIME_DIR` names, which need not be there for this alone."""

SERVER_FOLDERS = (
    "archived_sessions",
    "cache",
    "index",
    "locks",
    "log",
    "plugins",
    "rules",
    "servers",
    "sessions",
    "signals",
    "skills",
    "threads",
)
"""Folders that a server keeps in its home; no root in one of them is ever writable."""


@dataclass(frozen=True, slots=True)
class MachinePaths:
    """Absolute paths, as they were given: links in them are resolved later."""

    home: str
    """Of this server."""
    user_home: str
    tmpdir: str | None = None
    """Folder that `TMPDIR` names."""
    secrets: tuple[str, ...] = ()
    """Paths that no process in a sandbox may read; not all of them have to exist."""
    pinned: PinnedRoots = field(default_factory=PinnedRoots, compare=False, repr=False)
    """Roots that policies have named so far."""


HIDDEN_KEY = "sandbox_hidden_paths"
MAX_HIDDEN = 256
"""Paths in that setting."""


def with_hidden_paths(config: Config, machine_paths: MachinePaths) -> MachinePaths:
    """Add the paths that the settings hide; looks at no disk.

    Raises:
        ConfigError: `sandbox_hidden_paths` does not fit.
    """
    view = config.view()
    hidden = view.strings(HIDDEN_KEY) or []
    if len(hidden) > MAX_HIDDEN:
        raise view.error(f"expected at most {MAX_HIDDEN} paths", HIDDEN_KEY)
    for path in hidden:
        if not path.startswith(("/", "~/")):
            raise view.error(f"expected a path that begins with `/` or `~/`: `{path}`", HIDDEN_KEY)
    of_user = (
        str(Path(machine_paths.user_home, path[2:])) if path.startswith("~/") else path
        for path in hidden
    )
    return replace(machine_paths, secrets=(*machine_paths.secrets, *of_user))


def read_machine_paths(
    home: str, hidden: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> MachinePaths:
    """Read the paths from the environment; looks at no disk. Roots are pinned in that home.

    `hidden` are further absolute paths that no process in a sandbox may read.
    """
    user_home = environ.get("HOME") or str(expand_user("~"))
    secrets = [str(Path(user_home, name)) for name in SECRETS_OF_USERS]
    for of_home in (home, environ.get("CODEX_HOME") or str(Path(user_home, ".codex"))):
        secrets += [str(Path(of_home, name)) for name in SECRETS_OF_HOMES]
    # Keyrings, the session's bus and agents listen there, and all of them act for the user.
    secrets += [f"/run/user/{os.getuid()}"]
    if (runtime := environ.get("XDG_RUNTIME_DIR")) is not None:
        secrets += [str(Path(runtime, name)) for name in RUNTIME_NAMES]
    for name in ("SSH_AUTH_SOCK", "GNOME_KEYRING_CONTROL"):
        secrets += [environ[name]] if name in environ else []
    secrets += hidden
    return MachinePaths(
        home=home,
        user_home=user_home,
        tmpdir=environ.get("TMPDIR") or None,
        secrets=tuple(path for path in (*secrets, *SERVICE_SOCKETS) if path.startswith("/")),
        pinned=PinnedRoots(PinnedRootsFile(Path(home))),
    )
