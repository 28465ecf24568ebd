"""transport: messages that come in a frame each are what the parser of websockets makes of them."""

import asyncio

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from app_server.rpc.message_stream import ClientGone
from app_server.transport.frame_steps import FrameSteps
from app_server.transport.text_frames import payload_of, text_frame
from app_server.transport.websocket import WebSocketLimits
from tests.support.harness import WAIT_S
from tests.support.wire.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    REQUEST,
    TEXT,
    accepted,
    frame,
)

MASK = b"\x01\xff\x00\x80"
MAX_BYTES = 400

IN_PAYLOAD = 7 * frame(TEXT, b"{}", MASK)
"""Reads like frames where a payload is taken for what follows one."""
PAYLOADS = st.sampled_from([b"", b"{}", IN_PAYLOAD, b"x" * 125, b"y" * 126, b"z" * 300])
LIKE_A_HEAD = b"\x81\x82\x00\x00"
MASKS = st.sampled_from([bytes(4), bytes(4), MASK, LIKE_A_HEAD])


def message(opcode: int, payload: bytes, mask: bytes) -> list[bytes]:
    """Return the frames of a message: one."""
    return [frame(opcode, payload, mask)]


def long_head(payload: bytes, mask: bytes) -> list[bytes]:
    """Return a text with a length in eight bytes, whatever it is."""
    rest = frame(TEXT, payload * 2, mask)[-len(payload) * 2 - 4 :] if payload else mask
    return [bytes([0x81, 0xFF]) + (len(payload) * 2).to_bytes(8, "big") + rest]


def fragments(payload: bytes, mask: bytes) -> list[bytes]:
    """Return a message in frames, and one of another kind that may stand between them."""
    begin = frame(TEXT, payload, mask, fin=False)
    return [begin, frame(PING, b"between", mask), frame(CONTINUATION, b"end", mask)]


MESSAGES = st.one_of(
    st.builds(message, st.sampled_from([TEXT, TEXT, BINARY]), PAYLOADS, MASKS),
    st.builds(message, st.just(PING), PAYLOADS.map(lambda payload: payload[:125]), MASKS),
    st.builds(long_head, PAYLOADS.filter(lambda payload: len(payload) < 200), MASKS),
    st.builds(fragments, PAYLOADS, MASKS),
)
WRONG = st.sampled_from(
    [
        [],
        [frame(CLOSE, b"\x03\xe8", MASK)],
        [frame(CONTINUATION, b"of nothing", MASK)],
        [frame(TEXT, b"begins", MASK, fin=False), frame(TEXT, b"another", MASK)],
        [frame(TEXT, b"too large" * MAX_BYTES, MASK)],
        [text_frame(b"unmasked")],
        [bytes([0xC1, 0x80]) + MASK],
        [frame(TEXT, b"b" * 130, MASK, fin=False), frame(TEXT, b"another", MASK)],
        [frame(3, b"no opcode", MASK)],
    ]
)
"""After most of these a client is closed."""


@st.composite
def reads(draw: st.DrawFn) -> list[bytes]:
    """Draw what a client sends, as reads of the socket: cut between frames, and inside of them."""
    before = draw(st.lists(MESSAGES, max_size=12))
    after = draw(st.lists(MESSAGES, max_size=3))
    frames = [frame for frames in (*before, draw(WRONG), *after) for frame in frames]
    reads = [b""]
    for one in frames:
        # In the head, behind it, or somewhere.
        place = draw(st.one_of(st.sampled_from([1, 2, 6, 14]), st.integers(0, len(one))))
        match draw(st.sampled_from(["joined", "alone", "cut"])):
            case "joined":
                reads[-1] += one
            case "alone":
                reads += [one, b""]
            case "cut":
                reads[-1] += one[:place]
                reads.append(one[place:])
    return [read for read in reads if read]


def websockets_frames(reads: list[bytes]) -> list[tuple[Opcode, bytes, bool]]:
    """Return what the parser of websockets reads."""
    protocol = accepted_protocol()
    for read in reads:
        protocol.receive_data(read)
    return shown(protocol)


def our_frames(reads: list[bytes]) -> list[tuple[Opcode, bytes, bool]]:
    """Return what is read where whole text messages bypass the parser."""
    protocol = accepted_protocol()
    frames: list[tuple[Opcode, bytes, bool]] = []
    cutter = FrameSteps(MAX_BYTES)
    assert list(cutter.cut(REQUEST)) == [REQUEST]
    for read in reads:
        for step in cutter.cut(read):
            if isinstance(step, list) and protocol.state.name == "OPEN":
                frames.extend((Opcode.TEXT, payload_of(text), True) for text in step)
            else:
                protocol.receive_data(step if isinstance(step, bytes) else b"".join(step))
                frames.extend(shown(protocol))
    return frames


def accepted_protocol() -> ServerProtocol:
    """Return the server's end of a WebSocket that is open."""
    protocol = ServerProtocol(max_size=MAX_BYTES)
    protocol.receive_data(REQUEST)
    [request] = protocol.events_received()
    assert isinstance(request, Request)
    protocol.send_response(protocol.accept(request))
    return protocol


def shown(protocol: ServerProtocol) -> list[tuple[Opcode, bytes, bool]]:
    """Return the frames that a protocol has read since it was asked last."""
    frames = [event for event in protocol.events_received() if isinstance(event, Frame)]
    return [(frame.opcode, bytes(frame.data), frame.fin) for frame in frames]


@given(reads())
@example([frame(TEXT, IN_PAYLOAD)[:6], frame(TEXT, IN_PAYLOAD)[6:]])
def test_whatever_comes_in_whatever_pieces_is_read_as_the_parser_reads_it(
    reads: list[bytes],
) -> None:
    assert our_frames(reads) == websockets_frames(reads)


def test_texts_that_come_whole_need_no_parser() -> None:
    texts = [b"", b"{}", b"x" * 125, b"y" * 126, b"z" * MAX_BYTES]
    cutter = FrameSteps(MAX_BYTES)
    sent = [frame(TEXT, text, MASK) for text in texts]
    request, step = cutter.cut(REQUEST + b"".join(sent))
    assert (request, step) == (REQUEST, sent)
    assert isinstance(step, list)
    assert [payload_of(frame) for frame in step] == texts


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65_535, 65_536])
def test_a_frame_is_written_as_websockets_writes_it(length: int) -> None:
    payload = b"x" * length
    assert text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b'"\xff"', MASK), 1007),
        (frame(TEXT, b"x" * (MAX_BYTES + 1), MASK), 1009),
        (text_frame(b"unmasked"), 1002),
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
            transport = stream._socket.transport
            while transport.is_reading() or not writer.transport.get_write_buffer_size():
                await asyncio.sleep(0)
            for _ in range(sent):
                assert await stream.receive() == "x" * 1000
            tasks.cancel_scope.cancel()
