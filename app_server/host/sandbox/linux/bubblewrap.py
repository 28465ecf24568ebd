"""The mounts of a Linux sandbox, one for each place whose access differs, and bwrap's arguments.

Pure: what is there is asked of a function.
Source: docs/tools.md, "Sandbox"; https://github.com/containers/bubblewrap (bwrap(1)).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app_server.host.sandbox.proxied import proxy_variables
from app_server.host.sandbox.wrapped_command import NO_NETWORK
from app_server.permissions.sandbox.paths import depth_of, ways_to
from app_server.permissions.sandbox.policy import EffectivePolicy

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
