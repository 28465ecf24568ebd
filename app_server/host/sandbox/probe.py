"""Whether a sandbox holds on this machine: a command in it tries to get out, and is asked how far.

Everything here blocks, for at most a minute.
Source: docs/tools.md, "Sandbox", "Network through a proxy".
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app_server.host.sandbox.linux.process_limits import limit_in_words
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.proxied import PORT
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.permissions.network import NetworkPolicy
from app_server.permissions.sandbox.policy import EffectivePolicy, resolved

ATTEMPTS_S = 30.0
"""For all attempts of one command; they take a fraction of a second."""

PROBE_S = 2 * ATTEMPTS_S
"""For a command without network, and one whose network is the proxy."""

ATTEMPTS = """
import os, socket, sys
outside, server, port, udp_port, proxy_port = sys.argv[1:6]
def write(path):
    with open(path, "a") as file: file.write("x")
def read(path):
    with open(path, "rb") as file: return file.read(1)
def connect(family, kind, address):
    connection = socket.socket(family, kind)
    connection.settimeout(5)
    connection.connect(address)
    return connection
def send():
    connection = connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(udp_port)))
    connection.send(b"x")
    # Where nobody listens the second one says so.
    connection.send(b"x")
tries = {
    "write outside of the project": lambda: write(outside + "/file"),
    "write outside through a link": lambda: write("link/file"),
    "write a hook of git": lambda: write(".git/hooks/pre-commit"),
    "read what is hidden": lambda: read(outside + "/hidden"),
    "read the variables of the server": lambda: read(f"/proc/{server}/environ"),
    "signal the server": lambda: os.kill(int(server), 0),
    "open settings of the kernel": lambda: os.open("/proc/sys/kernel/hostname", os.O_WRONLY),
    "reach the network": lambda: connect(
        socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(port))
    ),
    "send to the network": send,
    "reach a socket in the file system": lambda: connect(
        socket.AF_UNIX, socket.SOCK_STREAM, outside + "/socket"
    ),
}
write("inside")
if proxy_port != "-":
    connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(proxy_port))).close()
for name, attempt in tries.items():
    try: attempt()
    except OSError: print("refused", name)
    else: print("escaped", name)
"""


@dataclass(frozen=True, slots=True)
class SandboxProbe:
    """The result of a probe."""

    program: str
    limit: str | None
    """The limit on processes; None: there is none."""
    refused: Sequence[str]
    escaped: Sequence[str]


def probe(wrapper: MachineSandbox, *, proxied: bool = False) -> SandboxProbe:
    """Try to get out of a sandbox without network, or of one whose network is the proxy.

    Raises:
        SandboxUnavailable: there is none, or not even what is allowed worked in it.
        OSError: there is no room for the attempt on this machine.
    """
    found = wrapper.sandbox()
    with ExitStack() as stack:
        root = Path(os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory())))
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))),
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)),
        ]
        sandbox_policy = _victim(root)
        if proxied:
            sandbox_policy = replace(sandbox_policy, proxy=NetworkPolicy())
        listeners[1].bind(("127.0.0.1", 0))
        with suppress(OSError):
            # The folder for temporary files may have a path that is too long for a socket.
            listeners[2].bind(str(root / "socket"))
            listeners[2].listen()
        work = root / "work"
        command = (
            *(sys.executable, "-I", "-S", "-c", ATTEMPTS, str(root), str(os.getpid())),
            *(str(listener.getsockname()[1]) for listener in listeners[:2]),
            str(PORT) if proxied else "-",
        )
        # Who serves the proxy does not matter: its listener is there, or the command fails.
        wrapped = wrapper.wrap(command, str(work), sandbox_policy)
        stack.callback(wrapped.close)
        try:
            done = subprocess.run(
                wrapped.argv,
                pass_fds=wrapped.pass_fds,
                cwd=work,
                check=False,
                capture_output=True,
                text=True,
                timeout=ATTEMPTS_S,
            )
        except subprocess.TimeoutExpired:
            raise SandboxUnavailable(f"{found.program} does not end") from None
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    if done.returncode != 0 or not lines:
        raise SandboxUnavailable(f"{found.program}: {done.stderr.strip()[-300:]}")
    return SandboxProbe(
        found.program,
        limit_in_words(),
        [name for word, name in lines if word == "refused"],
        [name for word, name in lines if word != "refused"],
    )


def _victim(root: Path) -> EffectivePolicy:
    hooks = root / "work" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (root / "work" / "link").symlink_to(root)
    for name in ("file", "hidden"):
        (root / name).write_text("content")
    return resolved(
        EffectivePolicy(
            writable=(str(root / "work"),),
            protected=(str(root / "work" / ".git"),),
            denied=(str(root / "hidden"),),
            network=False,
        )
    )
