"""From a command and what confines it to what is started: the door of this room.

Source: docs/tools.md, "Sandbox".
"""

import os
import platform
import shutil
import stat
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from app_server.host.sandbox.bubblewrap import arguments
from app_server.host.sandbox.errors import SandboxUnavailable
from app_server.host.sandbox.mounts import Kind, Mount, TooManyPlaces, mounts, shown_everywhere
from app_server.host.sandbox.placeholders import Placeholder, is_placeholder
from app_server.host.sandbox.process_limits import Prefix, ProcessLimit, find_limit
from app_server.host.sandbox.programs import bubblewraps, failure_of, unavailable
from app_server.host.sandbox.seccomp import seccomp_filter
from app_server.host.sandbox.system_calls import ARCHITECTURES, Architecture
from app_server.host.sandbox.wrapped import Wrapped
from app_server.permissions.confinement import Confinement

__all__ = ["SandboxLauncher", "SandboxUnavailable", "Wrapped"]

PROBE = Confinement(writable=(), network=False)
"""What a program has to be able to enforce to be chosen."""


@dataclass(frozen=True, slots=True)
class Found:
    """What works on this machine."""

    program: str
    """The path of bubblewrap."""
    limit: ProcessLimit | None
    """How the processes of a command are limited; None: they are not."""


class SandboxLauncher:
    """The sandbox of this machine; one for the whole server.

    What works is found out with the first command that needs it, and looked for again for as long
    as nothing does.
    """

    def __init__(self) -> None:
        self._found: Found | None = None
        self._choosing = threading.Lock()

    def wrap(
        self, command: Sequence[str], cwd: str, confinement: Confinement, *, tty: bool = False
    ) -> Wrapped:
        """Say what to start so that a command is confined; one that is not stays as it is.

        `cwd` is absolute and real, `confinement` resolved. With `tty` its stdin is a terminal,
        which becomes its controlling one. The sandbox ends with the thread that started it. Call
        `started` and `close` of the result.
        Blocks: call it in a worker thread.

        Raises:
            SandboxUnavailable: it cannot be confined here; nothing was started.
        """
        if not confinement.is_confined:
            return Wrapped(tuple(command))
        found = self.found()
        with ExitStack() as held:
            wrapped = _wrap(found, command, cwd, confinement, tty, held)
            held.pop_all()
            return wrapped

    def use(self, found: Found) -> None:
        """Take what is known to work."""
        self._found = found

    def found(self) -> Found:
        """Return what works here; blocks.

        Raises:
            SandboxUnavailable: nothing does.
        """
        with self._choosing:
            if self._found is None:
                self._found = _find()
            return self._found


def _find() -> Found:
    if sys.platform != "linux":
        raise unavailable(())
    failures = []
    for program in bubblewraps():
        found = Found(program, None)
        with ExitStack() as held:
            probe = _wrap(found, ("/bin/sh", "-c", ":"), "/", PROBE, False, held)
            failure = failure_of(probe.argv, probe.pass_fds)
        if failure is None:
            return replace(found, limit=find_limit())
        failures.append(f"{program}: {failure}")
    raise unavailable(failures)


def _wrap(
    found: Found,
    command: Sequence[str],
    cwd: str,
    confinement: Confinement,
    tty: bool,
    held: ExitStack,
) -> Wrapped:
    """Put what is opened and made into `held`, for as long as it does not belong to the result."""
    try:
        made = mounts(confinement, cwd, _kind_of)
        placeholders = [_placeholder(mount, held) for mount in made if mount.kind == "missing"]
        before: Prefix = ((), lambda: None) if found.limit is None else found.limit.prefix()
    except (TooManyPlaces, OSError) as exc:
        raise SandboxUnavailable(f"the sandbox cannot be made: {exc}") from None
    limit, end = before
    held.callback(end)
    terminal = [_setsid(), "--ctty"] if tty else []
    filter_fd = _readable(seccomp_filter(_architecture(), network=confinement.network), held)
    line = arguments(
        found.program,
        shown_everywhere(confinement),
        made,
        cwd,
        confinement,
        seccomp_fd=filter_fd,
        has_terminal=tty,
    )
    return Wrapped(
        (*limit, *line, *terminal, *command),
        (filter_fd,),
        is_confined=True,
        takes_terminal=tty,
        ends=[end, *(placeholder.release for placeholder in placeholders)],
    )


def _placeholder(mount: Mount, held: ExitStack) -> Placeholder:
    placeholder = Placeholder(mount.path)
    held.callback(placeholder.release)
    return placeholder


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
