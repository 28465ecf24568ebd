"""transport: the token that a server writes for programs of its own user."""

import errno
import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app_server.transport.guards import ListenerGuards
from app_server.transport.tokens import token_file
from tests.support.harness import claim, serve
from tests.support.other_user import done_as, other_user
from tests.support.processes import running
from tests.support.wire.handshakes import Answer, bearer, handshake

LET_IN = Answer(101, "", {})
REFUSED = Answer(401, "A bearer token is needed.\n", {})


@claim("listener:token-file")
async def test_who_can_read_the_file_is_let_in_while_the_server_runs(tmp_path: Path) -> None:
    path = tmp_path / "made" / "token"
    tokens = []
    for _ in range(2):
        async with serve(tmp_path, guards=ListenerGuards(token_file=path)) as served:
            token = path.read_text().rstrip("\n")
            tokens.append(token)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert await handshake(served.urls[0], bearer(token)) == LET_IN
            assert await handshake(served.urls[0], bearer(tokens[0] + "x")) == REFUSED
            assert await handshake(served.urls[0]) == REFUSED
        assert not path.exists()
    assert [len(token) for token in tokens] == [43, 43]
    assert tokens[0] != tokens[1]


@pytest.mark.process
@claim("listener:token-file")
async def test_a_token_of_a_server_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "token"
    listen = ("ws://127.0.0.1:0",)
    async with running(tmp_path, *listen, options=("--token-file", str(path))) as first:
        old = path.read_text().strip()
        assert await handshake(first.urls[0], bearer(old)) == LET_IN
        os.kill(first.process.pid, signal.SIGKILL)
        await first.ended()
    assert path.read_text().strip() == old
    async with running(tmp_path, *listen, options=("--token-file", str(path))) as second:
        new = path.read_text().strip()
        assert await handshake(second.urls[0], bearer(old)) == REFUSED
        assert await handshake(second.urls[0], bearer(new)) == LET_IN
        os.kill(second.process.pid, signal.SIGTERM)
        assert await second.ended() == 0
    assert not path.exists()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Give a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.process
@claim("listener:token-file")
async def test_another_user_cannot_read_the_file(
    tmp_path: Path, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = reachable / "token"
    async with serve(tmp_path, guards=ListenerGuards(token_file=path)):
        assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, os.getuid())
        if os.getuid() == 0:
            stranger = other_user(monkeypatch)
            refused = done_as(stranger, lambda: b"%d" % os.open(path, os.O_RDONLY))
            assert refused == f"PermissionError {errno.EACCES}"


def test_a_second_server_does_not_take_the_file_over(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with token_file(path) as token:
        with pytest.raises(OSError, match="another server keeps its token"), token_file(path):
            pass
        assert path.read_text() == f"{token}\n"


def test_a_file_that_others_may_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(0o644)
    with token_file(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["export PATH=1\n", "x" * 43 + "\nmore", "x" * 1000])
def test_what_is_no_token_file_stays(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(OSError, match="exists and is no token file"), token_file(path):
        pass
    assert path.read_text() == content


def test_links_pipes_and_folders_are_refused(tmp_path: Path) -> None:
    aim, link, pipe = (tmp_path / name for name in ("aim", "link", "pipe"))
    aim.touch()
    link.symlink_to(aim)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path):
        with pytest.raises(OSError), token_file(path):  # noqa: PT011 - the system's words
            pass
    assert aim.read_text() == ""


def test_a_token_file_that_was_replaced_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with token_file(path):
        path.unlink()
        path.write_text("theirs")
    assert path.read_text() == "theirs"
    path.unlink()
    with token_file(path):
        path.unlink()
    assert not path.exists()


def test_a_file_that_is_removed_while_it_is_opened_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, locked = tmp_path / "token", []

    def lock(number: int, _: int) -> None:
        # The server that had it stops between the two calls.
        locked.append(number)
        if len(locked) < 3:
            path.unlink()

    monkeypatch.setattr("fcntl.flock", lock)
    with token_file(path) as token:
        assert path.read_text() == f"{token}\n"
    assert len(locked) == 3


def test_it_is_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    monkeypatch.setattr("fcntl.flock", lambda *_: path.unlink())
    with ExitStack() as stack, pytest.raises(OSError, match="make and remove this file"):
        stack.enter_context(token_file(path))
