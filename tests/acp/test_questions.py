"""Questions: for permission, of MCP servers and of the model; withdrawn when others answer."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from acp.schema import McpServerStdio

from tests.support.clients.acp import FORMS, acp_session, acp_socket, prompt
from tests.support.harness import claim, serve
from tests.support.model import calls, says
from tests.support.paths import MCP_PEER

READ_ONLY = 'sandbox_mode = "read-only"\napproval_policy = "on-request"'
PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-alpha\n+beta\n*** End Patch\n"
PATCHES = {"name": "apply_patch", "arguments": {"input": PATCH}}
ESCALATED = {
    "name": "exec_command",
    "arguments": {
        "cmd": "echo hi > x.txt",
        "sandbox_permissions": "require_escalated",
        "justification": "It has to be written.",
    },
}


@claim("acp:permission")
async def test_a_patch_is_asked_about_with_its_diff(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    async with serve(tmp_path, config=READ_ONLY) as served:
        served.model.scripts += [calls(PATCHES), says("Done.")]
        async with acp_session(served, tmp_path) as (editor, agent, session_id):
            await agent.prompt(session_id=session_id, prompt=prompt("Patch it."))
            (asked,) = editor.asked
    path = str(tmp_path / "a.txt")
    diff = {"type": "diff", "path": path, "oldText": "alpha\n", "newText": "beta\n"}
    assert asked == {
        "sessionId": session_id,
        "toolCall": {
            "toolCallId": "call_1",
            "status": "pending",
            "title": "Edit files",
            "kind": "edit",
            "locations": [{"path": path}],
            "content": [{**diff, "_meta": {"kind": "update"}}],
        },
        "options": [
            {"optionId": "accept", "name": "Yes, proceed", "kind": "allow_once"},
            {
                "optionId": "acceptForSession",
                "name": "Yes, and don't ask again in this session",
                "kind": "allow_always",
            },
            {"optionId": "decline", "name": "No, and go on without it", "kind": "reject_once"},
            {"optionId": "cancel", "name": "No, and stop the turn", "kind": "reject_once"},
        ],
    }
    assert (tmp_path / "a.txt").read_text() == "beta\n"


@claim("acp:permission")
@pytest.mark.parametrize(
    ("chosen", "reason", "exists"),
    [("allow_once", "end_turn", True), ("reject_once", "cancelled", False)],
)
async def test_a_command_runs_or_not_as_the_editor_says(
    tmp_path: Path, chosen: str, reason: str, exists: bool
) -> None:
    async with serve(tmp_path, config=READ_ONLY) as served:
        served.model.scripts += [calls(ESCALATED), says("Done.")]
        async with acp_session(served, tmp_path) as (editor, agent, session_id):
            editor.chosen = chosen
            ended = await agent.prompt(session_id=session_id, prompt=prompt("Write it."))
            (asked,) = editor.asked
    assert asked["toolCall"] == {
        "toolCallId": "call_1",
        "status": "pending",
        "title": "echo hi > x.txt",
        "kind": "execute",
        "rawInput": {"command": "echo hi > x.txt", "cwd": str(tmp_path)},
        "content": [
            {"type": "content", "content": {"type": "text", "text": "It has to be written."}}
        ],
    }
    assert (ended.stop_reason, (tmp_path / "x.txt").exists()) == (reason, exists)


@claim("acp:both")
async def test_a_question_that_another_client_answers_is_withdrawn(tmp_path: Path) -> None:
    async with serve(tmp_path, config=READ_ONLY) as served, served.client() as codex:
        served.model.scripts += [calls(ESCALATED), says("Done.")]
        async with acp_session(served, tmp_path) as (editor, agent, session_id):
            await codex.call("thread/resume", {"threadId": session_id, "excludeTurns": True})
            editor.hold = asyncio.Event()
            async with anyio.create_task_group() as tasks:

                async def asks() -> None:
                    ended = await agent.prompt(session_id=session_id, prompt=prompt("Write."))
                    assert ended.stop_reason == "end_turn"

                tasks.start_soon(asks)
                question = await codex.wait_for("item/commandExecution/requestApproval")
                await editor.until(lambda: editor.asked)
                await codex.send({"id": question["id"], "result": {"decision": "accept"}})
                await editor.until(lambda: editor.requests("$/cancel_request"))
            (ours,) = [each["id"] for each in editor.sent if "id" in each and "method" in each]
            assert editor.requests("$/cancel_request") == [{"requestId": ours}]
            # An answer that comes too late is nobody's.
            editor.hold.set()
            await agent.prompt(session_id=session_id, prompt=prompt("And now?"))


@claim("acp:both")
async def test_an_answer_of_the_editor_withdraws_the_question_elsewhere(tmp_path: Path) -> None:
    async with serve(tmp_path, config=READ_ONLY) as served, served.client() as codex:
        thread_id = await codex.start_thread(cwd=str(tmp_path))
        served.model.scripts += [calls(ESCALATED), says("Done.")]
        async with acp_socket(served.urls[0]) as (editor, agent):
            await agent.resume_session(session_id=thread_id, cwd=str(tmp_path), mcp_servers=[])
            asked = {"threadId": thread_id, "input": [{"type": "text", "text": "Write."}]}
            await codex.call("turn/start", asked)
            question = await codex.wait_for("item/commandExecution/requestApproval")
            settled = await codex.wait_for("serverRequest/resolved")
            assert settled["params"]["requestId"] == question["id"]
            await codex.wait_for("turn/completed")
            await editor.until(lambda: editor.text() == "Done.")
            assert editor.text("user_message_chunk") == "Write."
    assert (tmp_path / "x.txt").read_text() == "hi\n"


FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "title": "Name"}},
    "required": ["name"],
}
QUESTIONS = {
    "questions": [
        {
            "id": "colour",
            "header": "Colour",
            "question": "Which colour?",
            "options": [
                {"label": "Red", "description": "like a rose"},
                {"label": "Blue", "description": "like the sky"},
            ],
        }
    ]
}


@claim("acp:elicitation")
async def test_a_form_of_an_mcp_server_is_filled_in_the_editor(tmp_path: Path) -> None:
    server = McpServerStdio(name="raw", command=sys.executable, args=[str(MCP_PEER)], env=[])
    asking = {
        "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": FORM},
    }
    call = {"namespace": "mcp__raw", "name": "request", "arguments": asking}
    config = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
    config += "mcp_optional_startup_grace_ms = 0"
    async with serve(tmp_path, config=config) as served:
        served.model.scripts += [calls(call), says("Asked.")]
        async with acp_socket(served.urls[0], FORMS) as (editor, agent):
            editor.fill = {"name": "Ada"}
            opened = await agent.new_session(cwd=str(tmp_path), mcp_servers=[server])
            await agent.set_session_mode(session_id=opened.session_id, mode_id="workspace-write")
            await agent.prompt(session_id=opened.session_id, prompt=prompt("Ask."))
            (asked,) = editor.requests("elicitation/create")
            assert asked == {
                "sessionId": opened.session_id,
                "mode": "form",
                "message": "Who?",
                "requestedSchema": FORM,
            }
            (done,) = [each for each in editor.updates if each.get("status") == "completed"]
            assert '"name": "Ada"' in str(done["content"]).replace("'", '"')


@claim("acp:elicitation")
@pytest.mark.parametrize("capabilities", [FORMS, {}])
async def test_the_model_asks_the_user_by_a_form_or_by_options(
    tmp_path: Path, capabilities: dict[str, Any]
) -> None:
    async with serve(tmp_path) as served:
        asking = {"name": "request_user_input", "arguments": QUESTIONS}
        served.model.scripts += [calls(asking), says("Thanks.")]
        async with acp_session(served, tmp_path, capabilities) as (editor, agent, session_id):
            editor.fill = {"question1": "Blue"}
            change = {"session_id": session_id, "config_id": "collaboration_mode"}
            await agent.set_config_option(**change, value="plan")
            await agent.prompt(session_id=session_id, prompt=prompt("Ask."))
            if capabilities:
                (asked,) = editor.requests("elicitation/create")
                assert asked["requestedSchema"] == {
                    "type": "object",
                    "properties": {
                        "question1": {
                            "type": "string",
                            "title": "Colour",
                            "description": "Which colour? (Red, Blue)",
                        }
                    },
                    "required": ["question1"],
                }
            else:
                (asked,) = editor.asked
                names = [option["name"] for option in asked["options"]]
                assert names == ["Red", "Blue", "No answer"]
        (output,) = [one for one in served.model.items() if one["type"] == "function_call_output"]
        assert ("Blue" if capabilities else "Red") in str(output)
