"""Forks programs for `stand_in`, from a process that has imported everything.

A program of the MCP SDK takes a second of processor time to start, nearly all of it for imports.
"""

import atexit
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import anyio.to_thread

from tests.support.forks import CONTEXT, run_program

STAND_IN = Path(__file__).with_name("stand_in.py")


async def forked_command(module: str, *words: str) -> list[str]:
    """Return a command that runs `main` of a module in a fork; the words are those it gets."""
    # The first one waits for all imports.
    address = await anyio.to_thread.run_sync(_listening)
    return [sys.executable, "-S", "-E", str(STAND_IN), address, module, *words]


@cache
def _listening() -> str:
    """Start to listen, until this process ends; gives the address."""
    folder = tempfile.mkdtemp(prefix="forks-")
    atexit.register(shutil.rmtree, folder)
    address = str(Path(folder) / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        CONTEXT.Process(target=_listen, args=(listener,), daemon=True).start()
    return address


def _listen(listener: socket.socket) -> None:
    # Nobody waits for the forks here.
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        asked, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, before)
            listener.close()
            _run(asked)
        asked.close()


def _run(asked: socket.socket) -> None:
    """Be the program, and tell its status to who stands in for it."""
    status = 1
    try:
        _, streams, _, _ = socket.recv_fds(asked, 1, 3)
        with asked.makefile("rb") as lines:
            wanted: dict[str, Any] = json.loads(lines.readline())
        threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
        module, *words = wanted["words"]
        run_program(module, words, wanted["environment"], wanted["folder"], streams)
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else exc.code is not None
    finally:
        sys.stdout.flush()
        asked.send(bytes([status]))
        os._exit(status)


def _end_with(asked: socket.socket) -> None:
    """End this process when the one that stands in for it has ended."""
    asked.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)
