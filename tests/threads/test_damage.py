"""threads: a damaged index is made again, and nothing that is not derived is touched."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.threads.history.pages import HistoryQuery, turns_page
from app_server.threads.history.search import SearchQuery
from app_server.threads.store import ThreadStore
from protocol.log.rollout import ItemCompleted, NameChanged, TurnCompleted, TurnStarted
from tests.support.harness import WAIT_S, claim
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


async def seen(store: ThreadStore) -> Any:
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
