"""Hooks of the user's around turns and calls: real commands, trusted through the wire."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app_server.extensions.hooks import running
from tests.support.files.fifos import write_fifo
from tests.support.files.plugins import write, write_plugin
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.model import calls, says
from tests.support.turn_tools.reviews import ALLOW, verdict


def prints(value: Any) -> str:
    text = json.dumps(value).replace("'", "'\\''")
    return f"cat >/dev/null; printf %s '{text}'"


async def trusted(client: WireClient) -> None:
    """Trust all hooks as they are, as a client does for its user."""
    (entry,) = (await client.call("hooks/list", {}))["data"]
    assert entry["warnings"] == []
    edits = [
        {
            "keyPath": f'hooks.state."{hook["key"]}".trusted_hash',
            "value": hook["currentHash"],
            "mergeStrategy": "upsert",
        }
        for hook in entry["hooks"]
    ]
    await client.call("config/batchWrite", {"edits": edits})


def declare(home: Path, **commands: str) -> None:
    home.mkdir(exist_ok=True)
    groups = {
        event: [{"hooks": [{"type": "command", "command": command, "timeout": 60}]}]
        for event, command in commands.items()
    }
    (home / "hooks.json").write_text(json.dumps({"hooks": groups}))


async def a_turn(client: WireClient, thread_id: str, text: str = "hi") -> list[Any]:
    """Run a turn and return the runs of its hooks, as (event, status, entries)."""
    started = await client.call(
        "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": text}]}
    )
    messages = await client.until("turn/completed")
    # A goal may have ended a turn of its own before.
    while messages[-1]["params"]["turn"]["id"] != started["turn"]["id"]:
        messages += await client.until("turn/completed")
    assert messages[-1]["params"]["turn"]["status"] == "completed"
    runs = [
        message["params"]["run"] for message in messages if message["method"] == "hook/completed"
    ]
    return [
        (run["eventName"], run["status"], [(e["kind"], e["text"]) for e in run["entries"]])
        for run in runs
    ]


def sent(served: Served, request: int = -1) -> Sequence[tuple[str, Any]]:
    """Return what a request had besides the environment context: roles or types, and texts."""
    return [
        (
            item.get("role") or item["type"],
            item["content"][-1]["text"] if "content" in item else item.get("output"),
        )
        for item in served.model.items(request)
    ]


@claim("hooks:prompt")
async def test_hooks_give_words_and_refuse_prompts(tmp_path: Path) -> None:
    told = tmp_path / "told"
    refuse = prints({"decision": "block", "reason": "not now"})
    declare(
        tmp_path,
        SessionStart=f"cat > {told}; echo at the start",
        UserPromptSubmit=f'p=$(cat); case "$p" in *secret*) {refuse.split("; ", 1)[1]};; esac',
    )
    async with serve(tmp_path) as served, served.client() as client:
        await trusted(client)
        thread_id = await client.start_thread()
        assert await a_turn(client, thread_id) == [
            ("sessionStart", "completed", [("context", "at the start")]),
            ("userPromptSubmit", "completed", []),
        ]
        assert sent(served) == [("user", "hi"), ("developer", "at the start")]
        payload = json.loads(told.read_text())
        path = payload.pop("transcript_path")
        assert Path(path).is_file()
        assert payload == {
            "session_id": thread_id,
            "cwd": str(tmp_path),
            "hook_event_name": "SessionStart",
            "model": "scripted",
            "permission_mode": "default",
            "source": "startup",
        }
        requests = len(served.model.requests)
        assert await a_turn(client, thread_id, "a secret") == [
            ("userPromptSubmit", "blocked", [("feedback", "not now")])
        ]
        assert len(served.model.requests) == requests
        await a_turn(client, thread_id, "other")
        assert sent(served)[-2:] == [("assistant", "ok"), ("user", "other")]
        shown = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        assert len(shown["thread"]["turns"]) == 3


async def test_what_a_refused_prompt_names_is_not_sent_with_the_input_that_follows(
    tmp_path: Path,
) -> None:
    root = write_plugin(tmp_path / "plugins/cache/m/p/local", "p")
    write(root / "skills/s/SKILL.md", "---\nname: s\ndescription: d\n---\nDo so.\n")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    refuse = prints({"decision": "block", "reason": "not now"})
    declare(tmp_path, UserPromptSubmit=f"read line < {gate}; {refuse}")
    config = '[plugins."p@m"]\nenabled = true\n'
    async with serve(tmp_path, config=config, with_apps=True) as served, served.client() as client:
        await trusted(client)
        thread_id = await client.start_thread()
        for said in ("use [@p](plugin://p@m)", "more"):
            asked = [{"type": "text", "text": said}]
            await client.call("turn/start", {"threadId": thread_id, "input": asked})
            if said != "more":
                await client.wait_for("hook/started")
        await write_fifo(gate, "go\n")
        await client.wait_for("turn/completed")
        assert sent(served)[-1] == ("user", "more")
        assert "The user named the plugin" not in str(sent(served))


@claim("hooks:tools")
async def test_hooks_refuse_and_change_calls_and_replace_outputs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    deny = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "not this one",
        }
    }
    change = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": {"status": "nonsense"},
            "additionalContext": "changed",
        }
    }
    call = {"name": "update_goal", "arguments": {"status": "complete"}}
    for first, second, pre, post in (
        (deny, {}, "blocked", None),
        (change, {}, "completed", "completed"),
        ({}, {"decision": "block", "reason": "look again"}, "completed", "blocked"),
    ):
        home = tmp_path / f"home{pre}{post}"
        declare(
            home,
            PreToolUse=prints(first),
            PostToolUse=f"cat > {log}; printf %s '{json.dumps(second)}'",
        )
        async with serve(home) as served, served.client() as client:
            await trusted(client)
            thread_id = await client.start_thread()
            await client.call("thread/goal/set", {"threadId": thread_id, "objective": "o"})
            await client.until("turn/completed")
            # The goal has begun its next turn by now, or has not.
            served.model.choose = _calls_for_hi(call)
            runs = await a_turn(client, thread_id)
            wanted = [("preToolUse", pre)] + ([] if post is None else [("postToolUse", post)])
            assert [(event, status) for event, status, _ in runs][: len(wanted)] == wanted
            outputs = [
                item["output"]
                for request in served.model.requests
                for item in request["input"]
                if item["type"] == "function_call_output"
            ]
            if first is deny:
                text = "Tool call blocked by PreToolUse hook: not this one. Tool: update_goal"
                assert outputs[0] == text
            elif first is change:
                assert outputs[0] == "err: status must be one of complete, blocked, paused"
                told = json.loads(log.read_text())
                assert (told["tool_name"], told["tool_input"], told["tool_response"]) == (
                    "update_goal",
                    {"status": "nonsense"},
                    outputs[0],
                )
            else:
                assert outputs[0] == "look again"


def _calls_for_hi(call: dict[str, Any]) -> Any:
    def choose(body: dict[str, Any]) -> list[Any]:
        last = body["input"][-1]
        asked = last.get("content", [{}])[-1].get("text") == "hi"
        return calls(call) if asked else says("done")

    return choose


@claim("hooks:permission")
@pytest.mark.parametrize("behavior", ["allow", "deny"])
async def test_a_hook_decides_what_the_user_would_be_asked(tmp_path: Path, behavior: str) -> None:
    told, made = tmp_path / "told", tmp_path / "made"
    answer = {
        "hookSpecificOutput": {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": behavior, "message": "not on my machine"},
        }
    }
    declare(tmp_path, PermissionRequest=f"cat > {told}; printf %s '{json.dumps(answer)}'")
    call = {
        "name": "exec_command",
        "arguments": {
            "cmd": f"touch {made}",
            "sandbox_permissions": "require_escalated",
            "justification": "May I?",
        },
    }
    async with serve(tmp_path) as served, served.client() as client:
        await trusted(client)
        thread_id = await client.start_thread()
        served.model.scripts += [calls(call), says("done")]
        runs = await a_turn(client, thread_id)
        output = served.model.requests[-1]["input"][-1]["output"]
    status = "completed" if behavior == "allow" else "blocked"
    assert [run[:2] for run in runs] == [("permissionRequest", status)]
    assert made.exists() == (behavior == "allow")
    assert json.loads(told.read_text())["tool_input"] == {
        "command": f"touch {made}",
        "description": "May I?",
    }
    assert ("not on my machine" in output) == (behavior == "deny")
    log = next((tmp_path / "threads").rglob("*.jsonl")).read_text().splitlines()
    decided = [line for line in map(json.loads, log) if line["type"] == "approvalDecided"]
    decision = "accept" if behavior == "allow" else "decline"
    assert [(line["decision"], line["by"]) for line in decided] == [(decision, "hook")]


@pytest.mark.parametrize("change", ["user", "auto_review"])
async def test_who_decides_after_a_hook_is_who_is_to_decide_by_then(
    tmp_path: Path, change: str
) -> None:
    gate, made = tmp_path / "gate", tmp_path / "made"
    os.mkfifo(gate)
    declare(tmp_path, PermissionRequest=f"read line < {gate}")
    reviewer = "auto_review" if change == "user" else "user"
    call = {
        "name": "exec_command",
        "arguments": {"cmd": f"touch {made}", "sandbox_permissions": "require_escalated"},
    }
    config = f'approvals_reviewer = "{reviewer}"\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        await trusted(client)
        thread_id = await client.start_thread()
        answers = [verdict(ALLOW)] if change == "auto_review" else []
        served.model.scripts += [calls(call), *answers, says("done")]
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        turn_id = (await client.call("turn/start", params))["turn"]["id"]
        await client.wait_for("hook/started")
        params = {"threadId": thread_id, "turnId": turn_id, "approvalsReviewer": change}
        assert await client.call("turn/settings/update", params) == {"status": "applied"}
        await write_fifo(gate, "go\n")
        if change == "user":
            question = await client.wait_for("item/commandExecution/requestApproval")
            await client.send({"id": question["id"], "result": {"decision": "accept"}})
        await client.wait_for("turn/completed")
    assert made.exists()
    log = next((tmp_path / "threads").rglob("*.jsonl")).read_text().splitlines()
    decided = [line for line in map(json.loads, log) if line["type"] == "approvalDecided"]
    by = "user" if change == "user" else "reviewer"
    assert [(line["decision"], line["by"]) for line in decided] == [("accept", by)]


@claim("hooks:stop")
async def test_a_hook_has_a_turn_go_on_a_bounded_number_of_times(tmp_path: Path) -> None:
    declare(tmp_path, Stop=prints({"decision": "block", "reason": "go on <now>"}))
    async with serve(tmp_path) as served, served.client() as client:
        await trusted(client)
        thread_id = await client.start_thread()
        runs = await a_turn(client, thread_id)
        assert runs == [("stop", "blocked", [("feedback", "go on <now>")])] * 10
        assert len(served.model.requests) == 11
        run_id = f"stop:0:{tmp_path}/hooks.json"
        prompt = f'<hook_prompt hook_run_id="{run_id}">go on &lt;now&gt;</hook_prompt>'
        assert sent(served)[-2:] == [("assistant", "ok"), ("user", prompt)]
        shown = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        items = shown["thread"]["turns"][0]["items"]
        prompts = [item for item in items if item["type"] == "hookPrompt"]
        assert [prompt["fragments"] for prompt in prompts] == [
            [{"text": "go on <now>", "hookRunId": run_id}]
        ] * 10


@claim("hooks:changed")
@pytest.mark.parametrize("state", ["never trusted", "changed", "off"])
async def test_a_hook_that_is_not_trusted_as_it_is_does_not_run(tmp_path: Path, state: str) -> None:
    ran = tmp_path / "ran"
    declare(tmp_path, UserPromptSubmit=f"touch {ran}; exit 2")
    async with serve(tmp_path) as served, served.client() as client:
        if state != "never trusted":
            await trusted(client)
        if state == "changed":
            declare(tmp_path, UserPromptSubmit=f"touch {ran}; exit 2 # changed")
        if state == "off":
            (entry,) = (await client.call("hooks/list", {}))["data"]
            key = f'hooks.state."{entry["hooks"][0]["key"]}".enabled'
            edit = {"keyPath": key, "value": False, "mergeStrategy": "upsert"}
            await client.call("config/batchWrite", {"edits": [edit]})
        thread_id = await client.start_thread()
        assert await a_turn(client, thread_id) == []
        assert not ran.exists()
        assert sent(served) == [("user", "hi")]


@claim("hooks:wrong")
async def test_a_hook_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MAX_OUTPUT_BYTES", 1000)
    commands = {
        "exit 3": "hook exited with code 3",
        "yes": "hook printed more than 1000 bytes",
        "sleep 3600": "hook timed out after 1s",
        "no-such-program": "hook exited with code 127",
        "sleep 3600 & kill -9 $$": "hook exited with code -9",
    }
    hooks = [
        {"hooks": [{"type": "command", "command": command, "timeout": 1}]}
        if command == "sleep 3600"
        else {"hooks": [{"type": "command", "command": command, "timeout": 60}]}
        for command in commands
    ]
    (tmp_path / "hooks.json").write_text(json.dumps({"hooks": {"UserPromptSubmit": hooks}}))
    async with serve(tmp_path) as served, served.client() as client:
        await trusted(client)
        thread_id = await client.start_thread()
        runs = await a_turn(client, thread_id)
        wanted = [("userPromptSubmit", "failed", [("error", text)]) for text in commands.values()]
        assert sorted(runs) == sorted(wanted)
        assert sent(served) == [("user", "hi")]
