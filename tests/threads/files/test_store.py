"""threads: the store of threads, and threads that it refuses."""

import asyncio
import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from app_server.threads.failures import InvalidThreadId, ThreadBusy, ThreadDamaged, ThreadNotFound
from app_server.threads.files.writers import LogWriter
from app_server.threads.history.search import SearchQuery
from protocol.log.rollout import (
    ItemCompleted,
    NameChanged,
    Record,
    TurnStarted,
)
from tests.support.harness import WAIT_S, claim
from tests.support.threads.stores import (
    CLOCK,
    QUERY,
    created,
    listed,
    open_store,
    user_message,
)


async def test_a_crash_leaves_rows_that_are_made_again(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        other = await store.create(created())
        await thread.append(
            TurnStarted(at_ms=5, turn_id="t"),
            ItemCompleted(at_ms=5, turn_id="t", item=user_message("hello")),
        )
        assert thread.state.preview == "hello"
        # As a crash would: the index never hears of the turn, the locks are gone.
        thread.changed = lambda _: None
        await thread.append(NameChanged(at_ms=6, name="named"))
        await thread.aclose()
        await other.aclose()
        Path(store.shown_path(other.id)).unlink()
        store.follower.behind.clear()
    async with open_store(tmp_path) as store:
        assert await listed(store) == [(thread.id, "hello")]
        page = await store.lists.page(QUERY)
        assert page.rows[0].name == "named"
        assert store.follower.index.open_ids() == []


async def test_a_row_whose_thread_another_process_holds_is_left_alone(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        async with open_store(tmp_path) as second:
            assert second.follower.index.open_ids() == [thread.id]
            with pytest.raises(ThreadBusy, match=str(os.getpid())):
                await second.load(thread.id)
        await store.unload(thread)


@claim("threads:index-rebuilt")
async def test_an_index_that_is_missing_is_made_from_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.threads.files.index.rebuild.REBUILD_STEP", 2)
    async with open_store(tmp_path) as store:
        kept = []
        for number in range(5):
            thread = await store.create(created())
            await thread.append(
                TurnStarted(at_ms=number, turn_id="t"),
                ItemCompleted(at_ms=number, turn_id="t", item=user_message(f"hello {number}")),
            )
            await store.unload(thread)
            kept.append(thread.id)
        before = await listed(store)
        rows_before = (await store.lists.page(replace(QUERY, limit=100))).rows
    (tmp_path / "threads" / "stray.jsonl").write_text("nothing\n")
    for file in (tmp_path / "index").iterdir():
        file.unlink()
    async with open_store(tmp_path) as store:
        assert await listed(store) == before
        assert (await store.lists.page(replace(QUERY, limit=100))).rows == rows_before
    async with open_store(tmp_path) as store:
        assert await listed(store) == before
        assert {thread_id for thread_id, _ in before} == set(kept)


async def test_a_file_among_the_logs_that_is_none_is_passed_over(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        said = ItemCompleted(at_ms=1, turn_id="t", item=user_message("hello"))
        await thread.append(TurnStarted(at_ms=0, turn_id="t"), said)
        await store.unload(thread)
    (tmp_path / "threads" / "stray.jsonl").write_text("nothing\n")
    async with open_store(tmp_path) as store:
        # It was written after the index, as the logs of a crash are.
        page, _ = await store.history.search(SearchQuery("hello", 5))
        assert [found.thread_id for found in page.found] == [thread.id]


async def test_the_index_follows_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.threads.files.index.follower.FLUSH_S", 0)
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(NameChanged(at_ms=6, name="named"))
        with anyio.fail_after(WAIT_S):
            while store.follower.behind:
                await asyncio.sleep(0)
            async with store.follower.flushing:
                pass
        assert store.follower.index.page(QUERY).rows[0].name == "named"
        await store.unload(thread)


async def test_ephemeral_threads_leave_no_trace(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created(ephemeral=True))
        await thread.append(NameChanged(at_ms=1, name="n"))
        assert thread.ephemeral
        assert thread.state.name == "n"
        await store.unload(thread)
        assert await listed(store) == []
        with pytest.raises(ThreadNotFound):
            await store.read(thread.id)
    assert not (tmp_path / "threads").exists()


async def test_threads_that_are_none_are_refused(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        missing = CLOCK.new_id()
        for doing in (store.read, store.load, partial(store.change, decide=lambda _: [])):
            with pytest.raises(ThreadNotFound):
                await doing(missing)
            for strange in ("", "../x", missing.upper(), f"{{{missing}}}"):
                with pytest.raises(InvalidThreadId):
                    await doing(strange)
        Path(store.shown_path(missing)).parent.mkdir(parents=True)
        Path(store.shown_path(missing)).write_text("nothing\n")
        with pytest.raises(ThreadDamaged):
            await store.load(missing)
        assert not (tmp_path / "locks").exists()
        other_version = "00000000-0000-4000-8000-000000000000"
        assert Path(store.shown_path(other_version)).parent.name == "other"


async def test_a_thread_that_cannot_be_written_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LogWriter, records: Sequence[Record], *, sync: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with open_store(tmp_path) as store:
        monkeypatch.setattr(LogWriter, "append", refuse)
        with pytest.raises(OSError, match="No space left"):
            await store.create(created())
        assert not list((tmp_path / "locks").iterdir())
        (tmp_path / "locks").rmdir()
        (tmp_path / "locks").write_text("in the way")
        with pytest.raises(OSError, match="File exists"):
            await store.create(created())


async def test_a_folder_in_the_way_of_a_log_frees_the_lock(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        first = created()
        Path(store.shown_path(first.thread_id)).mkdir(parents=True)
        with pytest.raises(OSError, match="Is a directory"):
            await store.create(first)
        assert not list((tmp_path / "locks").iterdir())
