"""transport: however many frames a client sends, and however little it reads, others go on."""

import asyncio

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.transport.address import TcpAddress
from app_server.transport.frame_steps import FRAMES_AT_ONCE, FrameSteps
from app_server.transport.stepped_connection import MAX_UNSENT_BYTES
from app_server.transport.websocket import WebSocketLimits, listen_tcp
from app_server.transport.websocket_stream import FRAGMENT_CHARS, WebSocketStream
from tests.support.harness import WAIT_S
from tests.support.wire.frames import (
    CLOSE,
    PING,
    PONG,
    REQUEST,
    TEXT,
    accepted,
    frame,
    pieces_of,
)


@given(
    lengths=st.lists(st.sampled_from([0, 0, 0, 1, 125, 126, 300, 70_000]), max_size=300),
    sizes=st.lists(st.integers(1, 3_000), max_size=30),
)
def test_every_step_holds_few_frames_and_nothing_is_lost(
    lengths: list[int], sizes: list[int]
) -> None:
    frames = [frame(TEXT, bytes(length)) for length in lengths]
    sent = REQUEST + b"".join(frames)
    ends = {len(REQUEST) + sum(map(len, frames[: n + 1])) for n in range(len(frames))}
    cutter = FrameSteps(WebSocketLimits().max_message_bytes)
    position = 0
    for read in pieces_of(sent, sizes):
        cut = list(cutter.cut(read))
        steps = [step if isinstance(step, bytes) else b"".join(step) for step in cut]
        assert b"".join(steps) == read
        for step in steps:
            inside = range(position + 1, position + len(step) + 1)
            assert sum(end in inside for end in ends) <= FRAMES_AT_ONCE
            position += len(step)


async def test_others_run_between_the_smallest_frames() -> None:
    count = 20_000
    received = longest = since = 0

    async def others() -> None:
        nonlocal longest, since
        while received < count:
            longest, since = max(longest, since), 0
            await asyncio.sleep(0)

    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, _, writer), anyio.create_task_group() as tasks:
            tasks.start_soon(others)
            writer.write(frame(PONG) * count + frame(TEXT) * count)
            while received < count:
                await stream.receive()
                received += 1
                since += 1
    assert longest <= 2 * FRAMES_AT_ONCE


async def test_a_client_that_reads_no_pongs_is_not_read_until_it_does() -> None:
    """Without a bound, whatever it sends waits in memory for it."""
    ping = frame(PING, b"x" * 125)
    pong_bytes = len(ping) - 4
    count = 3 * MAX_UNSENT_BYTES // pong_bytes
    most = 0

    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, writer), anyio.create_task_group() as tasks:
            transport = stream._socket.transport

            async def ask() -> None:
                for _ in range(0, count, 1000):
                    writer.write(ping * 1000)
                    await writer.drain()
                writer.write(frame(TEXT, b"behind"))

            tasks.start_soon(ask)
            while transport.is_reading() or transport.get_write_buffer_size() < MAX_UNSENT_BYTES:
                most = max(most, transport.get_write_buffer_size())
                await asyncio.sleep(0)
            most = max(most, transport.get_write_buffer_size())
            assert most < MAX_UNSENT_BYTES + FRAMES_AT_ONCE * pong_bytes

            # Once it reads, it is served as before.
            async def read() -> None:
                while await reader.read(2**20):
                    pass

            tasks.start_soon(read)
            assert await stream.receive() == "behind"
            tasks.cancel_scope.cancel()


async def test_frames_of_one_step_are_answered_in_one_write_and_the_end_of_sending_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = b"\x03\xe8"
    pings = [frame(PING, str(number).encode()) for number in range(3)]
    pongs = [bytes([0x80 | PONG, 1]) + str(number).encode() for number in range(3)]
    written: list[bytes] = []
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, writer):
            transport = stream._socket.transport
            write, write_eof = transport.write, transport.write_eof

            def note(data: bytes) -> None:
                written.append(data)
                write(data)

            def note_end() -> None:
                written.append(b"end")
                write_eof()

            monkeypatch.setattr(transport, "write", note)
            monkeypatch.setattr(transport, "write_eof", note_end)
            writer.write(b"".join(pings) + frame(CLOSE, code))
            received = await reader.read()
    answers = b"".join(pongs) + bytes([0x80 | CLOSE, len(code)]) + code
    assert (written, received) == ([answers, b"end"], answers)


async def test_frames_that_follow_the_request_at_once_are_taken() -> None:
    texts = [str(number) for number in range(3 * FRAMES_AT_ONCE)]
    received: list[str] = []
    done = anyio.Event()

    async def converse(stream: object) -> None:
        assert isinstance(stream, WebSocketStream)
        received.extend([await stream.receive() for _ in texts])
        done.set()

    frames = b"".join(frame(TEXT, text.encode()) for text in texts)
    with anyio.fail_after(WAIT_S):
        async with listen_tcp(TcpAddress("127.0.0.1", 0), converse, WebSocketLimits()) as listener:
            port = int(listener.url.rsplit(":", 1)[1])
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST + frames)
            await done.wait()
            writer.transport.abort()
    assert received == texts


async def test_a_message_waits_for_the_end_of_a_large_one() -> None:
    large = "x" * (3 * FRAGMENT_CHARS)
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, _), anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, large)
            tasks.start_soon(stream.send, "behind")
            heads, payload = [], b""
            for _ in range(4):
                head = await reader.readexactly(2)
                size = head[1]
                if size == 127:
                    size = int.from_bytes(await reader.readexactly(8), "big")
                heads.append(head[0])
                payload += await reader.readexactly(size)
    # The begin of a text, two continuations of which the second ends it, and a whole text.
    assert heads == [0x01, 0x00, 0x80, 0x81]
    assert payload == large.encode() + b"behind"


async def test_behind_a_large_message_that_was_cut_off_nothing_is_sent() -> None:
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, _, _):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stream.send, "x" * (64 * FRAGMENT_CHARS))
                    while stream._socket.transport.get_write_buffer_size() == 0:
                        await asyncio.sleep(0)
                    scope.cancel()
            with pytest.raises(anyio.BrokenResourceError):
                await stream.send("behind")
