"""A thread whose commands are asked about."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.harness import Served, WireClient, methods_of, serve
from tests.support.model import calls
from tests.support.turns import start_turn

QUESTION = "item/commandExecution/requestApproval"


def command(cmd: str, **arguments: Any) -> dict[str, Any]:
    """Script one call."""
    return {"name": "exec_command", "arguments": {"cmd": cmd, "login": False, **arguments}}


@dataclass
class Place:
    """A thread that asks about everything, in a folder, without a sandbox."""

    served: Served
    client: WireClient
    thread_id: str
    folder: Path

    async def begin(self, *commands: dict[str, Any]) -> str:
        """Start a turn whose model runs commands, one a response."""
        self.served.model.requests.clear()
        self.served.model.scripts[:] = [calls(one) for one in commands]
        return await start_turn(self.client, self.thread_id, "go")

    async def question(self) -> dict[str, Any]:
        """Return the next question."""
        message: dict[str, Any] = await self.client.wait_for(QUESTION)
        return message

    async def answer(self, decision: Any) -> dict[str, Any]:
        """Answer the next question, and return what it says."""
        question = await self.question()
        await self.client.send({"id": question["id"], "result": {"decision": decision}})
        params: dict[str, Any] = question["params"]
        return params

    async def end(self) -> str:
        """Wait for the end of the turn, and return its status."""
        message = await self.client.wait_for("turn/completed")
        return str(message["params"]["turn"]["status"])

    async def run(self, cmd: str, *decisions: Any, **arguments: Any) -> str:
        """Run a command, answer its questions, and return what the model got."""
        await self.begin(command(cmd, **arguments))
        for decision in decisions:
            await self.answer(decision)
        messages = await self.client.until("turn/completed")
        assert QUESTION not in methods_of(messages)
        return self.output()

    def output(self) -> str:
        """Return what the model read last."""
        (item,) = [i for i in self.served.model.requests[-1]["input"] if "output" in i][-1:]
        return str(item["output"])

    def decided(self) -> list[dict[str, Any]]:
        """Return the decisions in the thread's log, without times."""
        (path,) = self.served.home.rglob(f"{self.thread_id}.jsonl")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        found = [record for record in records if record["type"] == "approvalDecided"]
        assert all(record.pop("atMs") > 0 for record in found)
        return found


@asynccontextmanager
async def place(tmp_path: Path, config: str = "", **params: Any) -> AsyncIterator[Place]:
    """Give a thread; its model is told nothing of the profile of this machine's shell."""
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    options = {"sandbox": "danger-full-access", "approvalPolicy": "untrusted", **params}
    async with serve(tmp_path / "server", config=config) as served, served.client() as client:
        thread_id = await client.start_thread(cwd=str(folder), **options)
        yield Place(served, client, thread_id, folder)


SHELL = "/bin/bash -c"


def shown(message: dict[str, Any]) -> tuple[str, Any]:
    """Return a message in few words."""
    params = message["params"]
    match message["method"]:
        case "thread/status/changed":
            return "status", params["status"].get("activeFlags", params["status"]["type"])
        case "item/started" | "item/completed":
            return message["method"], params["item"]["status"]
        case "turn/completed":
            return message["method"], params["turn"]["status"]
    return message["method"], None


def of_command(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return what is about commands and the status."""
    kept = ("thread/status/changed", QUESTION, "serverRequest/resolved", "turn/completed")
    return [
        shown(message)
        for message in messages
        if message["method"] in kept
        or message["params"].get("item", {}).get("type") == "commandExecution"
    ]
