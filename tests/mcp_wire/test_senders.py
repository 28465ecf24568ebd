"""mcp: over what requests to an address are sent, and what is left of those that failed."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from app_server.mcp_wire.http import loopback, remote, transport
from app_server.mcp_wire.http.exchange import HttpRequest, Unreachable
from app_server.mcp_wire.http.loopback import LoopbackSender
from app_server.mcp_wire.http.remote import ambient_proxy
from app_server.mcp_wire.http.transport import open_http
from app_server.mcp_wire.messages import JSONRPCRequest, SessionMessage
from tests.mcp_wire.senders import Response, Sender

JSON = {"content-type": "application/json"}
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'


async def never(host: str, port: int) -> socket.socket:
    raise AssertionError("nothing is sent")


@pytest.mark.parametrize(
    ("url", "dial", "opened"),
    [
        ("http://127.0.0.1:1/", None, "loopback"),
        ("http://[::1]:1/", None, "loopback"),
        ("http://localhost:1/", None, "remote"),
        ("https://127.0.0.1:1/", None, "remote"),
        ("http://a.example/", None, "remote"),
        ("http://a.example/", never, "dialled"),
        ("https://a.example/", never, "dialled with TLS"),
        ("http://127.0.0.1:1/", never, "dialled"),
    ],
)
async def test_an_address_chooses_over_what_it_is_spoken_to(
    monkeypatch: pytest.MonkeyPatch, url: str, dial: loopback.Dial | None, opened: str
) -> None:
    found: list[str] = []

    @asynccontextmanager
    async def open_loopback(
        url: httpx2.URL, dial: loopback.Dial | None = None, tls: object = None
    ) -> AsyncIterator[Sender]:
        found.append("dialled with TLS" if tls else "dialled" if dial is never else "loopback")
        yield Sender([])

    @asynccontextmanager
    async def open_remote(url: httpx2.URL) -> AsyncIterator[Sender]:
        found.append("remote")
        yield Sender([])

    monkeypatch.setattr(transport, "open_loopback", open_loopback)
    monkeypatch.setattr(transport, "open_remote", open_remote)
    async with open_http(url, {}, dial=dial):
        pass
    assert found == [opened]


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://a.example/", "http://proxy.example:1"),
        ("https://a.example/", "http://proxy.example:2"),
        ("http://b.example/", None),
        ("http://localhost/", None),
        ("https://127.0.0.1/", None),
        ("http://[::1]/", None),
        ("ftp://a.example/", None),
    ],
)
def test_the_proxy_of_the_environment_is_for_other_machines(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str | None
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert ambient_proxy(httpx2.URL(url)) is None
    monkeypatch.setenv("http_proxy", "http://proxy.example:1")
    monkeypatch.setenv("https_proxy", "http://proxy.example:2")
    monkeypatch.setenv("no_proxy", "b.example")
    assert ambient_proxy(httpx2.URL(url)) == proxy


def test_each_request_under_way_has_a_connection() -> None:
    assert (transport.MAX_CALLS, transport.MAX_ONE_WAY) == (95, 4)
    assert transport.MAX_CALLS + transport.MAX_ONE_WAY + 1 == remote.MAX_CONNECTIONS == 100


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_connection_that_is_refused_leaves_no_descriptor(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        taken.bind((host, 0))
        # Nobody listens there, and nobody else gets the port.
        url = httpx2.URL(scheme="http", host=host, port=taken.getsockname()[1], path="/")
        before = os.listdir("/dev/fd")
        with pytest.raises(Unreachable, match=r"^Connection refused$"):
            await LoopbackSender(url).send(HttpRequest("GET", url, {}))
        assert os.listdir("/dev/fd") == before


async def test_a_connection_whose_encryption_fails_leaves_no_descriptor() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(b"no TLS\r\n")

    async def dial(host: str, port: int) -> socket.socket:
        return ours

    url = httpx2.URL("https://a.example/")
    tls = await remote.trusted_certificates()
    with pytest.raises(Unreachable):
        await LoopbackSender(url, dial, tls).send(HttpRequest("GET", url, {}))
    assert ours.fileno() == -1
    theirs.close()


async def test_a_request_that_was_answered_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender([Response(200, JSON, [RESULT]), Response(404)])

    @asynccontextmanager
    async def opening(url: httpx2.URL) -> AsyncIterator[Sender]:
        yield sender

    monkeypatch.setattr(transport, "open_remote", opening)
    async with open_http("http://a.example/mcp", {"x": "y"}) as (inbox, outgoing):
        for number in (1, 2):
            request = JSONRPCRequest(jsonrpc="2.0", id=number, method="ping")
            await outgoing.send(SessionMessage(request))
            answer: Any = (await anext(inbox)).message
            assert answer.id == number
        assert outgoing._asking == {}
    assert [sent.method for sent in sender.sent] == ["POST", "POST"]
