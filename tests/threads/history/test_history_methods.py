"""threads: pages of history as clients use them, with thread/turns and thread/items."""

from pathlib import Path
from typing import Any

import pytest

from app_server.handlers.threads.history import item_entry, listed_entry
from app_server.threads.history.pages import (
    MAX_PAGE_BYTES,
    PagedItem,
)
from app_server.threads.log.outline import TurnOutline
from protocol.threads.history import ThreadItemOutputDeferral
from protocol.turns.items import AgentMessageThreadItem, McpToolCallResult, McpToolCallThreadItem
from tests.support.harness import claim, serve
from tests.support.model import Gate, says
from tests.support.threads.histories import texts, turn, write


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
