"""Commands in bubblewrap: mounts, namespaces, a filter of system calls, a bound of processes.

Source: docs/tools.md, "Sandbox".
"""

import errno
import os
import platform
import shutil
import socket
import stat
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from app_server.host.sandbox.errors import SandboxUnavailable
from app_server.host.sandbox.linux.bubblewrap import FileSystemView, arguments
from app_server.host.sandbox.linux.mounts import (
    Kind,
    Mount,
    TooManyPlaces,
    mounts,
    shown_everywhere,
)
from app_server.host.sandbox.linux.placeholders import Placeholder
from app_server.host.sandbox.linux.process_limits import bound_of_pids, limiting_program
from app_server.host.sandbox.linux.sealed import sealed
from app_server.host.sandbox.linux.seccomp import Sockets, seccomp_filter
from app_server.host.sandbox.linux.system_calls import ARCHITECTURES, Architecture
from app_server.host.sandbox.proxied import PORT
from app_server.host.sandbox.wrapped_command import WrappedCommand
from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.globs import TooMuchToMatch, matches
from app_server.permissions.placeholder import is_placeholder

PROGRAM = Path(__file__).with_name("inside.py")
"""What is started before bubblewrap where something is to be done in the sandbox first."""
NOT_WANTED = "-"


class Bubblewrap:
    """The sandbox of Linux."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.limit = limiting_program()
        """Comes before it, and bounds the processes of a command."""

    @cached_property
    def pid_max(self) -> int | None:
        """Bounds them where that cannot, and there is no cgroup either."""
        # Found out by whoever wraps a command: it takes some 10 ms, and not every program is used.
        return bound_of_pids()

    def wrap(
        self, command: Sequence[str], cwd: str, confinement: Confinement, *, tty: bool
    ) -> WrappedCommand:
        """Say what to start; see SandboxLauncher.wrap.

        Raises:
            SandboxUnavailable: it cannot be confined here.
        """
        with ExitStack() as fds, ExitStack() as held:
            try:
                seal = sealed(confinement)
                made = mounts(_with_matches(seal.confinement), cwd, _kind_of)
                made = _with_placeholders(made, held)
            except (TooManyPlaces, TooMuchToMatch, OSError) as exc:
                raise SandboxUnavailable(f"the sandbox cannot be made: {exc}") from None
            terminal = [_setsid(), "-c"] if tty else []
            ours, theirs = _listening(confinement, fds, held)
            filter_fd = _readable(seccomp_filter(_architecture(), _sockets(confinement)), fds)
            links = _links() if shown_everywhere(confinement) == "none" else ()
            line = arguments(
                self.program,
                FileSystemView(made, seal.entries, links),
                cwd,
                confinement,
                seccomp_fd=filter_fd,
                has_terminal=tty,
            )
            argv = (*self.limit, *_prepared(theirs, self.pid_max), *line, *terminal, *command)
            pass_fds = (filter_fd, *theirs)
            return WrappedCommand(argv, pass_fds, tty, ours, fds.pop_all(), held.pop_all())


def _sockets(confinement: Confinement) -> Sockets:
    if confinement.proxy is not None:
        return "own"
    return "all" if confinement.network else "none"


def _listening(
    confinement: Confinement, fds: ExitStack, held: ExitStack
) -> tuple[socket.socket | None, Sequence[int]]:
    """Return where the listener of the proxy arrives, and what it is sent to, if there is one."""
    if confinement.proxy is None:
        return None, ()
    ours, theirs = socket.socketpair()
    held.enter_context(ours)
    fd = theirs.detach()
    fds.callback(os.close, fd)
    return ours, (fd,)


def _prepared(server: Sequence[int], pid_max: int | None) -> Sequence[str]:
    """Return what comes before bubblewrap to make a listener, or to bound processes."""
    if not server and pid_max is None:
        return ()
    bound = NOT_WANTED if pid_max is None else str(pid_max)
    wanted = (*map(str, server or (NOT_WANTED,)), str(PORT), bound)
    return (sys.executable, "-I", "-S", str(PROGRAM), *wanted, "--")


def _with_matches(confinement: Confinement) -> Confinement:
    """Deny what patterns match now; what is made later is not known to a mount."""
    found = [path for pattern in confinement.denied_patterns for path in matches(pattern)]
    return replace(confinement, denied=(*confinement.denied, *found))


def _links() -> Sequence[tuple[str, str]]:
    """Return the links of the root folder, such as `/bin`, and where they lead."""
    return [(str(path.readlink()), str(path)) for path in Path("/").iterdir() if path.is_symlink()]


def _with_placeholders(made: Sequence[Mount], held: ExitStack) -> Sequence[Mount]:
    """Put something where mounts need it; one that can only be missing is left out."""
    mounted: list[Mount] = []
    for mount in made:
        if mount.kind == "missing":
            try:
                placeholder = Placeholder(mount.path)
            except (PermissionError, FileNotFoundError):
                # What the server cannot make there, what it confines cannot make either.
                continue
            except OSError as exc:
                if exc.errno == errno.EROFS:
                    continue
                raise
            held.callback(placeholder.release)
        mounted.append(mount)
    return mounted


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
