"""transport: other users of this machine are refused over TCP, and who they are is found out."""

import logging
import os
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app_server.runtime.http import peer_user
from app_server.runtime.http.peer_user import (
    OVERFLOW_UID,
    OtherUser,
    Tables,
    UserUnknown,
    asked_owner,
    check_tcp,
    owner_in,
    refusal_of_stranger,
)
from app_server.transport.address import TcpAddress
from tests.support.harness import WAIT_S, claim, serve
from tests.support.other_user import done_as, exchanged, other_user

REFUSED = (
    "This server belongs to another user of this machine. It talks to its own user alone, unless "
    "its config.toml has refuse_other_users = false."
)

HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n"
)

UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the user of a process that is a stranger to the server of this test."""
    return other_user(monkeypatch)


async def ask(uid: int, url: str) -> list[str]:
    """Ask for an upgrade, and for readiness, as a process of this user; gives both answers."""
    parts = urlsplit(url)
    family = socket.AF_INET6 if ":" in (parts.hostname or "") else socket.AF_INET
    answers = []
    for path, headers in ((b"/", UPGRADE), (b"/readyz", b"")):
        request = b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (path, headers)
        exchange = partial(exchanged, family, (parts.hostname, parts.port), request)
        answer = await anyio.to_thread.run_sync(done_as, uid, exchange)
        head, _, body = answer.partition("\r\n\r\n")
        answers.append(f"{head.split()[1]} {body.strip()}")
    return answers


# Whole connections.


@pytest.mark.process
@claim("listener:own-user")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_another_user_is_refused_before_the_upgrade_and_may_ask_for_readiness(
    tmp_path: Path, another: int, host: str
) -> None:
    async with serve(tmp_path, listen=[TcpAddress(host, 0)]) as served:
        [url] = served.urls
        assert await ask(another, url) == [f"403 {REFUSED}", "200 ok"]


@pytest.mark.process
@claim("listener:own-user")
async def test_other_users_are_let_in_where_the_configuration_says_so(
    tmp_path: Path, another: int
) -> None:
    async with serve(tmp_path, config="refuse_other_users = false\n") as served:
        assert await ask(another, served.urls[0]) == ["101 ", "200 ok"]


@claim("listener:own-user")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_the_own_user_is_let_in_over_both_versions_of_ip(tmp_path: Path, host: str) -> None:
    async with (
        serve(tmp_path, listen=[TcpAddress(host, 0)]) as served,
        served.client() as client,
    ):
        assert await client.call("thread/loaded/list", {}) == {"data": [], "nextCursor": None}


@claim("listener:own-user")
async def test_a_socket_for_both_versions_of_ip_is_found(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        port = int(served.urls[0].rpartition(":")[2])
        mapped = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        mapped.connect(("::ffff:127.0.0.1", port))
        mapped.setblocking(False)
        async with connect(f"ws://127.0.0.1:{port}", sock=mapped, proxy=None, open_timeout=WAIT_S):
            pass


@claim("listener:own-user")
async def test_connections_are_refused_without_the_socket_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> int:
        raise UserUnknown("/proc/net/tcp: Permission denied")

    monkeypatch.setattr(peer_user, "asked_owner", lambda *_: None)
    monkeypatch.setattr(peer_user, "owner_in", nothing)
    async with serve(tmp_path) as served:
        with pytest.raises(InvalidStatus) as caught:
            async with connect(served.urls[0], proxy=None, open_timeout=WAIT_S):
                pass
        response = caught.value.response
        assert (response.status_code, (response.body or b"").decode()) == (
            403,
            "This server cannot tell which user connects: /proc/net/tcp: Permission denied. It "
            "talks to its own user alone, unless its config.toml has refuse_other_users = false.\n",
        )


# The table.


def row(there: str, here: str, *, state: str = "01", uid: int = 1000, inode: int = 77) -> str:
    """Render a row as Linux does."""
    return (
        f"   7: {there} {here} {state} 00000000:00000000 00:00000000 00000000 {uid:5d}        0 "
        f"{inode} 1 000000007818a3fe 20 4 30 10 -1\n"
    )


CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.1", 4500)
THERE, HERE = "0100007F:9C40", "0100007F:1194"
MAPPED = "0000000000000000FFFF0000"
SIX = "00000000000000000000000001000000"

Write = Callable[..., Tables]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write tables as a little-endian machine shows them."""
    monkeypatch.setattr(struct, "iter_unpack", _little)

    def written(tcp: str | None, tcp6: str | None = HEAD) -> Tables:
        for name, text in (("tcp", tcp), ("tcp6", tcp6)):
            if text is not None:
                (tmp_path / name).write_text(text)
        return Tables(tmp_path)

    return written


def _little(form: str, packed: bytes) -> list[tuple[int]]:
    assert form == "=I"
    return [(int.from_bytes(packed[at : at + 4], "little"),) for at in range(0, len(packed), 4)]


def test_the_row_of_the_other_end_is_found_by_both_addresses_and_ports(write: Write) -> None:
    own = row(HERE, THERE, uid=1)
    near = row("0100007F:9C41", HERE, uid=2) + row(THERE, "0100007F:1195", uid=3)
    found = write(HEAD + own + near + row(THERE, HERE, uid=1000) + near)
    assert owner_in(found, CLIENT, SERVER) == 1000


def test_connections_of_ipv6_and_mapped_ones_are_found(write: Write) -> None:
    six = row(f"{SIX}:9C40", f"{SIX}:1194", uid=6)
    mapped = row(f"{MAPPED}{THERE}", f"{MAPPED}{HERE}", uid=4)
    found = write(HEAD, HEAD + six + mapped)
    assert owner_in(found, ("::1", 40000, 0, 0), ("::1", 4500, 0, 0)) == 6
    assert owner_in(found, CLIENT, SERVER) == 4
    both = ("::ffff:127.0.0.1", 40000, 0, 0), ("::ffff:127.0.0.1", 4500, 0, 0)
    assert owner_in(found, *both) == 4


def test_a_machine_without_ipv6_has_one_table(write: Write) -> None:
    assert owner_in(write(HEAD + row(THERE, HERE), None), CLIENT, SERVER) == 1000


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("", "the system's table of connections does not have it"),
        # FIN_WAIT2 and TIME_WAIT: their owner has let go, and root is shown in its place.
        (row(THERE, HERE, state="05", uid=0), "the system's table of connections does not have it"),
        (row(THERE, HERE, state="06", uid=0), "the system's table of connections does not have it"),
        (row(THERE, HERE, uid=0, inode=0), "its socket has no owner any more"),
        (f"   7: {THERE} {HERE} 01 x\n", "the system's table of connections has a form of its own"),
    ],
)
def test_what_does_not_say_who_it_is_counts_as_unknown(write: Write, rows: str, why: str) -> None:
    with pytest.raises(UserUnknown) as caught:
        owner_in(write(HEAD + rows), CLIENT, SERVER)
    assert str(caught.value) == why


def test_a_table_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "tcp").mkdir()
    with pytest.raises(UserUnknown) as caught:
        owner_in(Tables(tmp_path), CLIENT, SERVER)
    assert str(caught.value) == f"{tmp_path / 'tcp'}: Is a directory"


def test_a_row_is_found_wherever_a_read_ends(write: Write) -> None:
    others = "".join(row(f"0100007F:{port:04X}", HERE, uid=1) for port in range(30))
    found = write(HEAD + others + row(THERE, HERE, uid=1000) + others)
    for size in (1, 7, 149, 150, 151, 4096):
        assert owner_in(replace(found, chunk_bytes=size), CLIENT, SERVER) == 1000


def test_a_look_is_bounded_in_bytes_and_in_time(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(write(HEAD + row(HERE, THERE) * 1000), chunk_bytes=4096)
    for max_bytes, look_s in ((-1, WAIT_S), (1 << 20, -1)):
        monkeypatch.setattr(peer_user, "LOOK_S", look_s)
        with pytest.raises(UserUnknown) as caught:
            owner_in(replace(found, max_bytes=max_bytes), CLIENT, SERVER)
        assert str(caught.value) == "the system's table of connections is too long"


@pytest.mark.parametrize(
    ("uid", "outcome"),
    [
        (1000, None),
        (1001, OtherUser),
        # Root could be anybody's relay.
        (0, OtherUser),
        (OVERFLOW_UID, UserUnknown),
    ],
)
async def test_only_the_own_user_passes(
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    uid: int,
    outcome: type[Exception] | None,
) -> None:
    use_map(monkeypatch, tmp_path / "map", None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    own = write(HEAD + row(THERE, HERE, uid=uid))
    if outcome is None:
        await check_tcp(CLIENT, SERVER, own)
        return
    with pytest.raises(outcome):
        await check_tcp(CLIENT, SERVER, own)


@pytest.mark.parametrize("uid_map", ["0 1000 1\n", "0 100000 65536\n", None])
async def test_a_user_who_cannot_be_distinguished_from_others_does_not_pass(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid_map: str | None
) -> None:
    use_map(monkeypatch, tmp_path / "map", uid_map)
    monkeypatch.setattr(os, "geteuid", lambda: OVERFLOW_UID)
    own = write(HEAD + row(THERE, HERE, uid=OVERFLOW_UID))
    with pytest.raises(UserUnknown):
        await check_tcp(CLIENT, SERVER, own)


async def test_where_every_user_is_known_the_last_one_is_a_user_like_others(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Containers are run as `nobody`; what listens there for the server itself lets it in."""
    use_map(monkeypatch, tmp_path / "map", "         0          0 4294967295\n")
    own = write(HEAD + row(THERE, HERE, uid=OVERFLOW_UID))
    with pytest.raises(OtherUser):
        await check_tcp(CLIENT, SERVER, own)
    monkeypatch.setattr(os, "geteuid", lambda: OVERFLOW_UID)
    await check_tcp(CLIENT, SERVER, own)


def use_map(monkeypatch: pytest.MonkeyPatch, path: Path, text: str | None) -> None:
    """Have a map of users be that of this process; None: it cannot be read."""
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(peer_user, "UID_MAP", path)


@pytest.mark.parametrize("ours", [True, False])
async def test_a_closed_connection_is_refused_without_a_warning(
    caplog: pytest.LogCaptureFixture, ours: bool
) -> None:
    caplog.set_level(logging.INFO)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        with closing(socket.create_connection(listener.getsockname())):
            accepted, _ = listener.accept()
        why = "the system's table of connections does not have it"
        if ours:
            accepted.close()
            why = "the connection has gone"
        with closing(accepted):
            assert await refusal_of_stranger(accepted) == (
                f"This server cannot tell which user connects: {why}. {peer_user.HOW_TO_LET_IN}\n"
            )
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"refused a connection whose other end was closed: {why}")
    ]


async def test_a_connection_that_is_in_no_table_is_refused_with_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_user, "asked_owner", lambda there, here: None)
    monkeypatch.setattr(peer_user, "_find", lambda *args: None)
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        closing(socket.create_connection(listener.getsockname())),
        closing(listener.accept()[0]) as accepted,
    ):
        assert await refusal_of_stranger(accepted) is not None
    assert caplog.messages == [
        "refused a connection whose user is unknown: "
        "the system's table of connections does not have it"
    ]


# Real sockets, both ways of finding out.


def asked(there: Any, here: Any) -> int:
    """Ask the kernel."""
    if (uid := asked_owner(there, here)) is None:
        raise UserUnknown
    return uid


@pytest.fixture(params=["asked", "looked up"])
def owner_of(request: pytest.FixtureRequest) -> Callable[[Any, Any], int]:
    """Return one of the two ways."""
    return asked if request.param == "asked" else partial(owner_in, Tables())


@pytest.mark.parametrize(
    ("listening", "calling"),
    [
        (("127.0.0.1", 0), "127.0.0.1"),
        (("127.0.0.1", 0), "::ffff:127.0.0.1"),
        (("::1", 0), "::1"),
    ],
)
def test_the_owner_of_a_real_socket_is_found_until_it_is_closed(
    owner_of: Callable[[Any, Any], int], listening: tuple[str, int], calling: str
) -> None:
    """Who sends all that it has to say and closes would else be taken for root."""
    family = socket.AF_INET6 if ":" in listening[0] else socket.AF_INET
    with closing(socket.create_server(listening, family=family)) as listener:
        client = socket.socket(socket.AF_INET6 if ":" in calling else socket.AF_INET)
        client.connect((calling, listener.getsockname()[1]))
        accepted, there = listener.accept()
        here = accepted.getsockname()
        with closing(accepted):
            assert owner_of(there, here) == os.geteuid()
            for wrong in ((there[0], there[1] ^ 1), (there[0], here[1])):
                with pytest.raises(UserUnknown):
                    owner_of(wrong, here)
            client.sendall(b"everything")
            client.close()
            with pytest.raises(UserUnknown):
                owner_of(there, here)


@pytest.mark.process
def test_both_ways_see_the_user_who_made_the_socket(
    owner_of: Callable[[Any, Any], int], another: int
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def seen() -> bytes:
            # The other end is of the child alone, and this one is as visible from there.
            with socket.socket() as client:
                client.connect(listener.getsockname())
                accepted, there = listener.accept()
                return str(owner_of(there, accepted.getsockname())).encode()

        assert done_as(another, seen) == str(another)


async def test_the_tables_decide_where_the_kernel_cannot_be_asked(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> socket.socket:
        raise PermissionError

    monkeypatch.setattr("app_server.runtime.http.peer_user.socket.socket", refused)
    await check_tcp(CLIENT, SERVER, write(HEAD + row(THERE, HERE, uid=os.geteuid())))
