"""mcp: resources that the model lists and reads."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.mcp.catalog.config import ServerConfig, StdioTransport
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.requests import list_of
from app_server.mcp.servers.server import McpServer
from app_server.mcp.tools.listing import Listing
from app_server.runtime.late_event import LateEvent
from protocol.model import JsonObject
from tests.support.harness import WAIT_S, serve, write_config
from tests.support.http_peer import HttpRequest
from tests.support.mcp_peers.calls import call_items, steps_until_settled, with_peer
from tests.support.mcp_peers.no_processes import NoProcesses
from tests.support.mcp_peers.web_peer import WebPeer


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


async def test_questions_belong_to_calls_of_turns_and_not_to_lists_of_clients() -> None:
    turns: list[str | None] = []

    class Connection:
        closed, keeps_session, pid = LateEvent(), True, None

        async def request(self, *_: Any, **__: Any) -> JsonObject:
            turns.append(server.running_calls.newest_turn_id)
            return {}

    config = ServerConfig("s", StdioTransport("s"))
    server = McpServer(config, ServerPool(NoProcesses()), lambda *_: None)
    server.ready(Connection(), Listing())
    with server.running_calls.run("turn", 30):
        await list_of(server, "resources/list", "resources")
        await list_of(server, "resources/list", "resources", "later")
    assert turns == ["turn", "later"]


@dataclass
class Slow(WebPeer):
    """Lists its resources once it may."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def _serve_one(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if b'"resources/list"' in request.body:
            self.asked.set()
            await self.opened.wait()
        return await super()._serve_one(request, reader, writer)


@pytest.mark.parametrize("stays", [False, True], ids=["removed", "changed"])
async def test_what_a_reload_removed_or_changed_is_not_listed_over_its_old_connection(
    tmp_path: Path, stays: bool
) -> None:
    first, second = Slow(resources={"mem://1": ""}), WebPeer(resources={"mem://2": ""})
    listed = [{"server": "first", "uri": "mem://1", "name": "mem://1"}]
    async with first.serve(), second.serve():
        kept = f'[mcp_servers.first]\nurl = "{first.url}"\n'
        other = f'[mcp_servers.second]\nurl = "{second.url}"\n'
        async with serve(tmp_path, config=kept + other) as served, served.client() as client:
            thread_id = await client.start_thread()
            await steps_until_settled(client, "first", "second")
            # The old connection is kept for a call that runs on it.
            second.hold = asyncio.Event()
            look = {"threadId": thread_id, "server": "second", "tool": "look"}
            running = await client.request("mcpServer/tool/call", look)
            outputs: list[str] = []

            async def list_all() -> None:
                function = {"name": "list_mcp_resources", "arguments": {}}
                async with served.client() as caller:
                    await caller.call("thread/resume", {"threadId": thread_id})
                    outputs.extend((await call_items(served, caller, thread_id, function))[1])

            with anyio.fail_after(WAIT_S):
                await second.holding.wait()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(list_all)
                    await first.asked.wait()
                    changed = other + 'http_headers = { X = "1" }\n' if stays else ""
                    write_config(tmp_path, served.model.url, kept + changed)
                    await client.call("config/mcpServer/reload")
                    await steps_until_settled(client, "first", *(["second"] if stays else []))
                    first.opened.set()
            if stays:
                listed.append({"server": "second", "uri": "mem://2", "name": "mem://2"})
            assert [json.loads(output) for output in outputs] == [{"resources": listed}]
            asked = [session for method, session in second.seen if method == "resources/list"]
            assert asked == (["session-2"] if stays else [])
            second.hold.set()
            assert "result" in await client.answer(running)
