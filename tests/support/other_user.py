"""Work that is done as another user of this machine, by a child that needs no file.

The child is a copy of this process (fork without exec), and may import nothing: so the other user
need not be able to read Python's library, and a check that cannot run fails.
"""

import os
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.harness import WAIT_S

STRANGER = 4242
"""A user whom no machine has."""


def other_user(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the user of a process that is a stranger to this one from now on.

    Only root can be somebody else in a child; for others this process is made to be somebody else.
    """
    if os.getuid() == 0:
        return STRANGER
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    return os.getuid()


def done_as(uid: int, work: Callable[[], bytes]) -> str:
    """Return what `work` gives in a child of a user; of an OSError its class and number.

    Blocks. `work` has what this process has open, and needs system calls alone.

    Raises:
        AssertionError: the child could not do it.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Other threads may hold locks; the child needs none of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, _result(uid, work))
        finally:
            # It has said nothing if that failed.
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as result:
        text = result.read().decode()
    os.waitpid(child, 0)
    assert text, "the child could not do it"
    return text


def _result(uid: int, work: Callable[[], bytes]) -> bytes:
    try:
        if uid != os.getuid():
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        sys.meta_path.clear()
        return work()
    except OSError as exc:
        return f"{type(exc).__name__} {exc.errno}".encode()


def exchanged(family: int, address: Any, request: bytes) -> bytes:
    """Send a request to a listener; return all that comes, until the end or an upgrade."""
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(WAIT_S)
        client.connect(address)
        client.sendall(request)
        answer = b""
        while (piece := client.recv(65536)) and not piece.startswith(b"HTTP/1.1 101"):
            answer += piece
        return answer or piece.partition(b"\r\n")[0] or b"closed"


def network_opened(process: int) -> bytes:
    """Take the first step into the network of a process."""
    os.close(os.open(f"/proc/{process}/ns/net", os.O_RDONLY))
    return b"opened"
