"""Files of SQLite that the server has open: whoever closes one takes the server's locks on it."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app_server.host.files.operations import copy, read_base64, write_file
from app_server.host.files.work import PathRefused, Stop
from app_server.runtime.files.sqlite import connect, connect_to_read

LOCK = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """Hold a transaction on a database of this process."""
    path = tmp_path / "home" / "state.sqlite3"
    path.parent.mkdir()
    connection = connect(path, synchronous="NORMAL", autocommit=True)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO t VALUES (1)")
    yield path
    connection.close()


def others_are_locked_out(path: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", LOCK, str(path)], capture_output=True, text=True, check=False
    )
    return "database is locked" in done.stderr


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize(
    "touch",
    [
        lambda path, free: read_base64(path, Stop()),
        lambda path, free: copy(path, free, recursive=False, stop=Stop()),
        lambda path, free: copy(free, path, recursive=False, stop=Stop()),
        lambda path, free: write_file(path, b"x", Stop()),
    ],
    ids=["read", "copied", "copied over", "written"],
)
def test_they_are_left_alone(
    database: Path, suffix: str, touch: Callable[[Path, Path], object]
) -> None:
    named, free = Path(f"{database}{suffix}"), database.parent.parent / "free"
    free.write_text("x")
    link = database.parent.parent / "link"
    os.link(named, link)
    for path in (named, link):
        with pytest.raises(PathRefused) as caught:
            touch(path, free)
        assert "is a database that this server has open" in str(caught.value)
    assert others_are_locked_out(database)


def test_a_folder_with_one_is_not_copied(database: Path, tmp_path: Path) -> None:
    with pytest.raises(PathRefused):
        copy(database.parent, tmp_path / "copy", recursive=True, stop=Stop())
    assert others_are_locked_out(database)


def test_one_that_is_only_read_is_left_alone_too(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    sqlite3.connect(path).close()
    with closing(connect_to_read(path)), pytest.raises(PathRefused):
        read_base64(path, Stop())


def test_databases_of_others_are_files_like_others(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    assert read_base64(path, Stop()) != []
    copy(path, tmp_path / "copy", recursive=False, stop=Stop())
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
