"""What the editor Zed asks of codex-acp, with this server behind the adapter.

Zed itself is in no package registry, so its requests are made here as its source makes them: the
adapter is started by a shell in the folder of the project, with Zed's capabilities; a session has
the folders of the project and its MCP servers, and the options that the settings give; prompts
carry the files that the user mentions; output of commands is shown in a terminal of the editor.
Source: docs/editors.md, "Zed"; zed-industries/zed, crates/agent_servers/src/acp.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.acp.editor import VERSION, Editor, Message, cancels, editor, first, text
from tests.interop.elsewhere import Program
from tests.long.real_servers import Report
from tests.support.harness import write_config
from tests.support.model import ScriptedModel, calls, says

CAPABILITIES = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": {"terminal": True},
    "_meta": {"terminal_output": True, "terminal-auth": True},
}
NEEDED = {"list", "resume", "close", "delete", "additionalDirectories"}
"""Capabilities of sessions: without one Zed leaves a button out."""

MENTIONED = "alpha\n"
COMMAND = "echo one; echo two >&2; exit 3"
PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-alpha\n+beta\n*** End Patch\n"


async def check_all(
    adapter: Sequence[str] | None, program: Program, work: Path, report: Report
) -> None:
    """Try everything with files in `work`."""
    home, folder, other = work / "home", work / "folder", work / "other"
    folder.mkdir()
    other.mkdir()
    (folder / "a.txt").write_text(MENTIONED)
    (other / "b.txt").write_text("some, ")
    async with ScriptedModel().serve() as model:
        window = "model_context_window = 100000\n"
        write_config(home, model.url, f"{window}mcp_optional_startup_grace_ms = 0")
        shell = None if adapter is None else ["/bin/sh", "-c", shlex.join(adapter)]
        async with program(home) as server, editor(shell, server, home, folder) as zed:
            opening = {"cwd": str(folder), "additionalDirectories": [str(other)], "mcpServers": []}
            session: dict[str, str] = {}
            with report.check("Zed: what a session can do is declared"):
                await _declared(zed)
            with report.check("Zed: a session starts in the mode that the settings give"):
                started = await zed.call("session/new", **opening)
                session["sessionId"] = started["sessionId"]
                await _choose(zed, session, "workspace-write")
            with report.check("Zed: the model sees a file that is mentioned"):
                await _mentions(zed, model, session, folder)
            with report.check("Zed: a terminal shows a command, and how it ended"):
                await _shows_a_command(zed, model, session)
            with report.check("Zed: a command writes to the second folder of the project"):
                command = f"echo more >>{shlex.quote(str(other / 'b.txt'))} && echo kept"
                assert await _run(zed, model, session, command) == ("kept\n", 0)
                assert (other / "b.txt").read_text() == "some, more\n"
            with report.check("Zed: a patch is asked about, shown as a diff, and made"):
                await _patches(zed, model, session, folder)
            with report.check("Zed: a cancel ends the turn"):
                await cancels(zed, model, session["sessionId"])
            with report.check("Zed: a session is closed, listed, resumed, loaded and deleted"):
                await _comes_back(zed, model, session, opening)


async def _declared(zed: Editor) -> None:
    me = {"name": "zed", "version": "1.0.0", "title": "Zed"}
    answer = await zed.call(
        "initialize", protocolVersion=VERSION, clientCapabilities=CAPABILITIES, clientInfo=me
    )
    can = answer["agentCapabilities"]
    assert answer["protocolVersion"] == VERSION
    assert can["sessionCapabilities"].keys() >= NEEDED, can
    assert can["loadSession"], can
    assert can["promptCapabilities"] == {"embeddedContext": True, "image": True}, can


async def _choose(zed: Editor, session: dict[str, str], mode: str) -> None:
    answer = await zed.call("session/set_config_option", **session, configId="mode", value=mode)
    (option,) = [each for each in answer["configOptions"] if each["id"] == "mode"]
    assert option["currentValue"] == mode, option


async def _mentions(
    zed: Editor, model: ScriptedModel, session: dict[str, str], folder: Path
) -> None:
    uri = (folder / "a.txt").as_uri()
    mention = {"type": "resource", "resource": {"uri": uri, "text": MENTIONED}}
    model.scripts.append(says("It says alpha."))
    prompt = [*text("What does "), mention, *text(" say?")]
    assert await first(zed, model, session["sessionId"], prompt) == "It says alpha."
    asked = next(str(each) for each in model.requests if "What does" in str(each))
    assert uri in asked, asked
    assert "alpha" in asked, asked


async def _run(
    zed: Editor, model: ScriptedModel, session: dict[str, str], command: str
) -> tuple[str, int]:
    """Have the model run a command; returns what the terminal shows, and the exit status."""
    zed.updates.clear()
    model.scripts += [calls({"name": "exec_command", "arguments": {"cmd": command}}), says("Ran.")]
    ended = await zed.call("session/prompt", **session, prompt=text("Run it."))
    assert ended["stopReason"] == "end_turn", ended
    (call,) = [each for each in zed.updates if each["sessionUpdate"] == "tool_call"]
    terminal = call["_meta"]["terminal_info"]["terminal_id"]
    assert call["content"] == [{"type": "terminal", "terminalId": terminal}], call
    shown, status = "", None
    for update in zed.updates:
        meta: dict[str, Any] = update.get("_meta", {})
        if "terminal_output" in meta:
            assert meta["terminal_output"]["terminal_id"] == terminal, update
            shown += meta["terminal_output"]["data"]
        if "terminal_exit" in meta:
            assert meta["terminal_exit"]["terminal_id"] == terminal, update
            status = meta["terminal_exit"]["exit_code"]
    assert status is not None, zed.updates
    return shown, status


async def _shows_a_command(zed: Editor, model: ScriptedModel, session: dict[str, str]) -> None:
    shown, status = await _run(zed, model, session, COMMAND)
    assert (sorted(shown.splitlines()), status) == (["one", "two"], 3)


async def _patches(
    zed: Editor, model: ScriptedModel, session: dict[str, str], folder: Path
) -> None:
    await _choose(zed, session, "read-only")
    zed.updates.clear()
    zed.asked.clear()
    model.scripts += [calls({"name": "apply_patch", "arguments": {"input": PATCH}}), says("Done.")]
    ended = await zed.call("session/prompt", **session, prompt=text("Patch it."))
    assert (ended["stopReason"], len(zed.asked)) == ("end_turn", 1), (ended, zed.asked)
    path = str(folder / "a.txt")
    diffs: list[Message] = [
        content
        for update in zed.updates
        for content in update.get("content", [])
        if isinstance(content, dict) and content["type"] == "diff"
    ]
    assert diffs, zed.updates
    for diff in diffs:
        assert (diff["path"], diff["oldText"], diff["newText"]) == (path, "alpha\n", "beta\n"), diff
    assert (folder / "a.txt").read_text() == "beta\n"


async def _comes_back(
    zed: Editor, model: ScriptedModel, session: dict[str, str], opening: dict[str, Any]
) -> None:
    await zed.call("session/close", **session)
    assert await _listed(zed, opening) == [session["sessionId"]]
    await zed.call("session/resume", **session, **opening)
    zed.text()
    # The adapter reads the history up to the item that was the last one.
    model.scripts.append(says("Still here.", item_id="msg_last"))
    await zed.call("session/prompt", **session, prompt=text("Are you there?"))
    assert zed.text() == "Still here."
    await zed.call("session/close", **session)
    await zed.call("session/load", **session, **opening)
    history = zed.text()
    assert history.startswith("It says alpha."), history
    assert history.endswith("Still here."), history
    await zed.call("session/close", **session)
    await zed.call("session/delete", **session)
    assert await _listed(zed, opening) == []


async def _listed(zed: Editor, opening: dict[str, Any]) -> list[str]:
    listed = await zed.call("session/list", cwd=opening["cwd"])
    return [each["sessionId"] for each in listed["sessions"]]
