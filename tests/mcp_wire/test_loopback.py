"""mcp: HTTP/1.1 on loopback: what is understood, what is refused, which connections are kept."""

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.mcp_wire.http import connection as connection_module
from app_server.mcp_wire.http import loopback
from app_server.mcp_wire.http.connection import MAX_HEAD_BYTES, LoopbackConnection
from app_server.mcp_wire.http.exchange import BodyBroken, HttpRequest, Unreachable, read_body
from app_server.mcp_wire.http.loopback import LoopbackSender, is_loopback
from tests.support.harness import WAIT_S

LIMIT = 1000

# What a connection makes of bytes, without a network.


class Wire(asyncio.Transport):
    """What the event loop would give a connection; takes note of what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 0
        self.did: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send nothing."""

    def abort(self) -> None:
        self.did.append("abort")

    def pause_reading(self) -> None:
        self.did.append("pause")

    def resume_reading(self) -> None:
        self.did.append("resume")

    def get_write_buffer_size(self) -> int:
        return self.unsent


@dataclass
class PeerlessConnection:
    """A connection without a peer, and whether it was kept."""

    wire: Wire = field(default_factory=Wire)
    kept: list[LoopbackConnection] = field(default_factory=list)

    def connection(self) -> LoopbackConnection:
        ours = socket.socket()
        connection = LoopbackConnection(ours, self.kept.append)
        connection.connection_made(self.wire)
        connection.send(b"request")
        ours.close()
        return connection


Outcome = tuple[int, bytes] | str


async def outcome_of(pieces: Sequence[bytes], *, ends: bool = False) -> tuple[Outcome, bool]:
    """Say what a connection makes of bytes, and whether it can be used again."""
    peerless = PeerlessConnection()
    connection = peerless.connection()
    for piece in pieces:
        connection.data_received(piece)
    if ends:
        connection.eof_received()
        connection.connection_lost(None)
    try:
        with anyio.fail_after(WAIT_S):
            response = await connection.response()
            body = await read_body(response, LIMIT)
    except (Unreachable, BodyBroken) as exc:
        return str(exc), bool(peerless.kept)
    await response.aclose()
    return (response.status, body), bool(peerless.kept)


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
CLOSED = "the server closed the connection"
NOT_HTTP = "the response is not valid HTTP"
TOO_MUCH_HEAD = f"the response has more than {MAX_HEAD_BYTES} bytes of headers"


@pytest.mark.parametrize(
    ("sent", "outcome", "kept"),
    [
        (OK + b"content-length: 2\r\n\r\nok", (200, b"ok"), True),
        (OK + b"content-length: 0\r\n\r\n", (200, b""), True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b""), True),
        (CHUNKED + b"2\r\nok\r\n1;x=y\r\n!\r\n0\r\n\r\n", (200, b"ok!"), True),
        (CHUNKED + b"2\r\nok\r\n0\r\nx-trailer: a\r\n\r\n", (200, b"ok"), True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 1\r\n\r\n1", (200, b"1"), True),
        (
            b"HTTP/1.1 103 Early Hints\r\ncontent-length: 9\r\n\r\n" * 3 + CHUNKED + b"0\r\n\r\n",
            (200, b""),
            True,
        ),
        (OK + b"connection: close\r\ncontent-length: 2\r\n\r\nok", (200, b"ok"), False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", (200, b"ok"), False),
        (OK + b"content-length: 2\r\n\r\nok" + OK, (200, b"ok"), False),
        (OK + b"content-length: 2\r\n\r\nok?", (200, b"ok"), False),
    ],
    ids=[
        *["length", "empty", "no-content", "chunked", "trailer", "100", "103"],
        *["close", "http-1.0", "second-response", "garbage-behind"],
    ],
)
async def test_a_response_that_ends_by_itself_is_read(
    sent: bytes, outcome: Outcome, kept: bool
) -> None:
    assert await outcome_of([sent]) == (outcome, kept)
    assert await outcome_of([sent[i : i + 1] for i in range(len(sent))]) == (outcome, kept)


@pytest.mark.parametrize(
    ("sent", "outcome"),
    [
        (b"", CLOSED),
        (b"HTTP/1.1 200", CLOSED),
        (OK + b"x: y\r\n", CLOSED),
        (OK + b"\r\nuntil the end", (200, b"until the end")),
        (b"HTTP/1.0 200 OK\r\n\r\n", (200, b"")),
        (OK + b"content-length: 3\r\n\r\nok", CLOSED),
        (CHUNKED + b"2\r\nok\r\n", CLOSED),
        (CHUNKED + b"5\r\nok", CLOSED),
        (b"HTTP/1.1 100 Continue\r\n\r\n", CLOSED),
    ],
)
async def test_the_end_of_the_connection_ends_a_body_only_if_nothing_else_does(
    sent: bytes, outcome: Outcome
) -> None:
    assert await outcome_of([sent], ends=True) == (outcome, False)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", NOT_HTTP),
        (b"HTTP/1.1 twohundred OK\r\n\r\n", NOT_HTTP),
        (b"\x16\x03\x01\x00\x02", NOT_HTTP),
        (OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok!", NOT_HTTP),
        (OK + b"content-length: -1\r\n\r\n", NOT_HTTP),
        (OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", NOT_HTTP),
        (OK + b"bad header\r\n\r\n", NOT_HTTP),
        (OK + b"x: a\0b\r\n\r\n", NOT_HTTP),
        (CHUNKED + b"zz\r\n", NOT_HTTP),
        (
            b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
            "the server changed the protocol",
        ),
        (OK + b"x: " + b"y" * MAX_HEAD_BYTES, TOO_MUCH_HEAD),
        (OK + b"x: y\r\n" * 12_000 + b"content-length: 1\r\n\r\n1", TOO_MUCH_HEAD),
        (b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" * 3_000, TOO_MUCH_HEAD),
        (CHUNKED + b"1;" + b"x" * MAX_HEAD_BYTES, TOO_MUCH_HEAD),
        (OK + b"\r\n" + b"x" * 1001, f"the response is larger than {LIMIT} bytes"),
    ],
    ids=[
        *["other-protocol", "status", "tls", "two-lengths", "negative", "length-and-chunks"],
        *["header", "nul", "chunk", "upgrade", "long-header", "many-headers", "many-100"],
        *["long-extension", "body"],
    ],
)  # fmt: skip
async def test_a_response_that_makes_no_sense_has_a_reason(sent: bytes, reason: str) -> None:
    assert await outcome_of([sent]) == (reason, False)
    pieces = [sent[i : i + 5000] for i in range(0, len(sent), 5000)]
    assert await outcome_of(pieces) == (reason, False)


async def test_what_comes_behind_a_body_has_a_bound() -> None:
    body, trailer = CHUNKED + b"1\r\n1\r\n0\r\nx: ", b"y" * MAX_HEAD_BYTES
    assert await outcome_of([body, trailer, b"y"]) == (TOO_MUCH_HEAD, False)


VALID = [
    OK + b"content-length: 2\r\n\r\nok",
    CHUNKED + b"2\r\nok\r\n1;x=y\r\n!\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"\r\nuntil the end",
]


@given(
    st.sampled_from([*VALID, b""]),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 3), st.binary(max_size=6)), max_size=4),
    st.lists(st.integers(0, 130), max_size=5),
)
async def test_any_bytes_have_one_of_a_few_outcomes_however_they_are_cut(
    sent: bytes, changes: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    for at, gone, new in changes:
        sent = sent[:at] + new + sent[at + gone :]
    positions = sorted({min(cut, len(sent)) for cut in cuts} | {0, len(sent)})
    whole, _ = await outcome_of([sent], ends=True)
    if isinstance(whole, str):
        assert whole in (CLOSED, NOT_HTTP, "the server changed the protocol")
    else:
        assert 200 <= whole[0] <= 999
        assert len(whole[1]) <= len(sent)
    pieces = [sent[a:b] for a, b in itertools.pairwise(positions)]
    assert (await outcome_of(pieces, ends=True))[0] == whole


async def test_a_header_that_comes_twice_is_joined() -> None:
    connection = PeerlessConnection().connection()
    connection.data_received(OK + b"X-A: 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n")
    response = await connection.response()
    assert response.headers == {"x-a": "1, 2", "content-length": "0"}


async def test_a_body_that_nobody_reads_makes_the_server_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "MAX_UNREAD_BYTES", 10)
    peerless = PeerlessConnection()
    connection = peerless.connection()
    connection.data_received(OK + b"content-length: 30\r\n\r\n" + b"x" * 11)
    connection.data_received(b"y" * 11)
    response = await connection.response()
    assert peerless.wire.did == ["pause"]
    assert await response.receive() == b"x" * 11 + b"y" * 11
    assert peerless.wire.did == ["pause", "resume"]


async def test_a_connection_with_an_unsent_rest_of_a_request_is_not_used_again() -> None:
    peerless = PeerlessConnection()
    connection = peerless.connection()
    peerless.wire.unsent = 1
    connection.data_received(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
    response = await connection.response()
    await response.aclose()
    assert (response.status, peerless.kept, peerless.wire.did) == (413, [], ["abort"])


async def test_a_response_that_was_closed_twice_leaves_the_next_one_alone() -> None:
    peerless = PeerlessConnection()
    connection = peerless.connection()
    connection.data_received(OK + b"content-length: 0\r\n\r\n")
    response = await connection.response()
    await response.aclose()
    connection.send(b"next")
    await response.aclose()
    assert (peerless.kept, peerless.wire.did) == ([connection], [])
    with pytest.raises(BodyBroken, match=r"^the response was closed$"):
        await response.receive()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/mcp", True),
        ("http://127.9.9.9/", True),
        ("http://[::1]:8000/mcp", True),
        ("https://127.0.0.1/", False),
        ("http://localhost/", False),
        ("http://127.0.0.1.example/", False),
        ("http://[::ffff:10.0.0.1]/", False),
        ("http://0.0.0.0/", False),
    ],
)
def test_only_plain_http_to_addresses_of_this_machine_is_loopback(url: str, expected: bool) -> None:
    assert is_loopback(httpx2.URL(url)) is expected


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb", "söme\u20ac"])
async def test_a_header_that_is_none_is_not_sent_and_not_shown(value: str) -> None:
    sender = LoopbackSender(httpx2.URL("http://127.0.0.1:1/"))
    request = HttpRequest("GET", httpx2.URL("http://127.0.0.1:1/"), {"authorization": value})
    with pytest.raises(Unreachable, match=r"^a header has (a line end|characters)") as caught:
        await sender.send(request)
    assert value not in str(caught.value)


# Connections to a server of the test's.

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ANSWER = OK + b"content-length: 2\r\n\r\nok"


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    _, _, length = head.partition(b"content-length: ")
    return head + await reader.readexactly(int(length.split(b"\r\n")[0] or 0))


async def serve_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer request after request."""
    while True:
        await read_request(reader)
        writer.write(ANSWER)


@dataclass
class Served:
    """A server with a script for each connection in turn; the last one serves all others."""

    scripts: list[Script]
    host: str = "127.0.0.1"
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client has left a connection."""
    url: httpx2.URL = field(default_factory=lambda: httpx2.URL("http://127.0.0.1/"))
    _conversing: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LoopbackSender]:
        server = await asyncio.start_server(self._converse, self.host, 0)
        self.url = httpx2.URL(f"http://{self.host}:1/mcp?a=b") if ":" not in self.host else (
            httpx2.URL(f"http://[{self.host}]:1/mcp?a=b")
        )  # fmt: skip
        self.url = self.url.copy_with(port=server.sockets[0].getsockname()[1])
        try:
            async with loopback.open_loopback(self.url) as sender:
                yield sender
        finally:
            server.close()
            if self._conversing:
                await asyncio.wait(self._conversing, timeout=WAIT_S)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversing.add(task)
        self.connections += 1
        script = self.scripts[min(self.connections, len(self.scripts)) - 1]
        try:
            await script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        writer.close()
        self._conversing.discard(task)

    async def ask(self, sender: LoopbackSender, body: bytes = b"{}") -> tuple[int, bytes]:
        """Send a request and read its response to the end."""
        with anyio.fail_after(WAIT_S):
            response = await sender.send(HttpRequest("POST", self.url, {"x": "y"}, body))
            try:
                return response.status, await read_body(response, LIMIT)
            finally:
                await response.aclose()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_connection_serves_request_after_request(host: str) -> None:
    requests: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            requests.append(await read_request(reader))
            writer.write(ANSWER)

    served = Served([note], host)
    async with served.open() as sender:
        for _ in range(3):
            assert await served.ask(sender) == (200, b"ok")
        with anyio.fail_after(WAIT_S):
            response = await sender.send(HttpRequest("GET", served.url, {}))
            await read_body(response, LIMIT)
            await response.aclose()
    assert served.connections == 1
    host_line = b"host: " + served.url.netloc
    assert requests == [
        b"POST /mcp?a=b HTTP/1.1\r\n" + host_line + b"\r\nx: y\r\ncontent-length: 2\r\n\r\n{}",
    ] * 3 + [b"GET /mcp?a=b HTTP/1.1\r\n" + host_line + b"\r\n\r\n"]


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used() -> None:
    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWER)
        writer.write_eof()

    served = Served([serve_one, serve_on])
    async with served.open() as sender:
        assert await served.ask(sender) == (200, b"ok")
        assert await served.ask(sender) == (200, b"ok")
        assert await served.ask(sender) == (200, b"ok")
    assert served.connections == 2


async def test_a_request_that_the_server_left_unread_is_sent_again() -> None:
    came = asyncio.Event()

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWER)
        await came.wait()
        ours = writer.get_extra_info("socket")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    served = Served([reset, serve_on])
    async with served.open() as sender:
        assert await served.ask(sender) == (200, b"ok")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_expect, served, sender, (200, b"ok"))
            await anyio.wait_all_tasks_blocked()
            came.set()
    assert served.connections == 2


async def _expect(served: Served, sender: LoopbackSender, expected: tuple[int, bytes]) -> None:
    assert await served.ask(sender) == expected


@pytest.mark.parametrize("answered_before", [0, 1])
async def test_a_request_that_the_server_may_have_read_is_not_sent_again(
    answered_before: int,
) -> None:
    requests = 0

    async def read_and_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        for _ in range(answered_before):
            await read_request(reader)
            writer.write(ANSWER)
        await read_request(reader)
        requests += 1

    served = Served([read_and_leave])
    async with served.open() as sender:
        for _ in range(answered_before):
            assert await served.ask(sender) == (200, b"ok")
        with pytest.raises(Unreachable, match=r"^the server closed the connection$"):
            await served.ask(sender)
    assert (served.connections, requests) == (1, 1)


async def test_a_reset_of_a_new_connection_is_a_failure() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        ours = writer.get_extra_info("socket")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    served = Served([reset])
    async with served.open() as sender:
        with pytest.raises(Unreachable, match=r"^the connection broke$"):
            await served.ask(sender)
    assert served.connections == 1


async def test_a_response_may_come_ahead_of_the_requests_end() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await writer.drain()
        while await reader.read(1 << 20):
            pass
        raise asyncio.IncompleteReadError(b"", None)

    served = Served([refuse, serve_on])
    async with served.open() as sender:
        assert await served.ask(sender, b"x" * 50_000_000) == (413, b"no")
        assert await served.ask(sender) == (200, b"ok")
        with anyio.fail_after(WAIT_S):
            await served.gone.wait()


async def test_a_request_that_was_cancelled_closes_its_connection() -> None:
    came = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        came.set()
        await reader.readexactly(1)

    served = Served([stall, serve_on])
    async with served.open() as sender:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_expect, served, sender, (0, b""))
            with anyio.fail_after(WAIT_S):
                await came.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(WAIT_S):
            await served.gone.wait()
        assert await served.ask(sender) == (200, b"ok")


async def test_connections_above_the_bound_are_closed_when_they_become_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loopback, "MAX_IDLE_CONNECTIONS", 1)
    both = asyncio.Barrier(2)

    async def together(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await both.wait()
        writer.write(ANSWER)
        await serve_on(reader, writer)

    served = Served([together])
    async with served.open() as sender:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(_expect, served, sender, (200, b"ok"))
        with anyio.fail_after(WAIT_S):
            await served.gone.wait()
        assert await served.ask(sender) == (200, b"ok")
    assert served.connections == 2


async def test_a_connection_that_is_not_used_is_closed_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loopback, "IDLE_S", 0.01)
    served = Served([serve_on])
    async with served.open() as sender:
        assert await served.ask(sender) == (200, b"ok")
        with anyio.fail_after(WAIT_S):
            await served.gone.wait()


async def test_nobody_there_has_the_words_of_the_system() -> None:
    sender = LoopbackSender(httpx2.URL("http://127.0.0.1:1/"))
    with pytest.raises(Unreachable, match=r"^Connection refused$"):
        await sender.send(HttpRequest("GET", httpx2.URL("http://127.0.0.1:1/"), {}))


@pytest.mark.parametrize(
    "url",
    ["https://a.example/", "http://a.example:81/", "http://b.example/", "https://a.example:80/"],
)
async def test_nothing_is_sent_to_another_origin_than_that_of_the_sender(url: str) -> None:
    dialled: list[tuple[str, int]] = []

    async def dial(host: str, port: int) -> socket.socket:
        dialled.append((host, port))
        raise ConnectionRefusedError(111, "refused")

    sender = LoopbackSender(httpx2.URL("http://a.example/"), dial)
    with pytest.raises(Unreachable, match="another origin"):
        await sender.send(HttpRequest("GET", httpx2.URL(url), {}))
    with pytest.raises(Unreachable, match="Connection refused"):
        await sender.send(HttpRequest("GET", httpx2.URL("http://a.example/x"), {}))
    assert dialled == [("a.example", 80)]
