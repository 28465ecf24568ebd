"""transport: files with tokens and secrets at their bounds, and what is left of a token file."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server.transport import tokens
from app_server.transport import tokens as module
from app_server.transport.guards import read_shared_secret, read_token_digest
from app_server.transport.tokens import (
    CapabilityToken,
    RotatedCheck,
    TokenCheck,
    TokenFileUnusable,
    Version,
    digest_of,
    token_file,
)

OUTSIDE = "the file must hold 1 to 4096 bytes of UTF-8 text"


@pytest.mark.parametrize(
    ("content", "token"),
    [
        (b"t", "t"),
        (b" \t tok en \n\n", "tok en"),
        (b"x" * 4096, "x" * 4096),
        (b"x" * 4095 + b"\n", "x" * 4095),
    ],
)
def test_a_token_of_a_file_is_its_text_without_white_space_around_it(
    tmp_path: Path, content: bytes, token: str
) -> None:
    (tmp_path / "token").write_bytes(content)
    assert read_token_digest(tmp_path / "token") == digest_of(token)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", OUTSIDE),
        (b" \n", OUTSIDE),
        (b"x" * 4097, OUTSIDE),
        # Also where the text alone would fit.
        (b"x" * 4096 + b"\n", OUTSIDE),
        (b"\xff", OUTSIDE),
        ("\u00e9".encode(), "a token is printable ASCII characters on one line"),
        (b"a\nb", "a token is printable ASCII characters on one line"),
        (b"a\x00b", "a token is printable ASCII characters on one line"),
    ],
)
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, content: bytes, rule: str) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}$"):
        read_token_digest(tmp_path / "token")


def test_a_shared_secret_has_as_many_bytes_as_its_signature(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    # Bytes count, not characters.
    for content in ("x" * 32, "\u00e9" * 16, "x" * 4096):
        file.write_text(content)
        assert read_shared_secret(file) == content.encode()
    for content in ("x" * 31, "\u00e9" * 15, "x" * 31 + "\n"):
        file.write_text(content)
        with pytest.raises(ValueError, match=r"^a secret has at least 32 bytes$"):
            read_shared_secret(file)
    for content in ("", "x" * 4097):
        file.write_text(content)
        with pytest.raises(ValueError, match=f"^{OUTSIDE}$"):
            read_shared_secret(file)


# The token file of this server.


def _of_another_server(path: Path) -> None:
    path.write_text("x" * 43 + "\n")


def _of_another_server_without_line_end(path: Path) -> None:
    path.write_text("x" * 43)


def _empty(path: Path) -> None:
    path.touch()


def _none(path: Path) -> None:
    """Leave nothing there."""


@pytest.mark.parametrize(
    "before", [_none, _empty, _of_another_server, _of_another_server_without_line_end]
)
def test_a_token_file_holds_the_token_and_no_more(
    tmp_path: Path, before: Callable[[Path], None]
) -> None:
    path = tmp_path / "token"
    before(path)
    descriptors = os.listdir("/dev/fd")
    with token_file(path) as token:
        assert re.fullmatch("[A-Za-z0-9_-]{43}", token)
        assert path.read_bytes() == f"{token}\n".encode()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == []
    assert os.listdir("/dev/fd") == descriptors


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("elsewhere")


def _half_a_token(path: Path) -> None:
    path.write_text("x" * 42)


def _two_tokens(path: Path) -> None:
    path.write_text("x" * 43 + "\n" + "x" * 43 + "\n")


def _other_bytes(path: Path) -> None:
    path.write_text("x" * 42 + "!\n")


def _a_byte_before(path: Path) -> None:
    path.write_text("!" + "x" * 43 + "\n")


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (_pipe, "the token file must be a file of this user"),
        (_link, "Too many levels of symbolic links"),
        (Path.mkdir, "Is a directory"),
        (_half_a_token, "exists and is no token file"),
        (_two_tokens, "exists and is no token file"),
        (_other_bytes, "exists and is no token file"),
        (_a_byte_before, "exists and is no token file"),
    ],
)
def test_what_is_no_token_file_is_refused_with_what_it_is_and_stays(
    tmp_path: Path, there: Callable[[Path], None], why: str
) -> None:
    path = tmp_path / "token"
    there(path)
    before = path.lstat()
    descriptors = os.listdir("/dev/fd")
    with pytest.raises(TokenFileUnusable) as refused, token_file(path):
        pass
    assert str(refused.value) == f"the token file cannot be made: {path}: {why}"
    assert os.path.samestat(path.lstat(), before)
    assert (path.lstat().st_size, path.lstat().st_mode) == (before.st_size, before.st_mode)
    assert os.listdir("/dev/fd") == descriptors


def test_a_file_of_another_user_is_no_token_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TokenFileUnusable, match="must be a file of this user"), token_file(path):
        pass
    assert path.read_bytes() == b""


def test_a_file_that_another_server_has_keeps_no_descriptor_here(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with token_file(path):
        descriptors = os.listdir("/dev/fd")
        with pytest.raises(TokenFileUnusable) as refused, token_file(path):
            pass
        assert refused.value.strerror == "another server keeps its token in this file"
        assert os.listdir("/dev/fd") == descriptors


def test_a_file_that_is_always_removed_is_opened_ten_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, locked = tmp_path / "token", list[int]()

    def lock(number: int, _: int) -> None:
        locked.append(number)
        path.unlink()

    monkeypatch.setattr("fcntl.flock", lock)
    descriptors = os.listdir("/dev/fd")
    with pytest.raises(TokenFileUnusable) as refused, token_file(path):
        pass
    assert refused.value.strerror == "other servers make and remove this file all the time"
    assert len(locked) == module.MAX_TRIES == 10
    assert os.listdir("/dev/fd") == descriptors


# Rotation.


class Files:
    """Makes checks of a file, and counts how often."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made = 0
        path.write_text("first")
        self.check = RotatedCheck(path, CapabilityToken(digest_of("first")), self.make)

    def make(self, path: Path) -> TokenCheck:
        self.made += 1
        return CapabilityToken(read_token_digest(path))

    async def accepted(self, *tokens: str) -> list[bool]:
        check = await self.check.current()
        return [check.accepts(token) for token in tokens]


async def test_a_file_is_read_again_when_it_changed_and_only_then(tmp_path: Path) -> None:
    files = Files(tmp_path / "token")
    for _ in range(3):
        assert await files.accepted("first", "other") == [True, False]
    assert files.made == 1
    files.path.write_text("other")
    for _ in range(3):
        assert await files.accepted("first", "other") == [False, True]
    assert files.made == 2


async def test_a_file_that_makes_no_sense_is_read_once_and_one_that_is_away_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path / "token")
    files.path.write_text("\u00e9")
    for _ in range(3):
        assert await files.accepted("first") == [True]
    assert files.made == 1
    # What comes back may be as it was before.
    away = files.path.rename(tmp_path / "away")
    assert await files.accepted("first") == [True]
    away.rename(files.path)
    for _ in range(2):
        assert await files.accepted("first") == [True]
    assert files.made == 2
    files.path.write_text("second")
    assert await files.accepted("first", "second") == [False, True]
    # The same slip again is said again.
    files.path.write_text("\u00e9")
    assert await files.accepted("second") == [True]
    slip = f"{files.path}: a token is printable ASCII characters on one line"
    holds = "; what was read from it last still holds"
    assert caplog.messages == [
        slip + holds,
        f"{files.path}: No such file or directory{holds}",
        slip + holds,
        slip + holds,
    ]


async def test_a_pipe_in_place_of_the_file_is_not_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path / "token")
    files.path.unlink()
    os.mkfifo(files.path)
    assert await files.accepted("first") == [True]
    assert files.made == 0
    assert "it is no file any more" in caplog.text


async def test_a_file_that_could_not_be_looked_at_is_read_again_and_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path / "token")
    there = tokens.version_of(files.path)
    # A file system that is away for a moment, and has the same file when it is back.
    looks: list[Version | OSError] = [there, TimeoutError(), there, TimeoutError()]

    def look(path: Path) -> Version:
        found = looks.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(tokens, "version_of", look)
    for _ in range(4):
        assert await files.accepted("first") == [True]
    assert files.made == 2
    said = f"{files.path}: TimeoutError; what was read from it last still holds"
    assert caplog.messages == [said, said]
