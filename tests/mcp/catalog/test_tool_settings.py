"""mcp: settings of single servers and tools."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import ConfigError
from app_server.permissions.sandbox.policy import effective_policy_of
from app_server.permissions.sandbox.roots import MachinePaths
from app_server.tools.mcp.model_calls import sandbox_state
from protocol.log import rollout
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from tests.support.harness import claim, serve, stdio_server
from tests.support.mcp_peers.calls import (
    answer_of,
    call_items,
    raw_call,
    read,
    steps_until_settled,
    with_peer,
)
from tests.support.model import COMPLETED, tools_of_thread

PLACES = MachinePaths("/home/u/.server", "/home/u", "/var/t", ("/home/u/.ssh",))


@claim("mcp:sandbox-state")
async def test_a_server_that_asks_for_it_gets_the_sandbox_state(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "sandbox") as (served, client, thread_id):
        _, (output,) = await call_items(served, client, thread_id, raw_call("meta"))
        meta = answer_of(output)
        state = meta["codex/sandbox-state-meta"]
        assert meta["codex/sandbox-state"] == state
        profile = state.pop("permissionProfile")
        assert state == {
            "codexLinuxSandboxExe": None,
            "sandboxCwd": tmp_path.as_uri(),
            "useLegacyLandlock": False,
            "useMxc": False,
        }
        entries = profile["file_system"].pop("entries")
        assert profile == {
            "type": "managed",
            "file_system": {"type": "restricted"},
            "network": "restricted",
        }
        root = {"type": "special", "value": {"kind": "root"}}
        assert entries[0] == {"path": root, "access": "read"}
        # The home, which is the folder of this thread, and what is hidden in it.
        own = {"type": "special", "value": {"kind": "project_roots", "subpath": None}}
        assert {"path": own, "access": "read"} in entries
        hidden = {"type": "path", "path": str(tmp_path / "auth.json")}
        assert {"path": hidden, "access": "deny"} in entries
        assert [entry for entry in entries if entry["access"] == "write"] == []
        result = await client.call(
            "mcpServer/tool/call", {"threadId": thread_id, "server": "raw", "tool": "meta"}
        )
        assert "codex/sandbox-state" not in result["content"][0]["text"]


@claim("mcp:sandbox-state")
@pytest.mark.parametrize(
    ("policy", "profile"),
    [
        (DangerFullAccessSandboxPolicy(), {"type": "disabled"}),
        (ExternalSandboxPolicy(), {"type": "external", "network": "restricted"}),
    ],
)
def test_what_is_not_confined_here_says_so(policy: Any, profile: Any) -> None:
    settings = rollout.Settings(
        model="m", model_provider="p", cwd="/w", approval_policy="never", sandbox_policy=policy
    )
    assert (
        sandbox_state(settings, effective_policy_of(settings, PLACES))["permissionProfile"]
        == profile
    )


@claim("mcp:sandbox-state")
def test_a_workspace_lists_what_may_be_written() -> None:
    policy = WorkspaceWriteSandboxPolicy(
        writable_roots=["/data"], network_access=True, exclude_slash_tmp=True
    )
    settings = rollout.Settings(
        model="m", model_provider="p", cwd="/w", approval_policy="never", sandbox_policy=policy
    )
    profile = sandbox_state(settings, effective_policy_of(settings, PLACES))["permissionProfile"]
    places = [(entry["access"], entry["path"]) for entry in profile["file_system"]["entries"]]
    assert places == [
        ("read", {"type": "special", "value": {"kind": "root"}}),
        ("write", {"type": "special", "value": {"kind": "project_roots", "subpath": None}}),
        ("write", {"type": "path", "path": "/data"}),
        ("write", {"type": "path", "path": "/var/t"}),
        ("read", {"type": "path", "path": "/home/u/.server"}),
        *(
            ("read", {"type": "path", "path": f"{folder}/{name}"})
            for folder in ("/w", "/data")
            for name in (".git", ".codex", ".agents")
        ),
        ("deny", {"type": "path", "path": "/home/u/.ssh"}),
    ]
    assert profile["network"] == "enabled"


@claim("mcp:output-limit")
async def test_a_tool_has_a_budget_of_its_own(tmp_path: Path) -> None:
    config = stdio_server("raw", "big") + "[mcp_servers.raw.tools.huge]\noutput_token_limit = 100\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        _, (output,) = await call_items(served, client, thread_id, raw_call("huge"))
        assert 480 < len(output[1]["text"]) < 520
        assert "tokens truncated" in output[1]["text"]


@claim("mcp:omitted")
async def test_tools_can_be_kept_from_the_model(tmp_path: Path) -> None:
    async with with_peer(tmp_path, omit_tools_from='["direct"]') as (served, client, thread_id):
        _, outputs = await call_items(served, client, thread_id, raw_call("meta"))
        assert outputs == ["unsupported call: mcp__rawmeta"]
        tools = tools_of_thread(served.model.requests[0])
        assert [tool["type"] for tool in tools] == ["function"] * 3
        params = {"threadId": thread_id, "server": "raw", "tool": "plain"}
        result = await client.call("mcpServer/tool/call", params)
        assert result["content"][0]["text"] == "plain ran"


@claim("mcp:visibility")
@pytest.mark.parametrize("deferred", [False, True])
async def test_a_tool_for_user_interfaces_is_not_for_the_model(
    tmp_path: Path, deferred: bool
) -> None:
    config = stdio_server("raw", "ui")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(config={"model_supports_search_tool": deferred})
        await steps_until_settled(client, "raw")
        search = {
            "type": "tool_search_call",
            "execution": "client",
            "id": "s",
            "call_id": "s",
            "arguments": {"query": "for", "limit": 64},
        }
        if deferred:
            found = {"type": "response.output_item.done", "item": search}
            served.model.scripts.append([found, COMPLETED])
        made = [raw_call(f"for_{name}") for name in ("app", "nobody", "both")]
        items, outputs = await call_items(served, client, thread_id, *made)
        assert [item["tool"] for item in items] == ["for_both"]
        assert outputs[:2] == [f"unsupported call: mcp__rawfor_{n}" for n in ("app", "nobody")]
        if deferred:
            answers = [i for i in served.model.requests[1]["input"] if "tools" in i]
            shown = answers[0]["tools"]
        else:
            shown = served.model.requests[0]["tools"]
        [names] = [
            [tool["name"] for tool in entry["tools"] if tool["name"].startswith("for_")]
            for entry in shown
            if entry["type"] == "namespace"
        ]
        assert names == ["for_both", "for_model", "for_nonsense"]
        params = {"threadId": thread_id, "server": "raw", "tool": "for_app"}
        result = await client.call("mcpServer/tool/call", params)
        assert result["content"][0]["text"] == "for_app ran"
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert "for_app" in status["data"][0]["tools"]


@pytest.mark.parametrize(
    ("table", "detail"),
    [
        (
            {"omit_tools_from": ["code"]},
            "unknown variant `code`, expected one of `code_mode`, `deferred`, `direct`",
        ),
        (
            {"tools": {"t": {"output_token_limit": 0}}},
            "invalid value: integer `0`, expected a nonzero usize",
        ),
    ],
)
def test_surfaces_and_budgets_that_make_no_sense_are_refused(table: Any, detail: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(detail)):
        read({"a": {"command": "x", **table}})


@claim("mcp:list-changed")
@pytest.mark.parametrize("follows", [True, False])
async def test_tools_that_a_server_adds_are_seen_unless_that_is_switched_off(
    tmp_path: Path, follows: bool
) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        features = {} if follows else {"features.mcp_tool_list_changed": False}
        thread_id = await client.start_thread(config=features)
        await call_items(served, client, thread_id, raw_call("meta"))
        grow = {"threadId": thread_id, "server": "raw", "tool": "grow"}
        for _ in range(3):
            await client.call("mcpServer/tool/call", grow)
        await client.turn(thread_id, "go")
        first, *_, last = served.model.requests
        before = {tool["name"] for tool in first["tools"][-1]["tools"]}
        after = {tool["name"] for tool in last["tools"][-1]["tools"]}
        assert len(after - before) == (3 if follows else 0)
        await client.call("mcpServer/tool/call", grow)
        listed = await client.call(
            "mcpServerStatus/list", {"threadId": thread_id, "serverName": "raw"}
        )
        assert len(listed["data"][0]["tools"]) == len(before) + (4 if follows else 0)
        # One for the three changes before the turn, and one for that before the list.
        told = [line for line in client.transcript if '"mcpServer/tools/changed"' in line]
        assert len(told) == (2 if follows else 0)
        expected = {"threadId": thread_id, "name": "raw"}
        assert all(json.loads(line[2:])["params"] == expected for line in told)


@claim("mcp:list-changed")
async def test_a_client_without_the_opt_in_is_not_sent_that_tools_changed(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=stdio_server("raw")) as served,
        served.client(experimental=False) as client,
    ):
        thread_id = await client.start_thread()
        grow = {"threadId": thread_id, "server": "raw", "tool": "grow"}
        await client.call("mcpServer/tool/call", grow)
        await client.turn(thread_id, "go")
        assert not [line for line in client.transcript if "mcpServer/tools/changed" in line]
