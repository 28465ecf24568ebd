"""The session stream: acknowledgements, redelivery, lost connections."""

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve

from app_server.clients.receiver.backoff import Backoff
from app_server.clients.receiver.router.session_stream import NotSent, SessionStream, StreamLimits
from app_server.clients.receiver.router.wire import (
    RouterAddress,
)
from protocol.model import Json
from tests.support.harness import WAIT_S
from tests.support.receiver.peer import KEY, envelope, signal
from tests.support.receiver.routers import post, raw, router


@dataclass
class Box:
    """An Inbox in memory."""

    signals: list[Json] = field(default_factory=list)
    cursors: list[str] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.room.set()

    async def take(self, value: Json, raw: bytes) -> None:
        await self.room.wait()
        self.signals.append(value)

    async def cursor(self) -> str | None:
        return self.cursors[-1] if self.cursors else None

    async def move_cursor(self, cursor: str) -> None:
        self.cursors.append(cursor)
        self.came.set()

    async def until(self, count: int) -> None:
        """Wait until so many signals were acknowledged."""
        with anyio.fail_after(WAIT_S):
            while len(self.cursors) < count:
                self.came.clear()
                await self.came.wait()

    def ids(self) -> list[Any]:
        return [one["signal_id"] for one in self.signals if isinstance(one, dict)]


class Naps:
    """Sleeps that are over when the test says so."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.began = asyncio.Event()
        self._over = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        self.delays.append(delay_s)
        self.began.set()
        await self._over.wait()
        self._over = asyncio.Event()

    async def until_asleep(self) -> None:
        with anyio.fail_after(WAIT_S):
            await self.began.wait()
        self.began.clear()

    def wake(self) -> None:
        self._over.set()


def stream_to(
    url: str,
    box: Box,
    naps: Naps | None = None,
    limits: StreamLimits | None = None,
    session: str = "Texi",
    key: str = KEY,
) -> SessionStream:
    """Make a stream whose waits the test ends."""
    backoff = Backoff((naps or Naps()).sleep, chance=lambda: 0.0)
    return SessionStream(RouterAddress(url, session, key), box, backoff, limits)


@asynccontextmanager
async def running(stream: SessionStream) -> AsyncIterator[None]:
    """Run a stream while the context lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.run)
        yield
        tasks.cancel_scope.cancel()


async def test_signals_are_acknowledged_when_they_were_taken_and_not_before(
    tmp_path: Path,
) -> None:
    box = Box()
    box.room.clear()
    async with router(tmp_path) as url:
        async with running(stream_to(url, box)):
            await post(url, signal("s1"))
        # It was not taken: another gets it.
        box.room.set()
        async with running(stream_to(url, box)):
            await box.until(1)
            await post(url, signal("s2"))
            await box.until(2)
        async with running(stream_to(url, box)):
            await post(url, signal("s3"))
            await box.until(3)

    assert box.ids() == ["s1", "s2", "s3"]


async def test_after_a_lost_connection_the_stream_goes_on_behind_its_cursor(
    tmp_path: Path,
) -> None:
    box, naps = Box(), Naps()
    async with router(tmp_path) as url:
        stream = stream_to(url, box, naps)
        async with running(stream):
            await post(url, signal("s1"))
            await box.until(1)
            # Another receiver, which then leaves.
            async with raw(url):
                await naps.until_asleep()
            naps.wake()
            await post(url, signal("s2"))
            await box.until(2)

    assert box.ids() == ["s1", "s2"]
    # Who was replaced stays away for long.
    assert naps.delays == [15.0]


async def test_a_router_that_is_not_there_is_tried_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with router(tmp_path) as url:
        port = int(url.rpartition(":")[2])
    box, naps = Box(), Naps()
    stream = stream_to(url, box, naps)
    async with running(stream):
        for _ in range(3):
            await naps.until_asleep()
            naps.wake()
        await naps.until_asleep()
        with pytest.raises(NotSent, match="cannot be reached"):
            await stream.send(envelope("s9"))
        async with router(tmp_path, port):
            naps.wake()
            await post(url, signal("s1"))
            await box.until(1)

    assert naps.delays[:4] == [1.0, 1.0, 2.0, 4.0]
    assert box.ids() == ["s1"]
    logged = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert logged == [
        "the router cannot be reached: ConnectionRefusedError",
        "the router cannot be reached: it has gone",
    ]


async def test_a_router_that_refuses_the_key_is_asked_seldom_and_the_key_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "app_server")
    naps = Naps()
    async with router(tmp_path) as url, running(stream_to(url, Box(), naps, key="wrong-key-7")):
        await naps.until_asleep()

    assert naps.delays == [15.0]
    assert "the router cannot be reached: HTTP status 401" in caplog.text
    assert "wrong-key-7" not in caplog.text


async def test_the_key_is_not_carried_to_another_address() -> None:
    asked: list[tuple[str, str]] = []

    @asynccontextmanager
    async def redirecting(name: str, to: str) -> AsyncIterator[str]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((name, (await reader.readuntil(b"\r\n\r\n")).decode()))
            head = f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"
            writer.write(head.encode())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
        await server.wait_closed()

    naps = Naps()
    async with (
        redirecting("other", "ws://127.0.0.1:9/") as other,
        redirecting("asked", other) as url,
        running(stream_to(url, Box(), naps)),
    ):
        await naps.until_asleep()

    assert [name for name, _ in asked] == ["asked"]
    first_line, *rest = asked[0][1].split("\r\n")
    assert KEY not in first_line
    assert [line for line in rest if KEY in line] == [f"Authorization: Bearer {KEY}"]


async def test_a_router_that_does_not_answer_pings_counts_as_gone() -> None:
    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line for line in head.split("\r\n") if line.startswith("Sec-WebSocket-Key"))
        magic = key.partition(": ")[2] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode()
        writer.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        await reader.read()
        writer.close()

    naps = Naps()
    server = await asyncio.start_server(stay_silent, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    limits = StreamLimits(ping_s=0.05, pong_s=0.05, close_s=0.05)
    async with running(stream_to(url, Box(), naps, limits)):
        await naps.until_asleep()
    server.close()
    await server.wait_closed()

    assert naps.delays == [1.0]


async def test_frames_that_mean_nothing_are_passed_over(tmp_path: Path) -> None:
    frames: Sequence[str | bytes] = [
        "no json",
        b"\xff\xfe",
        "[]",
        '{"type":"news"}',
        '{"type":"accepted","signal_id":"never sent"}',
        json.dumps({"type": "signal", "cursor": "c1", "signal": signal("s1")}),
        json.dumps({"type": "signal", "signal": signal("no cursor")}),
        json.dumps({"type": "signal", "cursor": "c2", "signal": signal("s2")}),
    ]
    box = Box()
    async with _router_that_sends(frames) as (url, acks), running(stream_to(url, box)):
        await box.until(2)
        with anyio.fail_after(WAIT_S):
            assert [await acks.get(), await acks.get()] == ["c1", "c2"]

    assert box.signals[:3] == [None, None, None]
    assert box.ids() == ["s1", "no cursor", "s2"]


async def test_a_signal_of_the_agent_is_sent_when_the_router_says_so(tmp_path: Path) -> None:
    box = Box()
    async with router(tmp_path) as url:
        sender = stream_to(url, Box(), session="Desiree")
        async with running(sender), running(stream_to(url, box)):
            await _until_open(sender)
            await sender.send(envelope("s1"))
            with pytest.raises(NotSent, match="`to` is missing"):
                await sender.send(envelope("s2", to=None))
            await box.until(1)

    assert box.ids() == ["s1"]


async def test_a_router_that_says_nothing_about_a_signal_fails_the_sending() -> None:
    async with _router_that_sends([]) as (url, _):
        sender = stream_to(url, Box(), limits=StreamLimits(send_s=0.05))
        async with running(sender):
            await _until_open(sender)
            with pytest.raises(NotSent, match="did not answer"):
                await sender.send(envelope("s1"))


async def _until_open(stream: SessionStream) -> None:
    with anyio.fail_after(WAIT_S):
        while not stream.is_open:
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def _router_that_sends(
    frames: Sequence[str | bytes],
) -> AsyncIterator[tuple[str, "asyncio.Queue[str]"]]:
    acks: asyncio.Queue[str] = asyncio.Queue()

    async def converse(socket: ServerConnection) -> None:
        for frame in frames:
            await socket.send(frame)
        async for text in socket:
            message = json.loads(text)
            if message["type"] == "ack":
                acks.put_nowait(message["cursor"])

    async with serve(converse, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", acks
