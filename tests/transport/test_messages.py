"""transport: bounds of messages, and what is read of a client that breaks or ends the protocol."""

import asyncio

import anyio
import pytest

from app_server.rpc.message_stream import ClientGone
from app_server.transport.websocket import WebSocketLimits
from tests.support.harness import WAIT_S
from tests.support.wire.frames import CLOSE, TEXT, accepted, frame

MASK = b"\x01\xff\x00\x80"
MAX_BYTES = 400
UNMASKED = b"\x81\x08unmasked"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b'"\xff"', MASK), 1007),
        (frame(TEXT, b"x" * (MAX_BYTES + 1), MASK), 1009),
        (UNMASKED, 1002),
    ],
)
async def test_a_text_that_is_refused_closes_its_socket_and_those_before_it_are_read(
    sent: bytes, code: int
) -> None:
    limits = WebSocketLimits(max_message_bytes=MAX_BYTES)
    codes: list[int] = []

    async def read_code_and_leave(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first, _, *answer = await reader.read()
        assert first == 0x80 | CLOSE
        codes.append(int.from_bytes(answer[:2], "big"))
        writer.write_eof()

    with anyio.fail_after(WAIT_S):
        async with accepted(limits) as client, anyio.create_task_group() as tasks:
            stream, reader, writer = client
            writer.write(frame(TEXT, b"before", MASK) + sent + frame(TEXT, b"behind", MASK))
            tasks.start_soon(read_code_and_leave, reader, writer)
            assert await stream.receive() == "before"
            with pytest.raises(ClientGone):
                await stream.receive()
    assert codes == [code]


async def test_of_a_client_that_has_closed_nothing_more_is_read() -> None:
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, writer):
            closing = frame(CLOSE, b"\x03\xe8", MASK)
            writer.write(frame(TEXT, b"before", MASK) + closing + frame(TEXT, b"behind", MASK))
            assert await reader.read() == bytes([0x80 | CLOSE, 2]) + b"\x03\xe8"
            writer.write(frame(TEXT, b"behind", MASK))
            writer.write_eof()
            assert await stream.receive() == "before"
            with pytest.raises(ClientGone):
                await stream.receive()


async def test_a_client_that_sends_faster_than_it_is_read_waits() -> None:
    """However its messages come, only a few of them wait in memory."""
    text = frame(TEXT, b"x" * 1000, MASK)
    sent = 0

    with anyio.fail_after(WAIT_S):
        async with (
            accepted(WebSocketLimits(close_s=0.1)) as (stream, _, writer),
            anyio.create_task_group() as tasks,
        ):

            async def send() -> None:
                nonlocal sent
                while True:
                    writer.write(text * 100)
                    await writer.drain()
                    sent += 100

            tasks.start_soon(send)
            transport = stream.socket.transport
            while transport.is_reading() or not writer.transport.get_write_buffer_size():
                await asyncio.sleep(0)
            for _ in range(sent):
                assert await stream.receive() == "x" * 1000
            tasks.cancel_scope.cancel()
