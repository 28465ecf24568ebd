"""Run a function in a fork of this process wherever a shell command is wanted.

A command that is started again and again spends its time with imports. Here they are done once:
what is started instead hands its arguments, environment and standard streams to the process that
has them, waits for the exit status, and ends with it.
Source: docs/mcp.md, "Conformance".
"""

import os
import select
import shlex
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Main = Callable[[list[str]], int]

HAND_OVER = Path(__file__).with_name("hand_over.py")
BACKLOG = 128
"""Commands that wait for those before them."""


@contextmanager
def warm_command(main: Main, *, seconds: int) -> Iterator[str]:
    """Give a shell command that runs `main` with what is appended to it, in a process of its own.

    One runs at a time, for at most `seconds`. Nothing of it goes on when this process has ended,
    however it ends. Raises RuntimeError if this process has threads, which no fork may have.
    """
    if threading.active_count() > 1:
        raise RuntimeError("a process with threads cannot be forked")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        address = f"{folder}/socket"
        listener.bind(address)
        listener.listen(BACKLOG)
        ended, lasting = os.pipe()
        sys.stdout.flush()
        server = os.fork()
        if server == 0:
            os.close(lasting)
            _end_with(_serve, main, listener, ended, seconds)
        os.close(ended)
        try:
            yield shlex.join([sys.executable, "-I", "-S", str(HAND_OVER), address])
        finally:
            os.close(lasting)
            os.waitpid(server, 0)


def _serve(main: Main, listener: socket.socket, ended: int, seconds: int) -> int:
    while ended not in select.select([listener.fileno(), ended], [], [])[0]:
        connection, _ = listener.accept()
        child = os.fork()
        if child == 0:
            signal.alarm(seconds)
            listener.close()
            os.close(ended)
            _end_with(_run, main, connection)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with connection:
            _report(connection, status if status >= 0 else 128 - status)
    return 0


def _report(connection: socket.socket, status: int) -> None:
    # What was started may have been ended meanwhile.
    with suppress(OSError):
        connection.sendall(bytes([status]))


def _run(main: Main, connection: socket.socket) -> int:
    """Take over what hand_over.py sends."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with connection, connection.makefile("rb") as sent:
        count, *words = sent.read().split(b"\0")
    os.environb.clear()
    for variable in words[int(count) :]:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    return main([os.fsdecode(argument) for argument in words[: int(count)]])


def _end_with(run: Callable[..., int], *arguments: object) -> None:
    """End this process, which is a fork, without the way back through what it was forked in."""
    status = 1
    try:
        status = run(*arguments)
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
