"""threads: the history of a thread by pages, from its log alone; and thread/turns, thread/items."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.threads.history.index import HistoryIndex
from app_server.threads.history.pages import (
    MAX_PAGE_BYTES,
    HistoryQuery,
    HistoryReader,
    PagedItem,
    items_page,
    turns_page,
)
from app_server.threads.log.loading import load_state
from app_server.threads.log.outline import TurnOutline
from app_server.threads.log.state.thread import ThreadState, begin, replay
from app_server.views.history import item_entry, listed_entry
from protocol.cursors import InvalidCursor
from protocol.log.rollout import (
    InputQueued,
    ItemCompleted,
    Record,
    TurnsReverted,
    TurnStarted,
    render_record,
)
from protocol.threads.history import ThreadItemOutputDeferral
from protocol.turns.items import AgentMessageThreadItem, McpToolCallResult, McpToolCallThreadItem
from tests.support.harness import Gate, claim, says, serve
from tests.support.threads.histories import THREAD, texts, turn, whole, write
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
        with HistoryReader(index, THREAD, path) as reader:
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
        with HistoryReader(index, THREAD, path) as reader:
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
    loaded = load_state(path)
    assert (loaded.older_turns, loaded) == (0, replay(read_rollout(path)))
    seen = load_state(path, with_history=False)
    seen.history, seen.measured = loaded.history, loaded.measured
    assert seen == loaded
    index.close()


@claim("history:memory")
def test_only_the_newest_turns_and_items_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, created(), *(record for number in range(40) for record in turn(number, "x" * 99)))
    loaded = load_state(path)
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
    with HistoryReader(index, THREAD, path) as reader:
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
    with HistoryReader(index, THREAD, path) as reader:
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
    with HistoryReader(index, THREAD, path) as reader:
        page = items_page(reader, HistoryQuery(THREAD, 9, ascending=True), None)
    assert [(entry.index, entry.turn.id) for entry in page.items] == [(0, "t1"), (2, "t1")]
    state = load_state(path)
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
    assert load_state(foreign) == load_state(path) == whole(path)
    with HistoryReader(index, THREAD, foreign) as reader:
        page = turns_page(reader, HistoryQuery(THREAD, 9, ascending=True), "summary")
        shown = [[item.type for item in one.items] for one in page.turns]  # type: ignore[union-attr]
    assert shown == [["userMessage", "agentMessage"], ["userMessage", "agentMessage"], []]


# As clients use it.


@claim("history:turns-list", "history:views")
async def test_turns_are_paged_of_threads_that_run_are_loaded_or_stored(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        assert await client.call("thread/turns/list", here) == {
            "data": [],
            "nextCursor": None,
            "backwardsCursor": None,
        }
        done = [(await client.turn(thread_id, f"question {number}"))["id"] for number in range(3)]
        gate = Gate()
        served.model.scripts.append([*says("thinking")[:3], gate])
        await client.call("turn/start", {**here, "input": [{"type": "text", "text": "and this?"}]})
        await gate.wait_until_reached()
        page = await client.call("thread/turns/list", {**here, "limit": 2})
        running, last = page["data"]
        assert (running["status"], running["itemsView"]) == ("inProgress", "summary")
        assert [item["type"] for item in running["items"]] == ["userMessage"]
        assert (last["id"], last["status"]) == (done[2], "completed")
        assert [item["type"] for item in last["items"]] == ["userMessage", "agentMessage"]
        read = await client.call("thread/read", {**here, "includeTurns": True})
        full = await client.call("thread/turns/list", {**here, "itemsView": "full"})
        assert full["data"][::-1] == read["thread"]["turns"]
        bare = await client.call(
            "thread/turns/list",
            {**here, "itemsView": "notLoaded", "limit": 0, "cursor": page["nextCursor"]},
        )
        assert [(one["id"], one["items"], one["itemsView"]) for one in bare["data"]] == [
            (done[1], [], "notLoaded")
        ]
        gate.opened.set()
    async with serve(tmp_path) as served, served.client() as client:
        again = await client.call(
            "thread/turns/list",
            {**here, "cursor": page["backwardsCursor"], "sortDirection": "asc"},
        )
        assert [one["id"] for one in again["data"]] == [running["id"]]
        rest = await client.call("thread/turns/list", {**here, "cursor": page["nextCursor"]})
        assert [one["id"] for one in rest["data"]] == done[1::-1]
        assert (await client.call("thread/loaded/list", {}))["data"] == []


@claim("history:items-list", "history:items-read")
async def test_items_are_paged_anchored_and_read(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        turns = [(await client.turn(thread_id, f"q{number}"))["id"] for number in range(3)]
        assert await texts(client, thread_id) == ["q0", "ok", "q1", "ok", "q2", "ok"]
        assert await texts(client, thread_id, sortDirection="desc", limit=2) == ["ok", "q2"]
        page = await client.call("thread/items/list", {**here, "limit": 3})
        following = await texts(client, thread_id, cursor=page["nextCursor"])
        assert following == ["ok", "q2", "ok"]
        before = await texts(
            client, thread_id, cursor=page["nextCursor"], sortDirection="desc", limit=9
        )
        assert before == ["ok", "q0"]
        again = await texts(client, thread_id, cursor=page["backwardsCursor"], limit=1)
        assert again == ["q0"]
        of_turn = {**here, "turnId": turns[1]}
        entries = (await client.call("thread/items/list", of_turn))["data"]
        assert [entry["turnId"] for entry in entries] == [turns[1]] * 2
        assert entries[0]["startedAtMs"] == entries[0]["item"]["startedAtMs"]
        asked, answered = (entry["item"]["id"] for entry in entries)
        beside = {**of_turn, "cursor": {"type": "item", "itemId": asked}}
        assert (await client.call("thread/items/list", beside))["data"] == entries[1:]
        beside = {**beside, "sortDirection": "desc"}
        assert (await client.call("thread/items/list", beside))["data"] == []
        read = {**of_turn, "itemIds": [answered, "nope", asked, asked]}
        assert (await client.call("thread/items/read", read))["data"] == entries
        unknown = {**here, "turnId": "nope"}
        assert (await client.call("thread/items/list", unknown))["data"] == []
        assert await client.call("thread/items/read", {**unknown, "itemIds": ["x"]}) == {"data": []}


@claim("history:deferred-output")
def test_outputs_are_left_out_of_pages_when_asked_and_when_no_page_can_hold_them() -> None:
    outline = TurnOutline(0, "t", 1)
    asked = ThreadItemOutputDeferral(mcp_tool_call=True)

    def shown(size: int, deferral: ThreadItemOutputDeferral | None, **call: Any) -> Any:
        result = McpToolCallResult(**{"content": [{"type": "text", "text": "out"}]} | call)
        item = McpToolCallThreadItem(
            id="c",
            server="s",
            tool="t",
            status="failed" if result.structured_content == "failed" else "completed",
            arguments={},
            result=result,
        )
        paged = PagedItem(outline, 0, item, size)
        assert item_entry(paged).item == item
        entry = listed_entry(paged, deferral)
        assert isinstance(entry.item, McpToolCallThreadItem)
        assert entry.item.result is not None
        return len(entry.item.result.content), entry.output_deferred

    small, big = 100, MAX_PAGE_BYTES + 1
    assert shown(small, asked) == shown(big, asked) == shown(big, None) == (0, True)
    image = [{"type": "image", "data": "", "mimeType": "image/png"}]
    for kept in (
        shown(small, None),
        shown(small, ThreadItemOutputDeferral(command_execution=True)),
        shown(small, asked, content=image),
        shown(small, asked, structured_content="failed"),
        shown(small, asked, structured_content={"a": 1}),
    ):
        assert kept == (1, False)
    assert shown(big, None, content=image) == (0, True)
    spoken = PagedItem(outline, 0, AgentMessageThreadItem(id="a", text="x"), big)
    assert listed_entry(spoken, asked) == item_entry(spoken)


@claim("history:refusals")
async def test_what_cannot_be_paged_is_refused_and_the_error_says_why(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        ended = await client.turn(thread_id, "hello")
        here = {"threadId": thread_id, "turnId": ended["id"]}
        anchor = {"type": "item", "itemId": "nope"}
        for method, params, code, text in (
            ("thread/turns/list", {"cursor": "junk"}, -32600, "invalid cursor: junk"),
            ("thread/items/list", {"cursor": "junk"}, -32600, "invalid cursor: junk"),
            ("thread/timeline/list", {"cursor": "junk"}, -32600, "invalid cursor: junk"),
            (
                "thread/items/list",
                {"cursor": anchor},
                -32602,
                "cursor.itemId does not identify an item in the requested history scope",
            ),
            (
                "thread/items/list",
                {"cursor": anchor, "turnId": None},
                -32602,
                "turnId is required when cursor is an item anchor",
            ),
            ("thread/items/read", {"itemIds": []}, -32600, "itemIds must contain 1 to 100 IDs"),
            (
                "thread/items/read",
                {"itemIds": ["x"] * 101},
                -32600,
                "itemIds must contain 1 to 100 IDs",
            ),
        ):
            error = await client.refusal(method, {**here, **params})
            assert (error.code, error.message) == (code, text)
        unknown = "01900000-0000-7000-8000-000000000009"
        missing = await client.refusal("thread/turns/list", {"threadId": unknown})
        assert (missing.code, missing.message) == (-32600, f"thread not loaded: {unknown}")
        ephemeral = await client.start_thread(ephemeral=True)
        for method in ("thread/turns/list", "thread/items/list", "thread/timeline/list"):
            error = await client.refusal(method, {"threadId": ephemeral})
            assert error.message == f"ephemeral threads do not support {method}"


@claim("history:timeline")
async def test_the_timeline_is_paged_backwards_in_the_order_of_the_log(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        turns = [(await client.turn(thread_id, f"q{number}"))["id"] for number in range(2)]

        async def page(**params: Any) -> tuple[list[tuple[str, str]], list[int], str | None]:
            result = await client.call("thread/timeline/list", {"threadId": thread_id, **params})
            entries = [
                (entry["type"], entry.get("turnId", entry.get("turn_id")))
                for entry in result["data"]
            ]
            return entries, [entry["position"] for entry in result["data"]], result["nextCursor"]

        kinds = ("turnStarted", "item", "item", "turnCompleted")
        expected = [(kind, turn_id) for turn_id in turns for kind in kinds]
        entries, positions, cursor = await page()
        assert (entries, cursor) == (expected, None)
        assert positions == sorted(set(positions))
        entries, newest, cursor = await page(limit=3)
        assert (entries, newest) == (expected[5:], positions[5:])
        entries, older, cursor = await page(limit=3, cursor=cursor)
        assert (entries, older) == (expected[2:5], positions[2:5])
        entries, oldest, cursor = await page(limit=3, cursor=cursor)
        assert (entries, oldest, cursor) == (expected[:2], positions[:2], None)


@claim("history:first-page")
async def test_a_resume_says_where_pages_begin_and_gives_the_first_one(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        empty = await client.call("thread/resume", {**here, "initialTurnsPage": {}})
        assert empty["turnsBackwardsCursor"] is empty["itemsBackwardsCursor"] is None
        assert empty["initialTurnsPage"]["data"] == []
        turns = [(await client.turn(thread_id, f"q{number}"))["id"] for number in range(3)]
        asked = {"limit": 2, "itemsView": "notLoaded"}
        result = await client.call(
            "thread/resume", {**here, "excludeTurns": True, "initialTurnsPage": asked}
        )
        assert result["thread"]["turns"] == []
        listed = await client.call("thread/turns/list", {**here, **asked})
        assert result["initialTurnsPage"] == listed
        assert [one["id"] for one in listed["data"]] == turns[:0:-1]
        upwards = {"sortDirection": "asc", "limit": 1}
        result = await client.call("thread/resume", {**here, "initialTurnsPage": upwards})
        (first,) = result["initialTurnsPage"]["data"]
        assert (first["id"], first["itemsView"]) == (turns[0], "summary")
        assert [one["id"] for one in result["thread"]["turns"]] == turns
        begin = {**here, "cursor": result["turnsBackwardsCursor"], "limit": 1}
        assert [one["id"] for one in (await client.call("thread/turns/list", begin))["data"]] == [
            turns[-1]
        ]
        newest = await texts(
            client,
            thread_id,
            cursor=result["itemsBackwardsCursor"],
            limit=2,
            sortDirection="desc",
        )
        assert newest == ["ok", "q2"]


@claim("history:long-thread")
@pytest.mark.parametrize("size", [10, 60_000])
async def test_answers_hold_the_newest_turns_of_a_thread_that_memory_does_not_hold(
    tmp_path: Path, size: int
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        path = Path((await client.call("thread/read", here))["thread"]["path"])
    write(path, *(record for number in range(40) for record in turn(number, "x" * size)))
    async with serve(tmp_path) as served, served.client() as client:
        stored = (await client.call("thread/read", {**here, "includeTurns": True}))["thread"]
        resumed = (await client.call("thread/resume", here))["thread"]
        loaded = (await client.call("thread/read", {**here, "includeTurns": True}))["thread"]
        assert stored["turns"] == resumed["turns"] == loaded["turns"]
        shown = [(one["id"], one["itemsView"]) for one in stored["turns"]]
        full = 40 if size == 10 else 14
        assert shown == [
            (f"t{number}", "full" if number >= 40 - full else "notLoaded") for number in range(40)
        ]
        await client.turn(thread_id, "one more")
        again = (await client.call("thread/read", {**here, "includeTurns": True}))["thread"]
        assert [one["items"][0]["id"] for one in again["turns"][-3:-1]] == ["u38", "u39"]
        assert len(again["turns"]) == 41
