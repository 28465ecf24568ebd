"""Turns whose model runs commands, and what the model and the clients learn of them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.harness import Served, WireClient, serve
from tests.support.model import calls, says
from tests.support.turns import held_clocks

DELTA = "item/commandExecution/outputDelta"

SOON_MS = 250
"""The shortest time after which a command goes on behind its turn."""

TEXT = re.compile(
    r"Chunk ID: [0-9a-f]{6}\nWall time: (\d+\.\d{4}) seconds\n"
    r"Process (exited with code (\d+)|running with session ID (\d+))\n((?:.+\n)*?)"
    r"Original token count: (\d+)\nOutput:\n(.*)",
    re.DOTALL,
)


class CommandResult:
    """What the model got back of one call of `exec_command` or `write_stdin`."""

    def __init__(self, text: str) -> None:
        found = TEXT.fullmatch(text)
        assert found is not None, text
        self.wall_s = float(found[1])
        self.exit_code = None if found[3] is None else int(found[3])
        self.session = None if found[4] is None else int(found[4])
        self.note = found[5]
        self.tokens = int(found[6])
        self.output = found[7]


def command(cmd: str, **arguments: Any) -> dict[str, Any]:
    """Script a call of `exec_command`; it waits for the end as long as it can."""
    given = {"cmd": cmd, "login": False, "yield_time_ms": 30_000, **arguments}
    return {"name": "exec_command", "arguments": given}


def stdin(session: int | None, chars: str = "", **arguments: Any) -> dict[str, Any]:
    """Script a call of `write_stdin`."""
    return {
        "name": "write_stdin",
        "arguments": {"session_id": session, "chars": chars, **arguments},
    }


class Desk:
    """A server, a client, and a thread of it."""

    def __init__(self, served: Served, client: WireClient, thread_id: str, folder: Path) -> None:
        self.served = served
        self.client = client
        self.thread_id = thread_id
        self.folder = folder
        self.messages: list[dict[str, Any]] = []
        """What the client was sent in the last turn."""

    async def start(self, *functions: dict[str, Any]) -> str:
        """Begin a turn whose model makes these calls; gives its id."""
        numbered = [
            {"call_id": f"call_{len(self.served.model.requests)}_{number}", **function}
            for number, function in enumerate(functions)
        ]
        self.served.model.scripts[:] = [calls(*numbered), says("done")]
        params = {"threadId": self.thread_id, "input": [{"type": "text", "text": "go"}]}
        result = await self.client.call("turn/start", params)
        turn_id: str = result["turn"]["id"]
        return turn_id

    async def turn(self, *functions: dict[str, Any]) -> list[str]:
        """Run a turn whose model makes these calls; gives what it read."""
        await self.start(*functions)
        self.messages = await self.client.until("turn/completed")
        return self.outputs(len(functions))

    def outputs(self, count: int) -> list[str]:
        """Give the newest outputs of calls that the model was sent."""
        found = [
            item["output"]
            for item in self.served.model.requests[-1]["input"]
            if item["type"] == "function_call_output"
        ]
        return found[-count:]

    async def run_calls(self, *functions: dict[str, Any]) -> list[CommandResult]:
        """Run a turn of commands; gives what the model got back of each."""
        return [CommandResult(text) for text in await self.turn(*functions)]

    async def run(self, cmd: str, **arguments: Any) -> CommandResult:
        """Run a turn with one command."""
        [result] = await self.run_calls(command(cmd, **arguments))
        return result

    async def go_on(self, function: dict[str, Any], printed: str) -> CommandResult:
        """Run a turn behind which a command goes on; it ends once the command has printed this."""
        soon = {**function, "arguments": {**function["arguments"], "yield_time_ms": SOON_MS}}
        self.messages = []
        async with held_clocks(self.client, self.thread_id):
            await self.start(soon)
            while "".join(self.deltas()) != printed:
                self.messages += await self.client.until(DELTA)
        self.messages += await self.client.until("turn/completed")
        [text] = self.outputs(1)
        return CommandResult(text)

    def items(self, method: str) -> list[dict[str, Any]]:
        """Give the command items of the last turn's messages."""
        return [
            message["params"]["item"]
            for message in self.messages
            if message.get("method") == method
            and message["params"]["item"]["type"] == "commandExecution"
        ]

    def deltas(self) -> list[str]:
        """Give the pieces of output of the last turn's messages."""
        return [
            message["params"]["delta"]
            for message in self.messages
            if message.get("method") == DELTA
        ]

    async def stored(self) -> list[dict[str, Any]]:
        """Give the command items of the thread's history."""
        read = await self.client.call(
            "thread/read", {"threadId": self.thread_id, "includeTurns": True}
        )
        return [
            item
            for turn in read["thread"]["turns"]
            for item in turn["items"]
            if item["type"] == "commandExecution"
        ]


@asynccontextmanager
async def desk(
    home: Path,
    sandbox: str = "danger-full-access",
    policy: str = "never",
    config: str = "",
    **options: Any,
) -> AsyncIterator[Desk]:
    """Serve with these options, connect, and start a thread in a folder of its own."""
    folder = home / "work"
    folder.mkdir(parents=True)
    async with serve(home / "home", config=config, **options) as served, served.client() as client:
        thread_id = await client.start_thread(
            cwd=str(folder), sandbox=sandbox, approvalPolicy=policy
        )
        yield Desk(served, client, thread_id, folder.resolve())
