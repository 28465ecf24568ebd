"""Commands in bubblewrap: mounts, namespaces, a filter of system calls, a bound of processes.

The mounts come first, one for each path whose access differs; what exists is asked of a function.
Source: docs/tools.md, "Sandbox"; https://github.com/containers/bubblewrap (bwrap(1)).
"""

import errno
import os
import platform
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from app_server.host.sandbox.linux.placeholders import Placeholder, PlaceholderRecords
from app_server.host.sandbox.linux.process_limits import bound_of_pids, limiting_program
from app_server.host.sandbox.linux.seccomp import (
    ARCHITECTURES,
    Architecture,
    Sockets,
    seccomp_filter,
)
from app_server.host.sandbox.proxied import PORT, proxy_variables
from app_server.host.sandbox.wrapped_command import NO_NETWORK, SandboxUnavailable, WrappedCommand
from app_server.permissions.sandbox.paths import TooMuchToMatch, depth_of, matches, ways_to
from app_server.permissions.sandbox.policy import EffectivePolicy, Ruling, is_placeholder
from app_server.permissions.sandbox.roots import (
    NOT_A_FOLDER,
    SECRETS_OF_HOMES,
    Identity,
    identity_of,
)
from app_server.runtime.files.reaching import FOLDER

Kind: TypeAlias = Literal["folder", "other", "missing"]
"""The kind of file that a path leads to."""

Show: TypeAlias = Literal["write", "read", "none", "empty"]
"""`empty`: a folder of its own for the sandbox, which can be written."""

MAX_MOUNTS = 1024
"""Mounts of one sandbox; Linux would take long to make more."""


class TooManyMounts(Exception):
    """A sandbox policy has more places than a sandbox is made with."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One place that differs from the folder that it is in."""

    path: str
    show: Show
    kind: Kind


def shown_everywhere(sandbox_policy: EffectivePolicy) -> Show:
    """Return the access of the root, before the mounts."""
    if sandbox_policy.writable is None or "/" in sandbox_policy.writable:
        return "write"
    if sandbox_policy.readable is None or "/" in sandbox_policy.readable:
        return "read"
    return "none"


def mounts(
    sandbox_policy: EffectivePolicy, cwd: str, kind_of: Callable[[str], Kind]
) -> Sequence[Mount]:
    """Return the mounts of a resolved sandbox policy, outer ones first.

    Places that are missing are among them where they are to be protected in a folder that can be
    written: whoever mounts puts something there first.

    Raises:
        TooManyMounts: see `MAX_MOUNTS`.
    """
    chosen = _choose(sandbox_policy, cwd)
    if len(chosen) > MAX_MOUNTS:
        raise TooManyMounts(f"a sandbox can have {MAX_MOUNTS} places, and this has {len(chosen)}")
    made = {mount.path: mount for mount in _differing(sandbox_policy, chosen, kind_of)}
    for mount in list(made.values()):
        for path in _between(mount.path, made, shown_everywhere(sandbox_policy)):
            # A mount cannot be renamed, so nothing takes the place of what is around this one.
            made[path] = Mount(path, "write", kind_of(path))
    made = {path: mount for path, mount in made.items() if _has_its_folders(mount, made)}
    if len(made) > MAX_MOUNTS:
        raise TooManyMounts(f"a sandbox can have {MAX_MOUNTS} places, and this has {len(made)}")
    return sorted(made.values(), key=lambda mount: (depth_of(mount.path), mount.path))


def _differing(
    sandbox_policy: EffectivePolicy,
    chosen: Mapping[str, Show],
    kind_of: Callable[[str], Kind],
) -> Iterator[Mount]:
    """Yield the mounts that differ from their parents, outer ones first."""
    shown: dict[str, Show] = {"/": shown_everywhere(sandbox_policy)}
    # Each is a mount also in another one, so that it cannot be moved and something put there.
    writable = sandbox_policy.writable or ()
    for path in sorted(chosen, key=lambda place: (depth_of(place), place)):
        show, around = chosen[path], _around(path, shown)
        if path == "/" or (show == around != "write"):
            continue
        kind = kind_of(path)
        if show == around and (path not in writable or kind != "folder"):
            continue
        if kind == "missing" and not (show == "read" and around == "write"):
            continue
        if show == "none" and around == "empty":
            continue
        shown[path] = show
        yield Mount(path, show, kind)


def _between(path: str, made: Mapping[str, Mount], root: Show) -> Sequence[str]:
    """Return the folders between a place and the mount that it is in, if that can be written."""
    between: list[str] = []
    around = root
    for above in ways_to(path):
        if above in made:
            around = made[above].show
            break
        if above != "/":
            between.append(above)
    return between if around == "write" else ()


def _has_its_folders(mount: Mount, made: Mapping[str, Mount]) -> bool:
    """Whether all folders around it that are mounts are there; it is not there either otherwise."""
    above = (made[path] for path in ways_to(mount.path) if path in made)
    is_there = mount.kind != "missing" or mount.show == "read"
    return is_there and all(around.kind == "folder" for around in above)


def _choose(sandbox_policy: EffectivePolicy, cwd: str) -> Mapping[str, Show]:
    chosen: dict[str, Show] = {}
    ranks: Sequence[tuple[Sequence[str], Show]] = (
        (sandbox_policy.scratch, "empty"),
        (sandbox_policy.readable or (), "read"),
        (sandbox_policy.writable or (), "write"),
        (sandbox_policy.protected, "read"),
        (sandbox_policy.denied, "none"),
    )
    for places, show in ranks:
        for place in places:
            chosen[place] = show
    if shown_everywhere(sandbox_policy) == "write":
        # To root of this machine the settings of devices are open there, whatever the namespace.
        chosen.setdefault("/sys", "read")
    if _around(cwd, chosen) == "empty" and cwd not in chosen:
        # What a command is to work in is seen, also where its neighbours are not.
        chosen[cwd] = "read"
    return chosen


def _around(path: str, shown: Mapping[str, Show]) -> Show:
    return next((shown[place] for place in (path, *ways_to(path)) if place in shown), "none")


NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")

PRIVATE_FOLDER_BYTES = 1024 * 1024 * 1024
"""Of each empty folder of a command's own, which is memory."""

SHARED_MEMORY_BYTES = 512 * 1024 * 1024
"""Of /dev/shm, which is memory of the machine."""


@dataclass(frozen=True, slots=True)
class FileSystemView:
    """The mounts and links of a sandbox's file system."""

    mounts: Sequence[Mount]
    """In the order in which they are made; all places exist by now."""
    opened: Mapping[str, int] = field(default_factory=dict)
    """Descriptors of mounts by path; mounted by descriptor, so that nothing can replace them."""
    links: Sequence[tuple[str, str]] = ()
    """Of an empty root: where each leads, and its path."""


def arguments(
    program: str,
    view: FileSystemView,
    cwd: str,
    sandbox_policy: EffectivePolicy,
    *,
    seccomp_fd: int,
    has_terminal: bool,
) -> list[str]:
    """Return the command line up to, and without, the command."""
    # Who has a terminal takes it for a session of its own, which needs one that is not new.
    session = () if has_terminal else ("--new-session",)
    line = [
        program,
        *NAMESPACES,
        *_network(sandbox_policy),
        "--die-with-parent",
        *session,
        "--cap-drop",
        "ALL",
    ]
    root = shown_everywhere(sandbox_policy)
    match root:
        case "write":
            line += ["--bind", "/", "/"]
        case "read":
            line += ["--ro-bind", "/", "/"]
        case _:
            line += ["--tmpfs", "/"]
            for target, place in view.links:
                line += ["--symlink", target, place]
    line += ["--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108 - it is the sandbox's own
    line += ["--proc", "/proc"]
    # To root of this machine the settings of the kernel are open there, whatever the namespace.
    read_only = ["/dev", "/proc"]
    for mount in view.mounts:
        line += _mounted(mount, view)
        if (mount.show, mount.kind) == ("none", "folder"):
            read_only.append(mount.path)
    if root == "none":
        read_only.append("/")
    for place in read_only:
        line += ["--remount-ro", place]
    return [*line, "--seccomp", str(seccomp_fd), "--chdir", cwd, "--"]


def _mounted(mount: Mount, view: FileSystemView) -> Sequence[str]:
    match mount.show, mount.kind:
        case "write", _:
            return ("--bind-fd", str(view.opened[mount.path]), mount.path)
        case "read", _ if mount.path in view.opened:
            return ("--ro-bind-fd", str(view.opened[mount.path]), mount.path)
        case "read", _:
            return ("--ro-bind-try", mount.path, mount.path)
        case "empty", _:
            size = str(PRIVATE_FOLDER_BYTES)
            return ("--size", size, "--perms", "1777", "--tmpfs", mount.path)
        case "none", "folder":
            return ("--perms", "0555", "--tmpfs", mount.path)
        case _:
            # A device in a mount without devices: opening it is refused.
            return ("--ro-bind", "/dev/null", mount.path)


def _network(sandbox_policy: EffectivePolicy) -> Iterator[str]:
    if sandbox_policy.network:
        return
    yield "--unshare-net"
    variables = [(NO_NETWORK, "1")]
    if sandbox_policy.proxy is not None:
        variables = list(proxy_variables(sandbox_policy.proxy))
    for name, value in variables:
        yield from ("--setenv", name, value)


MAX_ENTRIES = 256
"""Of such a folder; one with more is shown as it is, with mounts on its secrets."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Policy in which such folders are hidden, and their present content is not."""

    sandbox_policy: EffectivePolicy
    entries: frozenset[str]
    """The paths in the hidden folders: they may be gone by the time of their mount."""


def sealed(sandbox_policy: EffectivePolicy) -> Sealed:
    """Hide the folders of secrets that a policy shows, but for their present content. Blocks."""
    ruling = Ruling(sandbox_policy)
    denied = map(Path, sandbox_policy.denied)
    homes = {str(path.parent) for path in denied if path.name in SECRETS_OF_HOMES}
    folders: list[str] = []
    shown: list[str] = []
    for home in sorted(homes):
        entries = list(_entries(home)) if ruling.access(home) == "read" else None
        if entries is not None and len(entries) <= MAX_ENTRIES:
            folders.append(home)
            shown += entries
    if not folders:
        return Sealed(sandbox_policy, frozenset())
    readable = ("/",) if sandbox_policy.readable is None else sandbox_policy.readable
    made = replace(
        sandbox_policy,
        readable=(*readable, *shown),
        denied=(*sandbox_policy.denied, *folders),
    )
    return Sealed(made, frozenset(shown))


def _entries(home: str) -> Iterator[str]:
    try:
        with os.scandir(home) as found:
            names = [entry.name for entry in found]
    except OSError:
        return
    for name in names:
        # Others are drafts and copies of them.
        if not any(name == secret or name.startswith(f"{secret}.") for secret in SECRETS_OF_HOMES):
            yield str(Path(home, name))


PROGRAM = Path(__file__).with_name("inside.py")
"""The program that starts bubblewrap and prepares the sandbox before the command starts in it."""
NOT_WANTED = "-"

MAX_OPEN = 200
"""Mounts that are made by descriptors: they come to the command's supervisor in one message."""

CANNOT_BE_MADE = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS)

_PATH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
"""To have hold of whatever is there."""


class Bubblewrap:
    """The sandbox of Linux."""

    def __init__(self, program: str, records: PlaceholderRecords | None = None) -> None:
        """Use a program; `records` are where placeholders are written down, if anywhere."""
        self.program = program
        self._records = records
        self.limit = limiting_program()
        """Comes before it, and bounds the processes of a command."""

    @cached_property
    def pid_max(self) -> int | None:
        """Bounds them where that cannot, and there is no cgroup either."""
        # Found out by whoever wraps a command: it takes some 10 ms, and not every program is used.
        return bound_of_pids()

    def wrap(
        self, command: Sequence[str], cwd: str, sandbox_policy: EffectivePolicy, *, tty: bool
    ) -> WrappedCommand:
        """Return the argv of the sandbox; see MachineSandbox.wrap.

        Raises:
            SandboxUnavailable: it cannot be confined here.
        """
        with ExitStack() as fds, ExitStack() as held:
            terminal = [_setsid(), "-c"] if tty else []
            ours, theirs = _listening(sandbox_policy, fds, held)
            filter_fd = _readable(seccomp_filter(_architecture(), _sockets(sandbox_policy)), fds)
            links = _links() if shown_everywhere(sandbox_policy) == "none" else ()
            try:
                seal = sealed(sandbox_policy)
                made = mounts(_with_matches(seal.sandbox_policy), cwd, _kind_of)
                open_mounts = _OpenMounts(seal, fds, held)
                # Last: only who starts the command removes what this makes if the server is killed.
                made = open_mounts.opened(made, self._records)
            except (TooManyMounts, TooMuchToMatch, OSError) as exc:
                raise SandboxUnavailable(f"the sandbox cannot be made: {exc}") from None
            line = arguments(
                self.program,
                FileSystemView(made, open_mounts.fds, links),
                cwd,
                sandbox_policy,
                seccomp_fd=filter_fd,
                has_terminal=tty,
            )
            argv = (*self.limit, *_prepared(theirs, self.pid_max), *line, *terminal, *command)
            return WrappedCommand(
                argv,
                (filter_fd, *theirs, *open_mounts.fds.values()),
                tty,
                ours,
                open_mounts.placeholders,
                fds.pop_all(),
                held.pop_all(),
            )


def _sockets(sandbox_policy: EffectivePolicy) -> Sockets:
    if sandbox_policy.proxy is not None:
        return "own"
    return "all" if sandbox_policy.network else "none"


def _listening(
    sandbox_policy: EffectivePolicy, fds: ExitStack, held: ExitStack
) -> tuple[socket.socket | None, Sequence[int]]:
    """Return the socket pair for the listener of the proxy, if there is one."""
    if sandbox_policy.proxy is None:
        return None, ()
    ours, theirs = socket.socketpair()
    held.enter_context(ours)
    fd = theirs.detach()
    fds.callback(os.close, fd)
    return ours, (fd,)


def _prepared(server: Sequence[int], pid_max: int | None) -> Sequence[str]:
    """Return the argv before bubblewrap that makes a listener, or bounds processes."""
    if not server and pid_max is None:
        return ()
    bound = NOT_WANTED if pid_max is None else str(pid_max)
    wanted = (*map(str, server or (NOT_WANTED,)), str(PORT), bound)
    return (sys.executable, "-I", "-S", str(PROGRAM), *wanted, "--")


def _with_matches(sandbox_policy: EffectivePolicy) -> EffectivePolicy:
    """Deny the present matches of patterns; a mount does not cover later ones."""
    found = [path for pattern in sandbox_policy.denied_patterns for path in matches(pattern)]
    return replace(sandbox_policy, denied=(*sandbox_policy.denied, *found))


def _links() -> Sequence[tuple[str, str]]:
    """Return the links of the root folder, such as `/bin`, and where they lead."""
    return [(str(path.readlink()), str(path)) for path in Path("/").iterdir() if path.is_symlink()]


class _OpenMounts:
    """Mounts of one sandbox, opened as descriptors, so that they cannot be replaced."""

    def __init__(self, seal: Sealed, fds: ExitStack, held: ExitStack) -> None:
        self.fds: dict[str, int] = {}
        self.placeholders: list[tuple[int, str]] = []
        self._made: dict[str, Identity] = {}
        self._seal = seal
        self._fds = fds
        self._held = held

    def opened(self, made: Sequence[Mount], records: PlaceholderRecords | None) -> Sequence[Mount]:
        """Open mounts, outer ones first, and put something where they need it.

        One that can only be missing is left out.

        Raises:
            OSError: one cannot be opened, or is another folder than it was.
            TooManyMounts: see `MAX_OPEN`.
        """
        missing = [mount.path for mount in made if mount.kind == "missing"]
        record = None
        if missing and records is not None:
            record = self._held.enter_context(records.written(missing))
        mounted = [mount for mount in made if self._is_mounted(mount)]
        if len(self.fds) > MAX_OPEN:
            raise TooManyMounts(
                f"a sandbox can have {MAX_OPEN} folders that are written to or protected in "
                f"others, and this has {len(self.fds)}"
            )
        if record is not None:
            record.add([self._made.get(path) for path in missing])
        return mounted

    def _is_mounted(self, mount: Mount) -> bool:
        if mount.show in ("none", "empty"):
            return True
        if mount.show == "read" and mount.path in self._seal.entries:
            # It may be gone by now.
            return True
        if mount.kind == "missing":
            return self._has_placeholder(mount.path)
        fd = self._descriptor(mount.path, _PATH)
        self._fds.callback(os.close, fd)
        found = identity_of(os.fstat(fd))
        before = self._seal.sandbox_policy.identities.get(mount.path, found)
        if found is None or found != before or (found != NOT_A_FOLDER) != (mount.kind == "folder"):
            raise OSError(f"`{mount.path}` is another one than a moment ago")
        self.fds[mount.path] = fd
        return True

    def _has_placeholder(self, path: str) -> bool:
        folder_path, name = os.path.split(path)
        try:
            folder = self._descriptor(folder_path, FOLDER)
        except FileNotFoundError:
            return False
        try:
            placeholder = Placeholder(folder, name)
        except OSError as exc:
            if exc.errno in CANNOT_BE_MADE:
                # What the server cannot make there, what it confines cannot make either.
                return False
            raise OSError(f"`{path}` cannot be held: {exc}") from exc
        finally:
            os.close(folder)
        self._held.callback(placeholder.release)
        self.fds[path] = placeholder.fd
        self.placeholders.append((placeholder.fd, name))
        self._made[path] = placeholder.identity
        return True

    def _descriptor(self, path: str, flags: int) -> int:
        """Open a path part by part from the nearest folder that is open, following no link."""
        nearest = next((above for above in (path, *ways_to(path)) if above in self.fds), None)
        if nearest is None:
            return os.open(path, flags)
        *between, name = path[len(nearest) :].strip("/").split("/")
        folder = self.fds[nearest]
        with ExitStack() as passed:
            for part in between:
                folder = os.open(part, FOLDER, dir_fd=folder)
                passed.callback(os.close, folder)
            return os.open(name or ".", flags, dir_fd=folder)


def _readable(content: bytes, fds: ExitStack) -> int:
    """Return a descriptor that the content is read from; it fits into a pipe."""
    reads, writes = os.pipe()
    fds.callback(os.close, reads)
    try:
        os.write(writes, content)
    finally:
        os.close(writes)
    return reads


def _architecture() -> Architecture:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise SandboxUnavailable(
            f"there is no sandbox for processors of the kind {machine}: choose the sandbox mode "
            "`danger-full-access` if this machine is a sandbox already"
        )
    return ARCHITECTURES[machine]


def _setsid() -> str:
    found = shutil.which("setsid")
    if found is None:
        raise SandboxUnavailable(
            "a confined command with a terminal needs the program `setsid`: install `util-linux`"
        )
    return found


def _kind_of(path: str) -> Kind:
    try:
        found = os.lstat(path)
    except OSError:
        return "missing"
    if is_placeholder(found):
        return "missing"
    return "folder" if stat.S_ISDIR(found.st_mode) else "other"
