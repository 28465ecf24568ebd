"""The spawner of a server: started with the first command, and again if it has died.

Source: docs/tools.md, "Commands".
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.host.sandbox.linux.process_limits import ServerGroup
from app_server.host.scripts import end_script, start_script

SPAWNER = Path(__file__).with_name("spawner.py")

CLOSE_S = 5.0
"""For the spawner to end by itself, as it has nothing left to do by then; then it is killed."""

SEND_S = 10.0
"""For the spawner to take an order; it takes them one after the other, in less than a ms each."""


class SpawnerGone(OSError):
    """The spawner takes no orders; the next one starts another."""


class Spawner:
    """Hands orders to the spawner (app_server/host/commands/spawner.py)."""

    def __init__(self, group: ServerGroup) -> None:
        """`group` is the cgroup of all commands."""
        self._group = group
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._lock = anyio.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The spawner's process id; None while there is none."""
        alive = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and alive else None

    async def order(self, order: Mapping[str, object], fds: Sequence[int]) -> None:
        """Hand over a command (`Order` of the spawner) and its descriptors, which stay open here.

        `fds` begins with the control socket.

        Raises:
            OSError: there is no spawner, or it does not take the order.
        """
        with _sealed(json.dumps(order).encode()) as file:
            async with self._lock:
                connection = await self._connected()
                try:
                    with anyio.fail_after(SEND_S):
                        await _send(connection, [file, *fds])
                except (OSError, TimeoutError) as exc:
                    await self._drop()
                    raise SpawnerGone(0, f"the spawner of commands is gone: {exc}") from exc

    async def prepare(self) -> None:
        """Start the spawner unless it runs: it cleans up resources made for a command.

        Raises:
            OSError: it cannot be started.
        """
        async with self._lock:
            await self._connected()

    async def aclose(self) -> None:
        """Close the spawner; supervisors end the commands that still run."""
        async with self._lock:
            self._closed = True
            await self._drop()

    async def _connected(self) -> socket.socket:
        if self._closed:
            raise SpawnerGone(0, "the server is stopping")
        if self.pid is None or self._socket is None:
            await self._drop()
            entrance = await anyio.to_thread.run_sync(self._group.entrance)
            ours, theirs = socket.socketpair()
            with theirs:
                ours.setblocking(False)
                try:
                    self._process = await start_script(
                        SPAWNER, *(() if entrance is None else (entrance,)), stdin=theirs.fileno()
                    )
                except BaseException:
                    ours.close()
                    raise
            self._socket = ours
        return self._socket

    async def _drop(self) -> None:
        process, self._process = self._process, None
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()
        if process is not None:
            await end_script(process, CLOSE_S)


async def _send(connection: socket.socket, fds: Sequence[int]) -> None:
    while True:
        try:
            socket.send_fds(connection, [b"o"], fds)
        except BlockingIOError:
            await anyio.wait_writable(connection)
        else:
            return


@contextlib.contextmanager
def _sealed(content: bytes) -> Iterator[int]:
    """Give a file without a name that holds this, to be read from its beginning."""
    if sys.platform == "linux":
        fd = os.memfd_create("order", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        with open(fd, "wb", closefd=False) as writer:
            writer.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)
