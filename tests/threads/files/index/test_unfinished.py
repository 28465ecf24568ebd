"""threads.index: what a process that died left in an index that was not complete yet."""

from pathlib import Path

from app_server.threads.files.index.index import ThreadIndex
from protocol.log.rollout import NameChanged
from tests.support.threads.stores import QUERY, created, open_store, row


async def names(home: Path) -> dict[str, str | None]:
    """Return the names that the first list after a start shows."""
    async with open_store(home) as store:
        page = await store.lists.page(QUERY)
    return {found.id: found.name for found in page.rows}


async def test_the_first_list_shows_what_is_in_the_log_of_a_thread_whose_process_died(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path) as kept:
        thread = await kept.create(created())
        await thread.append(NameChanged(at_ms=6, name="in the log"))
        await kept.unload(thread)
    for file in (tmp_path / "index").glob("threads.sqlite3*"):
        file.unlink()
    # It had an open thread while another process made the index, and both were killed.
    index = ThreadIndex(tmp_path / "index" / "threads.sqlite3")
    index.put([row(1, id=thread.id, name="before it died")], is_open=True)
    index.close()
    assert await names(tmp_path) == {thread.id: "in the log"}
