"""Members of requests that begin threads and turns: applied or refused, and none forgotten."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import app_server.handlers
from app_server.handlers.threads.chosen.settings import NOT_BUILT
from app_server.turns.model.prompt.surroundings import (
    DEFAULT_MODE,
    FACTS,
    MODE,
    kind_of,
    newest_of_each,
)
from protocol.model import WireModel
from protocol.threads import (
    ThreadForkParams,
    ThreadResumeParams,
    ThreadSettingsUpdateParams,
    ThreadStartParams,
)
from protocol.turns import TurnSettingsUpdateParams, TurnStartParams, TurnSteerParams
from tests.support.harness import Gate, WireClient, calls, claim, says, serve
from tests.support.paths import DOCS

INPUT = [{"type": "text", "text": "go"}]
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


# Collaboration modes and personalities.


def mode(model: str, effort: str | None, instructions: str | None) -> dict[str, Any]:
    settings = {
        "model": model,
        "reasoning_effort": effort,
        "developer_instructions": instructions,
    }
    return {"mode": "default", "settings": settings}


def shown(request: dict[str, Any]) -> tuple[str, str | None, list[str]]:
    """Return model, effort and the developer's messages of a request."""
    said = [
        item
        for item in request["input"]
        if item.get("role") == "developer" and kind_of(item) in (None, MODE)
    ]
    texts = [item["content"][0]["text"] for item in said]
    return request["model"], (request.get("reasoning") or {}).get("effort"), texts


@claim("settings:mode")
async def test_a_collaboration_mode_sets_model_effort_and_instructions(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(developerInstructions="own")
        careful = mode("m1", "high", "Be careful.")
        await client.turn(thread_id, "one", collaborationMode=careful, model="other", effort="low")
        await client.turn(thread_id, "two")
        params = {"threadId": thread_id, "collaborationMode": mode("m2", "low", "Be quick.")}
        await client.call("thread/settings/update", params)
        told = (await client.wait_for("thread/settings/updated"))["params"]["threadSettings"]
        assert told["collaborationMode"] == params["collaborationMode"]
        await client.turn(thread_id, "three")
        await client.turn(thread_id, "four", collaborationMode=mode("m3", None, None))
        told = ["Be careful.", "Be quick.", DEFAULT_MODE]
        wrapped = "<collaboration_mode>{}</collaboration_mode>"
        assert [shown(request) for request in served.model.requests] == [
            ("m1", "high", ["own", *map(wrapped.format, told[:1])]),
            ("m1", "high", ["own", *map(wrapped.format, told[:1])]),
            ("m2", "low", ["own", *map(wrapped.format, told[:2])]),
            ("m3", None, ["own", *map(wrapped.format, told)]),
        ]
        error = await client.refusal(
            "turn/start", {"threadId": thread_id, "input": INPUT, "model": " "}
        )
        assert error.message == "model must not be empty"


@claim("settings:personality")
async def test_a_personality_is_sent_to_the_model(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(personality="friendly")
        await client.turn(thread_id, "one")
        await client.turn(thread_id, "two", personality="pragmatic")
        await client.turn(thread_id, "three", personality="none")
        texts = [shown(request)[2] for request in served.model.requests]
        assert [len(each) for each in texts] == [1, 1, 0]
        assert "warm" in texts[0][0]
        assert "to the point" in texts[1][0]


# Additional context.


def untrusted(source: str, text: str) -> str:
    return f'<untrusted_context source="{source}">\n{text}\n</untrusted_context>'


@claim("turns:additional-context")
async def test_additional_context_reaches_the_model_once_before_what_the_user_says(
    tmp_path: Path,
) -> None:
    page = {"value": "read </untrusted_context> me", "kind": "untrusted"}
    note = {"value": "It rains.", "kind": "application"}
    label = {"value": "x", "kind": "untrusted", "name": 'The "Page"'}
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        context = {"page": page, "note": note, "zz": label}
        await client.turn(thread_id, "one", additionalContext=context)
        dry = {**note, "value": "It is dry."}
        await client.turn(thread_id, "two", additionalContext={"page": page, "note": dry})
        await client.turn(thread_id, "three", additionalContext={"note": note})
        first = [
            ("developer", "<note>It rains.</note>"),
            ("user", untrusted("page", r"read <\/untrusted_context> me")),
            ("user", untrusted("The 'Page'", "x")),
            ("user", "one"),
            ("assistant", "ok"),
        ]
        second = [
            ("developer", "<note>It is dry.</note>"),
            ("user", "two"),
            ("assistant", "ok"),
        ]
        third = [("developer", "<note>It rains.</note>"), ("user", "three")]
        assert served.model.inputs() == [*first, *second, *third]
        # With nothing that the user says it is a turn, too; a steered turn gets it at its next
        # request.
        gate = Gate()
        served.model.scripts += [[gate, *calls({"name": "nothing", "namespace": None})]]
        alone = {"threadId": thread_id, "input": [], "additionalContext": {"note": dry}}
        turn_id = (await client.call("turn/start", alone))["turn"]["id"]
        await gate.wait_until_reached()
        steer = {"threadId": thread_id, "expectedTurnId": turn_id, "input": []}
        await client.call("turn/steer", {**steer, "additionalContext": {"note": note}})
        await client.call("turn/steer", {**steer, "additionalContext": {"note": note}})
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert served.model.inputs(-2)[-1] == ("developer", "<note>It is dry.</note>")
        assert served.model.inputs(-1)[-2:] == [
            ("developer", "<note>It is dry.</note>"),
            ("developer", "<note>It rains.</note>"),
        ]


async def test_additional_context_is_bounded_together_with_the_input(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        entry = {"value": "x" * (1 << 20), "kind": "application"}
        few = {"value": "x", "kind": "application"}
        for context, rule in (
            ({"n": entry}, "holds, with `input`, more than 1048576 characters of text"),
            ({str(n): few for n in range(101)}, "has more than 100 entries"),
        ):
            for method, more in (
                ("turn/start", {}),
                ("turn/steer", {"expectedTurnId": "t"}),
            ):
                params = {"threadId": thread_id, "input": INPUT, **more}
                error = await client.refusal(method, {**params, "additionalContext": context})
                assert error.message == f"Invalid params: `additionalContext` {rule}"


# Permissions, folders, environments.


def sandbox_of(result: Any) -> tuple[str, str | None]:
    profile = result["activePermissionProfile"]
    return result["sandbox"]["type"], profile and profile["id"]


@claim("settings:permissions")
async def test_permission_profiles_choose_the_sandbox_of_threads_and_turns(
    tmp_path: Path,
) -> None:
    workspace = ("workspaceWrite", ":workspace")
    async with serve(tmp_path) as served, served.client() as client:
        result = await client.call("thread/start", {"permissions": ":workspace"})
        thread_id = result["thread"]["id"]
        assert sandbox_of(result) == workspace
        result = await client.call(
            "thread/start", {"config": {"default_permissions": ":workspace"}}
        )
        assert sandbox_of(result) == workspace
        result = await client.call("thread/start", {"permissions": ":danger-full-access"})
        assert sandbox_of(result)[0] == "dangerFullAccess"
        await client.turn(thread_id, "go", permissions=":read-only")
        fork = await client.call(
            "thread/fork", {"threadId": thread_id, "permissions": ":workspace"}
        )
        assert sandbox_of(fork) == workspace
        assert sandbox_of(await client.call("thread/resume", {"threadId": thread_id})) == (
            "readOnly",
            ":read-only",
        )
        unknown = "failed to load configuration: default_permissions refers to unknown"
        undefined = unknown.replace("unknown", "undefined profile `mine`")
        turn = {"threadId": thread_id, "input": INPUT}
        for method, params, message in (
            ("thread/start", {"permissions": ":nope"}, f"{unknown} built-in profile `:nope`"),
            ("turn/start", {**turn, "permissions": "mine"}, undefined),
            (
                "thread/start",
                {"permissions": ":workspace", "sandbox": "read-only"},
                "`permissions` cannot be combined with `sandbox`",
            ),
            (
                "turn/start",
                {**turn, "permissions": ":workspace", "sandboxPolicy": {"type": "readOnly"}},
                "`permissions` cannot be combined with `sandboxPolicy`",
            ),
            (
                "thread/start",
                {"config": {"profile": "x"}},
                'failed to load configuration: legacy `profile = "x"` config is no longer '
                "supported; use `--profile x` with `x.config.toml` instead\nin `profile`\n",
            ),
        ):
            assert (await client.refusal(method, params)).message == message
    async with serve(tmp_path) as served, served.client() as client:
        params = {"threadId": thread_id, "permissions": ":workspace"}
        assert sandbox_of(await client.call("thread/resume", params)) == workspace


def places(result: Any) -> tuple[str, list[str], list[Any]]:
    """Return the folder, the roots and the environments of an answer."""
    environments = [
        (each["cwd"], each["runtimeWorkspaceRoots"]) for each in result["thread"]["environments"]
    ]
    return result["cwd"], result["runtimeWorkspaceRoots"], environments


@claim("settings:folders")
async def test_folders_and_environments_are_those_that_the_client_chose(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        here = str(tmp_path)
        roots = {"cwd": "/usr", "runtimeWorkspaceRoots": ["/usr", "/opt"]}
        result = await client.call("thread/start", roots)
        thread_id = result["thread"]["id"]
        assert places(result) == ("/usr", ["/usr", "/opt"], [("/usr", ["/usr", "/opt"])])
        await client.turn(thread_id, "one")
        await client.turn(thread_id, "two", cwd="/tmp")
        await client.turn(thread_id, "three", runtimeWorkspaceRoots=["/opt"])
        await client.turn(thread_id, "four", environments=[])
        elsewhere = [{"environmentId": "local", "cwd": "/var"}]
        await client.turn(thread_id, "five", environments=elsewhere)
        facts = [dict(newest_of_each(request["input"]))[FACTS] for request in served.model.requests]
        told = [
            re.findall("<(cwd|workspace_roots)>(.*)<", each["content"][0]["text"]) for each in facts
        ]
        assert told == [
            [("cwd", "/usr"), ("workspace_roots", "/usr, /opt")],
            [("cwd", "/tmp")],
            [("cwd", "/tmp"), ("workspace_roots", "/opt")],
            [],
            [("cwd", "/var")],
        ]
        bare = await client.call("thread/start", {"environments": [], "runtimeWorkspaceRoots": []})
        assert places(bare) == (here, [], [])
        for params, message in (
            (
                {"runtimeWorkspaceRoots": ["/a", "b"]},
                "Invalid params: `runtimeWorkspaceRoots.1`: must be an absolute path",
            ),
            (
                {"runtimeWorkspaceRoots": ["/a"] * 101},
                "Invalid params: `runtimeWorkspaceRoots` accepts at most 100 entries",
            ),
            (
                {"environments": [{"environmentId": "nope", "cwd": "/"}]},
                "unknown turn environment id `nope`",
            ),
        ):
            for method, base in (
                ("thread/start", {}),
                ("turn/start", {"threadId": thread_id, "input": INPUT}),
            ):
                assert (await client.refusal(method, {**base, **params})).message == message


# What belongs to one turn.


@claim("turns:for-one-turn")
async def test_tier_and_metadata_of_one_turn_and_plugins_from_then_on(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(serviceTier="priority")
        gate = Gate()
        call = calls({"name": "nothing", "namespace": None})
        served.model.scripts += [[gate, *call], says("done")]
        result = await client.call(
            "turn/start",
            {
                "threadId": thread_id,
                "input": INPUT,
                "serviceTierForTurn": "flex",
                "responsesapiClientMetadata": {"a": "1", "b": "2"},
                "responsesapiClientMetadataPatch": {"b": "3"},
                "disabledPluginIds": ["p@m"],
            },
        )
        await gate.wait_until_reached()
        steer = {"threadId": thread_id, "expectedTurnId": result["turn"]["id"], "input": INPUT}
        await client.call("turn/steer", {**steer, "responsesapiClientMetadataPatch": {"c": "4"}})
        gate.opened.set()
        await client.wait_for("turn/completed")
        await client.turn(thread_id, "two", serviceTierForTurn="default")
        await client.turn(thread_id, "three", responsesapiClientMetadataPatch={"d": "5"})
        assert [
            (request.get("service_tier"), request.get("client_metadata"))
            for request in served.model.requests
        ] == [
            ("flex", {"a": "1", "b": "3"}),
            ("flex", {"a": "1", "b": "3", "c": "4"}),
            (None, None),
            ("priority", {"d": "5"}),
        ]
        resumed = await client.call("thread/resume", {"threadId": thread_id})
        assert (resumed["disabledPluginIds"], resumed["serviceTier"]) == (["p@m"], "priority")


# Joining.


@claim("settings:resume")
async def test_a_thread_that_is_resumed_takes_what_was_chosen_or_says_what_it_does_not(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(baseInstructions="Base.")
        await client.turn(thread_id, "one")
        path = (await client.call("thread/read", {"threadId": thread_id}))["thread"]["path"]
    async with serve(tmp_path) as served, served.client() as client:
        chosen = {
            "baseInstructions": "Other.",
            "developerInstructions": "Also.",
            "model": "m1",
            "runtimeWorkspaceRoots": ["/opt"],
            "path": path,
            "config": {"model_context_window": 100_000, "features.hooks": True},
        }
        await client.call("thread/resume", {"threadId": thread_id, **chosen})
        await client.turn(thread_id, "two")
        (request,) = served.model.requests
        assert request["instructions"] == "Other."
        assert shown(request) == ("m1", None, ["Also."])
        # It is loaded now: what is in force is no surprise, and the rest is said.
        await client.call("thread/resume", {"threadId": thread_id, **chosen})
        more = {"model": "m2", "sandbox": "workspace-write", "config": {"a": 1}}
        await client.call("thread/resume", {"threadId": thread_id, **chosen, **more})
        warning = (await client.wait_for("warning"))["params"]
        assert warning == {
            "threadId": thread_id,
            "message": "the thread is loaded already, so `model`, `sandbox`, `config` of "
            "thread/resume changed nothing; thread/settings/update changes settings",
        }
        await client.call("thread/unsubscribe", {"threadId": thread_id, "unload": True})
        error = await client.refusal("thread/resume", {"threadId": thread_id, "path": "/x"})
        assert error.message == (
            "Invalid params: `path` is not supported by this server, but for the thread's own file"
        )


# A real client.

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
