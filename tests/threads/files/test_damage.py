"""threads: a damaged index is made again, and nothing that is not derived is touched."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.threads.files.history.index import HistoryIndex
from app_server.threads.files.index import derived
from app_server.threads.files.index.derived import IndexUnusable
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.store import FileStore
from app_server.threads.history.pages import HistoryQuery, turns_page
from app_server.threads.history.search import SearchQuery
from protocol.log.rollout import ItemCompleted, NameChanged, TurnCompleted, TurnStarted
from tests.support.harness import WAIT_S, claim, serve
from tests.support.processes import run_cli
from tests.support.threads.damage import spoil
from tests.support.threads.stores import QUERY, created, open_store, user_message

THREADS = 6
INDEXES = ("threads.sqlite3", "history.sqlite3")


async def a_home(home: Path) -> Any:
    """Store threads with names, turns and texts; returns what a client can see of them."""
    async with open_store(home) as store:
        for number in range(THREADS):
            thread = await store.create(created(at_ms=1000 + number))
            for turn in range(3):
                text = f"what was said {number}.{turn} " + f"Grüße aus {number * 7} " * 30
                await thread.append(
                    TurnStarted(at_ms=2000 + number, turn_id=f"t{turn}"),
                    ItemCompleted(at_ms=2001 + number, turn_id=f"t{turn}", item=user_message(text)),
                    TurnCompleted(at_ms=2002 + number, turn_id=f"t{turn}", status="completed"),
                )
            await thread.append(NameChanged(at_ms=3000 + number, name=f"thread {number}"))
            await store.unload(thread)
        return await seen(store)


async def seen(store: FileStore) -> Any:
    """Return lists in two orders, a search, and the turns of each thread."""
    with anyio.fail_after(WAIT_S):
        first = await store.lists.page(replace(QUERY, limit=100))
        other = await store.lists.page(replace(QUERY, limit=100, sort_key="recency_at_ms"))
        found, rows = await store.history.search(SearchQuery("aus 21", 100))
        pages = [
            await store.history.ask(
                row.id, lambda reader: turns_page(reader, HistoryQuery(reader.thread_id, 9), "full")
            )
            for row in first.rows
        ]
        return first, other, found, dict(rows), pages


def kept(home: Path) -> dict[Path, bytes]:
    """Return every file that is not derived."""
    return {
        path: path.read_bytes()
        for path in home.rglob("*")
        if path.is_file()
        and (home / "index" not in path.parents or path.name == "kept")
        and home / "locks" not in path.parents
    }


@contextmanager
def spoiled(home: Path, copy: Path, name: str, seed: int) -> Iterator[str]:
    """Damage a copy of a home; what is not derived must be the same at the end."""
    shutil.copytree(home, copy)
    kind = spoil(copy / "index" / name, seed)
    before = sorted(kept(copy).values())
    yield f"{name}, seed {seed}: {kind}"
    assert sorted(kept(copy).values()) == before
    shutil.rmtree(copy)


async def meets(tmp_path: Path, name: str, seeds: range) -> None:
    home = tmp_path / "home"
    expected = await a_home(home)
    for seed in seeds:
        with spoiled(home, tmp_path / "copy", name, seed) as what:
            async with open_store(tmp_path / "copy") as store:
                assert await seen(store) == expected, what


@claim("threads:index-damaged")
@pytest.mark.parametrize("name", INDEXES)
async def test_a_home_with_a_damaged_index_shows_what_it_showed(tmp_path: Path, name: str) -> None:
    await meets(tmp_path, name, range(24))


@pytest.mark.slow
@pytest.mark.parametrize("name", INDEXES)
async def test_a_home_with_any_damaged_index_shows_what_it_showed(
    tmp_path: Path, name: str
) -> None:
    await meets(tmp_path, name, range(1000, 1300))


# In a running server.


@pytest.mark.parametrize("name", INDEXES)
async def test_what_is_found_damaged_while_it_is_open_is_made_again(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = await a_home(tmp_path)
    async with open_store(tmp_path) as store:
        assert await seen(store) == expected
        index = store.follower.index if name == INDEXES[0] else store.history._require_index()
        with index.transaction() as database:
            table = "threads" if name == INDEXES[0] else "turns"
            database.execute(f"UPDATE {table} SET sum = sum + 1")
        assert await seen(store) == expected
        said = [text for text in caplog.messages if "is damaged" in text]
        assert len(said) == 1
        assert str(tmp_path / "index" / name) in said[0]
        # A thread that is held keeps its row in the new file, and a new one gets one.
        thread = await store.create(created())
        await thread.append(NameChanged(at_ms=9, name="new"))
        assert (await store.lists.find(thread.id)).name == "new"
        await store.unload(thread)


async def test_another_process_goes_on_with_the_index_that_one_has_made_again(
    tmp_path: Path,
) -> None:
    expected = await a_home(tmp_path)
    async with open_store(tmp_path) as one, open_store(tmp_path) as other:
        assert await seen(one) == await seen(other) == expected
        held = await other.create(created())
        await held.append(NameChanged(at_ms=9, name="held"))
        await other.lists.page(QUERY)
        with one.follower.index.transaction() as database:
            database.execute("UPDATE threads SET sum = sum + 1")
        rows = (await one.lists.page(replace(QUERY, limit=100))).rows
        assert {row.name for row in rows} >= {f"thread {number}" for number in range(THREADS)}
        again = (await other.lists.page(replace(QUERY, limit=100))).rows
        assert list(again) == list(rows)
        other.follower._repair()
        assert one.follower.index.open_ids() == [held.id]
        await other.unload(held)


@pytest.mark.parametrize("kind", [ThreadIndex, HistoryIndex])
def test_a_file_is_begun_anew_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    index = kind(tmp_path / "file")
    table = "threads" if kind is ThreadIndex else "turns"
    try:
        for _ in range(2):
            with pytest.raises(IndexUnusable), index.transaction() as database:
                database.execute(f"DROP TABLE {table}")
                database.execute(f"SELECT * FROM {table}")
            assert index.generation == 2
        monkeypatch.setattr(derived, "AGAIN_S", 0)
        with pytest.raises(IndexUnusable), index.transaction() as database:
            database.execute("SELECT * FROM nothing")
        assert index.generation == 3
    finally:
        index.close()


@pytest.mark.parametrize("lost", [b"", b"x" * 50_000])
async def test_rows_that_a_lost_wal_had_are_made_again(tmp_path: Path, lost: bytes) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    await a_home(home)
    async with open_store(home) as store:
        for number in range(3):
            thread = await store.create(created())
            await thread.append(
                TurnStarted(at_ms=9000, turn_id="t"),
                ItemCompleted(at_ms=9000, turn_id="t", item=user_message(f"late, aus 21 {number}")),
            )
            await store.unload(thread)
        first = (await store.lists.page(QUERY)).rows[-1].id
        await store.change(first, lambda _: [NameChanged(at_ms=9001, name="renamed")])
        expected = await seen(store)
        # As a kill leaves it: what is in the WAL alone is gone.
        shutil.copytree(home, copy)
        for name in INDEXES:
            (copy / "index" / f"{name}-shm").unlink()
            (copy / "index" / f"{name}-wal").write_bytes(lost)
    async with open_store(copy) as store:
        assert await seen(store) == expected


# With the program.


@claim("threads:index-damaged")
@pytest.mark.parametrize("name", INDEXES)
async def test_a_server_serves_over_a_damaged_index_and_doctor_names_it(
    tmp_path: Path, name: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello there")
        before = await client.call("thread/list", {})
    path = tmp_path / "index" / name
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"damaged" + content[4096:])
    ran = run_cli("doctor", "--only", "threads", "--json", "--home", str(tmp_path))
    checks = {check["name"]: check["status"] for check in json.loads(ran.stdout)["checks"]}
    assert checks["index" if name == INDEXES[0] else "history"] == "warning"
    async with serve(tmp_path) as served, served.client() as client:
        assert (await client.call("thread/list", {}))["data"] == [
            {**before["data"][0], "status": {"type": "notLoaded"}}
        ]
        found = await client.call("thread/search", {"searchTerm": "hello"})
        assert [one["thread"]["id"] for one in found["data"]] == [thread_id]
        await client.call("thread/resume", {"threadId": thread_id})
        await client.turn(thread_id, "again")
    path.write_bytes(content[:4096] + b"damaged" + content[4096:])
    args = ("doctor", "--only", "threads", "--rebuild", "--json", "--home", str(tmp_path))
    ran = run_cli(*args)
    assert ran.returncode == 0, ran.stdout
