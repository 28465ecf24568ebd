"""Holds one conversation with a running server, and writes it down in comparable lines."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect

from tests.interop.tools.scenarios import RULES, Scenario
from tests.support.harness import write_config
from tests.support.model import COMPLETED, ScriptedModel, says

READY_S = 60.0
TURN_S = 60.0
MAX_LINES = 200
PLACEHOLDERS = (".agents", ".codex")
"""Empty folders that are there for as long as a confined command runs, and a moment longer."""

LEFT_OUT = frozenset(
    {"id", "itemId", "threadId", "turnId", "requestId", "durationMs", "approvalId"}
)
QUIET = frozenset(
    {
        "turn/started",
        "thread/readState/changed",
        "thread/tokenUsage/updated",
        "warning",
        "thread/started",
        "mcpServer/startupStatus/updated",
        "item/agentMessage/delta",
        "account/rateLimits/updated",
        "thread/settings/updated",
        "remoteControl/status/changed",
        "deprecationNotice",
        "configWarning",
    }
)


class Client:
    """A client that checks nothing: the reference sends what our schema does not have."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._sent = 0

    async def send(self, message: Any) -> None:
        await self._socket.send(json.dumps(message))

    async def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self._socket.recv())
        return message

    async def request(self, method: str, params: Any) -> int:
        self._sent += 1
        await self.send({"id": self._sent, "method": method, "params": params})
        return self._sent

    async def call(self, method: str, params: Any) -> Any:
        number = await self.request(method, params)
        while (message := await self.receive()).get("id") != number or "method" in message:
            pass
        return message["result"]

    async def close(self) -> None:
        await self._socket.close()


class Place:
    """A server, its home and its user's home, and the folders of its threads."""

    def __init__(self, command: str, root: Path) -> None:
        self.command = command
        self.home = root / "home"
        self.user_home = root / "user"
        self.user_home.mkdir()
        self.root = root

    def workspace(self, scenario: Scenario) -> Path:
        """Make a repository with the scenario's files."""
        folder = self.root / scenario.name
        folder.mkdir()
        for name, text in scenario.files.items():
            (folder / name).write_text(text)
        for words in (
            ["init", "-q", "-b", "master"],
            ["add", "."],
            ["commit", "-q", "-m", "first"],
        ):
            identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
            subprocess.run(["git", *identity, *words], cwd=folder, check=True)
        return folder


@asynccontextmanager
async def running(command: str, model: ScriptedModel) -> AsyncIterator[tuple[Place, str]]:
    """Run a server with a fresh home while the context lasts; gives its place and its URL."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        place = Place(command, Path(folder).resolve())
        write_config(place.home, model.url)
        (place.home / "rules").mkdir()
        (place.home / "rules" / "default.rules").write_text(RULES)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = {
            **os.environ,
            "HOME": str(place.user_home),
            "CODEX_HOME": str(place.home),
            "SHELL": "/bin/bash",
        }
        process = await asyncio.create_subprocess_shell(
            "exec " + command.format(port=port),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield place, f"ws://127.0.0.1:{port}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with anyio.CancelScope(shield=True), anyio.move_on_after(READY_S):
                await process.wait()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


async def play(scenario: Scenario, place: Place, url: str, model: ScriptedModel) -> list[str]:
    """Hold a conversation and return its lines."""
    workspace = place.workspace(scenario)
    client = Client(await opened(url))
    lines: list[str] = []
    try:
        hello = {
            "clientInfo": {"name": "tools", "title": "tools", "version": "1"},
            "capabilities": {"experimentalApi": True},
        }
        await client.call("initialize", hello)
        await client.send({"method": "initialized"})
        thread = await client.call(
            "thread/start",
            {
                "cwd": str(workspace),
                "model": scenario.model,
                "sandbox": scenario.sandbox,
                "approvalPolicy": scenario.policy,
            },
        )
        for number, item in enumerate(scenario.calls):
            call_id = f"call_{number}"
            call = {**item, "call_id": call_id, "id": f"{item['type'][:2]}_{number}"}
            model.scripts[:] = [
                [{"type": "response.output_item.done", "item": call}, COMPLETED],
                says("ok"),
            ]
            model.requests.clear()
            lines.append(f"> {json.dumps(item, sort_keys=True)}")
            start = {"threadId": thread["thread"]["id"], "input": [{"type": "text", "text": "go"}]}
            lines += await _turn(client, start, scenario)
            outputs = [
                given for given in model.requests[-1]["input"] if given.get("call_id") == call_id
            ][1:]
            lines += [
                f"  model got {given['type']} {json.dumps(given['output'])}" for given in outputs
            ]
    finally:
        await client.close()
    names = sorted(path.name for path in workspace.iterdir() if path.name not in PLACEHOLDERS)
    lines.append("  files " + " ".join(names))
    return [_plain(line, workspace, place) for line in _merged(lines)]


async def opened(url: str) -> ClientConnection:
    """Connect to a server as soon as it listens."""
    with anyio.fail_after(READY_S):
        while True:
            try:
                return await connect(url, compression=None, max_size=None, proxy=None)
            except OSError:
                await asyncio.sleep(0.05)


async def _turn(client: Client, start: dict[str, Any], scenario: Scenario) -> list[str]:
    lines: list[str] = []
    seen_diff = ""
    request = await client.request("turn/start", start)
    with anyio.move_on_after(TURN_S):
        while len(lines) < MAX_LINES:
            message = await client.receive()
            if message.get("id") == request and "method" not in message:
                if "error" in message:
                    return [f"  error {message['error']}"]
                continue
            method, params = message.get("method"), message.get("params", {})
            if method is None or method in QUIET:
                continue
            if "id" in message:
                lines.append(f"? {method} {_shown(params)}")
                answer = _answer(method, scenario)
                lines.append(f"! {json.dumps(answer)}")
                await client.send({"id": message["id"], "result": answer})
                continue
            if params.get("item", {}).get("type") in ("userMessage", "agentMessage"):
                continue
            if method == "turn/diff/updated":
                if params["diff"] == seen_diff:
                    continue
                seen_diff = params["diff"]
            if method == "turn/completed":
                turn = params["turn"]
                lines.append(f"  {method} {turn['status']} {json.dumps(turn.get('error'))}")
                return lines
            lines.append(f"  {method} {_shown(params)}")
    return [*lines, "  the turn did not end"]


def _answer(method: str, scenario: Scenario) -> dict[str, Any]:
    if method == "item/tool/requestUserInput":
        return {"answers": {"q": {"answers": ["A"]}}}
    return {"decision": scenario.answer}


def _shown(params: dict[str, Any]) -> str:
    inner = params.get("item", params)
    kind = {"type": inner["type"]} if "type" in inner and isinstance(inner["type"], str) else {}
    return json.dumps(kind | _without(inner), sort_keys=True)


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without(member)
            for key, member in value.items()
            if member is not None and key not in LEFT_OUT and not key.endswith(("AtMs", "At"))
        }
    if isinstance(value, list):
        return [_without(member) for member in value]
    return value


_DELTA = re.compile(r'^  (item/commandExecution/outputDelta) \{"delta": (".*")\}$')


def _merged(lines: Sequence[str]) -> Iterator[str]:
    """Make one of deltas in a row: how output is cut into pieces is chance.

    So is whether any come before the item is complete, which then has all of it.
    """
    text = ""
    for number, line in enumerate((*lines, "")):
        found = _DELTA.match(line)
        if found:
            text += json.loads(found[2])
            continue
        if text and not any(json.dumps(text)[1:-1] in later for later in lines[number:]):
            yield f"  item/commandExecution/outputDelta {json.dumps(text)}"
        text = ""
        if line:
            yield line


_CHANCE = (
    (re.compile(r"Chunk ID: [0-9a-f]{6}"), "Chunk ID: X"),
    (re.compile(r"Wall time: [0-9.]+ seconds"), "Wall time: N seconds"),
    (re.compile(r"session ID \d+"), "session ID N"),
    (re.compile(r'"processId": "\d+"'), '"processId": "PID"'),
    (re.compile(r"index [0-9a-f]{7,40}\.\.[0-9a-f]{7,40}"), "index H..H"),
    (re.compile(r"Original token count: \d+"), "Original token count: N"),
    # The reference tells the model the name of a type around the reason.
    (re.compile(r'CreateProcess \{ message: \\"Rejected\(\\\\\\"(.*?)\\\\\\"\)\\" \}'), r"\1"),
    (re.compile(r"`/bin/bash -lc [^`]*` (rejected: |(?=requires approval))"), ""),
    (re.compile(r" \(os error \d+\)"), ""),
)


def _plain(line: str, workspace: Path, place: Place) -> str:
    line = line.replace(str(workspace), "WS").replace(str(place.user_home), "HOME")
    line = line.replace(str(place.root), "ROOT")
    for pattern, name in _CHANCE:
        line = pattern.sub(name, line)
    return line
