"""Members of requests that begin threads and turns: applied or refused, and none forgotten."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import app_server.handlers
from app_server.handlers.threads.overrides import NOT_BUILT
from protocol.model import WireModel
from protocol.threads.settings import ThreadSettingsUpdateParams
from protocol.threads.start import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from protocol.turns.requests import TurnSettingsUpdateParams, TurnStartParams, TurnSteerParams
from tests.support.harness import WireClient, claim, serve
from tests.support.paths import DOCS
from tests.support.threads.chosen import INPUT, mode, places, sandbox_of

WIRE = DOCS / "wire.md"

WITHOUT_EFFECT: dict[type[WireModel], set[str]] = {
    ThreadStartParams: {
        "allow_provider_model_fallback",
        "history_mode",
        "mock_experimental_field",
        "multi_agent_mode",
        "service_name",
        "session_start_source",
    },
    ThreadSettingsUpdateParams: {"multi_agent_mode"},
    TurnStartParams: {"multi_agent_mode"},
}
"""Members that ask for nothing that this server could do; docs/wire.md says why of each."""

METHODS: dict[type[WireModel], str] = {
    ThreadStartParams: "thread/start",
    ThreadResumeParams: "thread/resume",
    ThreadForkParams: "thread/fork",
    ThreadSettingsUpdateParams: "thread/settings/update",
    TurnStartParams: "turn/start",
    TurnSteerParams: "turn/steer",
    TurnSettingsUpdateParams: "turn/settings/update",
}

REFUSED: dict[type[WireModel], dict[str, Any]] = {
    ThreadStartParams: {"experimental_raw_events": True},
    ThreadResumeParams: {"history": []},
    ThreadForkParams: {
        "attach_to_source": True,
        "experimental_prediction_mode": True,
        "experimental_disable_prediction_mcp": True,
        "path": "/x",
        "defer_goal_continuation": True,
    },
    TurnStartParams: {
        "root_turn_id": "t",
        "tool_output": {"name": "n", "output": "o"},
        "cyber_access_program": "daybreakRed",
    },
}


@cache
def members_that_are_read() -> frozenset[str]:
    """Return every `params.x` of the handlers."""
    names: set[str] = set()
    for file in Path(app_server.handlers.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names |= {node.attr} if node.value.id == "params" else set()
    return frozenset(names)


@pytest.mark.parametrize("params", METHODS, ids=METHODS.get)
def test_every_member_is_read_or_refused_or_said_to_have_no_effect(
    params: type[WireModel],
) -> None:
    refused = set(NOT_BUILT.get(params, {}))
    without = WITHOUT_EFFECT.get(params, set())
    assert refused == set(REFUSED.get(params, {})), "each of them is sent in a test below"
    text = WIRE.read_text()
    for name in params.model_fields:
        alias = params.model_fields[name].alias or name
        assert name not in refused & without
        known = name in refused | without | members_that_are_read()
        assert known, f"{METHODS[params]}.{alias} is read by nobody"
        if name in refused | without:
            assert f"`{alias}`" in text, f"{alias} is not in {WIRE}"


@claim("settings:not-built")
async def test_what_is_not_built_is_refused_by_its_name(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "go")
        # Of a thread that is loaded, thread/resume refuses its members in other words.
        await client.call("thread/unsubscribe", {"threadId": thread_id, "unload": True})
        for params, samples in sorted(
            REFUSED.items(), key=lambda entry: entry[0] is not ThreadResumeParams
        ):
            if params is not ThreadResumeParams:
                await client.call("thread/resume", {"threadId": thread_id})
            for name, value in samples.items():
                alias = params.model_fields[name].alias or name
                base: dict[str, Any] = (
                    {} if params is ThreadStartParams else {"threadId": thread_id}
                )
                if params is TurnStartParams:
                    base["input"] = INPUT
                error = await client.refusal(METHODS[params], {**base, alias: value})
                rule = "is not supported by this server"
                assert (error.code, error.message, error.data) == (
                    -32602,
                    f"Invalid params: `{alias}` {rule}",
                    {"code": "invalidParams", "field": alias, "rule": rule},
                )
        nothing = {"cyberAccessProgram": "standard", "toolOutput": None, "rootTurnId": None}
        assert (await client.turn(thread_id, "go", **nothing))["status"] == "completed"


TOOL = {
    "type": "function",
    "name": "list_threads",
    "description": "d",
    "inputSchema": {"type": "object"},
    "deferLoading": True,
}
START: dict[str, Any] = {
    **dict.fromkeys(
        [
            "model",
            "modelProvider",
            "cwd",
            "runtimeWorkspaceRoots",
            "approvalPolicy",
            "approvalsReviewer",
            "permissions",
            "serviceName",
            "baseInstructions",
            "developerInstructions",
            "personality",
            "multiAgentMode",
            "sessionStartSource",
            "projectId",
            "daybreakEnabled",
            "environments",
        ]
    ),
    "sandbox": "read-only",
    "config": {},
    "ephemeral": False,
    "historyMode": "paginated",
    "threadSource": "user",
    "dynamicTools": [
        {"type": "namespace", "name": "codex_tui", "description": "d", "tools": [TOOL]}
    ],
}
TITLE = {
    **START,
    "model": "offline",
    "modelProvider": "offline",
    "runtimeWorkspaceRoots": [],
    "config": {"features.plugins": False, "mcp_servers": {}, "default_permissions": ":read-only"},
    "ephemeral": True,
    "historyMode": None,
    "threadSource": "thread_title",
    "environments": [],
    "dynamicTools": [],
    "selectedCapabilityRoots": [],
}
TURN = {
    **dict.fromkeys(
        [
            "disabledPluginIds",
            "parentTurnId",
            "rootTurnId",
            "toolOutput",
            "responsesapiClientMetadata",
            "responsesapiClientMetadataPatch",
            "additionalContext",
            "environments",
            "approvalsReviewer",
            "sandboxPolicy",
            "permissions",
            "serviceTierForTurn",
            "effort",
            "summary",
            "personality",
            "outputSchema",
            "collaborationMode",
            "multiAgentMode",
            "cyberAccessProgram",
        ]
    ),
    "turnTrigger": "user",
    "cwd": "/tmp",
    "runtimeWorkspaceRoots": ["/tmp"],
    "approvalPolicy": "on-request",
    "model": "offline",
    "serviceTier": "default",
}
"""What `codex --remote` 0.169.0 sends without being asked to."""


async def run(client: WireClient, start: dict[str, Any], **more: Any) -> Any:
    result = await client.call("thread/start", start)
    turn = await client.turn(result["thread"]["id"], "go", **{**TURN, **more})
    assert turn["status"] == "completed"
    return result


@claim("settings:terminal-client")
async def test_what_the_terminal_client_sends_by_itself_is_taken(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        result = await run(client, START)
        assert places(await client.call("thread/resume", {"threadId": result["thread"]["id"]})) == (
            "/tmp",
            ["/tmp"],
            [("/tmp", ["/tmp"])],
        )
        assert "service_tier" not in served.model.requests[0]
        title = await run(client, TITLE)
        assert (title["thread"]["environments"], title["runtimeWorkspaceRoots"]) == ([], [])
        await run(client, {**START, "sessionStartSource": "clear", "serviceTier": "default"})
        chosen = {"permissions": ":workspace", "collaborationMode": mode("offline", None, None)}
        again = await run(client, START, **chosen)
        assert sandbox_of(
            await client.call("thread/resume", {"threadId": again["thread"]["id"]})
        ) == ("workspaceWrite", ":workspace")
        fork = {
            "threadId": result["thread"]["id"],
            "model": "offline",
            "serviceTier": "default",
            "runtimeWorkspaceRoots": ["/tmp"],
            "threadSource": "user",
            "excludeTurns": True,
        }
        assert (await client.call("thread/fork", fork))["runtimeWorkspaceRoots"] == ["/tmp"]
