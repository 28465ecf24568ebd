"""transport: a Unix socket is for its owner alone, and the kernel says who that is."""

import errno
import os
import re
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from app_server.cli.checks.machine import Machine, check_ports
from app_server.runtime.http import peer_user
from app_server.runtime.http.peer_user import (
    OVERFLOW_UID,
    OtherUser,
    UserUnknown,
    check_unix,
)
from app_server.transport import socket_file
from app_server.transport.address import UnixAddress
from app_server.transport.socket_file import LINK_TO_NOTHING, MAX_PATH_BYTES, NO_FOLDER, TOO_LONG
from tests.support.harness import claim, serve
from tests.support.other_user import STRANGER, done_as, exchanged, other_user
from tests.support.wire.handshakes import Answer, handshake

REFUSED = (
    "This server belongs to another user of this machine. It talks to its own user alone, unless "
    "its config.toml has refuse_other_users = false.\n"
)

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Give a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the user of a process that is a stranger to the server of this test."""
    return other_user(monkeypatch)


async def ask(uid: int, path: Path) -> str:
    """Ask for an upgrade as a process of this user; gives the first line of the answer."""
    exchange = partial(exchanged, socket.AF_UNIX, str(path), UPGRADE)
    return (await anyio.to_thread.run_sync(done_as, uid, exchange)).split("\r\n")[0]


@pytest.mark.process
@claim("listener:unix")
async def test_another_user_is_refused_also_where_the_file_lets_everybody_in(
    tmp_path: Path, reachable: Path, another: int
) -> None:
    path = reachable / "socket"
    async with serve(tmp_path, listen=[UnixAddress(path)]):
        if os.getuid() == 0:
            assert await ask(another, path) == f"PermissionError {errno.EACCES}"
        path.chmod(0o666)
        assert await ask(another, path) == "HTTP/1.1 403 Forbidden"


@pytest.mark.process
@claim("listener:unix")
async def test_other_users_are_let_in_where_the_configuration_says_so(
    tmp_path: Path, reachable: Path, another: int
) -> None:
    path = reachable / "socket"
    config = "refuse_other_users = false\n"
    async with serve(tmp_path, config=config, listen=[UnixAddress(path)]):
        path.chmod(0o666)
        assert await ask(another, path) == "HTTP/1.1 101 Switching Protocols"


@claim("listener:unix")
async def test_a_refusal_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(tmp_path, listen=[UnixAddress(tmp_path / "socket")]) as served:
        assert (await handshake(served.urls[0], host="x")).status == 101
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
        assert await handshake(served.urls[0], host="x") == Answer(403, REFUSED, {})


@claim("listener:unix")
async def test_the_socket_and_the_folder_that_is_made_for_it_are_private(tmp_path: Path) -> None:
    path = tmp_path / "made" / "socket"
    before = os.umask(0)
    try:
        async with serve(tmp_path, listen=[UnixAddress(path)]):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        os.umask(before)


@claim("listener:unix")
async def test_folders_above_the_one_of_the_socket_are_not_made(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "made" / "socket"
    with pytest.raises(OSError, match=re.escape(NO_FOLDER)) as refused:
        async with serve(tmp_path / "home", listen=[UnixAddress(path)]):
            pass
    assert refused.value.filename == str(tmp_path / "missing")
    assert [each.name for each in tmp_path.iterdir()] == ["home"]


@claim("listener:unix")
async def test_a_socket_in_a_world_writable_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(OSError, match="everybody may replace files in this folder"):
        async with serve(tmp_path, listen=[UnixAddress(folder / "socket")]):
            pass
    assert list(folder.iterdir()) == []
    # As /tmp is: everybody may remove only what is theirs.
    folder.chmod(0o1777)
    async with serve(tmp_path, listen=[UnixAddress(folder / "socket")]) as served:
        assert (await handshake(served.urls[0])).status == 101


@claim("listener:unix")
@pytest.mark.parametrize(
    ("name", "named", "reason"),
    [
        ("loop", "loop", os.strerror(errno.ELOOP)),
        ("dangling", "dangling", LINK_TO_NOTHING),
        ("file", "file", "exists and is not a socket"),
        ("folder", "folder", "exists and is not a socket"),
        ("file/socket", "file", "exists and is no folder"),
        ("dangling/socket", "dangling", "exists and is no folder"),
        ("loop/socket", "loop", "exists and is no folder"),
        ("x" * MAX_PATH_BYTES, "x" * MAX_PATH_BYTES, TOO_LONG),
    ],
)
async def test_a_path_that_cannot_be_a_socket_is_named_with_what_is_wrong(
    name: str, named: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    path = tmp_path / name
    with pytest.raises(OSError, match=re.escape(reason)) as refused:
        async with serve(tmp_path / "home", listen=[UnixAddress(path)]):
            pass
    assert (refused.value.filename, refused.value.strerror) == (str(tmp_path / named), reason)
    assert [there for there in sorted(tmp_path.iterdir()) if there.name != "home"] == before
    check = check_ports(Machine(home=tmp_path, listen=[f"unix://{path}"]))
    assert (check.status, len(check.details)) == ("error", 1)


def test_a_server_that_takes_no_connections_still_holds_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as hung, socket.socket(socket.AF_UNIX) as waiting:
        hung.bind(str(path))
        hung.listen(0)
        waiting.connect(str(path))
        with pytest.raises(OSError, match="another server listens on this socket") as refused:
            socket_file.bind_socket(path)
    assert (refused.value.errno, refused.value.filename) == (errno.EADDRINUSE, str(path))


async def test_a_path_that_the_system_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "socket"

    def taken_meanwhile(there: Path) -> None:
        there.touch()

    monkeypatch.setattr(socket_file, "_remove_stale_socket", taken_meanwhile)
    with pytest.raises(OSError, match="Address already in use") as refused:
        socket_file.bind_socket(path)
    assert refused.value.filename == str(path)


def test_the_user_of_a_connection_is_the_one_who_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        closing(socket.socket(socket.AF_UNIX)) as listener,
        closing(socket.socket(socket.AF_UNIX)) as client,
    ):
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        client.connect(str(tmp_path / "socket"))
        accepted, _ = listener.accept()
        with closing(accepted):
            check_unix(accepted)
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
            with pytest.raises(OtherUser, match=str(os.getuid())):
                check_unix(accepted)
        with pytest.raises(UserUnknown, match="the kernel does not name its user"):
            check_unix(accepted)


def test_the_overflow_uid_of_another_namespace_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Connection(socket.socket):
        def getsockopt(self, *_: int) -> bytes:  # type: ignore[override]
            return b"".join(number.to_bytes(4, sys.byteorder) for number in (0, OVERFLOW_UID, 0))

    monkeypatch.setattr(peer_user, "UID_MAP", Path("/nonexistent"))
    monkeypatch.setattr(os, "geteuid", lambda: OVERFLOW_UID)
    with (
        closing(Connection(socket.AF_UNIX)) as connection,
        pytest.raises(UserUnknown, match="not one of this user namespace"),
    ):
        check_unix(connection)
