"""Exec servers for tests: the real program, and a client that speaks the protocol by hand."""

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect

from app_server.host.exec.server.server import ExecServer, ExecSettings
from tests.support.forks import ForkedProcess, fork_program
from tests.support.harness import WAIT_S, environment_without

START_S = 180.0

HELLO = {"protocolVersion": 1, "clientName": "test"}


@dataclass
class ExecProcess:
    """A running `app-server exec-server`."""

    process: ForkedProcess
    url: str

    def kill(self) -> None:
        """End it by kill -9."""
        self.process.kill()

    async def ended(self) -> int:
        """Wait for the end and return the exit status."""
        with anyio.fail_after(START_S):
            return await self.process.wait()


@asynccontextmanager
async def exec_server(
    *arguments: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ExecProcess]:
    """Run the program, forked; leaving kills it."""
    process = await fork_program(
        "app_server.cli.entry",
        *("exec-server", *arguments),
        environment=environment_without() | dict(environment or {}),
        folder=cwd or Path.cwd(),
    )
    try:
        with anyio.fail_after(START_S):
            line = (await process.stderr.readline()).decode()
        assert line.startswith("listening on: ws://"), line
        yield ExecProcess(process, line.removeprefix("listening on: ").strip())
    finally:
        await process.aclose()


@asynccontextmanager
async def exec_here(port: int = 0) -> AsyncIterator[tuple[str, ExecServer]]:
    """Run an exec server in this process."""
    server = ExecServer(ExecSettings("127.0.0.1", port))
    async with server.listen() as url:
        yield url, server


class ExecClient:
    """One connection to an exec server, frame by frame."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._next_id = 0

    async def send(self, method: str, **params: Any) -> None:
        """Send a notification."""
        await self.socket.send(json.dumps({"method": method, "params": params}))

    async def request(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": params}
        await self.socket.send(json.dumps(message))
        return self._next_id

    async def call(self, method: str, **params: Any) -> Any:
        """Send a request and return the whole answer, which must come next."""
        request_id = await self.request(method, **params)
        answer = await self.receive()
        assert answer.pop("id") == request_id
        return answer

    async def write(self, process_id: int, data: bytes) -> None:
        """Send input."""
        await self.socket.send(struct.pack(">BI", 0, process_id) + data)

    async def receive(self) -> Any:
        """Return the next message: a JSON value, or (stream, process, bytes)."""
        with anyio.fail_after(WAIT_S):
            frame = await self.socket.recv()
        if isinstance(frame, str):
            return json.loads(frame)
        stream, process_id = struct.unpack_from(">BI", frame)
        return stream, process_id, frame[5:]

    async def receive_next(self) -> Any:
        """Return the next message that is not the end of a stream.

        The end of a process ends its streams: whether that is sent before it depends on which is
        seen first.
        """
        while True:
            match await self.receive():
                case (_, _, b""):
                    pass
                case message:
                    return message

    async def closed(self) -> tuple[int | None, str | None]:
        """Wait until the exec server closes; returns code and reason."""
        with anyio.fail_after(WAIT_S):
            await self.socket.wait_closed()
        return self.socket.close_code, self.socket.close_reason


@asynccontextmanager
async def exec_client(url: str, *, hello: bool = True, **options: Any) -> AsyncIterator[ExecClient]:
    """Connect, and shake hands."""
    settings: dict[str, Any] = {"proxy": None, "open_timeout": WAIT_S, "compression": None}
    async with connect(url, **settings, ping_interval=None, **options) as socket:
        client = ExecClient(socket)
        if hello:
            assert await client.call("initialize", **HELLO) == {"result": {"protocolVersion": 1}}
        yield client


class Holders:
    """A pipe that processes hold open by name, and say so: it ends when all of them have ended."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "held"
        os.mkfifo(self.path)
        self._pipe = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        # Without a writer the pipe would count as ended before the first process holds it.
        self._keeper: int | None = os.open(self.path, os.O_WRONLY)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator["Holders"]:
        """Read from the pipe while the context lasts."""
        self._reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(self._pipe, "rb", 0)
        )
        try:
            yield self
        finally:
            transport.close()
            if self._keeper is not None:
                os.close(self._keeper)

    async def held(self, count: int) -> None:
        """Wait until this many processes hold the pipe: each writes a byte."""
        with anyio.fail_after(2 * WAIT_S):
            await self._reader.readexactly(count)

    async def ended(self) -> None:
        """Wait until none of them lives."""
        assert await self.left() == b""

    async def left(self) -> bytes:
        """Wait until none of them lives, and give what they wrote that `held` did not wait for."""
        assert self._keeper is not None
        os.close(self._keeper)
        self._keeper = None
        with anyio.fail_after(2 * WAIT_S):
            return await self._reader.read()


HOLD = "import os, sys; held = os.open(sys.argv.pop(1), os.O_WRONLY); os.write(held, b'x'); "
"""How a process holds the pipe that its first argument names."""

STUBBORN = """\
import os, runpy, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = os.open(sys.argv.pop(1), os.O_WRONLY)
if os.fork() == 0:
    os.write(held, b"x")
    while True:
        signal.pause()
os.write(held, b"x")
runpy.run_path(sys.argv.pop(1), run_name="__main__")
while True:
    signal.pause()
"""
"""An MCP server with a child, neither of which ends when it is asked to."""
