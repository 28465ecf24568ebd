"""What is done in a sandbox before its command begins (app_server/host/sandbox/linux/inside.py).

Source: docs/tools.md, "Sandbox", "Network through a proxy".
"""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from app_server.host.sandbox.proxied import PORT

PROGRAM = Path(__file__).with_name("inside.py")
NOT_WANTED = "-"


@dataclass(frozen=True, slots=True)
class Preparation:
    """What comes before the command line of bubblewrap, and what goes with it."""

    argv: Sequence[str] = ()
    pass_fds: Sequence[int] = ()
    network: socket.socket | None = None
    """Where the listener of the proxy arrives."""


def preparation(held: ExitStack, *, listens: bool, pid_max: int | None) -> Preparation:
    """Prepare a listener and a bound of processes, or nothing; sockets are put into `held`."""
    if not listens and pid_max is None:
        return Preparation()
    fds: list[int] = []
    ours: socket.socket | None = None
    if listens:
        ours, theirs = socket.socketpair()
        fds.append(theirs.detach())
        held.callback(os.close, fds[0])
        held.callback(ours.close)
    server = str(fds[0]) if fds else NOT_WANTED
    bound = NOT_WANTED if pid_max is None else str(pid_max)
    argv = (sys.executable, "-I", "-S", str(PROGRAM), server, str(PORT), bound, "--")
    return Preparation(argv, fds, ours)
