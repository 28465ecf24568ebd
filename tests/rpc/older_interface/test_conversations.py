"""Conversations on a real server: what clients did before there were threads and turns."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app_server.rpc.older_interface.stream import MAX_WAITING, FirstSandboxes
from tests.support.clients.older import events, old_client, text
from tests.support.harness import claim, serve
from tests.support.model import calls, says


@claim("older:tools")
async def test_a_conversation_can_do_without_plans_and_patches(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        for members in ({}, {"includePlanTool": False}, {"includeApplyPatchTool": False}):
            started = await client.listen(cwd=str(tmp_path), **members)
            send = {"conversationId": started["conversationId"], "items": text("hi")}
            await client.call("sendUserMessage", send)
            await client.until("codex/event/task_complete")
        both = {"update_plan", "apply_patch"}
        offered = [
            both & {tool.get("name") for tool in request["tools"]}
            for request in served.model.requests
        ]
        assert offered == [both, {"apply_patch"}, {"update_plan"}]
        answer = await client.ask("newConversation", {"includePlanTool": "no"})
        assert answer["error"]["message"] == (
            'failed to load configuration: invalid type: string "no", expected a boolean\n'
            "in `tools.update_plan.enabled`\n"
        )


@claim("older:profile")
async def test_a_conversation_can_have_a_profile(tmp_path: Path) -> None:
    (tmp_path / "work.config.toml").write_text('model = "of-work"\n')
    async with serve(tmp_path) as served:
        async with old_client(served, experimentalApi=True) as client:
            started = await client.listen(cwd=str(tmp_path), profile="work")
            assert started["model"] == "of-work"
        async with old_client(served) as client:
            answer = await client.ask("newConversation", {"profile": "work"})
            assert answer["error"]["data"]["code"] == "experimentalApiRequired"


@claim("older:conversation")
async def test_a_conversation_is_a_thread(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        served.model.scripts.append(says("Hel", "lo."))
        started = await client.listen(cwd=str(tmp_path), approvalPolicy="on-failure")
        thread_id = started["conversationId"]
        assert started == {
            "conversationId": thread_id,
            "model": "scripted",
            "rolloutPath": next((tmp_path / "threads").rglob("*.jsonl")).as_posix(),
        }
        send = {"conversationId": thread_id, "items": text("hi")}
        assert await client.call("sendUserMessage", send) == {}
        seen = await client.until("codex/event/task_complete")
        found = [event for event in events(seen) if event[0] not in ("token_count", "warning")]
        assert found == [
            ("task_started", {"model_context_window": None}),
            ("user_message", {"message": "hi", "kind": "plain"}),
            ("agent_message_delta", {"delta": "Hel"}),
            ("agent_message_delta", {"delta": "lo."}),
            ("agent_message", {"message": "Hello."}),
            ("task_complete", {"last_agent_message": "Hello."}),
        ]
        of_today = [m["method"] for m in seen if m.get("params", {}).get("threadId") == thread_id]
        assert of_today == []
        turn = {
            **send,
            "cwd": "/",
            "approvalPolicy": "never",
            "sandboxPolicy": {"mode": "workspace-write", "network_access": True},
            "model": "other",
            "effort": "low",
            "summary": "auto",
            "outputSchema": {"type": "object"},
        }
        assert await client.call("sendUserTurn", turn) == {}
        await client.until("codex/event/task_complete")
        body = served.model.requests[-1]
        assert (body["model"], body["text"]["format"]["schema"]) == ("other", {"type": "object"})
        listed = await client.call("listConversations", {"pageSize": 5})
        (item,) = listed["items"]
        assert (item["conversationId"], item["preview"], listed["nextCursor"]) == (
            thread_id,
            "hi",
            None,
        )
        began = datetime.fromisoformat(item["timestamp"])
        assert abs(datetime.now(UTC) - began) < timedelta(minutes=10)
        # A conversation is resumed by the file that was named for it.
        resumed = await client.call("resumeConversation", {"path": started["rolloutPath"]})
        assert [message["type"] for message in resumed.pop("initialMessages")] == [
            "user_message",
            "agent_message",
        ] * 2
        assert resumed == {**started, "model": "other", "reasoningEffort": "low"}
        archive = {"conversationId": thread_id, "rolloutPath": started["rolloutPath"]}
        assert await client.call("archiveConversation", archive) == {}
        assert (await client.call("listConversations", {}))["items"] == []


@claim("older:approvals")
@pytest.mark.parametrize(
    ("decision", "is_done"), [("approved", True), ("allow", True), ("denied", False), (5, False)]
)
async def test_commands_and_patches_are_asked_about(
    tmp_path: Path, decision: Any, is_done: bool
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    patch = "*** Begin Patch\n*** Add File: b.txt\n+new\n*** End Patch"
    asks = [
        {
            "name": "exec_command",
            "arguments": {"cmd": "echo hey; touch a.txt", "login": False, "shell": "sh"},
        },
        {"name": "apply_patch", "arguments": {"input": patch}, "call_id": "call_2"},
    ]
    async with serve(tmp_path / "home") as served, old_client(served) as client:
        served.model.scripts += [calls(*asks), says("Done.")]
        started = await client.listen(
            cwd=str(folder), sandbox="workspace-write", approvalPolicy="untrusted"
        )
        thread_id = started["conversationId"]
        await client.call("sendUserMessage", {"conversationId": thread_id, "items": text("go")})
        seen = await client.until("codex/event/task_complete", lambda asked: {"decision": decision})
        command, change = (message for message in seen if "id" in message)
        shell = command["params"]["command"][0]
        assert (command["method"], command["params"]) == (
            "execCommandApproval",
            {
                "conversationId": thread_id,
                "callId": "call_1",
                "command": [shell, "-c", "echo hey; touch a.txt"],
                "cwd": str(folder),
                "reason": None,
                "parsedCmd": [{"type": "unknown", "cmd": "echo hey; touch a.txt"}],
            },
        )
        added = {f"{folder}/b.txt": {"add": {"content": "new\n"}}}
        assert (change["method"], change["params"]) == (
            "applyPatchApproval",
            {
                "conversationId": thread_id,
                "callId": "call_2",
                "fileChanges": added,
                "reason": None,
                "grantRoot": None,
            },
        )
        made = [(folder / name).exists() for name in ("a.txt", "b.txt")]
        assert made == [is_done, is_done]
        by_kind = dict(events(seen))
        assert by_kind["patch_apply_begin"]["changes"] == added
        assert by_kind["patch_apply_end"]["success"] is is_done
        ended = by_kind["exec_command_end"]
        assert (ended["aggregated_output"], ended["exit_code"]) == (
            ("hey\n", 0) if is_done else ("", -1)
        )
        if is_done:
            chunk = by_kind["exec_command_output_delta"]["chunk"]
            assert base64.b64decode(chunk) == b"hey\n"
            assert "+++ b/b.txt" in by_kind["turn_diff"]["unified_diff"]


@claim("older:sandbox")
async def test_an_external_sandbox_holds_from_the_first_turn_on(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.toml"
    requirements.write_text('allowed_sandbox_modes = ["read-only"]\n')
    external = "Sandbox: `external-sandbox`"
    async with serve(tmp_path) as served, old_client(served) as client:

        async def sandboxes(conversation_id: str) -> list[str]:
            """Return what the model was sent of sandboxes, after one more turn."""
            send = {"conversationId": conversation_id, "items": text("hi")}
            assert await client.call("sendUserMessage", send) == {}
            await client.until("codex/event/task_complete")
            said = json.dumps(served.model.requests[-1]["input"])
            return re.findall("Sandbox: `[^`]*`", said)

        started = await client.listen(cwd=str(tmp_path), sandbox="external-sandbox")
        thread_id = started["conversationId"]
        refused = await client.ask(
            "sendUserMessage", {"conversationId": thread_id, "items": text("hi")}
        )
        rule = "`ExternalSandbox` is not in the allowed set [ReadOnly]"
        assert rule in refused["error"]["message"]
        requirements.unlink()
        assert await sandboxes(thread_id) == [external]
        assert await sandboxes(thread_id) == [external]
        turn = {
            "conversationId": thread_id,
            "items": text("hi"),
            "cwd": str(tmp_path),
            "approvalPolicy": "never",
            "sandboxPolicy": {"mode": "read-only"},
            "model": "scripted",
            "summary": "auto",
        }
        await client.call("sendUserTurn", turn)
        await client.until("codex/event/task_complete")
        assert (await sandboxes(thread_id))[-1] == "Sandbox: `read-only`"
        overrides = {"sandbox": "external-sandbox"}
        resume = {"conversationId": thread_id, "overrides": overrides}
        await client.call("resumeConversation", resume)
        assert (await sandboxes(thread_id))[-1] == external


def test_policies_wait_for_a_bounded_number_of_conversations() -> None:
    waiting = FirstSandboxes()
    for number in range(MAX_WAITING + 1):
        waiting.keep(str(number), {"type": "externalSandbox"})
    first, second = {"threadId": "0"}, {"threadId": "1"}
    assert waiting.with_policy(first) == first
    assert waiting.with_policy(second) == {"sandboxPolicy": {"type": "externalSandbox"}, **second}
    waiting.keep("1", None)
    assert waiting.with_policy(second) == second


@claim("older:interrupt")
async def test_a_turn_is_interrupted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        served.model.scripts.append(
            calls({"name": "exec_command", "arguments": {"cmd": "sleep 3600"}})
        )
        started = await client.listen(sandbox="danger-full-access", approvalPolicy="never")
        conversation = {"conversationId": started["conversationId"]}
        await client.call("sendUserMessage", {**conversation, "items": text("go")})
        await client.until("codex/event/exec_command_begin")
        assert await client.call("interruptConversation", conversation) == {
            "abortReason": "interrupted"
        }
        seen = await client.until("codex/event/turn_aborted")
        assert events(seen)[-1] == ("turn_aborted", {"reason": "interrupted"})


@claim("older:refused")
@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("sendUserMessage", {"items": []}, "Invalid params: `conversationId` must be a string"),
        ("sendUserMessage", {"conversationId": "x"}, "Invalid params: `items` must be a list"),
        (
            "sendUserMessage",
            {"conversationId": "x", "items": [{"type": "video"}]},
            "Invalid params: `items` must be of type text, image or localImage, not 'video'",
        ),
        (
            "resumeConversation",
            {"path": "/no/id.jsonl"},
            "Invalid params: `path` names no conversation; give `conversationId`",
        ),
        (
            "resumeConversation",
            {"history": []},
            "Invalid params: `history` is not taken; give `conversationId` or `path`",
        ),
        ("addConversationListener", {}, "Invalid params: `conversationId` must be a string"),
        ("newConversation", [], "Invalid params: must be an object"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(
    tmp_path: Path, method: str, params: Any, message: str
) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        error = (await client.ask(method, params))["error"]
        assert (error["code"], error["message"]) == (-32602, message)
        # An error of what a call becomes has the id of the call.
        unknown = await client.ask("archiveConversation", {"conversationId": "x"})
        assert unknown["error"]["code"] in (-32600, -32602)
