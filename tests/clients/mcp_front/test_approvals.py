"""The app-server as an MCP server: what its client is asked, and how answers are read."""

from pathlib import Path
from typing import Any

import pytest

from app_server.clients.mcp_front.questions import Verdict, elicitation_params, parse_verdict
from app_server.rpc.older_interface.events import COMMAND
from tests.support.clients.mcp_front import front
from tests.support.clients.scripted_front import WIPE, result_of, scripted
from tests.support.harness import claim, stdio_server
from tests.support.model import calls, says


@claim("front:approval")
@pytest.mark.parametrize(
    ("answer", "output", "questions"),
    [
        ({"action": "accept"}, "wipe ran", 2),
        ({"action": "accept", "_meta": {"persist": "session"}}, "wipe ran", 1),
        ({"decision": "allow"}, "wipe ran", 2),
        ({"decision": "approved"}, "wipe ran", 2),
        ({"decision": "approved_for_session"}, "wipe ran", 1),
        ({"action": "decline"}, "user rejected MCP tool call", 2),
        ({"decision": "deny"}, "user rejected MCP tool call", 2),
        ({"decision": "denied"}, "user rejected MCP tool call", 2),
        ({"decision": "nonsense"}, "user rejected MCP tool call", 2),
        (None, "user rejected MCP tool call", 2),
    ],
)
async def test_a_tool_that_may_do_harm_is_asked_about_in_both_forms(
    tmp_path: Path, answer: dict[str, Any] | None, output: str, questions: int
) -> None:
    peer = stdio_server("peer", required="true")
    async with scripted(tmp_path, peer) as model, front(tmp_path, answer) as client:
        model.scripts += [calls(WIPE, {**WIPE, "call_id": "call_2"}), says("Done.")]
        result = await client.call("codex", prompt="Wipe it.")
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("Done.", thread_id)
        outputs = [i for i in model.requests[-1]["input"] if i["type"] == "function_call_output"]
        assert len(outputs) == 2
        assert all(output in str(item["output"]) for item in outputs)
        assert len(client.asked) == questions
        meta = client.asked[0].pop("_meta")
        assert (meta["codex_approval_kind"], meta["tool_name"]) == ("mcp_tool_call", "wipe")
        [request_id] = {params["_meta"]["requestId"] for params in client.events}
        turn_id = (await client.until("task_started"))["id"]
        assert client.asked[0] == {
            "message": 'Allow the peer MCP server to run tool "wipe"?',
            "requestedSchema": {"type": "object", "properties": {}},
            "threadId": thread_id,
            "codex_elicitation": "mcp-tool-approval",
            "codex_mcp_tool_call_id": request_id,
            "codex_event_id": turn_id,
            "codex_mcp_server": "peer",
        }


@claim("front:commands")
@pytest.mark.parametrize(
    ("answer", "is_done"),
    [
        ({"decision": "approved"}, True),
        ({"decision": "allow"}, True),
        ({"action": "accept"}, True),
        ({"decision": "denied"}, False),
        ({"action": "decline"}, False),
        (None, False),
    ],
)
async def test_commands_and_patches_are_asked_about(
    tmp_path: Path, answer: dict[str, Any] | None, is_done: bool
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    patch = "*** Begin Patch\n*** Add File: b.txt\n+new\n*** End Patch"
    asks = [
        {"name": "exec_command", "arguments": {"cmd": "touch a.txt", "login": False}},
        {"name": "apply_patch", "arguments": {"input": patch}, "call_id": "call_2"},
    ]
    async with scripted(tmp_path) as model, front(tmp_path, answer) as client:
        model.scripts += [calls(*asks), says("Done.")]
        result = await client.call(
            "codex",
            prompt="Go.",
            cwd=str(folder),
            sandbox="workspace-write",
            **{"approval-policy": "untrusted"},
        )
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("Done.", thread_id)
        made = [(folder / name).exists() for name in ("a.txt", "b.txt")]
        assert made == [is_done, is_done]
        [request_id] = {params["_meta"]["requestId"] for params in client.events}
        turn_id = (await client.until("task_started"))["id"]
        common = {
            "requestedSchema": {"type": "object", "properties": {}},
            "threadId": thread_id,
            "codex_mcp_tool_call_id": request_id,
            "codex_event_id": turn_id,
        }
        of_command, of_patch = client.asked
        shell = of_command["codex_command"][0]
        assert of_command == {
            **common,
            "codex_elicitation": "exec-approval",
            "codex_call_id": "call_1",
            "message": f"Allow `{shell} -c 'touch a.txt'` to run in `{folder}`?",
            "codex_command": [shell, "-c", "touch a.txt"],
            "codex_cwd": str(folder),
            "codex_parsed_cmd": [{"type": "unknown", "cmd": "touch a.txt"}],
        }
        assert of_patch == {
            **common,
            "codex_elicitation": "patch-approval",
            "codex_call_id": "call_2",
            "message": f"Allow changes of files: {folder}/b.txt?",
            "codex_reason": None,
            "codex_grant_root": None,
            "codex_changes": {f"{folder}/b.txt": {"type": "add", "content": "new\n"}},
        }


@claim("front:commands")
@pytest.mark.parametrize("answer", [{"decision": "abort"}, {"action": "cancel"}])
async def test_a_cancelled_command_ends_the_turn(tmp_path: Path, answer: dict[str, Any]) -> None:
    async with scripted(tmp_path) as model, front(tmp_path, answer) as client:
        model.scripts.append(calls({"name": "exec_command", "arguments": {"cmd": "touch a"}}))
        result = await client.call("codex", prompt="Go.", **{"approval-policy": "untrusted"})
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("The turn was interrupted", thread_id, is_error=True)
        assert len(model.requests) == 1


def test_an_approval_is_read_in_both_forms() -> None:
    for answer, decision in (
        ({"decision": "approved_for_session"}, "acceptForSession"),
        ({"action": "accept", "_meta": {"persist": "session"}}, "acceptForSession"),
        ({"action": "cancel"}, "cancel"),
        ({"decision": "abort"}, "cancel"),
        ({"decision": 5}, "decline"),
        ({"action": "maybe"}, "decline"),
        ([], "decline"),
    ):
        assert parse_verdict(answer).answer_to(COMMAND) == {"decision": decision}


@claim("front:approval")
async def test_an_abort_ends_the_turn_and_the_call_is_answered(tmp_path: Path) -> None:
    peer, abort = stdio_server("peer", required="true"), {"decision": "abort"}
    async with scripted(tmp_path, peer) as model, front(tmp_path, abort) as client:
        model.scripts.append(calls(WIPE))
        result = await client.call("codex", prompt="Wipe it.")
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("The turn was interrupted", thread_id, is_error=True)
        assert (await client.until("turn_aborted"))["msg"]["reason"] == "interrupted"
        assert len(model.requests) == 1


@claim("front:approval")
def test_a_link_is_put_to_the_client_as_a_link() -> None:
    link = {"mode": "url", "message": "Sign in.", "url": "https://a.test/", "elicitationId": "e"}
    asked = {**link, "threadId": "t", "turnId": None, "serverName": "mail", "_meta": None}
    assert elicitation_params(asked, "call") == {
        **link,
        "threadId": "t",
        "codex_elicitation": "mcp-elicitation",
        "codex_mcp_tool_call_id": "call",
        "codex_event_id": None,
        "codex_mcp_server": "mail",
    }


@claim("front:approval")
@pytest.mark.parametrize("answer", [None, [], {}, {"action": "maybe"}, {"decision": "maybe"}])
def test_an_answer_that_makes_no_sense_declines(answer: Any) -> None:
    assert parse_verdict(answer) == Verdict({"action": "decline"})
