"""Turns whose model changes files, and what a client hears of them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.harness import Served, WireClient, serve
from tests.support.host.elsewhere import add, entry
from tests.support.host.exec_conversations import listening
from tests.support.model import COMPLETED
from tests.support.turns import start_turn

QUESTION = "item/fileChange/requestApproval"

INSIDE_ONLY = {
    "type": "workspaceWrite",
    "writableRoots": [],
    "networkAccess": False,
    "excludeTmpdirEnvVar": True,
    "excludeSlashTmp": True,
}
"""Lets the folder of the thread be written and nothing else."""

WATCHED = ("item/started", "item/completed", "turn/diff/updated", QUESTION)


def patch_of(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def custom_call(text: Any, number: int = 1) -> dict[str, Any]:
    return {
        "type": "custom_tool_call",
        "id": f"ctc_{number}",
        "call_id": f"call_{number}",
        "name": "apply_patch",
        "input": text,
    }


def function_call(text: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "apply_patch",
        "arguments": json.dumps({"input": text}),
    }


def answer_of(*items: dict[str, Any]) -> list[Any]:
    """Script a response with calls."""
    return [*({"type": "response.output_item.done", "item": item} for item in items), COMPLETED]


@dataclass
class Workspace:
    """A thread in a folder, and a client that listens to it."""

    served: Served
    client: WireClient
    thread_id: str
    folder: Path

    async def begin(self, *patches: str) -> str:
        """Start a turn that applies patches, one a response."""
        self.served.model.scripts += [answer_of(custom_call(text)) for text in patches]
        return await start_turn(self.client, self.thread_id, "go")

    async def rest(self) -> list[tuple[str, Any]]:
        """Return what clients get of files until the turn's end, and the end."""
        messages = await self.client.until("turn/completed")
        return [self._shown(message) for message in messages if self._is_shown(message)]

    async def apply(self, *patches: str) -> list[tuple[str, Any]]:
        """Run a turn that applies patches, without questions."""
        await self.begin(*patches)
        return await self.rest()

    async def answer(self, decision: str) -> dict[str, Any]:
        """Answer the question that comes, and return it."""
        question = await self.client.wait_for(QUESTION)
        await self.client.send({"id": question["id"], "result": {"decision": decision}})
        params: dict[str, Any] = question["params"]
        return params

    def output(self) -> str:
        """Return what the model read last."""
        item = self.served.model.items()[-1]
        assert item["type"].endswith("_output")
        output: str = item["output"]
        return output.replace(str(self.folder), "WS")

    def log(self) -> list[dict[str, Any]]:
        """Return the records of the thread's log."""
        (path,) = self.served.home.rglob(f"{self.thread_id}.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def _is_shown(self, message: dict[str, Any]) -> bool:
        item = message.get("params", {}).get("item", {"type": "fileChange"})
        method = message.get("method")
        return method == "turn/completed" or (method in WATCHED and item["type"] == "fileChange")

    def _shown(self, message: dict[str, Any]) -> tuple[str, Any]:
        params = json.loads(json.dumps(message["params"]).replace(str(self.folder), "WS"))
        match message["method"]:
            case "turn/completed":
                return "turn/completed", params["turn"]["status"]
            case "turn/diff/updated":
                return "turn/diff/updated", params["diff"]
            case method:
                return method, (params["item"]["status"], params["item"]["changes"])


@asynccontextmanager
async def workspace_there(
    tmp_path: Path, config: str = "", **params: Any
) -> AsyncIterator[Workspace]:
    """Give the same thread, whose folder is behind an exec server; there is no other here."""
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    async with (
        listening() as url,
        serve(tmp_path / "server", config=config) as served,
        served.client() as client,
    ):
        await add(client, url)
        policy = params.pop("sandbox_policy", INSIDE_ONLY)
        options = {"model": "gpt-5.5", "approvalPolicy": "on-request", **params}
        chosen = params.pop("environments", [entry(folder)])
        thread_id = await client.start_thread(**{**options, "environments": chosen})
        await client.call(
            "thread/settings/update", {"threadId": thread_id, "sandboxPolicy": policy}
        )
        yield Workspace(served, client, thread_id, folder)


@asynccontextmanager
async def workspace(tmp_path: Path, config: str = "", **params: Any) -> AsyncIterator[Workspace]:
    """Give a thread that may write its folder, which has `a.txt`, and asks about others."""
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    async with serve(tmp_path / "server", config=config) as served, served.client() as client:
        policy = params.pop("sandbox_policy", INSIDE_ONLY)
        options = {"model": "gpt-5.5", "approvalPolicy": "on-request", **params}
        thread_id = await client.start_thread(cwd=str(folder), **options)
        await client.call(
            "thread/settings/update", {"threadId": thread_id, "sandboxPolicy": policy}
        )
        yield Workspace(served, client, thread_id, folder)
