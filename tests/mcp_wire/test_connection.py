"""mcp: one connection on loopback, whatever the server sends and when."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from app_server.mcp_wire.http.exchange import BodyBroken, Unreachable
from app_server.mcp_wire.http.loopback import (
    MAX_HEAD_BYTES,
    MAX_UNREAD_BYTES,
    ConnectionReset,
    LoopbackConnection,
    LoopbackResponse,
)
from tests.support.harness import WAIT_S

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Both:
    """Both ends, and the connections that became free."""

    ours: LoopbackConnection
    theirs: socket.socket
    kept: list[LoopbackConnection] = field(default_factory=list)

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.theirs, data)

    async def ended(self) -> None:
        """Wait until our side has closed; what it sent before is read."""
        with anyio.fail_after(WAIT_S):
            while await self.hear():
                pass

    async def hear(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self.theirs, 65536)
        except ConnectionResetError:
            return b""

    async def answer(self, data: bytes = OK) -> LoopbackResponse:
        """Send a request, and let the server answer it."""
        self.ours.send(b"GET")
        await self.say(data)
        with anyio.fail_after(WAIT_S):
            return await self.ours.response()


@asynccontextmanager
async def connected() -> AsyncIterator[Both]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    kept: list[LoopbackConnection] = []
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: LoopbackConnection(ours, kept.append), sock=ours
    )
    try:
        yield Both(connection, theirs, kept)
    finally:
        connection.close()
        theirs.close()
    assert problems == []


async def test_a_server_that_speaks_before_the_first_request_is_not_listened_to() -> None:
    async with connected() as both:
        await both.say(OK)
        await both.ended()
        assert both.ours.is_stale
        both.ours.send(b"GET")
        with pytest.raises(Unreachable, match=r"^the server sent what nobody asked for$"):
            await both.ours.response()


async def test_a_server_that_leaves_before_the_first_request_is_noticed() -> None:
    async with connected() as both:
        assert not both.ours.is_stale
        both.theirs.close()
        with anyio.fail_after(WAIT_S):
            while not both.ours.is_stale:
                await anyio.lowlevel.checkpoint()
        both.ours.send(b"GET")
        with pytest.raises(Unreachable, match=r"^the (server closed the )?connection"):
            await both.ours.response()


async def test_a_server_that_speaks_between_two_requests_is_not_listened_to() -> None:
    async with connected() as both:
        response = await both.answer()
        assert (response.status, response.headers) == (200, {"content-length": "2"})
        assert await response.receive() == b"ok"
        await response.aclose()
        assert both.kept == [both.ours]
        await both.say(OK)
        await both.ended()
        both.ours.send(b"GET")
        with pytest.raises(Unreachable, match=r"^the server sent what nobody asked for$"):
            await both.ours.response()


async def test_a_response_is_at_its_end_when_its_last_piece_was_read_or_it_was_closed() -> None:
    async with connected() as both:
        response = await both.answer(OK[:-1])
        assert not response.at_end
        assert await response.receive() == b"o"
        assert not response.at_end
        await both.say(b"k")
        assert await response.receive() == b"k"
        assert response.at_end
        assert await response.receive() == b""
        await response.aclose()
        assert response.at_end
        with pytest.raises(BodyBroken, match=r"^the response was closed$"):
            await response.receive()
        await response.aclose()
        assert both.kept == [both.ours]


async def test_a_response_that_is_there_and_unread_is_not_at_its_end() -> None:
    async with connected() as both:
        response = await both.answer()
        assert not response.at_end
        assert await response.receive() == b"ok"
        assert response.at_end


@pytest.mark.parametrize(
    "data",
    [
        # Not to its end, or nobody read it, or there is no next one, or one nobody asked for.
        OK[:-1],
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + OK,
    ],
    ids=["half", "close", "old", "two"],
)
async def test_a_connection_is_kept_only_behind_a_whole_response(data: bytes) -> None:
    async with connected() as both:
        response = await both.answer(data)
        await response.receive()
        await response.aclose()
        await both.ended()
        assert both.kept == []
        assert both.ours.is_stale


def with_header(size: int) -> bytes:
    """Return a head whose header counts as `size` bytes, and a body."""
    value = b"x" * (size - len(b"name: \r\n"))
    return b"HTTP/1.1 200 OK\r\nname: " + value + b"\r\n\r\n"


async def test_a_head_at_the_bound_is_read() -> None:
    # The bound also holds for all bytes that are no body.
    size = MAX_HEAD_BYTES - len(with_header(8)) + 8
    async with connected() as both:
        response = await both.answer(with_header(size))
        assert len(response.headers["name"]) == size - 8
        assert not both.ours.is_stale


@pytest.mark.parametrize("more", [0, 1])
async def test_headers_have_the_bound_also_where_the_body_comes_with_them(more: int) -> None:
    size = MAX_HEAD_BYTES - len("content-length: 1\r\n") + more
    head, _, _ = with_header(size).rpartition(b"\r\n")
    async with connected() as both:
        both.ours.send(b"GET")
        both.ours.data_received(head + b"content-length: 1\r\n\r\nx")
        if more:
            with pytest.raises(Unreachable, match=r"bytes of headers$"):
                await both.ours.response()
        else:
            assert await (await both.ours.response()).receive() == b"x"


@pytest.mark.parametrize("more", [0, 1])
async def test_what_comes_behind_a_body_has_the_bound_again(more: int) -> None:
    trailer = b"t: " + b"x" * (MAX_HEAD_BYTES - len(b"0\r\nt: \r\n\r\n") + more) + b"\r\n"
    async with connected() as both:
        response = await both.answer(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
        )
        assert await response.receive() == b"x"
        both.ours.data_received(b"0\r\n" + trailer + b"\r\n")
        assert both.ours.is_stale == bool(more)


async def test_a_head_above_the_bound_is_refused() -> None:
    size = MAX_HEAD_BYTES - len(with_header(8)) + 9
    reason = f"^the response has more than {MAX_HEAD_BYTES} bytes of headers$"
    async with connected() as both:
        # Without its last byte it is no head, and as large as the bound.
        both.ours.send(b"GET")
        asking = asyncio.ensure_future(both.ours.response())
        await both.say(with_header(size)[:-1])
        await anyio.wait_all_tasks_blocked()
        assert not asking.done()
        await both.say(b"\n")
        with anyio.fail_after(WAIT_S):
            with pytest.raises((Unreachable, BodyBroken), match=reason):
                await (await asking).receive()
            await both.ended()


async def test_a_server_waits_while_more_than_the_bound_is_unread() -> None:
    """As much as the bound is taken without a reader; what is above it, when it was read."""
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {4 * MAX_UNREAD_BYTES}\r\n\r\n".encode()
    async with connected() as both:
        response = await both.answer(head)
        transport = both.ours._transport
        for byte in range(MAX_UNREAD_BYTES // 4096):
            await both.say(b"x" * 4096)
            with anyio.fail_after(WAIT_S):
                while both.ours._unread < (byte + 1) * 4096:
                    await anyio.lowlevel.checkpoint()
        assert transport.is_reading()
        await both.say(b"x")
        with anyio.fail_after(WAIT_S):
            while transport.is_reading():
                await anyio.lowlevel.checkpoint()
        assert len(await response.receive()) == MAX_UNREAD_BYTES + 1
        assert transport.is_reading()


async def test_a_body_that_has_no_end_of_its_own_ends_with_the_connection() -> None:
    async with connected() as both:
        response = await both.answer(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        both.theirs.shutdown(socket.SHUT_WR)
        with anyio.fail_after(WAIT_S):
            assert await response.receive() == b"half"
            assert await response.receive() == b""
        await response.aclose()
        assert both.kept == []


@pytest.mark.parametrize("header", [b"content-length: 5", b"transfer-encoding: chunked"])
async def test_a_body_that_is_cut_off_is_broken(header: bytes) -> None:
    async with connected() as both:
        response = await both.answer(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\n")
        both.theirs.shutdown(socket.SHUT_WR)
        with anyio.fail_after(WAIT_S), pytest.raises(BodyBroken, match=r"^the server closed the"):
            await response.receive()


async def test_a_head_of_what_comes_before_the_response_is_passed_over() -> None:
    async with connected() as both:
        before = b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"
        response = await both.answer(before + b"HTTP/1.1 204 No\r\nx: 1\r\nX: 2\r\n\r\n")
        assert (response.status, response.headers) == (204, {"x": "1, 2"})
        assert response.at_end


async def test_a_reset_is_told_from_an_end() -> None:
    failure = ConnectionResetError()
    async with connected() as both:
        both.ours.send(b"GET")
        both.ours.connection_lost(failure)
        with pytest.raises(ConnectionReset, match=r"^the connection broke$"):
            await both.ours.response()
    async with connected() as both:
        both.ours.send(b"GET")
        # It has said something: it may have read the request.
        both.ours.data_received(b"HTTP/1.1 ")
        both.ours.connection_lost(failure)
        with pytest.raises(Unreachable, match=r"^the connection broke$") as caught:
            await both.ours.response()
        assert type(caught.value) is Unreachable
    async with connected() as both:
        both.ours.send(b"GET")
        both.ours.connection_lost(None)
        with pytest.raises(Unreachable, match=r"^the connection was closed$"):
            await both.ours.response()
