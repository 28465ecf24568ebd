"""The arguments of bubblewrap for one command.

Source: docs/tools.md, "Sandbox"; https://github.com/containers/bubblewrap (bwrap(1)).
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from app_server.host.sandbox.linux.mounts import Mount, shown_everywhere
from app_server.host.sandbox.proxied import proxy_variables
from app_server.host.sandbox.wrapped_command import NO_NETWORK
from app_server.permissions.confinement.confinement import Confinement

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
    fleeting: Set[str] = frozenset()
    """Paths that may be gone by the time of their mount."""
    links: Sequence[tuple[str, str]] = ()
    """Of an empty root: where each leads, and its path."""


def arguments(
    program: str,
    view: FileSystemView,
    cwd: str,
    confinement: Confinement,
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
        *_network(confinement),
        "--die-with-parent",
        *session,
        "--cap-drop",
        "ALL",
    ]
    root = shown_everywhere(confinement)
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


def _network(confinement: Confinement) -> Iterator[str]:
    if confinement.network:
        return
    yield "--unshare-net"
    variables = [(NO_NETWORK, "1")]
    if confinement.proxy is not None:
        variables = list(proxy_variables(confinement.proxy))
    for name, value in variables:
        yield from ("--setenv", name, value)
