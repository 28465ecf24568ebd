"""The ACP adapter of Codex, `@agentclientprotocol/codex-acp`, with this server behind it.

python -m tests.interop.acp [--adapter PATH]

Starts the adapter as an editor does, with CODEX_PATH naming this server's executable, and speaks
the Agent Client Protocol with it over stdio: a session, prompts, a cancel, a mode, a close, it
again, and a tool of an MCP server. PATH is the adapter's `dist/index.js`; without it
`codex-acp` on PATH is started. Prints a line a check, `ok` or `FAIL`, and exits with 1 if there was
a failure, with 2 where the adapter is missing. Not part of the tests, which do not need Node.js.
Source: docs/clients.md, "Editors"; https://agentclientprotocol.com.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from tests.long.real_servers import Report
from tests.support.harness import (
    Gate,
    ScriptedModel,
    calls,
    environment_without,
    says,
    write_config,
)
from tests.support.paths import MCP_PEER

ANSWER_S = 60.0
LOOK_S = 0.05
SERVER = Path(sys.executable).with_name("app-server")
VERSION = 1
"""Of the Agent Client Protocol."""

Message = dict[str, Any]


class Editor:
    """A client of the Agent Client Protocol: it answers questions for permission with yes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._sent = 0
        self.updates: list[Message] = []
        """Of all sessions, in order."""
        self.asked: list[Message] = []
        """Questions for permission."""

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result.

        Raises:
            AssertionError: the answer is an error; EOFError: the adapter has ended.
        """
        number = await self.request(method, **params)
        return await self.answer(number)

    async def request(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        self._sent += 1
        await self._send({"id": self._sent, "method": method, "params": params})
        return self._sent

    async def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        await self._send({"method": method, "params": params})

    async def answer(self, number: int) -> Any:
        """Read until a request is answered, and return the result."""
        message = await self._read(lambda message: message.get("id") == number)
        assert "error" not in message, message["error"]
        return message["result"]

    async def update(self, kind: str) -> Message:
        """Read until a session tells something of this kind."""
        message = await self._read(
            lambda message: (
                message.get("method") == "session/update"
                and message["params"]["update"]["sessionUpdate"] == kind
            )
        )
        update: Message = message["params"]["update"]
        return update

    async def _read(self, wanted: Callable[[Message], bool]) -> Message:
        assert self._process.stdout is not None
        with anyio.fail_after(ANSWER_S):
            while line := await self._process.stdout.readline():
                message: Message = json.loads(line)
                if message.get("method") == "session/request_permission":
                    await self._allow(message)
                elif message.get("method") == "session/update":
                    self.updates.append(message["params"]["update"])
                if "method" in message and "id" in message:
                    continue
                if wanted(message):
                    return message
        raise EOFError("the adapter ended")

    async def _allow(self, message: Message) -> None:
        self.asked.append(message["params"])
        options = message["params"]["options"]
        chosen = next(each["optionId"] for each in options if each["kind"] == "allow_once")
        outcome = {"outcome": "selected", "optionId": chosen}
        await self._send({"id": message["id"], "result": {"outcome": outcome}})

    async def _send(self, message: Message) -> None:
        assert self._process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", **message})
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    def text(self, kind: str = "agent_message_chunk") -> str:
        """Join the texts that were told, and forget them."""
        told, self.updates = self.updates, []
        return "".join(each["content"]["text"] for each in told if each["sessionUpdate"] == kind)


@asynccontextmanager
async def editor(adapter: Sequence[str], home: Path) -> AsyncIterator[Editor]:
    """Start the adapter with a home; leaving ends it and what it has started."""
    process = await asyncio.create_subprocess_exec(
        *adapter,
        env=environment_without("OPENAI_API_KEY", "CODEX_API_KEY", "APP_SERVER_HOME")
        | {"CODEX_PATH": str(SERVER), "CODEX_HOME": str(home), "NO_BROWSER": "1"},
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        limit=1 << 26,
    )
    try:
        yield Editor(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()


def text(words: str) -> list[Message]:
    """Make a prompt."""
    return [{"type": "text", "text": words}]


async def check_all(adapter: Sequence[str], work: Path, report: Report) -> None:
    """Try everything with files in `work`."""
    home, folder = work / "home", work / "folder"
    folder.mkdir()
    async with ScriptedModel().serve() as model:
        # A request waits for every server, so that its tool is there when the model calls it. Of a
        # model whose window is not known the user is warned, in the middle of the answer.
        window = "model_context_window = 100000\n"
        write_config(home, model.url, f"{window}mcp_optional_startup_grace_ms = 0")
        async with editor(adapter, home) as acp:
            session = ""
            with report.check("a session starts, with modes to choose from"):
                told = await acp.call("initialize", protocolVersion=VERSION, clientCapabilities={})
                assert told["protocolVersion"] == VERSION
                started = await acp.call("session/new", cwd=str(folder), mcpServers=[])
                session = started["sessionId"]
                assert started["modes"]["currentModeId"], started
            with report.check("a prompt is answered, piece by piece"):
                model.scripts.append(says("One ", "two ", "three."))
                assert await _first(acp, model, session, "Count.") == "One two three."
            with report.check("a cancel ends the turn, and the next prompt works"):
                await _cancels(acp, model, session)
            with report.check("a mode decides on the sandbox of the next turn"):
                await acp.call("session/set_mode", sessionId=session, modeId="read-only")
                await acp.call("session/prompt", sessionId=session, prompt=text("/status"))
                assert "**Sandbox:** read-only" in acp.text()
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


async def _first(acp: Editor, model: ScriptedModel, session: str, words: str) -> str:
    """Say the first words of a session, and wait until the adapter has asked for its title too."""
    before = len(model.requests)
    ended = await acp.call("session/prompt", sessionId=session, prompt=text(words))
    assert ended["stopReason"] == "end_turn", ended
    with anyio.fail_after(ANSWER_S):
        while len(model.requests) < before + 2:
            await anyio.sleep(LOOK_S)
    return acp.text()


async def _cancels(acp: Editor, model: ScriptedModel, session: str) -> None:
    gate = Gate()
    script = says("Never ", "finished.")
    model.scripts.append([*script[:3], gate, *script[3:]])
    prompt = await acp.request("session/prompt", sessionId=session, prompt=text("Go on."))
    await acp.update("agent_message_chunk")
    await acp.notify("session/cancel", sessionId=session)
    ended = await acp.answer(prompt)
    gate.opened.set()
    assert ended["stopReason"] == "cancelled", ended
    assert acp.text() == "Never "
    model.scripts.append(says("Here."))
    ended = await acp.call("session/prompt", sessionId=session, prompt=text("Are you there?"))
    assert (ended["stopReason"], acp.text()) == ("end_turn", "Here.")


async def _calls_a_tool(acp: Editor, model: ScriptedModel, folder: Path) -> None:
    server = {"name": "raw", "command": sys.executable, "args": [str(MCP_PEER)], "env": []}
    started = await acp.call("session/new", cwd=str(folder), mcpServers=[server])
    session = {"sessionId": started["sessionId"]}
    # In the mode that a session starts with, a reviewer decides and not the user.
    await acp.call("session/set_mode", **session, modeId="workspace-write")
    await _first(acp, model, started["sessionId"], "Hello.")
    call = {"namespace": "mcp__raw", "name": "wipe", "arguments": {}}
    model.scripts += [calls(call), says("Wiped.")]
    ended = await acp.call("session/prompt", **session, prompt=text("Wipe it."))
    kinds = [each["sessionUpdate"] for each in acp.updates]
    assert (ended["stopReason"], len(acp.asked)) == ("end_turn", 1), (ended, acp.asked)
    assert "tool_call" in kinds, kinds
    (last,) = [each for each in acp.updates if each.get("status") == "completed"]
    assert last["rawOutput"]["result"]["content"] == text("wipe ran"), last
    assert acp.text().endswith("Wiped.")


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.acp")
    parser.add_argument("--adapter", metavar="PATH")
    path = parser.parse_args().adapter
    installed, node = shutil.which("codex-acp"), shutil.which("node")
    if path is None and installed is not None:
        adapter = [installed]
    elif path is not None and node is not None:
        adapter = [node, path]
    else:
        needed = "codex-acp (or node and --adapter PATH) is needed"
        print(f"nothing was checked: {needed}", file=sys.stderr)
        return 2
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        anyio.run(check_all, adapter, Path(work), report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
