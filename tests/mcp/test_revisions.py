"""mcp: servers of both revisions, on both transports: clients and models see the same."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.mcp_peers.calls import (
    answer_question,
    call_items,
    outputs_of,
    raw_call,
    start_asking,
    steps_until_settled,
)
from tests.support.mcp_peers.sdk_peer import SdkPeer, sdk_app
from tests.support.mcp_peers.web_servers import listening
from tests.support.paths import MCP_PEER

SCRIPT = MCP_PEER.with_name("sdk_peer.py")


@dataclass(frozen=True)
class Setting:
    """A transport, and what is configured as `protocol`."""

    transport: str
    protocol: str

    @property
    def is_stateless(self) -> bool:
        return self.protocol != "2025"


@pytest.fixture(
    params=[
        Setting(transport, protocol)
        for transport in ("stdio", "http")
        for protocol in ("2025", "auto")
    ],
    ids=lambda setting: f"{setting.transport}-{setting.protocol}",
)
def setting(request: pytest.FixtureRequest) -> Setting:
    found: Setting = request.param
    return found


@dataclass
class Running:
    """A server of ours, a client and a thread of it, and the server of the SDK if it is here."""

    served: Any
    client: WireClient
    thread_id: str
    peer: SdkPeer | None

    async def call(self, *functions: Any, **options: Any) -> tuple[list[Any], list[Any]]:
        return await call_items(self.served, self.client, self.thread_id, *functions, **options)

    async def tool(self, name: str, **more: Any) -> Any:
        """Call a tool as a client does; gives what it says."""
        params = {"threadId": self.thread_id, "server": "raw", "tool": name, **more}
        result = await self.client.call("mcpServer/tool/call", params)
        [block] = result["content"]
        return block["text"]

    async def tools(self) -> set[str]:
        found = await self.client.call("mcpServerStatus/list", {"threadId": self.thread_id})
        return set(found["data"][0]["tools"])


@asynccontextmanager
async def running(home: Path, setting: Setting, more: str = "") -> AsyncIterator[Running]:
    async with AsyncExitStack() as stack:
        peer = None
        if setting.transport == "http":
            peer, app = await stack.enter_async_context(sdk_app())
            port = await stack.enter_async_context(listening(app))
            table = f'url = "http://127.0.0.1:{port}/mcp"\n'
        else:
            table = f"command = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(SCRIPT))}]\n"
        config = f'{more}[mcp_servers.raw]\nprotocol = "{setting.protocol}"\n{table}'
        served = await stack.enter_async_context(serve(home, config=config))
        client = await stack.enter_async_context(served.client())
        thread_id = await client.start_thread()
        assert (await steps_until_settled(client, "raw"))["raw"][-1] == ("ready", None)
        yield Running(served, client, thread_id, peer)


@claim("mcp:revisions")
@pytest.mark.parametrize("pinned", ["configured", "pinned"])
async def test_the_configured_revision_is_spoken_and_its_tools_are_called(
    tmp_path: Path, setting: Setting, pinned: str
) -> None:
    if pinned == "pinned":
        setting = replace(setting, protocol="2026-07-28")
    async with running(tmp_path, setting) as run:
        [item], [output] = await run.call(raw_call("progress"))
        content = [{"type": "text", "text": "progress ran"}]
        assert item["result"] == {"content": content, "structuredContent": None, "_meta": None}
        assert output[-1] == {"type": "input_text", "text": "progress ran"}
        meta = json.loads(await run.tool("meta"))
        named = [key for key in meta if key.startswith("io.modelcontextprotocol/")]
        assert len(named) == (3 if setting.is_stateless else 0)
        assert meta["threadId"] == run.thread_id


@claim("mcp:revisions")
async def test_a_form_is_asked_during_its_turn(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        turn_id = await start_asking(run.served, run.client, run.thread_id, raw_call("form"))
        asked = await answer_question(
            run.client, {"result": {"action": "accept", "content": {"which": "this"}}}
        )
        await run.client.wait_for("turn/completed")
    schema = {"type": "object", "properties": {"which": {"type": "string"}}}
    assert asked == {
        "threadId": run.thread_id,
        "turnId": turn_id,
        "serverName": "raw",
        "mode": "form",
        "message": "Which?",
        "requestedSchema": schema,
        "_meta": None,
    }
    [output] = outputs_of(run.served)
    assert json.loads(output[1]["text"]) == {"action": "accept", "content": {"which": "this"}}


@claim("mcp:revisions")
async def test_a_link_is_asked_with_an_id_in_both_revisions(
    tmp_path: Path, setting: Setting
) -> None:
    async with running(tmp_path, setting) as run:
        await start_asking(run.served, run.client, run.thread_id, raw_call("link"))
        asked = await answer_question(run.client, {"result": {"action": "decline"}})
        await run.client.wait_for("turn/completed")
    assert (asked["mode"], asked["url"]) == ("url", "https://example.com/there")
    assert asked["elicitationId"]
    [output] = outputs_of(run.served)
    assert json.loads(output[1]["text"]) == {"action": "decline"}


@claim("mcp:revisions")
@pytest.mark.parametrize(
    ("tool", "method"), [("sample", "sampling/createMessage"), ("roots", "roots/list")]
)
async def test_what_is_not_offered_is_refused_with_a_reason(
    tmp_path: Path, setting: Setting, tool: str, method: str
) -> None:
    async with running(tmp_path, setting) as run:
        [item], _ = await run.call(raw_call(tool))
        assert item["status"] == "failed"
        assert f"Mcp error: -32601: Method not found: {method}" in item["error"]["message"]
        # It goes on.
        assert await run.tool("progress") == "progress ran"


@claim("mcp:revisions")
async def test_progress_reaches_the_item(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        await start_asking(run.served, run.client, run.thread_id, raw_call("progress"))
        progress = await run.client.wait_for("item/mcpToolCall/progress")
        assert progress["params"]["message"] == "half way"
        await run.client.wait_for("turn/completed")


@claim("mcp:revisions")
async def test_an_interrupt_cancels_the_call_at_the_server(
    tmp_path: Path, setting: Setting
) -> None:
    async with running(tmp_path, setting) as run:
        await start_asking(run.served, run.client, run.thread_id, raw_call("slow"))
        if run.peer is None:
            await run.client.wait_for("item/started", lambda p: p["item"]["type"] == "mcpToolCall")
        else:
            with anyio.fail_after(WAIT_S):
                await run.peer.started.wait()
        await run.client.call("turn/interrupt", {"threadId": run.thread_id, "turnId": ""})
        await run.client.wait_for("turn/completed")
        if run.peer is not None:
            with anyio.fail_after(WAIT_S):
                await run.peer.cancelled.wait()
        assert await run.tool("progress") == "progress ran"


@claim("mcp:revisions")
async def test_an_interrupt_withdraws_a_question(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        await start_asking(run.served, run.client, run.thread_id, raw_call("form"))
        question = await run.client.wait_for("mcpServer/elicitation/request")
        await run.client.call("turn/interrupt", {"threadId": run.thread_id, "turnId": ""})
        # In which order, depends on who withdraws it: the turn, or the server itself.
        withdrawn = await run.client.wait_for("serverRequest/resolved")
        assert withdrawn["params"]["requestId"] == question["id"]
        await run.client.send({"id": question["id"], "result": {"action": "accept"}})
        assert await run.tool("progress") == "progress ran"


@claim("mcp:revisions")
async def test_the_sandbox_and_the_clients_keys_are_sent(tmp_path: Path, setting: Setting) -> None:
    async with running(tmp_path, setting) as run:
        keys = {"mcpMetaByServer": {"raw": {"mine": 1}}}
        _, [output] = await run.call(raw_call("meta"), **keys)
        meta = json.loads(output[1]["text"])
        assert meta["mine"] == 1
        assert meta["codex/sandbox-state-meta"]["permissionProfile"]["type"] == "managed"
        assert meta["x-codex-turn-metadata"]["thread_id"] == run.thread_id


@claim("mcp:revisions")
@pytest.mark.parametrize(("times", "is_answered"), [(10, True), (11, False)])
async def test_a_call_asks_ten_times_at_most_without_a_session(
    tmp_path: Path, setting: Setting, times: int, is_answered: bool
) -> None:
    async with running(tmp_path, setting) as run:
        asking = raw_call("rounds", {"times": times})
        await start_asking(run.served, run.client, run.thread_id, asking)
        for _ in range(10 if setting.is_stateless else times):
            await answer_question(run.client, {"result": {"action": "accept", "content": {}}})
        await run.client.wait_for("turn/completed")
    [output] = outputs_of(run.served)
    if is_answered or not setting.is_stateless:
        assert output[1]["text"] == "asked"
    else:
        assert "the server asked for input more than 10 times" in str(output)


@claim("mcp:revisions")
async def test_a_change_of_the_tools_is_heard(tmp_path: Path, setting: Setting) -> None:
    follows = "[features]\nmcp_tool_list_changed = true\n"
    async with running(tmp_path, setting, follows) as run:
        before = await run.tools()
        [item], _ = await run.call(raw_call("grow"))
        assert item["status"] == "completed"
        with anyio.fail_after(WAIT_S):
            while await run.tools() == before:
                await run.client.turn(run.thread_id, "go on")


@claim("mcp:revisions")
async def test_arguments_go_into_headers_where_the_tool_wants_it(tmp_path: Path) -> None:
    setting = Setting("http", "auto")
    async with running(tmp_path, setting) as run:
        arguments = {"region": "nähe ", "deep": {"number": 7}}
        headers = json.loads(await run.tool("headers", arguments=arguments))
        assert headers == {
            "mcp-method": "tools/call",
            "mcp-name": "headers",
            "mcp-param-number": "7",
            "mcp-param-region": "=?base64?bsOkaGUg?=",
            "mcp-protocol-version": "2026-07-28",
        }
        assert "broken" not in await run.tools()


@claim("mcp:revisions")
@pytest.mark.parametrize("setting", [Setting("stdio", "auto"), Setting("http", "2025")], ids=str)
async def test_a_tool_with_a_bad_header_is_kept_where_there_are_no_headers(
    tmp_path: Path, setting: Setting
) -> None:
    async with running(tmp_path, setting) as run:
        assert "broken" in await run.tools()
