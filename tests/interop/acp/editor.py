"""A client of the Agent Client Protocol that starts an adapter and talks with it over stdio.

Source: https://agentclientprotocol.com.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from tests.support.harness import environment_without
from tests.support.model import Gate, ScriptedModel, says

ANSWER_S = 60.0
LOOK_S = 0.05
VERSION = 1
"""Of the Agent Client Protocol."""

Message = dict[str, Any]


class Editor:
    """A client of the Agent Client Protocol: it answers questions for permission with yes."""

    def __init__(self, process: asyncio.subprocess.Process, *, is_native: bool) -> None:
        self._process = process
        self.pid = process.pid
        self.is_native = is_native
        """Whether no adapter is between it and the server."""
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
async def editor(
    adapter: Sequence[str] | None, server: Path, home: Path, folder: Path
) -> AsyncIterator[Editor]:
    """Start the adapter in a folder, with a server's program and home; leaving ends both.

    Without an adapter it is the server itself that speaks ACP.
    """
    process = await asyncio.create_subprocess_exec(
        *([str(server), "acp"] if adapter is None else adapter),
        env=environment_without("OPENAI_API_KEY", "CODEX_API_KEY", "APP_SERVER_HOME")
        | {"CODEX_PATH": str(server), "CODEX_HOME": str(home), "NO_BROWSER": "1"},
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        limit=1 << 26,
    )
    try:
        yield Editor(process, is_native=adapter is None)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()


def text(words: str) -> list[Message]:
    """Make a prompt."""
    return [{"type": "text", "text": words}]


async def first(acp: Editor, model: ScriptedModel, session: str, prompt: Sequence[Message]) -> str:
    """Say the first words of a session, and wait until an adapter has asked for its title too."""
    before = len(model.requests)
    ended = await acp.call("session/prompt", sessionId=session, prompt=prompt)
    assert ended["stopReason"] == "end_turn", ended
    with anyio.fail_after(ANSWER_S):
        while len(model.requests) < before + (1 if acp.is_native else 2):
            await anyio.sleep(LOOK_S)
    return acp.text()


async def cancels(acp: Editor, model: ScriptedModel, session: str) -> None:
    """Cancel a turn while the model answers, and prompt again."""
    acp.updates.clear()
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
