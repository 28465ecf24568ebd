"""mcp: thousands of tools: what is declared, what a search finds, what is cut and said."""

from pathlib import Path
from typing import Any

import pytest

from tests.mcp.test_bounds import answering, rows, serving, shown_by
from tests.support.harness import Served, WireClient, claim
from tests.support.model import COMPLETED


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
