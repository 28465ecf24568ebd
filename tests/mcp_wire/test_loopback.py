"""mcp: HTTP/1.1 on loopback: which connections are kept, and what is sent again."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2
import pytest

from app_server.mcp_wire.http import loopback
from app_server.mcp_wire.http.exchange import HttpRequest, Unreachable, read_body
from app_server.mcp_wire.http.loopback import LoopbackSender, is_loopback
from tests.support.harness import WAIT_S
from tests.support.mcp_peers.certificates import certificate


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
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


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
                return response.status, await read_body(response, 1000)
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
            await read_body(response, 1000)
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


async def test_connections_above_the_bound_are_closed_when_they_become_idle() -> None:
    both = asyncio.Barrier(2)

    async def together(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await both.wait()
        writer.write(ANSWER)
        await serve_on(reader, writer)

    served = Served([together])
    async with served.open() as sender:
        sender.idle.max_connections = 1
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(_expect, served, sender, (200, b"ok"))
        with anyio.fail_after(WAIT_S):
            await served.gone.wait()
        assert await served.ask(sender) == (200, b"ok")
    assert served.connections == 2


async def test_a_connection_that_is_not_used_is_closed_after_a_while() -> None:
    served = Served([serve_on])
    async with served.open() as sender:
        sender.idle.idle_s = 0.01
        assert await served.ask(sender) == (200, b"ok")
        with anyio.fail_after(WAIT_S):
            await served.gone.wait()


async def test_a_server_with_an_unsigned_certificate_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate(tmp_path))
    server = await asyncio.start_server(serve_on, "127.0.0.1", 0, ssl=theirs)
    async with server:
        host, port = server.sockets[0].getsockname()
        url = httpx2.URL(f"https://{host}:{port}/")
        sender = LoopbackSender(url, tls=ssl.create_default_context())
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await sender.send(HttpRequest("GET", url, {}))


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
