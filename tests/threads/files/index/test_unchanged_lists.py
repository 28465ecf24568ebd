"""Lists of an index that has not changed: answered from memory, and never out of date."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from app_server.threads.files.codex.rollouts import has_folders
from app_server.threads.files.filing import Filing
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.index.listing import MAX_PAGES, RecentPages
from app_server.threads.log.state import begin
from app_server.threads.rows import ThreadQuery, ThreadRow
from protocol.log.filing import SectionPut
from protocol.threads.thread import ThreadSection
from tests.support.event_loop.no_worker import no_worker_free
from tests.support.harness import serve
from tests.support.threads.stores import created

WAIT_S = 60.0
QUERY = ThreadQuery(limit=10)


def a_row(thread_id: str, name: str | None = None) -> ThreadRow:
    row = ThreadRow.of(begin(created()))
    return replace(row, id=thread_id, name=name, has_content=True)


def page_of(index: ThreadIndex, pages: RecentPages, query: ThreadQuery = QUERY) -> list[str]:
    """Read a page as a store does: from memory if it may be, else from the index."""
    page = pages.find(query)
    if page is None:
        version = pages.version()
        page = index.page(query)
        pages.keep(query, page, version)
    return [row.id for row in page.rows]


async def test_a_list_that_is_asked_for_again_needs_no_worker_thread(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        first = await client.call("thread/list", {})
        assert [thread["id"] for thread in first["data"]] == [thread_id]
        with anyio.fail_after(WAIT_S):
            async with no_worker_free():
                assert await client.call("thread/list", {}) == first


async def test_a_list_says_what_has_changed_since_the_last_one(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        (before,) = (await client.call("thread/list", {}))["data"]
        assert (before["name"], before["status"]["type"]) == (None, "idle")
        await client.call("thread/name/set", {"threadId": thread_id, "name": "named"})
        (named,) = (await client.call("thread/list", {}))["data"]
        assert named == {**before, "name": "named"} | {
            key: named[key] for key in ("updatedAt", "recencyAt")
        }
        await client.call("thread/unsubscribe", {"threadId": thread_id, "unload": True})
        (unloaded,) = (await client.call("thread/list", {}))["data"]
        assert unloaded["status"] == {"type": "notLoaded"}
        await client.call("thread/archive", {"threadId": thread_id})
        assert (await client.call("thread/list", {}))["data"] == []


@pytest.mark.parametrize("same_connection", [True, False])
def test_a_page_is_forgotten_with_the_first_change(tmp_path: Path, same_connection: bool) -> None:
    index = ThreadIndex(tmp_path / "index" / "threads.sqlite3")
    other = index if same_connection else ThreadIndex(tmp_path / "index" / "threads.sqlite3")
    pages = RecentPages(tmp_path / "index" / "threads.sqlite3")
    try:
        assert page_of(index, pages) == []
        assert pages.find(QUERY) is not None
        other.put([a_row("a")], is_open=False)
        assert pages.find(QUERY) is None
        assert page_of(index, pages) == ["a"]
        assert pages.find(replace(QUERY, limit=9)) is None
        other.forget("a")
        assert page_of(index, pages) == []
    finally:
        pages.close()
        index.close()
        if other is not index:
            other.close()


def test_a_page_that_was_read_before_a_change_is_not_kept_as_one_of_after_it(
    tmp_path: Path,
) -> None:
    index = ThreadIndex(tmp_path / "index" / "threads.sqlite3")
    pages = RecentPages(tmp_path / "index" / "threads.sqlite3")
    try:
        version = pages.version()
        page = index.page(QUERY)
        index.put([a_row("a")], is_open=False)
        pages.keep(QUERY, page, version)
        assert pages.find(QUERY) is None
    finally:
        pages.close()
        index.close()


def test_a_bounded_number_of_pages_is_kept(tmp_path: Path) -> None:
    index = ThreadIndex(tmp_path / "index" / "threads.sqlite3")
    pages = RecentPages(tmp_path / "index" / "threads.sqlite3")
    queries = [replace(QUERY, limit=limit) for limit in range(1, MAX_PAGES + 2)]
    try:
        for query in queries:
            page_of(index, pages, query)
        kept = [query for query in queries if pages.find(query) is not None]
        assert kept == queries[1:]
    finally:
        pages.close()
        index.close()


def test_an_index_that_cannot_be_looked_at_is_read_each_time(tmp_path: Path) -> None:
    pages = RecentPages(tmp_path / "none.sqlite3")
    assert pages.version() is None
    index = ThreadIndex(tmp_path / "index" / "threads.sqlite3")
    try:
        pages.keep(QUERY, index.page(QUERY), pages.version())
        assert pages.find(QUERY) is None
        assert not (tmp_path / "none.sqlite3").exists()
    finally:
        index.close()


async def test_sections_that_another_server_adds_are_seen_and_others_need_no_worker(
    tmp_path: Path,
) -> None:
    here, elsewhere = Filing(tmp_path / "filing.jsonl"), Filing(tmp_path / "filing.jsonl")
    section = ThreadSection(id="s", name="Later")
    before = await here.refresh()
    await elsewhere.change(lambda _: [SectionPut(at_ms=1, section=section)])
    after = await here.refresh()
    assert after.sections == {**before.sections, "s": section}
    with anyio.fail_after(WAIT_S):
        async with no_worker_free():
            assert await here.refresh() is after


def test_folders_of_codex_are_noticed(tmp_path: Path) -> None:
    assert not has_folders(tmp_path)
    (tmp_path / "archived_sessions").mkdir()
    assert has_folders(tmp_path)
