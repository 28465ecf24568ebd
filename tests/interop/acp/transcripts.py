"""The same scenario through the adapter of Codex and natively: what an editor is told and asked.

Updates and questions are brought to what both have a word for; what differs otherwise stands in
docs/acp.md, "Beside the adapter". Text in pieces is one text, as its pieces depend on time.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.acp.editor import VERSION, Message, editor, text
from tests.interop.acp.zed import CAPABILITIES, COMMAND, PATCH
from tests.interop.elsewhere import Program
from tests.long.real_servers import Report
from tests.support.harness import write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.paths import MCP_PEER

STEPS = [{"step": "a", "status": "completed"}, {"step": "b", "status": "in_progress"}]
ESCALATED = {
    "cmd": "echo hi > x.txt",
    "sandbox_permissions": "require_escalated",
    "justification": "because",
}
SCENARIO: list[tuple[str, Sequence[Any]]] = [
    ("Say it.", [says("One ", "two.")]),
    ("Run it.", [calls({"name": "exec_command", "arguments": {"cmd": COMMAND}})]),
    ("Patch it.", [calls({"name": "apply_patch", "arguments": {"input": PATCH}})]),
    ("Write it.", [calls({"name": "exec_command", "arguments": ESCALATED})]),
    ("Call it.", [calls({"namespace": "mcp__raw", "name": "wipe", "arguments": {}})]),
    ("Plan it.", [calls({"name": "update_plan", "arguments": {"plan": STEPS}})]),
]
"""Prompts, and what the model answers first; then it says what it was asked."""


async def compare(adapter: Sequence[str], program: Program, work: Path, report: Report) -> None:
    """Run the scenario both ways, with files in `work`."""
    there = await _run(adapter, program, work / "adapter")
    here = await _run(None, program, work / "native")
    for (prompt, _), through, natively in zip(SCENARIO, there, here, strict=True):
        with report.check(f"the adapter and the server tell the same: {prompt}"):
            assert natively == through, f"\nadapter: {through}\nserver:  {natively}"


async def _run(
    adapter: Sequence[str] | None, program: Program, work: Path
) -> list[tuple[list[Any], list[Any], str]]:
    """Return what an editor was told and asked for each prompt, and how its turn ended."""
    home, folder = work / "home", work / "folder"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("alpha\n")
    found: list[tuple[list[Any], list[Any], str]] = []
    async with ScriptedModel().serve() as model:
        window = "model_context_window = 100000\n"
        write_config(home, model.url, f"{window}mcp_optional_startup_grace_ms = 0")
        async with program(home) as server, editor(adapter, server, home, folder) as acp:
            await acp.call("initialize", protocolVersion=VERSION, clientCapabilities=CAPABILITIES)
            peer = {"name": "raw", "command": sys.executable, "args": [str(MCP_PEER)], "env": []}
            opened = await acp.call("session/new", cwd=str(folder), mcpServers=[peer])
            session = {"sessionId": opened["sessionId"]}
            choice = {"configId": "mode", "value": "read-only"}
            await acp.call("session/set_config_option", **session, **choice)
            for prompt, scripts in SCENARIO:
                acp.updates.clear()
                acp.asked.clear()
                said = says("Done.", item_id=f"msg_{len(found)}")
                model.choose = _player(prompt, [*scripts, said])
                ended = await acp.call("session/prompt", **session, prompt=text(prompt))
                told = _told(acp.updates, str(work))
                asked = [_asked(question) for question in acp.asked]
                found.append((told, asked, ended["stopReason"]))
    return found


def _player(prompt: str, scripts: Sequence[Any]) -> Any:
    """Play scripts to the requests of a turn; the adapter asks for a title besides."""
    left = list(scripts)

    def choose(request: Message) -> Any:
        said = [part.get("text") for item in request["input"] for part in item.get("content", ())]
        return left.pop(0) if prompt in said and left else says("A title")

    return choose


def _told(updates: Sequence[Message], work: str) -> list[Any]:
    """Bring updates to what both have; `work` is left out of paths."""
    told: list[Any] = []
    for update in updates:
        kind = update["sessionUpdate"]
        meta = update.get("_meta", {})
        match kind:
            case "agent_message_chunk":
                if told and told[-1][0] == kind:
                    told[-1] = (kind, told[-1][1] + update["content"]["text"])
                else:
                    told.append((kind, update["content"]["text"]))
            case "plan":
                told.append((kind, update["entries"]))
            case "usage_update":
                told.append((kind, update["used"], update["size"]))
            case "tool_call":
                shown = [_content(part) for part in update.get("content", ())]
                title = None if update["kind"] == "edit" else update["title"]
                about = (update["toolCallId"], update["kind"], title, update["status"])
                told.append((kind, *about, shown, update.get("rawInput")))
            case "tool_call_update" if "terminal_output" in meta:
                data = meta["terminal_output"]["data"]
                if told and told[-1][0] == "output":
                    told[-1] = ("output", "".join(sorted(told[-1][1] + data)))
                else:
                    told.append(("output", "".join(sorted(data))))
            case "tool_call_update" if update.get("status") in ("completed", "failed"):
                result = (update.get("rawOutput") or {}).get("result")
                told.append((kind, update["status"], meta.get("terminal_exit"), result))
    plain: list[Any] = json.loads(json.dumps(told).replace(work, "WORK"))
    return plain


def _content(part: Message) -> Any:
    kept = ("type", "path", "oldText", "newText", "terminalId")
    return {name: part[name] for name in kept if name in part}


def _asked(question: Message) -> Any:
    call = question["toolCall"]
    kinds = sorted({option["kind"] for option in question["options"]})
    return call["toolCallId"], call["kind"], call["status"], kinds
