"""Whether a sandbox holds on this machine: a command in it tries to get out, and is asked how far.

Everything here blocks, for at most a minute.
Source: docs/tools.md, "Sandbox".
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from app_server.host.sandbox.errors import SandboxUnavailable
from app_server.host.sandbox.launcher import SandboxLauncher
from app_server.host.sandbox.linux.process_limits import limit_in_words
from app_server.permissions.confinement import Confinement
from app_server.permissions.resolving import resolved

PROOF_S = 60.0
"""For all attempts together; they take a fraction of a second."""

ATTEMPTS = """
import os, socket, sys
outside, server, port = sys.argv[1:4]
def write(path):
    with open(path, "a") as file: file.write("x")
def read(path):
    with open(path, "rb") as file: return file.read(1)
tries = {
    "write outside of the project": lambda: write(outside + "/file"),
    "write outside through a link": lambda: write("link/file"),
    "write a hook of git": lambda: write(".git/hooks/pre-commit"),
    "read what is hidden": lambda: read(outside + "/hidden"),
    "read the variables of the server": lambda: read(f"/proc/{server}/environ"),
    "signal the server": lambda: os.kill(int(server), 0),
    "open settings of the kernel": lambda: os.open("/proc/sys/kernel/hostname", os.O_WRONLY),
    "reach the network": lambda: socket.create_connection(("127.0.0.1", int(port)), 5),
}
write("inside")
for name, attempt in tries.items():
    try: attempt()
    except OSError: print("refused", name)
    else: print("escaped", name)
"""


@dataclass(frozen=True, slots=True)
class Proof:
    """What came of it."""

    program: str
    limit: str | None
    """How processes are limited; None: they are not."""
    refused: Sequence[str]
    escaped: Sequence[str]


def prove(launcher: SandboxLauncher) -> Proof:
    """Try to get out of a sandbox.

    Raises:
        SandboxUnavailable: there is none, or not even what is allowed worked in it.
        OSError: there is no room for the attempt on this machine.
    """
    found = launcher.sandbox()
    with ExitStack() as stack:
        root = Path(os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory())))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        confinement = _victim(root)
        work = root / "work"
        command = (sys.executable, "-I", "-S", "-c", ATTEMPTS, str(root), str(os.getpid()))
        port = str(listener.getsockname()[1])
        wrapped = launcher.wrap((*command, port), str(work), confinement)
        stack.callback(wrapped.close)
        try:
            done = subprocess.run(
                wrapped.argv,
                pass_fds=wrapped.pass_fds,
                cwd=work,
                check=False,
                capture_output=True,
                text=True,
                timeout=PROOF_S,
            )
        except subprocess.TimeoutExpired:
            raise SandboxUnavailable(f"{found.program} does not end") from None
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    if done.returncode != 0 or not lines:
        raise SandboxUnavailable(f"{found.program}: {done.stderr.strip()[-300:]}")
    return Proof(
        found.program,
        limit_in_words(),
        [name for word, name in lines if word == "refused"],
        [name for word, name in lines if word != "refused"],
    )


def _victim(root: Path) -> Confinement:
    hooks = root / "work" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (root / "work" / "link").symlink_to(root)
    for name in ("file", "hidden"):
        (root / name).write_text("content")
    return resolved(
        Confinement(
            writable=(str(root / "work"),),
            protected=(str(root / "work" / ".git"),),
            denied=(str(root / "hidden"),),
            network=False,
        )
    )
