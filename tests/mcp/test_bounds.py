"""mcp: what one server may list, what all may add to a model request, and rows that hold.

Tests with messages of some MiB count as those with processes: the model and the client of the test
take their time to read them.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from app_server.handlers.integrations import mcp as mcp_rows
from app_server.mcp import bounds
from app_server.mcp.bounds import MAX_DECLARED_BYTES, MAX_LIST_BYTES, MAX_LISTED, left_out
from app_server.mcp.servers.status import NOT_SHOWN
from tests.support.harness import Served, WireClient, claim, serve, stdio_server
from tests.support.large import Case, made
from tests.support.model import COMPLETED

MAX_MESSAGE_BYTES = 1024 * 1024
PATIENT = "mcp_optional_startup_grace_ms = 30000\n"


def tools(count: int, description: str = "d") -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return [
        {"name": f"t{number}", "description": description, "inputSchema": schema}
        for number in range(count)
    ]


def answering(folder: Path, name: str, **results: Any) -> str:
    """Configure a server that answers methods (`tools_list`, …) with these results."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps({key.replace("_", "/"): value for key, value in results.items()}))
    return stdio_server(name, "answers", str(file))


@asynccontextmanager
async def serving(folder: Path, config: str) -> AsyncIterator[tuple[Served, WireClient]]:
    home = folder / "home"
    async with serve(home, config=PATIENT + config) as served, served.client() as client:
        yield served, client


async def rows(client: WireClient, **params: Any) -> list[Any]:
    """Read all pages; each message is small enough."""
    found: list[Any] = []
    cursor = None
    while True:
        page = await client.call("mcpServerStatus/list", {**params, "cursor": cursor})
        assert len(to_json(page)) < MAX_MESSAGE_BYTES
        found += page["data"]
        if (cursor := page["nextCursor"]) is None:
            return found


def shown_by(request: Any) -> dict[str, int]:
    """Return how many tools each namespace of a model request has."""
    return {t["name"]: len(t["tools"]) for t in request["tools"] if t["type"] == "namespace"}


def one_too_large() -> list[dict[str, Any]]:
    schema = {"properties": {"e": {"enum": ["x" * 100] * 90_000}}}
    return [{"name": "t", "inputSchema": schema}]


@pytest.mark.process
@claim("mcp:list-bounds")
@pytest.mark.parametrize(
    ("listed", "error"),
    [
        (lambda: tools(MAX_LISTED + 1), f"the server lists more than {MAX_LISTED} tools"),
        (
            one_too_large,
            f"the server's list of tools has more than {MAX_LIST_BYTES} bytes",
        ),
    ],
)
async def test_a_server_that_lists_too_much_fails_and_says_so_and_others_go_on(
    tmp_path: Path, listed: Case[Any], error: str
) -> None:
    config = answering(tmp_path, "bad", tools_list={"tools": made(listed)}) + stdio_server("good")
    async with serving(tmp_path, config) as (served, client):
        thread_id = await client.start_thread()
        assert (await client.turn(thread_id, "hi"))["status"] == "completed"
        assert list(shown_by(served.model.requests[-1])) == ["mcp__good"]
        bad, good = await rows(client, threadId=thread_id)
        assert (bad["runtimeStatus"], good["runtimeStatus"]) == ("failed", "connected")
        assert (bad["toolsError"], bad["tools"]) == (f"MCP startup failed: {error}", {})
        assert "meta" in good["tools"]


@pytest.mark.process
@claim("mcp:list-bounds")
async def test_a_list_at_the_bound_is_taken(tmp_path: Path) -> None:
    config = answering(tmp_path, "much", tools_list={"tools": tools(MAX_LISTED)})
    async with serving(tmp_path, config) as (served, client):
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        assert shown_by(served.model.requests[-1]) == {"mcp__much": MAX_LISTED}


@claim("mcp:list-bounds")
async def test_pages_of_one_list_are_counted_together_and_resources_have_the_bounds_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_LISTED", 12)
    found = [{"uri": f"mem://{n}", "name": "a"} for n in range(13)]
    small = {"tools_list": {"tools": tools(1)}, "resources_list": {"resources": found}}
    config = answering(tmp_path, "more", **small) + stdio_server("paged", "paged")
    async with serving(tmp_path, config) as (_, client):
        more, paged = await rows(client)
        assert (list(more["tools"]), more["resources"]) == (["t0"], [])
        # It has 13.
        assert paged["toolsError"] == "MCP startup failed: the server lists more than 12 tools"


@claim("mcp:list-bounds")
async def test_a_list_that_becomes_too_long_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_LISTED", 13)
    config = stdio_server("raw", "log", str(tmp_path / "log"))
    config += "[features]\nmcp_tool_list_changed = true\n"
    async with serving(tmp_path, config) as (served, client):
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        params = {"threadId": thread_id, "server": "raw", "tool": "grow", "arguments": {}}
        await client.call("mcpServer/tool/call", params)
        for _ in range(2):
            await client.turn(thread_id, "hi")
        assert shown_by(served.model.requests[-1]) == {"mcp__raw": 13}
    # Asked once more after the change, and not again before every request.
    assert (tmp_path / "log").read_text().count('"tools/list"') == 2


@pytest.mark.process
@claim("mcp:request-bound")
async def test_tools_of_all_servers_take_a_bounded_part_of_a_request(tmp_path: Path) -> None:
    half = MAX_DECLARED_BYTES // 2
    large = tools(2, "x" * (half // 2))
    config = (
        answering(tmp_path, "a", tools_list={"tools": large})
        + answering(tmp_path, "b", tools_list={"tools": tools(1, "x" * half)})
        + stdio_server("c")
    )
    async with serving(tmp_path, config) as (served, client):
        thread_id = await client.start_thread()
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        await client.call("turn/start", params)
        messages = await client.until("turn/completed")
        told = [m["params"]["message"] for m in messages if m.get("method") == "warning"]
        warnings = [text for text in told if not text.startswith("Nothing is known of")]
        assert warnings == [
            "the tools of MCP servers are not shown to the model: `a`; with them tools would take "
            f"more than {MAX_DECLARED_BYTES} bytes of a model request"
        ]
        request = served.model.requests[-1]
        assert shown_by(request) == {"mcp__b": 1, "mcp__c": 13}
        assert len(to_json(request["tools"])) < MAX_DECLARED_BYTES
        of_thread = await rows(client, threadId=thread_id)
        assert [row["runtimeStatus"] for row in of_thread] == ["connected"] * 3
        assert (of_thread[0]["tools"], of_thread[0]["toolsError"]) == ({}, NOT_SHOWN)
        # The rows of the others are as they are.
        assert (of_thread[1]["tools"], len(of_thread[2]["tools"])) == ({}, 13)
        too_large = f"its lists are larger than {mcp_rows.MAX_PAGE_BYTES} bytes"
        assert of_thread[1]["toolsError"] == too_large

        # Clients may call it; the model is not told a second time.
        call = {"threadId": thread_id, "server": "a", "tool": "t0", "arguments": {}}
        result = await client.call("mcpServer/tool/call", call)
        assert result["content"] == [{"type": "text", "text": "t0 ran"}]
        await client.call("turn/start", params)
        messages = await client.until("turn/completed")
        assert [m for m in messages if m.get("method") == "warning"] == []


def test_small_servers_are_taken_first_whatever_their_names() -> None:
    third = MAX_DECLARED_BYTES // 3
    assert left_out({}) == frozenset()
    assert left_out({"a": MAX_DECLARED_BYTES}) == frozenset()
    assert left_out({"a": MAX_DECLARED_BYTES, "z": 1}) == {"a"}
    assert left_out({"a": third, "b": third, "c": third, "d": third}) == {"d"}


@pytest.mark.process
@claim("mcp:request-bound")
async def test_a_search_declares_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = {
        "type": "tool_search_call",
        "call_id": "call_s",
        "execution": "client",
        "arguments": {"query": "sought", "limit": 64},
    }
    sought = tools(40, "sought " + "x" * (bounds.MAX_FOUND_BYTES // 8))
    config = "model_supports_search_tool = true\n" + answering(
        tmp_path, "a", tools_list={"tools": sought}
    )
    async with serving(tmp_path, config) as (served, client):
        served.model.scripts.append(
            [
                {"type": "response.created", "response": {"id": "resp_1"}},
                {"type": "response.output_item.done", "item": search},
                {"type": "response.completed", "response": {"id": "resp_1", "usage": None}},
            ]
        )
        thread_id = await client.start_thread()
        assert (await client.turn(thread_id, "hi"))["status"] == "completed"
        [output] = [
            item
            for item in served.model.requests[-1]["input"]
            if item["type"] == "tool_search_output"
        ]
        [namespace] = output["tools"]
        assert len(namespace["tools"]) == 7
        assert len(to_json(output)) < bounds.MAX_FOUND_BYTES


@claim("status:rows")
async def test_one_strange_server_does_not_take_the_rows_of_others_along(tmp_path: Path) -> None:
    good = tools(1)[0]
    strange = [{"name": "bare"}, {**good, "name": "n", "description": 5}, good]
    resources = [{"name": "no address"}, {"uri": "mem://a", "name": "a"}]
    config = (
        answering(
            tmp_path,
            "odd",
            tools_list={"tools": strange},
            resources_list={"resources": resources},
            resources_templates_list={},
        )
        + answering(tmp_path, "none", tools_list={"tools": strange[:2]})
        + answering(tmp_path, "scalar", tools_list={"tools": 5})
        + stdio_server("raw")
    )
    async with serving(tmp_path, config) as (_, client):
        none, odd, raw, scalar = await rows(client)
        assert (none["tools"], none["toolsError"]) == ({}, mcp_rows.NO_TOOL_HOLDS)
        assert (odd["tools"], odd["toolsError"]) == ({"t0": good}, None)
        assert (odd["resources"], len(raw["tools"])) == ([resources[1]], 13)
        assert (scalar["tools"], scalar["toolsError"]) == ({}, None)


@pytest.mark.process
@claim("status:rows")
@pytest.mark.parametrize("wide", ["x", "\u20ac"], ids=["ascii", "three bytes each"])
async def test_rows_fit_into_a_message_whatever_a_server_sends(tmp_path: Path, wide: str) -> None:
    much = wide * 900_000 if wide == "x" else wide * 400_000
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"much": much},
        "serverInfo": {"name": much, "version": "1", "icons": [much]},
    }
    medium = tools(4, wide * 100_000)
    config = (
        answering(tmp_path, "hello", initialize=hello)
        + answering(tmp_path, "meta", tools_list={"tools": [], "_meta": {"much": much}})
        + answering(tmp_path, "p", tools_list={"tools": medium})
        + answering(tmp_path, "q", tools_list={"tools": medium})
        + stdio_server("raw")
    )
    async with serving(tmp_path, config) as (_, client):
        hello_row, meta, p, q, raw = await rows(client)
        too_large = f"its lists are larger than {mcp_rows.MAX_PAGE_BYTES} bytes"
        for cut in (hello_row, meta):
            assert (cut["serverInfo"], cut["serverCapabilities"]) == (None, None)
            assert (cut["tools"], cut["toolsError"]) == ({}, too_large)
        for found in (p, q):
            shown = {tool["name"]: tool for tool in medium} if wide == "x" else {}
            assert (found["tools"], found["serverInfo"]["name"]) == (shown, "peer")
        assert len(raw["tools"]) == 13


@pytest.mark.process
@claim("status:rows")
async def test_what_a_server_says_when_it_refuses_is_cut(tmp_path: Path) -> None:
    config = answering(tmp_path, "bad", error=["initialize", "n" * 3_000_000])
    async with serving(tmp_path, config + stdio_server("good")) as (_, client):
        bad, good = await rows(client)
        assert bad["toolsError"].startswith("MCP startup failed: nnn")
        assert (len(bad["toolsError"]) < 2100, len(good["tools"])) == (True, 13)


# At size: what is declared, what a search finds, what is cut and said.


def numbered(first: int, count: int, padding: str = "") -> dict[str, Any]:
    """List tools with words of their own; `padding` makes them large."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools = [
        {
            "name": f"act_{number}",
            "description": f"Handle the case of number{number}. {padding}",
            "inputSchema": schema,
            "annotations": {"readOnlyHint": True},
        }
        for number in range(first, first + count)
    ]
    return {"tools": tools}


async def search(served: Served, client: WireClient, thread_id: str, query: str) -> dict[str, Any]:
    """Have the model search; returns the names that it was shown, by namespace, in their order."""
    item = {
        "type": "tool_search_call",
        "execution": "client",
        "id": "s1",
        "call_id": "search",
        "arguments": {"query": query, "limit": 64},
    }
    served.model.scripts.append([{"type": "response.output_item.done", "item": item}, COMPLETED])
    assert (await client.turn(thread_id, "go"))["status"] == "completed"
    (found,) = [
        item for item in served.model.requests[-1]["input"] if item["type"] == "tool_search_output"
    ]
    return {space["name"]: [tool["name"] for tool in space["tools"]] for space in found["tools"]}


@pytest.mark.slow
@claim("mcp:size")
async def test_a_server_with_five_thousand_tools_is_declared_listed_and_searched(
    tmp_path: Path,
) -> None:
    config = answering(tmp_path, "vast", tools_list=numbered(0, 5000))
    async with serving(tmp_path, config) as (served, client):
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        assert shown_by(served.model.requests[-1]) == {"mcp__vast": 5000}
        (row,) = await rows(client, threadId=thread_id)
        assert len(row["tools"]) in (0, 5000)
        assert (row["tools"] == {}) == (row["toolsError"] is not None)
        searching = await client.start_thread(config={"model_supports_search_tool": True})
        found = await search(served, client, searching, "number4321")
        assert found["mcp__vast"][0] == "act_4321"
        assert shown_by(served.model.requests[-1]) == {}


@pytest.mark.slow
@claim("mcp:size")
async def test_forty_servers_with_a_hundred_tools_each_are_declared_and_searched(
    tmp_path: Path,
) -> None:
    config = "".join(
        answering(tmp_path, f"s{number}", tools_list=numbered(number * 100, 100))
        for number in range(40)
    )
    async with serving(tmp_path, config) as (served, client):
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        expected = {f"mcp__s{number}": 100 for number in range(40)}
        assert shown_by(served.model.requests[-1]) == expected
        assert len(await rows(client, threadId=thread_id)) == 40
        searching = await client.start_thread(config={"model_supports_search_tool": True})
        found = await search(served, client, searching, "number1234 number3999")
        assert (found["mcp__s12"][0], found["mcp__s39"][0]) == ("act_1234", "act_3999")


@pytest.mark.slow
@claim("mcp:size")
async def test_what_is_too_much_to_declare_is_named_and_still_found(tmp_path: Path) -> None:
    config = answering(tmp_path, "vast", tools_list=numbered(0, 5000, "x" * 900))
    config += answering(tmp_path, "small", tools_list=numbered(9000, 3))
    async with serving(tmp_path, config) as (served, client):
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        assert shown_by(served.model.requests[-1]) == {"mcp__small": 3}
        (warning,) = [line for line in client.transcript if "are not shown to the model" in line]
        assert "`vast`" in warning
        errors = {row["name"]: row["toolsError"] for row in await rows(client, threadId=thread_id)}
        assert errors["small"] is None
        assert "not shown to the model" in errors["vast"]
        searching = await client.start_thread(config={"model_supports_search_tool": True})
        found = await search(served, client, searching, "number4321")
        assert found["mcp__vast"][0] == "act_4321"
        # Sixty-four of them take less than the bound of one search.
        assert len(found["mcp__vast"]) <= 64
