"""A damaged ledger is set aside, and what can be read of it goes on."""

import os
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app_server.threads.files import ledger as ledger_module
from app_server.threads.files.ledger import Ledger
from app_server.threads.ledger import Entry, LedgerFailed
from tests.support.harness import claim, serve
from tests.support.receiver.signals import deliver
from tests.support.receiver.stages import entry, stage, text_of, unload
from tests.support.receiver.wakes import stored_timer
from tests.support.threads.damage import spoil

ROWS = 200


def a_ledger(path: Path) -> list[Entry]:
    """Write a ledger of several pages; returns its entries, newest first."""
    kept = Ledger(path)
    kept.put([entry(f"s{number}", sender="x" * 200, at_ms=number) for number in range(ROWS)])
    found = kept.page(None, None, None, ROWS).entries
    kept.close()
    return list(found)


def meets(tmp_path: Path, seeds: range) -> None:
    written = a_ledger(tmp_path / "signals" / "ledger.sqlite3")
    for seed in seeds:
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "signals", copy)
        how = spoil(copy / "ledger.sqlite3", seed)
        before = [path.read_bytes() for path in copy.glob("ledger.sqlite3") if path.is_file()]
        with suppress(LedgerFailed):
            # Of a newer version: it stays as it is, and signals are refused.
            kept = Ledger(copy / "ledger.sqlite3")
            kept.put([entry("new")])
            assert kept.find("router", "new") is not None, (seed, how)
            if not list(copy.glob("*.damaged*")) and how not in ("missing", "swapped", "noise"):
                page = kept.page(None, None, None, ROWS + 1).entries
                assert list(page)[1:] == written, (seed, how)
            kept.close()
        aside = [path for path in copy.glob("ledger.sqlite3.damaged") if path.is_file()]
        assert [path.read_bytes() for path in aside] in ([], before), (seed, how)
        shutil.rmtree(copy)


@claim("signals:ledger-damaged")
def test_a_damaged_ledger_is_set_aside_and_another_one_serves(tmp_path: Path) -> None:
    meets(tmp_path, range(60))


@pytest.mark.slow
def test_a_ledger_damaged_in_any_way_leaves_one_that_serves(tmp_path: Path) -> None:
    meets(tmp_path, range(1000, 1300))


def test_rows_that_can_be_read_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite3"
    written = a_ledger(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    # One that is too large to be read whole says so when the place is met.
    kept = Ledger(path, checked_bytes=0)
    found = list(kept.page(None, None, None, ROWS).entries)
    kept.close()
    assert ROWS > len(found) > ROWS // 2
    assert {one.id for one in found} < {one.id for one in written}
    (said,) = [record for record in caplog.records if "ledger" in record.getMessage()]
    assert f"{len(found)} of its signals could be read" in said.getMessage()
    assert str(tmp_path / "ledger.sqlite3.damaged") in said.getMessage()


def aside(path: Path) -> list[str]:
    """Return the names of what was set aside, without companions."""
    return sorted(
        kept.name
        for kept in path.parent.glob("*.damaged*")
        if kept.name[-4:] not in ("-wal", "-shm")
    )


def names(ledger: Ledger) -> list[str]:
    """Return the ids of a ledger, the oldest first."""
    return [one.id for one in reversed(ledger.page(None, None, None, 100).entries)]


def damage(path: Path) -> None:
    """Take the rows out of a ledger, also of one that is open."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE signals")


def refusal(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("refused")
    error.sqlite_errorcode = code
    return error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Make a ledger with one signal."""
    path = tmp_path / "signals" / "ledger.sqlite3"
    with closing(Ledger(path)) as kept:
        kept.put([entry("s1")])
    return path


def test_a_ledger_that_is_whole_stays_in_its_place(path: Path) -> None:
    with closing(Ledger(path)) as kept:
        assert (names(kept), aside(path)) == (["s1"], [])


@pytest.mark.parametrize(
    ("version", "is_newer"), [(2, True), (1000, True), (1001, False), (-1, False)]
)
def test_only_a_version_that_a_later_server_may_write_is_left_alone(
    path: Path, version: int, is_newer: bool
) -> None:
    assert ledger_module.MAX_VERSION == 1000
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {version}")
    if is_newer:
        with pytest.raises(LedgerFailed, match=f"^the ledger of signals has version {version}$"):
            Ledger(path)
        assert aside(path) == []
    else:
        with closing(Ledger(path)) as kept:
            assert (names(kept), aside(path)) == (["s1"], ["ledger.sqlite3.damaged"])


def test_a_folder_in_the_place_of_a_ledger_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    path.mkdir()
    with closing(Ledger(path)) as kept:
        kept.put([entry("new")])
        assert (names(kept), aside(path)) == (["new"], ["ledger.sqlite3.damaged"])


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY])
def test_a_ledger_that_cannot_be_opened_now_stays_in_its_place(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Path, checked_bytes: int) -> sqlite3.Connection:
        raise refusal(code)

    with monkeypatch.context() as patched:
        patched.setattr(ledger_module, "open_database", refuse)
        with pytest.raises(LedgerFailed):
            Ledger(path)
    assert aside(path) == []
    with closing(Ledger(path)) as kept:
        assert names(kept) == ["s1"]


@pytest.mark.parametrize(("more_bytes", "is_read"), [(0, True), (-1, False)])
def test_a_small_ledger_is_read_whole_when_it_is_opened(
    tmp_path: Path, more_bytes: int, is_read: bool
) -> None:
    assert ledger_module.CHECKED_BYTES == 4 * 1024 * 1024
    path = tmp_path / "ledger.sqlite3"
    a_ledger(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    with closing(Ledger(path, checked_bytes=len(content) + more_bytes)):
        assert aside(path) == (["ledger.sqlite3.damaged"] if is_read else [])


class Time:
    """A clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s)
        monkeypatch.setattr(ledger_module, "time", clock)


def test_an_open_ledger_is_set_aside_at_most_once_a_minute(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time(monkeypatch)
    assert ledger_module.AGAIN_S == 60
    with closing(Ledger(path)) as kept:
        damage(path)
        kept.put([entry("s2")])
        assert (names(kept), aside(path)) == (["s2"], ["ledger.sqlite3.damaged"])
        damage(path)
        for later_s in (0, 59.9):
            time.now_s = 1000 + later_s
            with pytest.raises(LedgerFailed):
                kept.put([entry("s3")])
        assert len(aside(path)) == 1
        time.now_s = 1060
        kept.put([entry("s3")])
        assert (names(kept), len(aside(path))) == (["s3"], 2)


def test_a_ledger_that_was_set_aside_at_the_start_counts_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Time(monkeypatch)
    path.write_bytes(b"x" * 8192)
    with closing(Ledger(path)) as kept:
        damage(path)
        with pytest.raises(LedgerFailed):
            kept.put([entry("s2")])
        assert aside(path) == ["ledger.sqlite3.damaged"]


def test_no_ledger_is_opened_while_the_damaged_one_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever closes a file of SQLite removes the companions that have its name.
    opened: list[sqlite3.Connection] = []
    opening = ledger_module.open_database

    def watched(path: Path, checked_bytes: int) -> sqlite3.Connection:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            opened[-1].execute("SELECT 1")
        opened.append(opening(path, checked_bytes))
        return opened[-1]

    with closing(Ledger(path)) as kept:
        opened.append(kept.database)
        monkeypatch.setattr(ledger_module, "open_database", watched)
        damage(path)
        kept.put([entry("s2")])
        assert len(opened) == 3
        # Another process sets it aside.
        path.rename(path.with_name("away"))
        kept.put([entry("s3")])
        assert (len(opened), names(kept)) == (4, ["s3"])


def test_a_ledger_that_cannot_be_opened_again_is_tried_with_each_call(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, checked_bytes: int) -> sqlite3.Connection:
        raise refusal(sqlite3.SQLITE_FULL)

    with closing(Ledger(path)) as kept:
        other = path.with_name("other.sqlite3")
        Ledger(other).close()
        other.rename(path)
        with monkeypatch.context() as patched:
            patched.setattr(ledger_module, "open_database", refuse)
            for _ in range(2):
                with pytest.raises(LedgerFailed, match="refused"):
                    kept.put([entry("s2")])
        kept.put([entry("s2")])
        assert (names(kept), aside(path)) == (["s2"], [])


def test_a_ledger_that_cannot_be_set_aside_now_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> Path:
        raise OSError("no room")

    time = Time(monkeypatch)
    with closing(Ledger(path)) as kept:
        damage(path)
        with monkeypatch.context() as patched:
            patched.setattr(ledger_module, "set_aside", refuse)
            with pytest.raises(OSError, match="no room"):
                kept.put([entry("s2")])
        time.now_s += 60
        kept.put([entry("s2")])
        assert (names(kept), aside(path)) == (["s2"], ["ledger.sqlite3.damaged"])


def test_a_new_ledger_that_cannot_take_the_rows_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> list[Any]:
        raise OSError("no room")

    path.write_bytes(b"x" * 8192)
    before = sorted(os.listdir("/dev/fd"))
    monkeypatch.setattr(ledger_module, "_readable_rows", refuse)
    with pytest.raises(OSError, match="no room"):
        Ledger(path)
    assert sorted(os.listdir("/dev/fd")) == before


def test_what_the_disk_refuses_sets_no_ledger_aside(path: Path) -> None:
    class Full:
        def __enter__(self) -> Any:
            raise refusal(sqlite3.SQLITE_FULL)

        def __exit__(self, *_: object) -> None:
            pass

        def close(self) -> None:
            database.close()

    with closing(Ledger(path)) as kept:
        database = kept.database
        kept.database = Full()  # type: ignore[assignment]
        with pytest.raises(LedgerFailed):
            kept.put([entry("s2")])
    assert aside(path) == []


def test_a_row_that_breaks_a_rule_sets_no_ledger_aside(path: Path) -> None:
    timer = stored_timer("w1", 1)
    with closing(Ledger(path)) as kept:
        kept.wakes.add(timer)
        with pytest.raises(LedgerFailed, match="UNIQUE constraint failed"):
            kept.wakes.add(timer)
        assert (names(kept), aside(path)) == (["s1"], [])


def overwrite(path: Path, seed: int) -> None:
    """Put other bytes in the place of all that a file has, as no process that knows it does."""
    with path.open("r+b") as file:
        file.write(random.Random(seed).randbytes(path.stat().st_size))


@pytest.mark.parametrize("checked_bytes", [ledger_module.CHECKED_BYTES, 0])
def test_an_open_ledger_that_is_overwritten_is_set_aside_by_the_next_write(
    tmp_path: Path, checked_bytes: int
) -> None:
    path = tmp_path / "ledger.sqlite3"
    a_ledger(path)
    with closing(Ledger(path, checked_bytes=checked_bytes)) as kept:
        kept.page(None, None, None, ROWS)
        overwrite(path, 1)
        kept.put([entry("late")])
        assert aside(path) == ["ledger.sqlite3.damaged"]
        # As a kill leaves it.
        with closing(Ledger(path, checked_bytes=checked_bytes)) as other:
            assert (names(other), aside(path)) == (["late"], ["ledger.sqlite3.damaged"])


def test_what_another_process_writes_back_is_no_damage(path: Path) -> None:
    with closing(Ledger(path)) as one:
        for number in range(3):
            with closing(Ledger(path)) as other:
                other.put([entry(f"other-{number}")])
                other.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            one.put([entry(f"one-{number}")])
        assert len(names(one)) == 7
    assert aside(path) == []


async def test_a_running_server_goes_on_when_its_ledger_is_damaged(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        await deliver(client, thread_id, "s1")
        await unload(served, thread_id)
        overwrite(tmp_path / "signals" / "ledger.sqlite3", 1)
        await deliver(client, thread_id, "s2")
        await stage(client, "s2", "inHistory")
        await client.turn(thread_id, "go")
        assert [text for role, text in served.model.inputs() if role == "developer"] == [
            text_of("s1"),
            text_of("s2"),
        ]
