"""threads: appends of named requests that a crash cut off anywhere: there as a whole, or not."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from app_server.threads.files.store import FileStore
from app_server.threads.files.writers import LogPaths
from app_server.threads.operations import Operation, running
from protocol.log.rollout import (
    HistoryAppended,
    InputQueued,
    InputTaken,
    NameChanged,
    Record,
    TurnStarted,
)
from tests.support.harness import claim
from tests.support.threads.stores import created, open_store, raw

OPERATION = Operation("op", "turn/start", "digest", 2000, "holder")


async def append(store: FileStore, thread_id: str, records: Sequence[Record]) -> None:
    """Load a thread, add records for a named request, and unload it."""
    thread = await store.load(thread_id)
    with running(OPERATION, is_marked=True, is_again=False):
        await thread.append(*records)
    await store.unload(thread)


def begun() -> Sequence[Record]:
    """Make what begins a turn: of one append, and of several lines."""
    return (
        InputQueued(at_ms=2000, input_id="i", items=[raw("go")]),
        InputTaken(at_ms=2000),
        TurnStarted(at_ms=2000, turn_id="t"),
        HistoryAppended(at_ms=2000, items=[raw("a longer text " * 4)]),
    )


@claim("rollout:torn-append")
@pytest.mark.parametrize("records", [begun(), begun()[:1]], ids=["several", "one"])
async def test_an_append_of_a_named_request_counts_as_a_whole_or_not_at_all(
    tmp_path: Path, records: Sequence[Record]
) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(NameChanged(at_ms=1500, name="before"))
        await store.unload(thread)
        path = LogPaths(tmp_path / "threads").path_of(thread.id)
        before = path.read_bytes()
        await append(store, thread.id, records)
        after = path.read_bytes()
        for end in range(len(before), len(after) + 1):
            path.write_bytes(after[:end])
            is_there = end == len(after)
            assert bool((await store.read(thread.id)).metadata.operations) == is_there
            # Whoever only reads changes nothing; the next writer cuts it off.
            assert path.read_bytes() == after[:end]
            loaded = await store.load(thread.id)
            assert [*loaded.state.metadata.operations] == (["op"] if is_there else [])
            assert bool(loaded.take_warnings()) == (len(before) < end < len(after))
            await store.unload(loaded)
            assert path.read_bytes() == (after if is_there else before)
            if not is_there:
                # The same request again adds the same.
                await append(store, thread.id, records)
                assert path.read_bytes() == after


async def test_a_group_in_the_middle_of_a_log_hides_nothing_behind_it(tmp_path: Path) -> None:
    """Lines of a group that are damaged are skipped like others; they are there."""
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await store.unload(thread)
        path = LogPaths(tmp_path / "threads").path_of(thread.id)
        await append(store, thread.id, begun())
        await append(store, thread.id, [NameChanged(at_ms=3000, name="behind")])
        content = path.read_bytes()
        path.write_bytes(content.replace(b'{"v":1,"atMs":2000,"type":"inputTaken"', b"\0" * 10))
        assert path.read_bytes() != content
        assert (await store.read(thread.id)).name == "behind"
