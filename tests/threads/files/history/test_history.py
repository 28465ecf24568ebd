"""threads: the history of a thread by pages, from its log alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.threads.files.history.history import FileHistoryReader
from app_server.threads.files.history.index import HistoryIndex
from app_server.threads.files.writers import FileLog
from app_server.threads.history.pages import (
    MAX_PAGE_BYTES,
    HistoryQuery,
    items_page,
    turns_page,
)
from app_server.threads.log.reading import load_state
from app_server.threads.log.state import ThreadState, begin, replay
from protocol.cursors import InvalidCursor
from protocol.log.rollout import (
    InputQueued,
    ItemCompleted,
    Record,
    TurnsReverted,
    TurnStarted,
    render_record,
)
from tests.support.harness import claim
from tests.support.threads.histories import THREAD, turn, whole, write
from tests.support.threads.rollouts import read_rollout
from tests.support.threads.stores import created, raw, user_message
from tests.support.threads.stores import records as any_record


@pytest.fixture
def index(tmp_path: Path) -> Iterator[HistoryIndex]:
    opened = HistoryIndex(tmp_path / "index" / "history")
    yield opened
    opened.close()


def all_turns(index: HistoryIndex, path: Path, limit: int, *, ascending: bool) -> list[Any]:
    """Walk all pages of turns."""
    found: list[Any] = []
    cursor = None
    while True:
        with FileHistoryReader(index, THREAD, path) as reader:
            query = HistoryQuery(THREAD, limit, cursor, ascending=ascending)
            page = turns_page(reader, query, "full")
        found.extend(
            (one.outline.id, one.outline.status, one.outline.completed_at_ms, list(one.items))
            for one in page.turns
        )
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


def all_items(index: HistoryIndex, path: Path, limit: int, *, ascending: bool) -> list[Any]:
    """Walk all pages of items."""
    found: list[Any] = []
    cursor = None
    while True:
        with FileHistoryReader(index, THREAD, path) as reader:
            query = HistoryQuery(THREAD, limit, cursor, ascending=ascending)
            page = items_page(reader, query, None)
        found.extend((one.turn.id, one.item) for one in page.items)
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


def turns_of(state: ThreadState) -> list[Any]:
    return [(one.id, one.status, one.completed_at_ms, list(one.items)) for one in state.turns]


# By pages, and as a whole.


@claim("history:pages-equal-replay")
@settings(max_examples=80)
@given(
    st.lists(any_record, max_size=14),
    st.lists(st.integers(0, 5), max_size=3),
    st.integers(1, 4),
    st.integers(0, 14),
)
@pytest.mark.slow
def test_a_thread_by_pages_equals_its_log_as_a_whole(
    tmp_path_factory: pytest.TempPathFactory,
    appended: list[Record],
    reverts: list[int],
    limit: int,
    seen_first: int,
) -> None:
    folder = tmp_path_factory.mktemp("pages")
    path = folder / "log"
    index = HistoryIndex(folder / "history")
    write(path, created(), *appended[:seen_first])
    # The index has seen a part before, at any place.
    index.catch_up([(THREAD, path)])
    write(path, *appended[seen_first:])
    for number in reverts:
        state = whole(path)
        if state.turns:
            chosen = state.turns[number % len(state.turns)].id
            write(path, TurnsReverted(at_ms=1, before_turn_id=chosen))
            write(path, *turn(number, "again"))
    expected = whole(path)
    upwards = all_turns(index, path, limit, ascending=True)
    assert upwards == turns_of(expected)
    assert all_turns(index, path, limit, ascending=False) == upwards[::-1]
    items = [(one.id, item) for one in expected.turns for item in one.items]
    assert all_items(index, path, limit, ascending=True) == items
    assert all_items(index, path, limit, ascending=False) == items[::-1]
    # What is loaded differs in nothing but in what stays in memory.
    loaded = load_state(FileLog(path))
    assert (loaded.older_turns, loaded) == (0, replay(read_rollout(path)))
    seen = load_state(FileLog(path), with_history=False)
    seen.history, seen.measured = loaded.history, loaded.measured
    assert seen == loaded
    index.close()


@claim("history:memory")
def test_only_the_newest_turns_and_items_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, created(), *(record for number in range(40) for record in turn(number, "x" * 99)))
    loaded = load_state(FileLog(path))
    assert (loaded.older_turns, [one.id for one in loaded.turns]) == (
        8,
        [f"t{number}" for number in range(8, 40)],
    )
    assert (loaded.is_whole, loaded.has_content, len(loaded.history)) == (False, True, 40)
    assert turns_of(loaded) == turns_of(whole(path))[8:]
    live = begin(created())
    live.kept_bytes = 1000
    live.apply(TurnStarted(at_ms=1, turn_id="a"))
    live.apply(ItemCompleted(at_ms=1, turn_id="a", item=user_message("one", item_id="1")), 600)
    live.apply(TurnStarted(at_ms=2, turn_id="b"))
    for name in "234":
        live.apply(ItemCompleted(at_ms=2, turn_id="b", item=user_message(name, item_id=name)), 300)
    assert [(one.items.left_out, len(one.items)) for one in live.turns] == [(1, 0), (0, 3)]
    live.apply(ItemCompleted(at_ms=3, turn_id="b", item=user_message("5", item_id="5")), 900)
    assert [item.id for item in live.turns[1].items] == ["5"]  # type: ignore[union-attr]
    assert live.turns[1].items.left_out == 3
    live.apply(ItemCompleted(at_ms=3, turn_id="b", item=user_message("6", item_id="6")), 2000)
    assert (live.turns[1].items.left_out, live.is_whole) == (5, False)


# Cursors.


def walk(
    index: HistoryIndex, path: Path, limit: int, cursor: str | None, *, ascending: bool = False
) -> tuple[list[str], str | None, str | None]:
    with FileHistoryReader(index, THREAD, path) as reader:
        page = turns_page(reader, HistoryQuery(THREAD, limit, cursor, ascending), "notLoaded")
    return [one.outline.id for one in page.turns], page.next_cursor, page.backwards_cursor


@claim("history:cursors")
def test_a_cursor_stays_valid_while_turns_are_added(index: HistoryIndex, tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, created(), *(record for number in range(5) for record in turn(number)))
    first, after, back = walk(index, path, 2, None)
    assert first == ["t4", "t3"]
    write(path, *turn(5), *turn(6))
    assert walk(index, path, 2, after)[0] == ["t2", "t1"]
    assert walk(index, path, 9, back, ascending=True)[0] == ["t4", "t5", "t6"]
    assert walk(index, path, 9, after, ascending=True)[0] == ["t4", "t5", "t6"]
    assert walk(index, path, 9, back)[0] == ["t4", "t3", "t2", "t1", "t0"]
    # After a revert there is what is left, and numbers are not given again.
    write(path, TurnsReverted(at_ms=9, before_turn_id="t2"))
    assert walk(index, path, 9, after) == (["t1", "t0"], None, walk(index, path, 9, None)[2])
    assert walk(index, path, 9, back, ascending=True) == ([], None, None)
    write(path, *turn(7))
    assert walk(index, path, 9, back, ascending=True)[0] == ["t7"]


@pytest.mark.parametrize(
    "cursor",
    [
        "zz",
        "[]",
        '["items","01900000-0000-7000-8000-000000000001",1,0,true]',
        '["turns","01900000-0000-7000-8000-000000000002",1,0,true]',
        '["turns","01900000-0000-7000-8000-000000000001",-1,0,true]',
        '["turns","01900000-0000-7000-8000-000000000001",true,0,true]',
        '["turns","01900000-0000-7000-8000-000000000001",99999999999999999999,0,true]',
    ],
)
def test_a_cursor_of_another_page_is_refused(
    index: HistoryIndex, tmp_path: Path, cursor: str
) -> None:
    write(tmp_path / "log", created(), *turn(1))
    with pytest.raises(InvalidCursor):
        walk(index, tmp_path / "log", 1, cursor)


def test_a_page_ends_before_it_becomes_too_long(index: HistoryIndex, tmp_path: Path) -> None:
    path = tmp_path / "log"
    big = "x" * (MAX_PAGE_BYTES // 2)
    write(path, created(), *turn(0, big), *turn(1, big), *turn(2, big), *turn(3, big, big, big))
    with FileHistoryReader(index, THREAD, path) as reader:
        page = turns_page(reader, HistoryQuery(THREAD, 9), "full")
        assert [(one.outline.id, one.view, len(one.items)) for one in page.turns] == [
            ("t3", "notLoaded", 0),
            ("t2", "full", 2),
        ]
        rest = turns_page(reader, HistoryQuery(THREAD, 9, page.next_cursor), "full")
        assert [one.outline.id for one in rest.turns] == ["t1"]
        items = items_page(reader, HistoryQuery(THREAD, 9, ascending=True), "t3")
        assert [entry.index for entry in items.items] == [0, 1]
    assert len(all_items(index, path, 9, ascending=True)) == 10


# The index is a copy.


def test_a_log_that_is_another_one_is_read_anew(index: HistoryIndex, tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, created(), *turn(1, "one"), *turn(2, "two"))
    assert walk(index, path, 9, None)[0] == ["t2", "t1"]
    path.unlink()
    write(path, created(), *turn(3, "three"))
    assert walk(index, path, 9, None)[0] == ["t3"]
    path.unlink()
    write(path, created(), *(record for number in range(4, 9) for record in turn(number)))
    assert walk(index, path, 1, None)[0] == ["t8"]
    index.forget(THREAD)
    assert walk(index, path, 1, None)[0] == ["t8"]


@pytest.mark.parametrize("damage", ["other version", "no database"])
def test_a_history_index_that_cannot_be_used_is_made_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log"
    write(path, created(), *turn(1, "one"))
    first = HistoryIndex(tmp_path / "history")
    first.mark_complete()
    first.close()
    if damage == "no database":
        (tmp_path / "history").write_bytes(b"x" * 10_000)
    else:
        newer = HistoryIndex(tmp_path / "history")
        with newer.transaction() as database:
            database.execute("PRAGMA user_version = 99")
        newer.close()
    second = HistoryIndex(tmp_path / "history")
    assert second.is_new
    assert walk(second, path, 1, None)[0] == ["t1"]
    second.close()


def test_a_line_that_is_cut_or_damaged_is_no_item(index: HistoryIndex, tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, created(), *turn(1, "one", "two"))
    content = path.read_bytes().replace(b'"text":"one"', b'"text":"one')
    path.write_bytes(content + render_record(TurnStarted(at_ms=5, turn_id="torn"))[:-4])
    with FileHistoryReader(index, THREAD, path) as reader:
        page = items_page(reader, HistoryQuery(THREAD, 9, ascending=True), None)
    assert [(entry.index, entry.turn.id) for entry in page.items] == [(0, "t1"), (2, "t1")]
    state = load_state(FileLog(path))
    assert [item.id for item in state.turns[0].items] == ["u1", "a1.1"]  # type: ignore[union-attr]


def test_lines_in_another_form_are_read_in_full(index: HistoryIndex, tmp_path: Path) -> None:
    path, foreign = tmp_path / "log", tmp_path / "foreign"
    records = [*turn(1, "one", "two"), *turn(2, "three")[:-1]]
    queued = InputQueued(at_ms=3, input_id="q", items=[raw("and?")], message=user_message("and?"))
    write(path, created(thread_id="same"), *records, queued, TurnStarted(at_ms=4, turn_id="t3"))
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    # As somebody else might write it: spaces, and members in another order.
    written = [json.dumps(dict(sorted(line.items(), reverse=True))) for line in lines]
    foreign.write_text("\n".join([*written[:4], "[1]", *written[4:]]) + "\n")
    assert all_turns(index, foreign, 9, ascending=True) == turns_of(whole(path))
    assert load_state(FileLog(foreign)) == load_state(FileLog(path)) == whole(path)
    with FileHistoryReader(index, THREAD, foreign) as reader:
        page = turns_page(reader, HistoryQuery(THREAD, 9, ascending=True), "summary")
        shown = [[item.type for item in one.items] for one in page.turns]
    assert shown == [["userMessage", "agentMessage"], ["userMessage", "agentMessage"], []]
