"""mcp: resources that the model lists and reads."""

import json
from pathlib import Path

from tests.support.mcp_peers.calls import call_items, with_peer


async def test_the_model_looks_at_resources(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        items, outputs = await call_items(
            served,
            client,
            thread_id,
            {"name": "list_mcp_resources", "arguments": {"server": "raw"}},
            {"name": "list_mcp_resource_templates", "arguments": ""},
            {"name": "read_mcp_resource", "arguments": {"server": "raw", "uri": "mem://a"}},
            {"name": "read_mcp_resource", "arguments": {"server": "raw"}},
            {"name": "list_mcp_resources", "arguments": {"server": "none"}},
            {"name": "list_mcp_resources", "arguments": {"server": 5}},
            {"name": "list_mcp_resources", "arguments": "[1]"},
        )
        resource = {"server": "raw", "uri": "mem://a", "name": "a"}
        assert json.loads(outputs[0]) == {"server": "raw", "resources": [resource]}
        template = {"server": "raw", "uriTemplate": "mem://{x}", "name": "x"}
        assert json.loads(outputs[1]) == {"resourceTemplates": [template]}
        contents = [{"uri": "mem://a", "text": '{"uri": "mem://a"}'}]
        assert json.loads(outputs[2]) == {"server": "raw", "uri": "mem://a", "contents": contents}
        assert [(item["server"], item["tool"], item["status"]) for item in items] == [
            ("raw", "list_mcp_resources", "completed"),
            ("codex", "list_mcp_resource_templates", "completed"),
            ("raw", "read_mcp_resource", "completed"),
            ("raw", "read_mcp_resource", "failed"),
            ("none", "list_mcp_resources", "failed"),
            ("codex", "list_mcp_resources", "failed"),
            ("codex", "list_mcp_resources", "failed"),
        ]
        assert items[0]["result"]["content"] == [{"type": "text", "text": outputs[0]}]
        assert [item["error"]["message"].split(": ", 1)[1] for item in items[3:]] == [
            "server and uri must be strings",
            "unknown MCP server 'none'",
            "server must be a string",
            "arguments must be a JSON object",
        ]


async def test_a_server_that_dies_while_all_are_listed_counts_as_empty(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "frail") as (served, client, thread_id):
        list_all = {"name": "list_mcp_resources", "arguments": {}}
        _, outputs = await call_items(served, client, thread_id, list_all, list_all)
        assert [json.loads(output) for output in outputs] == [{"resources": []}] * 2
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert (status["data"][0]["resources"], len(status["data"][0]["tools"])) == ([], 13)
