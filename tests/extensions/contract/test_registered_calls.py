"""What registrations say of the calls of their servers: metadata, sandbox states, other names."""

import logging
from pathlib import Path
from typing import Any

import pytest

from app_server.extensions.contract.registration import (
    ApprovalIdentity,
    RuntimeMetadata,
    Telemetry,
    ToolMetadata,
)
from app_server.permissions.sandbox.policy import UNRESTRICTED
from app_server.tools.mcp.model_calls import SandboxMachine, sandbox_state
from protocol.log.rollout import Settings
from protocol.turns.policy import ReadOnlySandboxPolicy
from tests.support.harness import claim
from tests.support.host.elsewhere import add, entry
from tests.support.host.exec_conversations import listening
from tests.support.mcp_peers.registered_calls import items_of, run_calls
from tests.support.mcp_peers.registrations import (
    call,
    open_shop,
    tool,
)
from tests.support.model import calls


@claim("extensions:client-meta", "apps:b4")
async def test_metadata_for_related_names_applies_weakest_first(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        shop.put(RuntimeMetadata(client_meta_names=("weak", "shelved", "strong")))
        thread_id = await shop.thread()
        given = {
            "weak": {"a": "weak", "b": "weak", "c": "weak"},
            "strong": {"b": "strong", "c": "strong"},
            "shelved": {"c": "own"},
            "stranger": {"d": "stranger"},
        }
        await run_calls(shop, thread_id, call(), mcpMetaByServer=given)
        meta = shop.peer.called[0]["_meta"]
        assert {key: meta.get(key) for key in "abcd"} == {
            "a": "weak",
            "b": "strong",
            "c": "own",
            "d": None,
        }


@claim("extensions:effective-input", "apps:b4")
@pytest.mark.parametrize(
    ("trusted", "declared", "recorded"),
    [(True, True, {"file": "id"}), (True, False, {"file": "x"}), (False, True, {"file": "x"})],
)
async def test_what_a_tool_really_got_is_recorded_if_its_server_is_trusted(
    tmp_path: Path, trusted: bool, declared: bool, recorded: Any
) -> None:
    experimental: dict[str, Any] = {"codex/tool-input-meta": {}} if declared else {}
    result = {"_meta": {"codex/toolInput": {"file": "id"}, "kept": 1}}
    async with open_shop(tmp_path, experimental=experimental, result=result) as shop:
        shop.put(RuntimeMetadata(trusts_effective_input=trusted))
        thread_id = await shop.thread()
        [item] = items_of(await run_calls(shop, thread_id, call(arguments={"file": "x"})))
        assert item["arguments"] == recorded
        assert item["result"]["_meta"] == {"kept": 1}
        params = {"threadId": thread_id, "server": "shelved", "tool": "look"}
        direct = await shop.client.call("mcpServer/tool/call", params)
        assert direct["_meta"] == {"kept": 1}


@claim("extensions:sandbox-state", "apps:b4")
@pytest.mark.parametrize("source", ["own", "primary"])
async def test_a_registration_says_which_environment_its_sandbox_state_is_of(
    tmp_path: Path, source: Any
) -> None:
    async with open_shop(tmp_path, experimental={"codex/sandbox-state-meta": {}}) as shop:
        shop.put(RuntimeMetadata(sandbox_state_source=source))
        thread_id = await shop.thread()
        await run_calls(shop, thread_id, call())
        state = shop.peer.called[0]["_meta"]["codex/sandbox-state-meta"]
        named = {key: state.get(key) for key in ("environmentId", "sandboxCwd")}
        folder = tmp_path.as_uri()
        if source == "own":
            assert named == {"environmentId": None, "sandboxCwd": folder}
            assert "environmentInstanceId" not in state
        else:
            assert named == {"environmentId": "local", "sandboxCwd": folder}
            assert isinstance(state["environmentInstanceId"], str)


@claim("extensions:sandbox-state", "apps:b4")
async def test_the_sandbox_state_of_a_thread_is_that_of_its_first_environment(
    tmp_path: Path,
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    secret = {"path": {"type": "path", "path": str(far / ".git")}, "access": "read"}
    async with (
        listening() as url,
        open_shop(tmp_path, experimental={"codex/sandbox-state-meta": {}}) as shop,
    ):
        shop.put(RuntimeMetadata(sandbox_state_source="primary"))
        thread_id = await shop.thread()
        await add(shop.client, url)
        await run_calls(
            shop,
            thread_id,
            call(),
            environments=[entry(far)],
            sandboxPolicy={"type": "workspaceWrite"},
        )
        state = shop.peer.called[0]["_meta"]["codex/sandbox-state-meta"]
        named = {key: state.get(key) for key in ("environmentId", "sandboxCwd")}
        assert named == {"environmentId": "there", "sandboxCwd": far.as_uri()}
        entries = state["permissionProfile"]["file_system"]["entries"]
        roots = {"type": "special", "value": {"kind": "project_roots", "subpath": None}}
        assert {"path": roots, "access": "write"} in entries
        assert secret in entries


@pytest.mark.parametrize(
    ("cwd", "uri"), [("/a b", "file:///a%20b"), ("relative", None), (None, None)]
)
def test_the_sandbox_state_of_an_environment_names_its_folder(
    cwd: str | None, uri: str | None
) -> None:
    settings = Settings(
        model="m",
        model_provider="p",
        cwd="/here",
        approval_policy="on-request",
        sandbox_policy=ReadOnlySandboxPolicy(),
    )
    state = sandbox_state(settings, UNRESTRICTED, SandboxMachine("there", "instance", cwd))
    assert {
        key: state[key] for key in ("environmentId", "environmentInstanceId", "sandboxCwd")
    } == {
        "environmentId": "there",
        "environmentInstanceId": "instance",
        "sandboxCwd": uri,
    }


@claim("apps:b4")
async def test_tools_are_found_by_their_aliases(tmp_path: Path) -> None:
    said = ToolMetadata(search_aliases=("zeppelin",))
    config = "model_supports_search_tool = true"
    async with open_shop(tmp_path, config, tools=[tool("look"), tool("fly")]) as shop:
        shop.put(RuntimeMetadata(tools={"fly": said}))
        thread_id = await shop.thread()
        search = {
            "type": "tool_search_call",
            "call_id": "s",
            "execution": "client",
            "arguments": {"query": "zeppelin"},
        }
        done = {"type": "response.output_item.done", "item": search}
        shop.served.model.scripts.append([done, calls()[-1]])
        await shop.client.turn(thread_id, "hi")
        [output] = [
            item
            for item in shop.served.model.requests[-1]["input"]
            if item["type"] == "tool_search_output"
        ]
        found = [entry["name"] for space in output["tools"] for entry in space["tools"]]
        assert found == ["fly"]


@claim("extensions:measurements", "apps:b4")
async def test_calls_and_lists_are_measured_under_lasting_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="app_server.mcp.measurements")
    said = ToolMetadata(
        approval_identity=ApprovalIdentity(server="shelf", source="cal", tool="t" * 257),
        metric_labels={"owner": "me"},
    )
    origin = "https://behind.example"
    quiet = Telemetry(origin=origin, count_list=False)
    loud = RuntimeMetadata(telemetry=Telemetry(origin=origin))
    async with open_shop(tmp_path, tools=[tool("look"), tool("plain")]) as shop:
        shop.put(RuntimeMetadata(telemetry=quiet, tools={"look": said}))
        thread_id = await shop.thread()
        await run_calls(shop, thread_id, call("look"), call("plain"))
        shop.put(loud, name="counted")
        await shop.client.turn(thread_id, "hi")
    lines = [record.getMessage().rpartition(" duration_ms=")[0] for record in caplog.records]
    assert lines == [
        f"call server='shelf' tool=None origin='{origin}' owner='me' outcome=done",
        f"call server='shelved' tool='plain' origin='{origin}' outcome=done",
        f"list server='counted' origin='{origin}' outcome=done",
    ]
