"""notifications: connections of webhooks, over real sockets."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.notifications.attempt import Attempt
from app_server.notifications.settings import Target
from app_server.notifications.webhooks import MAX_ANSWER_BYTES, Webhooks
from app_server.runtime.clock import SystemClock
from app_server.threads.outbox import OutboxEntry
from tests.support.harness import claim
from tests.support.http_peer import NO_CERTIFICATES, HttpRequest, answering, read_request
from tests.support.mcp_peers.certificates import certificate
from tests.support.notifications.receiver import write_secret

HOST = "hooks.example.org"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


class Attempts:
    """Attempts to give one address the same entry."""

    def __init__(self, folder: Path, url: str, webhooks: Webhooks) -> None:
        self._target = Target(
            kind="webhook",
            label="webhook",
            events=frozenset({"turnCompleted"}),
            url=url,
            secret_file=write_secret(folder),
        )
        self._webhooks = webhooks

    async def make(self) -> Attempt:
        entry = OutboxEntry(
            target=self._target.id,
            id="msg_1",
            label="webhook",
            thread_id="t",
            event="turnCompleted",
            subject="s",
            body="{}",
            run="r",
            created_at_ms=0,
        )
        return await self._webhooks.send(entry, self._target)


@asynccontextmanager
async def attempting(
    folder: Path, url: str, certificates: ssl.SSLContext = NO_CERTIFICATES, answer_s: float = 60.0
) -> AsyncIterator[Attempts]:
    webhooks = Webhooks(certificates, SystemClock(), answer_s)
    try:
        yield Attempts(folder, url, webhooks)
    finally:
        await webhooks.aclose()


class Peer:
    """Notes requests with the connection that each came over, and plays answers."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        """An empty one ends the connection; behind the last one all are OK."""
        self.targets: list[tuple[int, str]] = []
        self._connections: list[Any] = []

    async def answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if writer not in self._connections:
            self._connections.append(writer)
        self.targets.append((self._connections.index(writer), request.target))
        answer = self._answers.pop(0) if self._answers else OK
        writer.write(answer)
        return answer != b"" and b"close" not in answer


CLOSING = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
LONG = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * (MAX_ANSWER_BYTES + 1)


@claim("notifications:at-least-once")
@pytest.mark.parametrize(
    ("answers", "connections"),
    [
        ((), [0, 0, 0]),
        ((CLOSING,), [0, 1, 1]),
        # Nobody reads the rest.
        ((LONG,), [0, 1, 1]),
        (
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",),
            [0, 0, 0],
        ),
    ],
)
async def test_a_connection_stays_open_as_long_as_its_receiver_lets_it(
    tmp_path: Path, answers: tuple[bytes, ...], connections: list[int]
) -> None:
    peer = Peer(*answers)
    async with (
        answering(peer.answer) as port,
        attempting(tmp_path, f"http://127.0.0.1:{port}/a/b?c=d&e") as attempts,
    ):
        assert [await attempts.make() for _ in range(3)] == [Attempt()] * 3
    assert peer.targets == [(number, "/a/b?c=d&e") for number in connections]


@pytest.mark.parametrize(
    ("answer", "attempt"),
    [
        (
            b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
            Attempt("answered 410", is_gone=True),
        ),
        (
            b"HTTP/1.1 503 X\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n",
            Attempt("answered 503", after_s=7.0),
        ),
        (b"no HTTP\r\n\r\n", Attempt("cannot be reached: RemoteProtocolError")),
        (b"", Attempt("cannot be reached: RemoteProtocolError")),
        (b"HTTP/1.1 302 X\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n", Attempt("answered 302")),
    ],
)
async def test_an_answer_is_read_as_far_as_it_makes_sense(
    tmp_path: Path, answer: bytes, attempt: Attempt
) -> None:
    peer = Peer(answer)
    async with (
        answering(peer.answer) as port,
        attempting(tmp_path, f"http://127.0.0.1:{port}") as attempts,
    ):
        assert await attempts.make() == attempt
    assert peer.targets == [(0, "/")]


def trusting(file: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server with a certificate, and of a client that trusts it."""
    of_server, of_client = (
        ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    of_server.load_cert_chain(file)
    of_client.load_verify_locations(file)
    return of_server, of_client


@asynccontextmanager
async def encrypted(peer: Peer, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Serve a peer over TLS; gives the port."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = await read_request(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            await peer.answer(request, reader, writer)
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@claim("notifications:addresses")
async def test_a_certificate_is_checked_on_this_machine_too(tmp_path: Path) -> None:
    of_server, of_client = trusting(certificate(tmp_path))
    peer = Peer()
    async with encrypted(peer, of_server) as port:
        url = f"https://localhost:{port}/x"
        async with attempting(tmp_path, url, of_client) as attempts:
            assert [await attempts.make() for _ in range(2)] == [Attempt()] * 2
        async with attempting(tmp_path, url) as attempts:
            refused = Attempt("cannot be reached: ConnectError")
            assert await attempts.make() == refused
    assert peer.targets == [(0, "/x")] * 2


class Proxy:
    """A proxy that leads every tunnel to a peer in itself, behind TLS."""

    def __init__(self, peer: Peer, context: ssl.SSLContext) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self._peer = peer
        self._context = context

    async def answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if request.method != "CONNECT":
            return await self._peer.answer(request, reader, writer)
        authorization = request.headers.get("proxy-authorization")
        self.asked.append((request.method, request.target, authorization))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            await writer.start_tls(self._context)
        except ssl.SSLError:
            return False
        return True


@claim("notifications:addresses")
async def test_other_hosts_are_reached_by_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    of_server, of_client = trusting(certificate(tmp_path, HOST))
    peer = Peer()
    proxy = Proxy(peer, of_server)
    async with answering(proxy.answer) as port:
        monkeypatch.setenv("https_proxy", f"http://ann:p%40ss@127.0.0.1:{port}")
        async with attempting(tmp_path, f"https://{HOST}/x", of_client) as attempts:
            assert [await attempts.make() for _ in range(2)] == [Attempt()] * 2
        async with attempting(tmp_path, f"https://{HOST}/x") as attempts:
            refused = Attempt("cannot be reached: ConnectError")
            assert await attempts.make() == refused
    assert peer.targets == [(0, "/x")] * 2
    assert proxy.asked == [("CONNECT", f"{HOST}:443", "Basic YW5uOnBAc3M=")] * 2


@claim("notifications:addresses")
async def test_a_host_that_needs_no_proxy_is_reached_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", ".example.org")
    resolve = socket.getaddrinfo

    def here(host: Any, *more: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host in (HOST, HOST.encode()) else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    of_server, of_client = trusting(certificate(tmp_path, HOST))
    peer = Peer()
    async with (
        encrypted(peer, of_server) as port,
        attempting(tmp_path, f"https://{HOST}:{port}/x", of_client) as attempts,
    ):
        assert await attempts.make() == Attempt()
    assert peer.targets == [(0, "/x")]


async def test_an_attempt_that_takes_too_long_ends_its_connection(tmp_path: Path) -> None:
    """Also one whose receiver goes on sending, so that no single step takes long."""
    has_left = asyncio.Event()

    async def drip(
        request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        leaving = asyncio.ensure_future(reader.read())
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not leaving.done():
            writer.write(b"x: y\r\n")
            await asyncio.wait([leaving], timeout=0.05)
        has_left.set()
        return False

    async with (
        answering(drip) as port,
        attempting(tmp_path, f"http://127.0.0.1:{port}", answer_s=0.3) as attempts,
    ):
        assert await attempts.make() == Attempt("no answer within 0.3 s")
        async with asyncio.timeout(30):
            await has_left.wait()
