"""Files of this machine as the apps may read them, where all may be read or none."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.apps.files.environments import CONFINED, LOCAL_CHUNK_BYTES
from app_server.apps.files.files import FileMetadata, FileRefused
from app_server.permissions.readable import reads_everything
from protocol.model import Json
from tests.support.apps.files.local import FILES, entry, managed, state, whole
from tests.support.harness import WAIT_S, claim


@pytest.mark.parametrize(
    ("profile", "allowed"),
    [
        ({"type": "disabled"}, True),
        ({"type": "external"}, True),
        ({"type": "other"}, False),
        ({}, False),
        (None, False),
        ({"type": "managed"}, False),
        ({"type": "managed", "file_system": {"entries": {}}}, False),
        (managed(), False),
        (managed(entry()), True),
        (managed(entry("write")), True),
        (managed(entry(), entry("write", "tmp")), True),
        (managed(entry("write", "tmp")), False),
        (managed(entry("none")), False),
        (managed(entry(), entry("none", "tmp")), False),
        # What cannot be understood may be a prohibition.
        (managed(entry(), entry("deny", "tmp")), False),
        (managed(entry(), entry(None, "tmp")), False),
        (managed(entry(), entry(["read"], "tmp")), False),
        (managed(entry(), "unreadable"), False),
    ],
)
@claim("apps:r3")
def test_a_profile_lets_everything_be_read_or_counts_as_a_prohibition(
    profile: Json, allowed: bool
) -> None:
    assert reads_everything(profile) is allowed


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"environmentId": "cloud"}, "environment `cloud` is not known"),
        (
            {"environmentInstanceId": "instance-1"},
            "the environment is not the one of this turn any more",
        ),
        (
            {"environmentInstanceId": None},
            "the environment is not the one of this turn any more",
        ),
        ({"permissionProfile": managed(entry("write", "tmp"))}, CONFINED),
    ],
)
@claim("apps:r3")
async def test_files_are_not_held_where_they_may_not_be_read(
    members: dict[str, Any], reason: str
) -> None:
    with pytest.raises(FileRefused) as refused:
        async with FILES.pin(state(**members)):
            raise AssertionError("they are held")
    assert str(refused.value) == reason


@claim("apps:r3")
async def test_a_file_is_read_as_it_is_in_chunks_of_at_most_a_mebibyte(tmp_path: Path) -> None:
    data = os.urandom(LOCAL_CHUNK_BYTES + 1)
    path = tmp_path / "file"
    path.write_bytes(data)
    async with FILES.pin(state()) as files:
        assert await files.metadata(str(path)) == FileMetadata(True, len(data))
        assert (await files.metadata(str(tmp_path))).is_file is False
        assert await whole(files, str(path)) == [data[:LOCAL_CHUNK_BYTES], data[LOCAL_CHUNK_BYTES:]]


def absent(folder: Path) -> str:
    return str(folder / "absent")


def through_a_file(folder: Path) -> str:
    (folder / "file").touch()
    return str(folder / "file" / "below")


def impossible(folder: Path) -> str:
    return str(folder / "a\0b")


def folder_itself(folder: Path) -> str:
    return str(folder)


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (absent, "No such file or directory"),
        (through_a_file, "Not a directory"),
        (impossible, "it cannot be read"),
    ],
)
@claim("apps:r3")
async def test_what_is_not_there_is_refused_by_both_looks(
    tmp_path: Path, made: Callable[[Path], str], reason: str
) -> None:
    path = made(tmp_path)
    async with FILES.pin(state()) as files:
        with pytest.raises(FileRefused) as refused:
            await files.metadata(path)
        assert str(refused.value) == reason
        with pytest.raises(FileRefused) as refused:
            await whole(files, path)
        assert str(refused.value) == reason


@pytest.mark.parametrize("made", [folder_itself, pipe])
@claim("apps:r3")
async def test_what_has_become_something_else_than_a_file_is_refused_without_waiting(
    tmp_path: Path, made: Callable[[Path], str]
) -> None:
    path = made(tmp_path)
    async with FILES.pin(state()) as files:
        with pytest.raises(FileRefused) as refused, anyio.fail_after(WAIT_S):
            await whole(files, path)
    assert str(refused.value) == "it is not a file"


@claim("apps:r3")
async def test_a_file_that_is_not_read_to_its_end_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (LOCAL_CHUNK_BYTES + 1))

    def opened() -> list[str]:
        folder = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
        found = []
        for one in folder.iterdir():
            try:
                found.append(os.readlink(one))
            except OSError:
                continue
        return [name for name in found if name == str(path)]

    async with FILES.pin(state()) as files:
        chunks: Any = files.read(str(path))
        await anext(chunks)
        assert opened() == [str(path)]
        await chunks.aclose()
        assert opened() == []
