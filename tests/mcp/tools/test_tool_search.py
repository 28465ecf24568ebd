"""mcp: tools that the model finds by searching."""

from pathlib import Path

import pytest

from app_server.mcp.catalog.config import (
    ServerConfig,
    StdioTransport,
)
from app_server.mcp.tools.naming import RawName, assign_names
from app_server.mcp.tools.search import best, text_of
from app_server.mcp.tools.table import McpToolTable, Tool
from app_server.models.prompt.request import outputs_for_open_calls
from app_server.tools.dynamic_tools import OWN_NAMES
from tests.support.harness import claim, serve, stdio_server
from tests.support.mcp_peers.calls import raw_call
from tests.support.model import COMPLETED, calls

SHOWN = {
    "list_mcp_resources",
    "list_mcp_resource_templates",
    "read_mcp_resource",
    "tool_search",
}
"""What is declared for servers whose tools are deferred."""


def table_of(**descriptions: str) -> McpToolTable:
    raws = [RawName("hub", name) for name in sorted(descriptions)]
    names = assign_names(raws)
    config = ServerConfig(name="hub", transport=StdioTransport("x"))
    tools = [
        Tool(raw, names[raw], {"name": raw.tool, "description": descriptions[raw.tool]}, config)
        for raw in raws
    ]
    return McpToolTable(tools, {})


@claim("mcp:deferred")
@pytest.mark.parametrize(
    ("query", "limit", "found"),
    [
        ("issue", 8, ["listIssues", "create_issue"]),
        ("list the issues", 1, ["listIssues"]),
        ("weather in town", 8, ["forecast"]),
        ("creating", 8, ["create_issue"]),
        ('" OR NEAR(', 8, []),
        ("", 8, []),
        ("hub", 2, ["forecast", "listIssues"]),
    ],
)
def test_tools_are_found_by_words(query: str, limit: int, found: list[str]) -> None:
    table = table_of(
        create_issue="Open a ticket: a bug, a wish.",
        listIssues="Show the open ones.",
        forecast="How the weather will be.",
    )
    places = best(map(text_of, table.tools), query, limit)
    assert [table.tools[place].raw.tool for place in places] == found


@claim("mcp:deferred")
async def test_a_model_that_can_search_is_shown_what_it_finds(tmp_path: Path) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(config={"model_supports_search_tool": True})
        search = {"type": "tool_search_call", "execution": "client", "id": "s1"}
        served.model.scripts += [
            [
                {
                    "type": "response.output_item.done",
                    "item": {
                        **search,
                        "call_id": f"search_{number}",
                        "arguments": arguments,
                    },
                }
                for number, arguments in enumerate(
                    [{"query": "destroy things", "limit": 1e9}, '{"query": 5}', "{bad"]
                )
            ]
            + [COMPLETED],
            calls(raw_call("plain"), raw_call("meta")),
        ]
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        question = await client.wait_for("mcpServer/elicitation/request")
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        told = await client.until("turn/completed")
        first, second, third = served.model.requests
        declared = [tool.get("name", tool["type"]) for tool in first["tools"]]
        assert {name for name in declared if name not in OWN_NAMES - SHOWN} == SHOWN
        note = first["input"][0]
        assert (note["role"], third["input"][0]) == ("developer", note)
        assert "<tools>\n- mcp__raw: Use it wisely.\n</tools>" in note["content"][0]["text"]
        found, *nothing = [i for i in second["input"] if i["type"] == "tool_search_output"]
        (namespace,) = found.pop("tools")
        assert found == {
            "type": "tool_search_output",
            "call_id": "search_0",
            "status": "completed",
            "execution": "client",
        }
        assert namespace["name"] == "mcp__raw"
        assert [(tool["name"], tool["defer_loading"]) for tool in namespace["tools"]] == [
            ("wipe", True)
        ]
        assert [output["tools"] for output in nothing] == [[], []]
        items = [m["params"]["item"] for m in told if m["method"] == "item/completed"]
        assert [item["tool"] for item in items if item["type"] == "mcpToolCall"] == [
            "plain",
            "meta",
        ]


@claim("mcp:deferred")
def test_a_search_that_was_cut_off_has_found_nothing() -> None:
    call = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {}}
    done = {"type": "function_call", "call_id": "f"}
    output = {"type": "function_call_output", "call_id": "f", "output": ""}
    (found,) = outputs_for_open_calls([call, done, output])
    assert (found["type"], found["call_id"], found["tools"]) == ("tool_search_output", "s", [])
