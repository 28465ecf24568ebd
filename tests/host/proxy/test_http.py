"""HTTP through the proxy, over real sockets: what goes on, what is refused, what is bounded."""

import asyncio
import json
from contextlib import suppress

import anyio
import pytest

from app_server.host.proxy import upstream
from app_server.host.proxy.upstream import ProxyBounds
from app_server.permissions.network import NetworkPolicy, Target
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import WAIT_S
from tests.support.host.proxies import answering, proxy

LOCAL = NetworkPolicy(allowed=("127.0.0.1", "localhost"))


@pytest.fixture(autouse=True)
def no_own_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the servers of this process be reached: they stand for others."""
    monkeypatch.setattr(upstream, "leads_here", lambda addresses, port: False)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request with its head; a body has 3 bytes."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b"content-length" in head.lower():
        head += await reader.readexactly(3)
    elif b"chunked" in head.lower():
        head += await reader.readuntil(b"0\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: %d\r\n\r\n%b" % (len(head), head))
    await writer.drain()


def parted(response: bytes) -> tuple[bytes, bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    return head, body


async def test_a_request_goes_on_with_the_host_of_its_url_and_without_what_is_the_proxys() -> None:
    async with answering(echo) as port, proxy(LOCAL) as used:
        head, body = parted(
            await used.exchange(
                b"POST http://127.0.0.1:%d//a%%20b?c#d HTTP/1.1\r\nHost: other.example\r\n"
                b"Proxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n"
                b"Connection: X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\nTE: trailers\r\n"
                b"X-Kept: 2\r\nContent-Length: 3\r\n\r\nabc" % port
            )
        )
    assert head == (
        b"HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: %d\r\nconnection: close" % len(body)
    )
    assert body == (
        b"POST //a%%20b?c HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nx-kept: 2\r\ncontent-length: 3\r\n"
        b"connection: close\r\n\r\nabc" % port
    )
    assert used.gate.asked == [Target("127.0.0.1", port, "http")]


async def test_a_body_in_chunks_goes_on_in_chunks() -> None:
    async with answering(echo) as port, proxy(LOCAL) as used:
        sent = b"PUT http://localhost:%d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        _, body = parted(await used.exchange(sent % port + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"))
    assert body == (
        b"PUT / HTTP/1.1\r\nhost: localhost:%d\r\ntransfer-encoding: chunked\r\n"
        b"connection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" % port
    )


async def test_chunks_go_on_without_a_length_that_others_would_read_a_second_request_by() -> None:
    async with answering(echo) as port, proxy(LOCAL) as used:
        _, body = parted(
            await used.exchange(
                b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n8\r\nPOST / x\r\n0\r\n\r\n" % port
            )
        )
    assert body == (
        b"GET / HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ntransfer-encoding: chunked\r\n"
        b"connection: close\r\n\r\n8\r\nPOST / x\r\n0\r\n\r\n" % port
    )


@pytest.mark.parametrize(
    ("framing", "sent"),
    [
        (b"content-length: 3", b"abc"),
        (b"transfer-encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"),
    ],
)
async def test_a_body_is_not_lost_though_its_framing_is_named_as_about_the_connection(
    framing: bytes, sent: bytes
) -> None:
    async with answering(echo) as port, proxy(LOCAL) as used:
        name = framing.partition(b":")[0]
        _, body = parted(
            await used.exchange(
                b"POST http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nConnection: %b\r\n%b\r\n\r\n%b"
                % (port, name, framing, sent)
            )
        )
    assert body == (
        b"POST / HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n%b\r\nconnection: close\r\n\r\n%b"
        % (port, framing, sent)
    )


async def test_trailers_are_no_failure_where_the_client_cannot_have_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def trailing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n")
        await writer.drain()

    async with answering(trailing) as port, proxy(LOCAL) as used:
        response = await used.exchange(b"GET http://127.0.0.1:%d/ HTTP/1.0\r\n\r\n" % port)
    assert response == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"
    assert caplog.messages == []


async def test_a_second_request_on_a_connection_is_not_carried_out() -> None:
    async with answering(echo) as port, proxy(LOCAL) as used:
        one = b"GET http://127.0.0.1:%d/1 HTTP/1.1\r\nHost: x\r\n\r\n" % port
        response = await used.exchange(one + one.replace(b"/1 ", b"/2 "))
        assert response.count(b"HTTP/1.1 200") == 1
        assert len(used.gate.asked) == 1


async def test_responses_of_every_form_come_back() -> None:
    async def continued(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 No\r\n\r\nuntil the end")
        await writer.drain()

    async with answering(continued) as port, proxy(LOCAL) as used:
        response = await used.exchange(
            b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n" % port
        )
        # The request was HTTP/1.1, so the response is, though the server spoke HTTP/1.0.
        assert response == (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nconnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nd\r\nuntil the end\r\n0\r\n\r\n"
        )
        head = await used.exchange(b"HEAD http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        assert head.startswith(b"HTTP/1.1 100")
        assert b"404 No" in head
        assert head.endswith(b"\r\n\r\n")


async def test_a_tunnel_carries_bytes_both_ways_until_both_have_ended() -> None:
    async def reverse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])
        await writer.drain()

    async with answering(reverse) as port, proxy(LOCAL) as used:
        reader, writer = await used.connect()
        # What comes early, with the request, is not lost.
        writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\nearly " % port)
        with anyio.fail_after(WAIT_S):
            established = b"HTTP/1.1 200 Connection Established\r\n\r\n"
            assert await reader.readexactly(len(established)) == established
            writer.write(b"x" * 1_000_000)
            writer.write_eof()
            assert await reader.read() == b"x" * 1_000_000 + b" ylrae"
        writer.close()
        assert used.gate.asked == [Target("127.0.0.1", port, "https")]


@pytest.mark.parametrize(
    ("request_line", "header", "reason"),
    [
        ("GET http://a.example/", "blocked-by-allowlist", "not_allowed"),
        ("CONNECT a.example:443", "blocked-by-allowlist", "not_allowed"),
        ("GET http://evil.example/", "blocked-by-denylist", "denied"),
        ("GET http://10.0.0.1/", "blocked-by-allowlist", "not_allowed_local"),
        ("POST http://127.0.0.1/", "blocked-by-method-policy", "method_not_allowed"),
        ("CONNECT 127.0.0.1:443", "blocked-by-method-policy", "method_not_allowed"),
    ],
)
async def test_a_refusal_says_why(request_line: str, header: str, reason: str) -> None:
    policy = NetworkPolicy(
        allowed=("127.0.0.1",),
        denied=("evil.example",),
        is_limited="method" in reason,
    )
    async with proxy(policy) as used:
        response = await used.exchange(f"{request_line} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, body = parted(response)
    assert head.startswith(b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\n")
    assert f"x-proxy-error: {header}\r\n".encode() in head
    told = json.loads(body)
    assert (told["status"], told["decision"], told["reason"]) == ("blocked", "deny", reason)


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"this is a proxy"),
        (b"GET https://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n", b"this is a proxy"),
        (b"GET http://u:p@a.example/ HTTP/1.1\r\nHost: x\r\n\r\n", b"this is a proxy"),
        (b"GET http://2130706433/ HTTP/1.1\r\nHost: x\r\n\r\n", b"must be four numbers"),
        (b"GET http://a:99999/ HTTP/1.1\r\nHost: x\r\n\r\n", b"the URL makes no sense"),
        (b"CONNECT a.example HTTP/1.1\r\nHost: x\r\n\r\n", b"CONNECT needs a host and a port"),
        (b"CONNECT u@a:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"CONNECT needs a host and a port"),
        (b"nonsense\r\n\r\n", b"illegal request line"),
        (b"GET http://a/ HTTP/1.1\r\nA: " + b"b" * 70_000, b"Receive buffer too long"),
    ],
)
async def test_what_a_proxy_cannot_do_is_an_error(sent: bytes, problem: bytes) -> None:
    async with proxy(LOCAL) as used:
        head, body = parted(await used.exchange(sent))
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert problem in body
    assert used.gate.asked == []


async def test_a_host_that_cannot_be_reached() -> None:
    async with answering(echo) as port:
        pass
    async with proxy(LOCAL) as used:
        head, body = parted(
            await used.exchange(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        )
        assert head.startswith(b"HTTP/1.1 502")
        assert body.startswith(b"http://127.0.0.1:%d: " % port)


async def test_a_server_that_speaks_no_http() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-x\r\n")
        await writer.drain()

    async with answering(nonsense) as port, proxy(LOCAL) as used:
        head, _ = parted(
            await used.exchange(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        )
        assert head.startswith(b"HTTP/1.1 502")


async def test_who_says_nothing_is_not_waited_for() -> None:
    async with proxy(LOCAL, ProxyBounds(head_s=0.01)) as used:
        assert await used.exchange(b"") == b""
        # It may be over before a byte was read: then the connection ends with a reset.
        with suppress(ConnectionResetError):
            assert await used.exchange(b"GET http://a/") == b""


async def test_a_tunnel_in_which_nothing_moves_is_closed() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with answering(silent) as port, proxy(LOCAL, ProxyBounds(idle_s=0.01)) as used:
        response = await used.exchange(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        assert response == b"HTTP/1.1 200 Connection Established\r\n\r\n"


IDLE_S = 1_000.0
"""More than a test takes, by the clock of the machine."""


async def test_an_upload_may_take_longer_than_nothing_may_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, arrived = LoopClock(monkeypatch), asyncio.Queue[bytes]()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(4):
            arrived.put_nowait(await reader.readexactly(1))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with answering(swallow) as port, proxy(LOCAL, ProxyBounds(idle_s=IDLE_S)) as used:
        reader, writer = await used.connect()
        url = b"http://127.0.0.1:%d/" % port
        writer.write(b"PUT %b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n" % url)
        response = asyncio.create_task(reader.read())
        for piece in (b"a", b"b", b"c", b"d"):
            writer.write(piece)
            taken = asyncio.create_task(arrived.get())
            # What is given up has a response, and no more pieces arrive.
            with anyio.fail_after(WAIT_S):
                await asyncio.wait({taken, response}, return_when=asyncio.FIRST_COMPLETED)
            assert taken.done()
            assert taken.result() == piece
            clock.put_forward(IDLE_S * 0.6)
        with anyio.fail_after(WAIT_S):
            head, body = parted(await response)
        assert (head, body) == (
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close",
            b"",
        )
        writer.close()


async def test_a_request_in_which_nothing_moves_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, arrived = LoopClock(monkeypatch), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()

    async with answering(silent) as port, proxy(LOCAL, ProxyBounds(idle_s=IDLE_S)) as used:
        reader, writer = await used.connect()
        writer.write(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % port)
        with anyio.fail_after(WAIT_S):
            await arrived.wait()
        clock.put_forward(IDLE_S * 1.1)
        with anyio.fail_after(WAIT_S):
            head, _ = parted(await reader.read())
        assert head.startswith(b"HTTP/1.1 502 ")
        writer.close()


async def test_further_connections_than_the_bound_are_closed() -> None:
    async with proxy(LOCAL, ProxyBounds(connections=1)) as used:
        _, first = await used.connect()
        assert await used.exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        first.close()
