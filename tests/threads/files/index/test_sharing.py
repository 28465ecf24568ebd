"""threads.index and threads.store when several processes share an index, or a disk refuses it."""

import asyncio
import errno
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.threads.failures import ThreadBusy
from app_server.threads.files import locks
from app_server.threads.files.index import follower
from app_server.threads.files.index.derived import IndexUnusable
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.locks import SharedLock, WriterLock, short_lock
from app_server.threads.files.writers import LogWriter
from protocol.log.rollout import NameChanged, Record, TurnCompleted, TurnStarted
from tests.support.harness import WAIT_S, claim
from tests.support.threads.stores import QUERY, created, listed, open_store, row


def ids(index: ThreadIndex) -> list[str]:
    return sorted(found.id for found in index.page(replace(QUERY, limit=100)).rows)


@claim("threads:index-one-maker")
def test_one_process_makes_the_index_and_the_others_wait_for_it(tmp_path: Path) -> None:
    path = tmp_path / "index" / "threads"
    maker, other = ThreadIndex(path), ThreadIndex(path)
    assert (maker.is_new, maker.is_made_elsewhere) == (True, False)
    assert (other.is_new, other.is_made_elsewhere) == (True, True)
    # Rows of its own threads are not lost meanwhile, and the maker does not replace them.
    other.put([row(1, name="newer")], is_open=True)
    maker.add([row(1, name="older"), row(2)])
    assert not other.look_again()
    maker.mark_complete()
    assert other.look_again()
    assert not other.is_new
    assert ids(other) == ["id0001", "id0002"]
    assert [found.name for found in other.page(QUERY).rows] == [None, "newer"]
    maker.close()
    other.close()


def test_a_maker_that_dies_is_followed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "index" / "threads"
    maker, other = ThreadIndex(path), ThreadIndex(path)
    maker.add([row(1)])
    maker.close()
    assert not other.look_again()
    assert (other.is_new, other.is_made_elsewhere) == (True, False)
    other.add([row(1), row(2)])
    other.mark_complete()
    assert ids(other) == ["id0001", "id0002"]
    other.close()


async def test_a_store_waits_for_the_index_that_another_process_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "WAIT_FOR_MAKER_S", 0)
    maker = ThreadIndex(tmp_path / "index" / "threads.sqlite3")
    async with open_store(tmp_path) as other:
        thread = await other.create(created())
        await thread.append(NameChanged(at_ms=5, name="n"))
        listing = asyncio.create_task(listed(other))
        await other.read(thread.id)
        assert not listing.done()
        maker.mark_complete()
        maker.close()
        assert await listing == [(thread.id, "")]
        await other.unload(thread)


def test_an_index_that_is_in_use_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "index" / "threads"
    index = ThreadIndex(path)
    index.mark_complete()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(IndexUnusable, match="another process uses it") as caught:
        ThreadIndex(path)
    assert (caught.value.errno, caught.value.filename) == (errno.EBUSY, str(path))
    index.close()
    alone = ThreadIndex(path)
    assert alone.is_new
    alone.close()


def test_locks_for_a_moment_are_waited_for_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SHORT_S", 0.05)
    path = tmp_path / "lock"
    with short_lock(path), pytest.raises(OSError, match="another process holds it"):
        short_lock(path).__enter__()
    with short_lock(path):
        pass
    first = SharedLock(path)
    assert first.is_only_one()
    second = SharedLock(path)
    assert not first.is_only_one()
    second.release()
    assert first.is_only_one()
    first.release()


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise IndexUnusable(errno.ENOSPC, "database or disk is full")


@claim("threads:index-behind")
async def test_an_index_that_cannot_be_written_gets_the_change_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follower, "FLUSH_S", 0)
    async with open_store(tmp_path) as kept:
        thread, other = await kept.create(created()), await kept.create(created())
        with monkeypatch.context() as patch:
            patch.setattr(ThreadIndex, "put", refuse)
            await thread.append(NameChanged(at_ms=5, name="kept"))
            await other.append(NameChanged(at_ms=5, name="closed"))
            await kept.unload(other)
            assert await listed(kept) == []
            assert await listed(kept) == []
        page = await kept.lists.page(QUERY)
        assert {found.name for found in page.rows} == {"kept", "closed"}
        assert kept.follower.index.open_ids() == [thread.id]
        await kept.unload(thread)
        assert kept.follower.index.open_ids() == []
    said = [record for record in caplog.records if "the index is behind" in record.getMessage()]
    assert len(said) == 1


async def test_an_index_that_cannot_be_made_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as kept:
        thread = await kept.create(created())
        await thread.append(NameChanged(at_ms=5, name="n"))
        await kept.unload(thread)
    for file in (tmp_path / "index").iterdir():
        file.unlink()
    refusals = 2
    add = ThreadIndex.add

    def refuse_twice(self: ThreadIndex, rows: Any) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            refuse()
        add(self, rows)

    monkeypatch.setattr(ThreadIndex, "add", refuse_twice)
    monkeypatch.setattr(follower, "REPAIR_S", 0.001)
    async with open_store(tmp_path) as again:
        with anyio.fail_after(WAIT_S):
            assert await listed(again) == [(thread.id, "")]
    assert refusals == -1


async def test_rows_of_a_process_that_died_are_made_again_by_one_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "REPAIR_S", 0.001)
    async with open_store(tmp_path) as lives:
        # As another process would leave it: its row is open, its lock is free.
        dead = await lives.create(created())
        dead.changed = lambda state: None
        await dead.append(NameChanged(at_ms=6, name="last words"))
        await dead.aclose()
        lives._writers.held.discard(dead.id)
        with anyio.fail_after(WAIT_S):
            while lives.follower.index.open_ids():
                await lives.read(dead.id)
        assert [found.name for found in (await lives.lists.page(QUERY)).rows] == ["last words"]


async def test_a_row_that_cannot_be_repaired_does_not_stop_the_others(tmp_path: Path) -> None:
    async with open_store(tmp_path) as kept:
        thread = await kept.create(created())
        await thread.append(NameChanged(at_ms=6, name="n"))
        await listed(kept)
        await thread.aclose()
    (tmp_path / "locks").rmdir()
    (tmp_path / "locks").touch()
    async with open_store(tmp_path) as again:
        assert await listed(again) == [(thread.id, "")]


async def test_a_log_that_cannot_be_read_for_now_keeps_its_row(tmp_path: Path) -> None:
    async with open_store(tmp_path) as kept:
        thread = await kept.create(created())
        await thread.append(NameChanged(at_ms=6, name="n"))
        await listed(kept)
        await thread.aclose()
        path = Path(kept.shown_path(thread.id))
    path.rename(path.with_suffix(".away"))
    path.mkdir()
    async with open_store(tmp_path) as again:
        assert await listed(again) == [(thread.id, "")]
        assert again.follower.index.open_ids() == [thread.id]
    path.rmdir()
    async with open_store(tmp_path) as again:
        assert await listed(again) == []


async def test_what_the_disk_refused_is_written_before_the_next_record_or_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: LogWriter, records: Sequence[Record], *, sync: bool) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    started = TurnStarted(at_ms=5, turn_id="t")
    end = TurnCompleted(at_ms=6, turn_id="t", status="completed")
    async with open_store(tmp_path) as kept:
        for name in (None, "after"):
            thread = await kept.create(created())
            await thread.append(started)
            thread.defer(end)
            if name is not None:
                with monkeypatch.context() as patch:
                    patch.setattr(LogWriter, "append", full)
                    with pytest.raises(OSError, match="No space left"):
                        await thread.append(NameChanged(at_ms=7, name="lost"))
                await thread.append(NameChanged(at_ms=8, name=name))
            await kept.unload(thread)
            state = await kept.read(thread.id)
            assert (state.turns[0].status, state.name) == ("completed", name)
            assert state == thread.state
        # An end that nobody could write is made up by the next who loads the thread.
        thread = await kept.create(created())
        await thread.append(started)
        thread.defer(end)
        with monkeypatch.context() as patch:
            patch.setattr(LogWriter, "append", full)
            await kept.unload(thread)
        assert (await kept.read(thread.id)).open_turn is not None


async def test_a_thread_that_the_index_refuses_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as kept:
        with monkeypatch.context() as patch:
            patch.setattr(ThreadIndex, "put", refuse)
            with pytest.raises(IndexUnusable):
                await kept.create(created())
        assert not [path for path in (tmp_path / "threads").rglob("*") if path.is_file()]
        assert not list((tmp_path / "locks").iterdir())


async def test_a_lock_says_where_its_process_can_be_reached(tmp_path: Path) -> None:
    async with open_store(tmp_path, "ws://127.0.0.1:4500") as first:
        thread = await first.create(created())
        async with open_store(tmp_path) as second:
            with pytest.raises(ThreadBusy, match="at ws://127") as caught:
                await second.require_free(thread.id)
            assert caught.value.holder.pid == os.getpid()
            await second.require_free(created().thread_id)
            # What is no id is no path either.
            taken = WriterLock(tmp_path / "elsewhere.lock")
            await second.require_free("../elsewhere")
            taken.release()
        await first.unload(thread)
        await first.require_free(thread.id)
