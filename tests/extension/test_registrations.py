"""Servers that an extension registers, as the clients of a thread and its model meet them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.extension.metadata import (
    ApprovalIdentity,
    ApprovalPersistence,
    ApprovalPresentation,
    ApprovalSource,
    ParameterLabel,
    RuntimeMetadata,
    Telemetry,
    ToolMetadata,
)
from app_server.permissions.confinement.confinement import UNCONFINED
from app_server.turns.tools.sandbox_state import Place, sandbox_state
from protocol.log.rollout import Settings
from protocol.turns.policy import ReadOnlySandboxPolicy
from tests.support.harness import WAIT_S, Gate, calls, claim, says
from tests.support.host.elsewhere import add, entry
from tests.support.host.exec_conversations import listening
from tests.support.mcp_peers.registrations import (
    BEARER,
    STARTED,
    Shop,
    call,
    open_shop,
    registered,
    tool,
)
from tests.support.mcp_peers.shelf import Generation
from tests.support.mcp_peers.web_peer import WebPeer

ASKED = "mcpServer/elicitation/request"


async def reached(event: asyncio.Event) -> None:
    with anyio.fail_after(WAIT_S):
        await event.wait()


async def until(condition: Callable[[], bool]) -> None:
    """Let others go on until something holds: it is told to nobody."""
    with anyio.fail_after(WAIT_S):
        while not condition():
            await anyio.sleep(0.001)


def items_of(messages: Sequence[Any], kind: str = "item/completed") -> list[Any]:
    items = [m["params"]["item"] for m in messages if m.get("method") == kind]
    return [item for item in items if item["type"] == "mcpToolCall"]


async def run_calls(shop: Shop, thread_id: str, *functions: Any, **options: Any) -> list[Any]:
    """Run a turn whose model makes calls; gives all that was said."""
    shop.served.model.scripts.append(calls(*functions))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}], **options}
    await shop.client.call("turn/start", params)
    return await shop.client.until("turn/completed")


@claim("extensions:bearer", "secrets:none-leave")
async def test_a_registered_server_is_called_with_its_bearer_which_nobody_sees(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="app_server")
    async with open_shop(tmp_path) as shop:
        shop.put(RuntimeMetadata(telemetry=Telemetry(origin="https://behind.example")))
        thread_id = await shop.thread()
        items = items_of(await run_calls(shop, thread_id, call()))
        assert [item["result"]["content"] for item in items] == [
            [{"type": "text", "text": "call 1"}]
        ]
        listed = await shop.client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert [(e["name"], e["authStatus"], e["httpOrigin"]) for e in listed["data"]] == [
            ("shelved", "bearerToken", "https://behind.example")
        ]
        without_thread = await shop.client.call("mcpServerStatus/list", {})
        assert [entry["name"] for entry in without_thread["data"]] == ["shelved"]
        await shop.client.call("config/read", {"includeLayers": True})
        transcript = "\n".join(shop.client.transcript)
        sent = {headers["authorization"] for headers in shop.peer.headers}
    assert sent == {f"Bearer {BEARER}"}
    assert BEARER not in transcript
    assert BEARER not in "\n".join(record.getMessage() for record in caplog.records)
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in stored if BEARER.encode() in path.read_bytes()] == []


@claim("extensions:no-sign-in")
async def test_nobody_signs_in_to_a_registered_server_or_to_what_it_hides(tmp_path: Path) -> None:
    hidden = '[mcp_servers.shelved]\nurl = "http://127.0.0.1:1/mcp"\n'
    async with open_shop(tmp_path, hidden) as shop:
        shop.put()
        thread_id = await shop.thread()
        before = len(shop.peer.seen)
        for params in ({"name": "shelved"}, {"name": "shelved", "threadId": thread_id}):
            refusal = await shop.client.refusal("mcpServer/oauth/login", params)
            assert (refusal.code, refusal.message) == (
                -32600,
                "No MCP server named 'shelved' found.",
            )
        assert len(shop.peer.seen) == before


@claim("extensions:veto")
async def test_a_name_that_is_switched_off_is_not_registered(tmp_path: Path) -> None:
    off = '[mcp_servers.shelved]\nurl = "http://127.0.0.1:1/mcp"\nenabled = false\n'
    async with open_shop(tmp_path, off) as shop:
        shop.put()
        thread_id = await shop.client.start_thread()
        await shop.client.turn(thread_id, "hi")
        listed = await shop.client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert [(e["name"], e["runtimeStatus"]) for e in listed["data"]] == [
            ("shelved", "disabled")
        ]
        assert shop.peer.seen == []
        assert shop.owner.taken == 0


@claim("extensions:boundary")
async def test_what_is_published_during_a_turn_is_there_at_its_next_request(
    tmp_path: Path,
) -> None:
    # However busy the machine is, the next request waits for the server.
    async with open_shop(tmp_path, "mcp_optional_startup_grace_ms = 0\n") as shop:
        thread_id = await shop.client.start_thread()
        gate = Gate()
        shop.served.model.scripts += [
            [gate, *calls({"name": "nothing", "arguments": {}})],
            says("done"),
        ]
        user_input = [{"type": "text", "text": "go"}]
        await shop.client.call("turn/start", {"threadId": thread_id, "input": user_input})
        await gate.wait_until_reached()
        shop.put()
        gate.opened.set()
        messages = await shop.client.until("turn/completed")
        steps = [m["params"]["status"] for m in messages if m.get("method") == STARTED]
        assert steps == ["starting", "ready"]
        assert [shop.namespaces(0), shop.namespaces(1)] == [[], ["mcp__shelved"]]
        # Published again with equal values: nobody notices.
        shop.put()
        await shop.client.call("turn/start", {"threadId": thread_id, "input": user_input})
        messages = await shop.client.until("turn/completed")
        assert [m for m in messages if m.get("method") == STARTED] == []
        assert shop.namespaces() == ["mcp__shelved"]
        assert (shop.peer.sessions, shop.owner.taken) == (1, 1)


@claim("apps:b4")
async def test_filters_and_metadata_change_without_a_restart(tmp_path: Path) -> None:
    async with open_shop(tmp_path, tools=[tool("look"), tool("touch")]) as shop:
        shop.put()
        thread_id = await shop.thread()
        shop.put(RuntimeMetadata(plugin_display_names=("P",)), enabled_tools=["touch"])
        shop.served.model.scripts.append(says("hi"))
        await shop.client.turn(thread_id, "hi")
        [namespace] = [
            entry
            for entry in shop.served.model.requests[-1]["tools"]
            if entry["type"] == "namespace"
        ]
        assert [(entry["name"], entry["description"]) for entry in namespace["tools"]] == [
            ("touch", "Part of the plugin `P`.")
        ]
        assert shop.peer.sessions == 1


@claim("extensions:leases")
async def test_a_server_that_is_replaced_ends_its_calls_before_its_owner_is_let_go(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop, WebPeer(tools=[tool()]).serve() as second:
        shop.put()
        thread_id = await shop.thread()
        assert shop.owner.leases == 1
        hold = shop.peer.hold = asyncio.Event()
        params = {"threadId": thread_id, "server": "shelved", "tool": "look"}
        slow = await shop.client.request("mcpServer/tool/call", params)
        await reached(shop.peer.holding)
        newer = Generation("gen-2")
        shop.shelf.publish(registered(second, newer))
        await shop.client.turn(thread_id, "hi")
        assert (shop.owner.leases, newer.leases) == (1, 1)
        fresh = await shop.client.call("mcpServer/tool/call", params)
        assert fresh["content"] == [{"type": "text", "text": "call 1"}]
        assert (second.calls, shop.peer.calls) == (1, 0)
        hold.set()
        answer = await shop.client.answer(slow)
        assert answer["result"]["content"] == [{"type": "text", "text": "call 1"}]
        # The end of its session is the last that the old server receives.
        await until(lambda: shop.owner.leases == 0)
        assert shop.peer.methods()[-1] == "DELETE"
        shop.shelf.publish()
        await shop.client.turn(thread_id, "hi")
        assert shop.namespaces() == []
        await until(lambda: newer.leases == 0)


@claim("extensions:leases")
async def test_no_lease_outlives_its_thread(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        shop.put()
        thread_id = await shop.thread()
        await shop.client.call("mcpServerStatus/list", {})
        await until(lambda: shop.owner.leases == 1)
        await shop.client.call("thread/archive", {"threadId": thread_id})
        await until(lambda: shop.owner.leases == 0)
        assert shop.owner.taken == 2


@claim("extensions:reload")
async def test_a_reload_lets_extensions_look_anew_with_the_settings_of_now(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop:
        thread_id = await shop.client.start_thread()
        text = (tmp_path / "config.toml").read_text()
        (tmp_path / "config.toml").write_text(f'service_tier = "new"\n{text}')
        shop.put()
        await shop.client.call("config/mcpServer/reload")
        await shop.client.wait_for(STARTED, lambda p: p["status"] == "ready")
        [refreshed] = shop.shelf.refreshed
        assert (refreshed.mode, refreshed.config["service_tier"]) == ("discover", "new")
        asked = shop.shelf.asked[-1]
        assert (asked.thread_id, asked.config["service_tier"]) == (thread_id, "new")


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
    state = sandbox_state(settings, UNCONFINED, Place("there", "instance", cwd))
    assert {
        key: state[key] for key in ("environmentId", "environmentInstanceId", "sandboxCwd")
    } == {
        "environmentId": "there",
        "environmentInstanceId": "instance",
        "sandboxCwd": uri,
    }


ASKING = {"annotations": {"destructiveHint": True}}


async def asked(shop: Shop, thread_id: str, function: Any, answer: Any) -> Any:
    """Run a turn whose model makes one call; gives the question and answers it."""
    shop.served.model.scripts.append(calls(function))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    await shop.client.call("turn/start", params)
    question = await shop.client.wait_for(ASKED)
    await shop.client.send({"id": question["id"], "result": answer})
    await shop.client.until("turn/completed")
    return question["params"]


@claim("extensions:approval-question", "apps:b4")
async def test_a_question_is_put_as_the_registration_has_it(tmp_path: Path) -> None:
    said = ToolMetadata(
        approval_source=ApprovalSource(id="cal", name="Calendar"),
        approval_header="Approve this?",
        approval_presentation=ApprovalPresentation(
            question="Let Calendar change it?",
            labels=(
                ParameterLabel(name="when", label="Time"),
                ParameterLabel(name="absent", label="Absent"),
            ),
        ),
        approval_form_meta={"source": "shelf", "persist": ["for ever"], "tool_params": "mine"},
    )
    async with open_shop(tmp_path, tools=[tool("change", **ASKING)]) as shop:
        shop.put(RuntimeMetadata(tools={"change": said}))
        thread_id = await shop.thread()
        arguments = {"title": "T", "when": "now", "a": 1}
        question = await asked(shop, thread_id, call("change", arguments), {"action": "decline"})
        assert question["message"] == "Let Calendar change it?"
        assert question["_meta"] == {
            "source": "shelf",
            "codex_approval_kind": "mcp_tool_call",
            "persist": ["session", "always"],
            "approval_header": "Approve this?",
            "tool_name": "change",
            "tool_annotations": {"destructiveHint": True},
            "tool_params": arguments,
            "tool_params_display": [
                {"name": "when", "value": "now", "display_name": "Time"},
                {"name": "a", "value": 1, "display_name": "a"},
                {"name": "title", "value": "T", "display_name": "title"},
            ],
        }
        # Two arguments under one name could be mistaken for each other.
        question = await asked(
            shop, thread_id, call("change", {"when": 1, "Time": 2}), {"action": "decline"}
        )
        assert question["message"] == 'Allow Calendar to run tool "change"?'
        assert question["_meta"]["tool_params_display"] == [
            {"name": "Time", "value": 2, "display_name": "Time"},
            {"name": "when", "value": 1, "display_name": "when"},
        ]


@claim("extensions:approval-identity", "apps:b4")
async def test_an_approval_holds_for_the_tool_under_its_other_names(tmp_path: Path) -> None:
    def with_identity(tool_name: str) -> RuntimeMetadata:
        identity = ApprovalIdentity(server="shelf", source="cal", tool="change")
        return RuntimeMetadata(tools={tool_name: ToolMetadata(approval_identity=identity)})

    tools = [tool("change", **ASKING), tool("change_2", **ASKING)]
    session = {"action": "accept", "_meta": {"persist": "session"}}
    async with open_shop(tmp_path, tools=tools) as shop:
        shop.put(with_identity("change"))
        thread_id = await shop.thread()
        await asked(shop, thread_id, call("change"), session)
        shop.put(with_identity("change_2"), name="renamed")
        messages = await run_calls(shop, thread_id, call("change_2", server="renamed"))
        assert [m for m in messages if m.get("method") == ASKED] == []
        assert [item["status"] for item in items_of(messages)] == ["completed"]
        # The raw name alone is a stranger.
        await asked(shop, thread_id, call("change", server="renamed"), {"action": "decline"})


@claim("extensions:approval-persistence", "apps:b4")
@pytest.mark.parametrize(
    ("target", "failure", "reason"),
    [
        ("there", None, None),
        ("there", OSError(28, "No space left on device"), "No space left on device"),
        ("there", RuntimeError("broken"), "it cannot be written"),
        ("elsewhere", None, "nobody writes down approvals for elsewhere"),
    ],
)
async def test_a_lasting_approval_is_written_where_the_registration_says(
    tmp_path: Path, target: str, failure: Exception | None, reason: str | None
) -> None:
    written: list[Sequence[str]] = []

    async def write(path: Sequence[str]) -> None:
        if failure is not None:
            raise failure
        written.append(path)

    where = ApprovalPersistence(target=target, path=("tools", "change"))
    metadata = RuntimeMetadata(tools={"change": ToolMetadata(approval_persistence=where)})
    async with open_shop(tmp_path, persist=write, tools=[tool("change", **ASKING)]) as shop:
        shop.put(metadata)
        thread_id = await shop.thread()
        always = {"action": "accept", "_meta": {"persist": "always"}}
        await asked(shop, thread_id, call("change"), always)
        messages = await run_calls(shop, thread_id, call("change"))
        assert [item["status"] for item in items_of(messages)] == ["completed"]
        warnings = [
            line
            for line in shop.client.transcript
            if '"method":"warning"' in line and "Nothing is known of the model" not in line
        ]
        assert written == ([] if reason else [("tools", "change")])
        assert [reason in line for line in warnings if reason] == ([True] if reason else [])


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
