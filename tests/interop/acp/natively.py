"""Clients from npm, unmodified, that speak ACP with the server itself: the SDK, and acpx.

Source: docs/acp.md; https://www.npmjs.com/package/@agentclientprotocol/sdk, /package/acpx.
"""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import anyio

from tests.long.real_servers import Report
from tests.support.harness import environment_without, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import EXECUTABLE, running

SCRIPT = Path(__file__).with_name("sdk.mjs")
ANSWER_S = 120.0
ANSWER = ("A letter ", "of German:\n", "ä.")
ALLOWED = {
    "name": "exec_command",
    "arguments": {
        "cmd": "touch made",
        "sandbox_permissions": "require_escalated",
        "justification": "It is to be there.",
    },
}


async def check_all(modules: Path, work: Path, report: Report) -> None:
    """Try clients of the folder `modules`, which has `node_modules`, with files in `work`."""
    work.mkdir()
    # Modules are looked for from where a script lies.
    script = str(shutil.copy(SCRIPT, modules))
    async with ScriptedModel().serve() as model:
        own, shared = work / "own", work / "shared"
        for home in (own, shared):
            write_config(home, model.url, 'approval_policy = "on-request"\n')
        with report.check("the SDK of npm over stdio: a server of its own"):
            words = [str(EXECUTABLE), "acp", "--home", str(own)]
            await _asks(model, script, work / "a", *words)
        async with running(shared) as server:
            with report.check("the SDK of npm over stdio: the server that runs"):
                words = [str(EXECUTABLE), "acp", "--home", str(shared)]
                await _asks(model, script, work / "b", *words)
            with report.check("the SDK of npm over a WebSocket"):
                await _asks(model, script, work / "c", f"{server.urls[0]}/acp")
        if (acpx := modules / "node_modules" / ".bin" / "acpx").exists():
            with report.check("acpx asks, and prints the answer"):
                model.scripts.append(says(*ANSWER))
                words = ["--agent", f"{EXECUTABLE} acp --home {own}", "--timeout", "60"]
                shown = await _run(work, str(acpx), *words, "exec", "What is it?", home=work)
                assert "".join(ANSWER) in shown, shown


async def _asks(model: ScriptedModel, script: str, folder: Path, *agent: str) -> None:
    folder.mkdir()
    model.scripts += [calls(ALLOWED), says(*ANSWER)]
    shown = await _run(folder, "node", script, str(folder), "What is it?", *agent)
    found: dict[str, Any] = json.loads(shown)
    kinds = set(found.pop("kinds"))
    assert kinds >= {"available_commands_update", "tool_call", "tool_call_update"}, kinds
    assert found == {
        "asked": ["touch made"],
        "text": "".join(ANSWER),
        "agent": "app-server",
        "stopReason": "end_turn",
        "loaded": "".join(ANSWER),
        "listed": True,
    }
    assert (folder / "made").exists()


async def _run(cwd: Path, *words: str, home: Path | None = None) -> str:
    variables = environment_without("OPENAI_API_KEY", "CODEX_API_KEY", "APP_SERVER_HOME")
    process = await asyncio.create_subprocess_exec(
        *words,
        env=variables | ({} if home is None else {"HOME": str(home)}),
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        with anyio.fail_after(ANSWER_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return output.decode()
