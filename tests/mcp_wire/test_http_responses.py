"""mcp: HTTP/1.1 on loopback: what a connection makes of bytes, without a network."""

import asyncio
import itertools
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.mcp_wire.http import loopback as connection_module
from app_server.mcp_wire.http.exchange import BodyBroken, Unreachable, read_body
from app_server.mcp_wire.http.loopback import MAX_HEAD_BYTES, LoopbackConnection
from tests.support.harness import WAIT_S

LIMIT = 1000
OK = b"HTTP/1.1 200 OK\r\n"


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
