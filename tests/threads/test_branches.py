"""threads: forks, reverts and deletions on disk."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.threads.failures import ThreadBusy, TurnInProgress, TurnNotFound
from app_server.threads.files.writers import FileLog, write_fork
from app_server.threads.log.reading import ForkPoint, load_state, ranges_to_copy, scan_lines
from protocol.log.rollout import (
    HistoryAppended,
    HistoryCompacted,
    NameChanged,
    Record,
    TurnsReverted,
    TurnStarted,
)
from tests.support.harness import claim
from tests.support.threads.histories import turn, whole, write
from tests.support.threads.states import visible
from tests.support.threads.stores import created, open_store, raw


@claim("history:fork-then-revert")
@settings(max_examples=60)
@given(st.integers(1, 5), st.data())
def test_a_fork_that_is_reverted_equals_the_beginning_of_its_source(
    tmp_path_factory: pytest.TempPathFactory, count: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fork")
    source, prefix = folder / "source", folder / "prefix"
    first = data.draw(st.integers(0, count - 1))
    turns: list[list[Record]] = [turn(number, "answer") for number in range(count)]
    for number in range(count):
        if data.draw(st.booleans()):
            turns[number].append(HistoryAppended(at_ms=9, items=[raw(f"injected {number}")]))
    write(source, created(thread_id="source"))
    write(prefix, created(thread_id="source"))
    for number, records in enumerate(turns):
        write(source, *records)
        if number < first:
            write(prefix, *records)
        if data.draw(st.booleans()):
            # A turn that never happened any more, in between.
            write(source, *turn(100 + number, "lost"))
            write(source, NameChanged(at_ms=5, name="kept"))
            write(source, TurnsReverted(at_ms=9, before_turn_id=f"t{100 + number}"))
    before = source.read_bytes()

    copy = folder / "copy"
    write_fork(
        source, ranges_to_copy(FileLog(source), ForkPoint()), created(thread_id="copy"), copy
    )
    assert visible(whole(copy)) == visible(whole(source))
    assert b"nameChanged" not in copy.read_bytes()
    write(copy, TurnsReverted(at_ms=99, before_turn_id=f"t{first}"))
    shorter = folder / "shorter"
    point = ForkPoint(before_turn_id=f"t{first}")
    write_fork(source, ranges_to_copy(FileLog(source), point), created(thread_id="copy"), shorter)
    assert (
        visible(load_state(FileLog(copy)))
        == visible(load_state(FileLog(shorter)))
        == visible(load_state(FileLog(prefix)))
    )
    assert source.read_bytes() == before


def test_a_fork_ends_with_the_turn_that_was_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, created(), *turn(1, "one"), HistoryAppended(at_ms=2, items=[raw("between")]))
    write(path, *turn(2, "two"), *turn(3)[:-1])

    def copied(**point: Any) -> list[str]:
        ranges = ranges_to_copy(FileLog(path), ForkPoint(**point))
        return [
            line.type for start, end in ranges for line in scan_lines(FileLog(path), start, end)
        ]

    one = ["turnStarted", "itemCompleted", "historyAppended", "itemCompleted", "turnCompleted"]
    assert copied(last_turn_id="t1") == one
    assert copied(before_turn_id="t2") == [*one, "historyAppended"]
    assert copied(before_turn_id="t1") == []
    assert copied(last_turn_id="t3") == copied()
    with pytest.raises(TurnInProgress, match="t3"):
        copied(last_turn_id="t3", end=path.stat().st_size)
    assert copied(before_turn_id="t3", end=path.stat().st_size) == copied(last_turn_id="t2")
    for point in ({"last_turn_id": "t9"}, {"before_turn_id": "t9"}):
        with pytest.raises(TurnNotFound, match="t9"):
            copied(**point)
    # A turn that a crash cut off ends where the next one begins.
    write(path, *turn(4))
    assert copied(last_turn_id="t3") == [*copied(last_turn_id="t2"), *one[:3]]
    write(path, TurnsReverted(at_ms=9, before_turn_id="t2"))
    with pytest.raises(TurnNotFound):
        copied(last_turn_id="t2")
    write(path, TurnsReverted(at_ms=9, before_turn_id="never there"))
    assert copied() == [*one, "historyAppended"]


def test_a_fork_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "new" / "fork.jsonl"
    write(source, created(), *turn(1, "one"))
    target.mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_fork(source, ranges_to_copy(FileLog(source), ForkPoint()), created(), target)
    assert [entry.name for entry in target.parent.iterdir()] == ["fork.jsonl"]


async def test_a_crash_in_the_middle_of_a_deletion_leaves_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(TurnStarted(at_ms=1, turn_id="t"))
        await store.unload(thread)

        def die(self: Any, thread_id: str) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(type(store.follower.index), "forget", die)
        # As store.delete has it: what repairs the index would end the deletion.
        async with store.follower.flushing:
            with pytest.raises(KeyboardInterrupt):
                store._files.delete(thread.id)
            monkeypatch.undo()
            assert store.follower.index.open_ids() == [thread.id]
    async with open_store(tmp_path) as store:
        assert store.follower.index.rows_of([thread.id]) == {}


async def test_a_thread_of_another_process_is_not_deleted(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store, open_store(tmp_path) as second:
        thread = await store.create(created())
        with pytest.raises(ThreadBusy):
            await second.delete(thread.id)
        assert Path(store.shown_path(thread.id)).exists()
        await store.unload(thread)
        await second.delete(thread.id)
        assert not Path(store.shown_path(thread.id)).exists()
        assert not list((tmp_path / "locks").iterdir())


@claim("history:compacted")
def test_forks_and_reverts_go_by_what_a_compaction_left(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, created(), *turn(1, "one"), *turn(2, "two"))
    before = load_state(FileLog(path)).history
    summary = HistoryCompacted(at_ms=3, turn_id="t3", items=[raw("in short")])
    write(path, *turn(3)[:1], summary, *turn(3)[-1:], *turn(4, "four"))
    compacted = load_state(FileLog(path)).history
    assert compacted == whole(path).history == [raw("in short"), raw("question 4")]
    for point, history in (
        (ForkPoint(), compacted),
        (ForkPoint(last_turn_id="t3"), compacted[:1]),
        (ForkPoint(before_turn_id="t3"), before),
    ):
        copy = tmp_path / f"copy {point}"
        write_fork(path, ranges_to_copy(FileLog(path), point), created(), copy)
        assert load_state(FileLog(copy)).history == whole(copy).history == history
    write(path, TurnsReverted(at_ms=5, before_turn_id="t4"))
    assert load_state(FileLog(path)).history == whole(path).history == compacted[:1]
    write(path, TurnsReverted(at_ms=6, before_turn_id="t3"))
    assert load_state(FileLog(path)).history == whole(path).history == before


async def test_a_revert_that_cannot_be_read_or_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(*turn(1, "one"), *turn(2, "two"))
        before, log = visible(thread.state), Path(store.shown_path(thread.id)).read_bytes()

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise OSError(5, "Input/output error")

        for place in (
            "app_server.threads.files.writers.load_state",
            "app_server.threads.files.writers.LogWriter.append",
        ):
            monkeypatch.setattr(place, refuse)
            with pytest.raises(OSError, match="Input/output"):
                await thread.revert(TurnsReverted(at_ms=4, before_turn_id="t2"))
            monkeypatch.undo()
            assert visible(thread.state) == before
            assert Path(store.shown_path(thread.id)).read_bytes() == log
        await store.unload(thread)
