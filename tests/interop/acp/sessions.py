"""Sessions of an editor that declares nothing of itself.

Source: docs/clients.md, "Editors".
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop.acp.editor import VERSION, Editor, cancels, editor, first, text
from tests.interop.elsewhere import Program
from tests.long.real_servers import Report
from tests.support.harness import write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.paths import MCP_PEER


async def check_all(
    adapter: Sequence[str] | None, program: Program, work: Path, report: Report
) -> None:
    """Try everything with files in `work`."""
    home, folder = work / "home", work / "folder"
    folder.mkdir()
    async with ScriptedModel().serve() as model:
        # A request waits for every server, so that its tool is there when the model calls it. Of a
        # model whose window is not known the user is warned, in the middle of the answer.
        window = "model_context_window = 100000\n"
        write_config(home, model.url, f"{window}mcp_optional_startup_grace_ms = 0")
        async with program(home) as server, editor(adapter, server, home, folder) as acp:
            session = ""
            with report.check("a session starts, with modes to choose from"):
                told = await acp.call("initialize", protocolVersion=VERSION, clientCapabilities={})
                assert told["protocolVersion"] == VERSION
                started = await acp.call("session/new", cwd=str(folder), mcpServers=[])
                session = started["sessionId"]
                assert started["modes"]["currentModeId"], started
            with report.check("a prompt is answered, piece by piece"):
                model.scripts.append(says("One ", "two ", "three."))
                assert await first(acp, model, session, text("Count.")) == "One two three."
            with report.check("a cancel ends the turn, and the next prompt works"):
                await cancels(acp, model, session)
            with report.check("a mode decides on the sandbox of the next turn"):
                await acp.call("session/set_mode", sessionId=session, modeId="read-only")
                await acp.call("session/prompt", sessionId=session, prompt=text("/status"))
                mode = "- Mode: read-only" if acp.is_native else "**Sandbox:** read-only"
                assert mode in acp.text()
            with report.check("a session is closed, listed, and loaded with its history"):
                await acp.call("session/close", sessionId=session)
                listed = (await acp.call("session/list", cwd=str(folder)))["sessions"]
                assert [each["sessionId"] for each in listed] == [session], listed
                acp.text()
                load = {"sessionId": session, "cwd": str(folder), "mcpServers": []}
                await acp.call("session/load", **load)
                assert acp.text().startswith("One two three.")
            with report.check("a tool of the editor's MCP server is approved and called"):
                await _calls_a_tool(acp, model, folder)


async def _calls_a_tool(acp: Editor, model: ScriptedModel, folder: Path) -> None:
    server = {"name": "raw", "command": sys.executable, "args": [str(MCP_PEER)], "env": []}
    started = await acp.call("session/new", cwd=str(folder), mcpServers=[server])
    session = {"sessionId": started["sessionId"]}
    # In the mode that a session starts with, a reviewer decides and not the user.
    await acp.call("session/set_mode", **session, modeId="workspace-write")
    await first(acp, model, started["sessionId"], text("Hello."))
    call = {"namespace": "mcp__raw", "name": "wipe", "arguments": {}}
    model.scripts += [calls(call), says("Wiped.")]
    ended = await acp.call("session/prompt", **session, prompt=text("Wipe it."))
    kinds = [each["sessionUpdate"] for each in acp.updates]
    assert (ended["stopReason"], len(acp.asked)) == ("end_turn", 1), (ended, acp.asked)
    assert "tool_call" in kinds, kinds
    (last,) = [each for each in acp.updates if each.get("status") == "completed"]
    assert last["rawOutput"]["result"]["content"] == text("wipe ran"), last
    assert acp.text().endswith("Wiped.")
