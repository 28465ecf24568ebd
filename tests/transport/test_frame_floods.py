"""transport: however many frames a client sends, and however little it reads, others go on."""

import asyncio

import anyio
import pytest

from app_server.transport.address import TcpAddress
from app_server.transport.websocket import (
    FRAGMENT_CHARS,
    MAX_UNSENT_BYTES,
    READ_BYTES,
    FlowControlledConnection,
    JoiningTransport,
    WebSocketLimits,
    WebSocketStream,
    listen_tcp,
)
from tests.support.harness import WAIT_S
from tests.support.wire.frames import (
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    REQUEST,
    TEXT,
    accepted,
    frame,
)


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
    assert longest <= 2 * READ_BYTES // len(frame(TEXT))


async def test_a_client_that_reads_no_pongs_is_not_read_until_it_does() -> None:
    """Without a bound, whatever it sends waits in memory for it."""
    ping = frame(PING, b"x" * 125)
    pong_bytes = len(ping) - 4
    count = 3 * MAX_UNSENT_BYTES // pong_bytes
    most = 0

    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, writer), anyio.create_task_group() as tasks:
            transport = stream.socket.transport

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
            assert most < MAX_UNSENT_BYTES + READ_BYTES

            # Once it reads, it is served as before.
            async def read() -> None:
                while await reader.read(2**20):
                    pass

            tasks.start_soon(read)
            assert await stream.receive() == "behind"
            tasks.cancel_scope.cancel()


class RecordingTransport(JoiningTransport):
    """A socket's transport that records what is written to the socket."""

    def __init__(self, transport: asyncio.Transport, written: list[bytes]) -> None:
        super().__init__(transport)
        self._written = written

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written.append(bytes(data))
        super().write(data)

    def write_eof(self) -> None:
        self._written.append(b"end")
        super().write_eof()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record each write to the sockets of a listener."""
    writes: list[bytes] = []
    connection_made = FlowControlledConnection.connection_made

    def record(connection: FlowControlledConnection, transport: asyncio.Transport) -> None:
        connection_made(connection, RecordingTransport(transport, writes))

    monkeypatch.setattr(FlowControlledConnection, "connection_made", record)
    return writes


async def test_frames_of_one_read_are_answered_in_one_write_and_the_end_of_sending_follows(
    written: list[bytes],
) -> None:
    code = b"\x03\xe8"
    pings = [frame(PING, str(number).encode()) for number in range(3)]
    pongs = [bytes([0x80 | PONG, 1]) + str(number).encode() for number in range(3)]
    with anyio.fail_after(WAIT_S):
        async with accepted() as (_, reader, writer):
            written.clear()
            writer.write(b"".join(pings) + frame(CLOSE, code))
            received = await reader.read()
    answers = b"".join(pongs) + bytes([0x80 | CLOSE, len(code)]) + code
    assert (written, received) == ([answers, b"end"], answers)


async def test_messages_sent_together_are_one_write_and_later_ones_are_not_delayed(
    written: list[bytes],
) -> None:
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, _, _):
            written.clear()
            await stream.send("a", "b")
            await stream.send("c")
            writes = list(written)
    assert writes == [b"\x81\x01a\x81\x01b", b"\x81\x01c"]


async def test_messages_sent_together_wait_for_a_client_that_reads_slowly() -> None:
    """Else the next ones are taken out of the bounded outbox, and wait in memory beside it."""
    texts = ["x" * FRAGMENT_CHARS] * 8
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, _), anyio.create_task_group() as tasks:
            sent = anyio.Event()

            async def send() -> None:
                await stream.send(*texts)
                sent.set()

            tasks.start_soon(send)
            transport = stream.socket.transport
            while not transport.get_write_buffer_size():
                await asyncio.sleep(0)
            await anyio.wait_all_tasks_blocked()
            was_sent_unread = sent.is_set()
            await reader.readexactly(len(texts) * (FRAGMENT_CHARS + 10))
            await sent.wait()
    assert not was_sent_unread


async def test_held_writes_go_out_in_the_next_turn_of_the_event_loop(written: list[bytes]) -> None:
    """A sender that waits between two messages holds back no frame of its connection."""
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, _, _):
            transport = stream.socket.transport
            assert isinstance(transport, JoiningTransport)
            written.clear()
            transport.hold(2)
            transport.write(b"held")
            before = list(written)
            await asyncio.sleep(0)
            transport.write(b"at once")
            assert (before, written) == ([], [b"held", b"at once"])


class UnreadSocket(asyncio.Transport):
    """A socket of a client that reads nothing; `is_read` is whether it is read itself."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read, self.unsent = True, 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


@pytest.mark.parametrize("connection_first", [False, True])
async def test_a_socket_is_read_again_once_nothing_speaks_against_it(
    connection_first: bool,
) -> None:
    """Its connection pauses it for a full queue, and what is unsent for a client that is behind."""
    socket = UnreadSocket()
    transport = JoiningTransport(socket)
    transport.write(bytes(MAX_UNSENT_BYTES))
    assert socket.is_read
    transport.pause_reading()
    transport.write(b"more")
    socket.unsent = 0
    resume = [transport.writing_resumed, transport.resume_reading]
    seen = []
    for one in resume[::-1] if connection_first else resume:
        one()
        seen.append(socket.is_read)
    assert seen == [False, True]


async def test_control_frames_between_the_parts_of_a_message_are_answered_before_its_end() -> None:
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, writer):
            writer.write(frame(TEXT, b"one ", fin=False) + frame(PING, b"a") + frame(PONG))
            assert await reader.readexactly(3) == bytes([0x80 | PONG, 1]) + b"a"
            writer.write(frame(CONTINUATION, b"two ", fin=False) + frame(PING, b"b"))
            assert await reader.readexactly(3) == bytes([0x80 | PONG, 1]) + b"b"
            writer.write(frame(CONTINUATION, b"three") + frame(TEXT, b"next"))
            assert [await stream.receive() for _ in range(2)] == ["one two three", "next"]


async def test_what_is_held_goes_out_before_a_socket_is_closed() -> None:
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, _):
            transport = stream.socket.transport
            assert isinstance(transport, JoiningTransport)
            transport.hold(2)
            transport.write(b"held")
            transport.close()
            assert await reader.read() == b"held"


async def test_frames_that_follow_the_request_at_once_are_taken() -> None:
    texts = [str(number) for number in range(READ_BYTES)]
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
            for _ in range(5):
                head = await reader.readexactly(2)
                size = head[1]
                if size == 127:
                    size = int.from_bytes(await reader.readexactly(8), "big")
                heads.append(head[0])
                payload += await reader.readexactly(size)
    # The begin of a text, continuations of which the last, empty one ends it, and a whole text.
    assert heads == [0x01, 0x00, 0x00, 0x80, 0x81]
    assert payload == large.encode() + b"behind"


async def test_behind_a_large_message_that_was_cut_off_nothing_is_sent() -> None:
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, _, _):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stream.send, "x" * (64 * FRAGMENT_CHARS))
                    while stream.socket.transport.get_write_buffer_size() == 0:
                        await asyncio.sleep(0)
                    scope.cancel()
            with pytest.raises(anyio.BrokenResourceError):
                await stream.send("behind")


async def test_a_close_in_the_middle_of_a_large_message_has_its_own_code() -> None:
    """A client that reads too slowly learns by it that it may resume."""
    with anyio.fail_after(WAIT_S):
        async with accepted() as (stream, reader, writer), anyio.create_task_group() as tasks:

            async def send() -> None:
                with pytest.raises(anyio.BrokenResourceError):
                    await stream.send("x" * (64 * FRAGMENT_CHARS))

            tasks.start_soon(send)
            while not stream.socket.transport.get_write_buffer_size():
                await asyncio.sleep(0)
            tasks.start_soon(stream.aclose, 1013, "later")
            received = b""
            while not received.endswith(b"\x88\x07\x03\xf5later"):
                read = await reader.read(2**20)
                assert read, received[-100:]
                received = received[-100:] + read
            writer.write(frame(CLOSE, b"\x03\xf5"))


@pytest.mark.parametrize(
    "last",
    [
        frame(0x3),
        frame(PING, b"", fin=False),
        b"\x81\x00",
        frame(CLOSE, b"\x03\xe8"),
    ],
    ids=["an unknown opcode", "a ping in parts", "no mask", "goodbye"],
)
async def test_a_client_that_is_to_go_and_does_not_hang_up_loses_its_socket(last: bytes) -> None:
    """It would keep one until it does not answer a ping, half a minute and more."""
    limits = WebSocketLimits(close_s=0.01, ping_s=100 * WAIT_S, pong_s=100 * WAIT_S)
    with anyio.fail_after(WAIT_S):
        async with accepted(limits) as (stream, _, writer):
            transport = stream.socket.transport
            writer.write(last)
            await writer.drain()
            while not transport.is_closing():
                await anyio.sleep(0.01)
