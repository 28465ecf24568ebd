"""SQLite files: rights, pragmas, versions, and failures as those of a disk."""

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from app_server.runtime.files.sqlite import (
    as_disk_failures,
    connect,
    connect_to_read,
    is_damage,
    open_rebuildable,
    version_of,
)

TABLES = "CREATE TABLE words (word);"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_file_and_its_companions_are_for_the_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = tmp_path / "one.sqlite3"
        path.touch(0o666)
        assert mode(path) == 0o666
        with closing(connect(path, synchronous="NORMAL")) as database, database:
            database.executescript(TABLES)
            assert {one.name: mode(one) for one in tmp_path.iterdir()} == {
                "one.sqlite3": 0o600,
                "one.sqlite3-wal": 0o600,
                "one.sqlite3-shm": 0o600,
            }
    finally:
        os.umask(old)


def test_a_second_connection_takes_nothing_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "one.sqlite3"
    read = (
        "import sqlite3, sys; database = sqlite3.connect(sys.argv[1]); "
        "print(database.execute('SELECT word FROM words').fetchall()); database.close()"
    )

    def seen_elsewhere() -> str:
        argv = [sys.executable, "-I", "-S", "-c", read, str(path)]
        return subprocess.run(argv, capture_output=True, check=True, text=True).stdout.strip()

    with closing(connect(path, synchronous="FULL")) as first:
        first.executescript(TABLES)
        with closing(connect(path, synchronous="FULL")):
            # A process that takes itself for the last one removes the log.
            assert seen_elsewhere() == "[]"
            with first:
                first.execute("INSERT INTO words VALUES ('kept')")
            assert seen_elsewhere() == "[('kept',)]"


@pytest.mark.parametrize(("synchronous", "number"), [("NORMAL", 1), ("FULL", 2)])
def test_a_connection_has_the_pragmas_that_were_asked_for(
    tmp_path: Path, synchronous: str, number: int
) -> None:
    opened = connect(
        tmp_path / "one",
        synchronous="FULL" if synchronous == "FULL" else "NORMAL",
        busy_s=3.0,
        autocommit=True,
    )
    with closing(opened) as database:
        pragmas = [
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
        assert pragmas == ["wal", number, 3000]
        assert database.isolation_level is None


def test_a_rebuildable_file_is_kept_while_its_version_fits(tmp_path: Path) -> None:
    path = tmp_path / "one"
    with closing(open_rebuildable(path, TABLES, 2)) as database:
        assert version_of(database) == -2
        with database:
            database.execute("INSERT INTO words VALUES ('kept')")
    with closing(open_rebuildable(path, TABLES, 2)) as database:
        assert database.execute("SELECT word FROM words").fetchall() == [("kept",)]


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_new_rebuildable_file_is_made_once(tmp_path: Path, is_empty: bool) -> None:
    path = tmp_path / "one"
    if is_empty:
        path.touch()

    def prevent() -> None:
        raise AssertionError("nothing is replaced")

    with closing(open_rebuildable(path, TABLES, 2, before_replacing=prevent)) as database:
        assert version_of(database) == -2
        assert database.execute("SELECT word FROM words").fetchall() == []


def test_a_rebuildable_file_is_synced_as_soon_as_it_has_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "one"
    for version in (1, 1, 2):  # new, kept, replaced
        with closing(open_rebuildable(path, TABLES, version)) as database:
            assert database.execute("PRAGMA synchronous").fetchone() == (1,)


@pytest.mark.parametrize("is_database", [True, False])
def test_a_rebuildable_file_of_another_version_is_replaced(
    tmp_path: Path, is_database: bool
) -> None:
    path = tmp_path / "one"
    if is_database:
        open_rebuildable(path, "CREATE TABLE others (word);", 1).close()
    else:
        path.write_text("no database" * 100)
    before = path.read_bytes()

    def prevent() -> None:
        raise OSError(errno.EBUSY, "in use")

    if is_database:
        # Whoever uses a file that is no database has another one open, or none.
        with pytest.raises(OSError, match="in use"):
            open_rebuildable(path, TABLES, 2, before_replacing=prevent)
        assert path.read_bytes() == before
    with closing(open_rebuildable(path, TABLES, 2)) as database:
        assert version_of(database) == -2
        assert database.execute("SELECT word FROM words").fetchall() == []


def test_a_reader_never_writes(tmp_path: Path) -> None:
    path = tmp_path / "one"
    open_rebuildable(path, TABLES, 2).close()
    before = path.read_bytes()
    with closing(connect_to_read(path)) as database:
        assert version_of(database) == -2
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            database.execute("INSERT INTO words VALUES ('one')")
    with pytest.raises(sqlite3.OperationalError):
        connect_to_read(tmp_path / "missing")
    assert path.read_bytes() == before


def test_failures_have_the_errno_of_a_disk(tmp_path: Path) -> None:
    path = tmp_path / "one"
    open_rebuildable(path, TABLES, 2).close()
    with (
        pytest.raises(OSError) as caught,  # noqa: PT011 - its values are compared below
        as_disk_failures(OSError),
        closing(connect_to_read(path)) as database,
    ):
        database.execute("INSERT INTO words VALUES ('one')")
    assert caught.value.args == (errno.EROFS, "attempt to write a readonly database")
    holder = connect(path, synchronous="NORMAL", autocommit=True)
    other = connect(path, synchronous="NORMAL", autocommit=True, busy_s=0.0)
    with closing(holder), closing(other):
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError) as busy, as_disk_failures(OSError):  # noqa: PT011
            other.execute("BEGIN IMMEDIATE")
    assert busy.value.errno == errno.EBUSY


@pytest.mark.parametrize("name", ["READ", "WRITE", "FSYNC", "LOCK", "SHMMAP", "DELETE"])
def test_a_disk_that_fails_is_no_damage_and_the_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "one.sqlite3"
    open_rebuildable(path, TABLES, 1).close()
    before = path.read_bytes()
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = getattr(sqlite3, f"SQLITE_IOERR_{name}")

    def failing(_: object) -> int:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr("app_server.runtime.files.sqlite.version_of", failing)
        with pytest.raises(OSError, match="disk I/O error") as caught, as_disk_failures(OSError):
            open_rebuildable(path, TABLES, 1)
    assert caught.value.errno == errno.EIO
    assert not is_damage(failure, path)
    assert path.read_bytes() == before
    assert not is_open_here(path)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_row_that_breaks_a_rule_is_damage_where_those_of_the_file_do(
    tmp_path: Path, is_damaged: bool
) -> None:
    path = tmp_path / "one.sqlite3"
    with closing(connect(path, synchronous="NORMAL")) as database, database:
        database.execute("CREATE TABLE words (word UNIQUE, size)")
        database.execute("INSERT INTO words VALUES ('here', 1), ('there', NULL)")
        if is_damaged:
            database.execute("PRAGMA writable_schema = ON")
            rule = "CREATE TABLE words (word UNIQUE, size NOT NULL)"
            database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'words'", (rule,))
    with closing(connect(path, synchronous="NORMAL")) as database:
        with pytest.raises(sqlite3.IntegrityError) as caught, database:
            database.execute("INSERT INTO words VALUES ('here', 2)")
        assert is_damage(caught.value, path) is is_damaged
    assert not is_open_here(path)


def is_open_here(path: Path) -> bool:
    return str(path) in [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]


@pytest.mark.parametrize("content", [b"no database" * 1000, None])
def test_a_file_that_cannot_be_made_again_leaves_no_connection(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "one.sqlite3"
    if content:
        path.write_bytes(content)
    with pytest.raises(sqlite3.OperationalError, match="syntax error"):
        open_rebuildable(path, "CREATE NONSENSE;", 1)
    assert not is_open_here(path)
