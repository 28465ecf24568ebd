"""Commands in bubblewrap: mounts, namespaces, a filter of system calls, a bound of processes.

Source: docs/tools.md, "Sandbox".
"""

import errno
import os
import platform
import shutil
import stat
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
from app_server.host.sandbox.linux.preparing import preparation
from app_server.host.sandbox.linux.process_limits import bound_of_pids, limiting_program
from app_server.host.sandbox.linux.sealed import sealed
from app_server.host.sandbox.linux.seccomp import Sockets, seccomp_filter
from app_server.host.sandbox.linux.system_calls import ARCHITECTURES, Architecture
from app_server.host.sandbox.wrapped import Wrapped
from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.globs import TooMuchToMatch, matches
from app_server.permissions.placeholder import is_placeholder


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
    ) -> Wrapped:
        """Say what to start; see SandboxLauncher.wrap.

        Raises:
            SandboxUnavailable: it cannot be confined here.
        """
        with ExitStack() as held:
            wrapped = _wrap(self, command, cwd, confinement, tty, held)
            held.pop_all()
            return wrapped


def _wrap(
    sandbox: Bubblewrap,
    command: Sequence[str],
    cwd: str,
    confinement: Confinement,
    tty: bool,
    held: ExitStack,
) -> Wrapped:
    """Put what is opened and made into `held`, for as long as it does not belong to the result."""
    try:
        seal = sealed(confinement)
        made = mounts(_with_matches(seal.confinement), cwd, _kind_of)
        made, placeholders = _with_placeholders(made, held)
    except (TooManyPlaces, TooMuchToMatch, OSError) as exc:
        raise SandboxUnavailable(f"the sandbox cannot be made: {exc}") from None
    terminal = [_setsid(), "-c"] if tty else []
    sockets: Sockets = "all" if confinement.network else "none"
    if confinement.proxy is not None:
        sockets = "own"
    prepared = preparation(held, listens=confinement.proxy is not None, pid_max=sandbox.pid_max)
    filter_fd = _readable(seccomp_filter(_architecture(), sockets), held)
    links = _links() if shown_everywhere(confinement) == "none" else ()
    line = arguments(
        sandbox.program,
        FileSystemView(made, seal.entries, links),
        cwd,
        confinement,
        seccomp_fd=filter_fd,
        has_terminal=tty,
    )
    return Wrapped(
        (*sandbox.limit, *prepared.argv, *line, *terminal, *command),
        (filter_fd, *prepared.pass_fds),
        is_confined=True,
        takes_terminal=tty,
        network=prepared.network,
        ends=[placeholder.release for placeholder in placeholders],
    )


def _with_matches(confinement: Confinement) -> Confinement:
    """Deny what patterns match now; what is made later is not known to a mount."""
    found = [path for pattern in confinement.denied_patterns for path in matches(pattern)]
    return replace(confinement, denied=(*confinement.denied, *found))


def _links() -> Sequence[tuple[str, str]]:
    """Return the links of the root folder, such as `/bin`, and where they lead."""
    return [(str(path.readlink()), str(path)) for path in Path("/").iterdir() if path.is_symlink()]


def _with_placeholders(
    made: Sequence[Mount], held: ExitStack
) -> tuple[Sequence[Mount], Sequence[Placeholder]]:
    """Put something where mounts need it; one that can only be missing is left out."""
    mounted: list[Mount] = []
    placeholders: list[Placeholder] = []
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
            placeholders.append(placeholder)
        mounted.append(mount)
    return mounted, placeholders


def _readable(content: bytes, held: ExitStack) -> int:
    """Return a descriptor that the content is read from; it fits into a pipe."""
    reads, writes = os.pipe()
    held.callback(os.close, reads)
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
