"""One thread of a demo: its MCP servers and turns."""

import sys
from collections.abc import Collection
from pathlib import Path

from pydantic_core import to_json

from app_server.clients.demo.transcript import CheckFailed, Transcript
from app_server.peer.connection import Client
from protocol.model import Json, JsonObject

SERVER = "demo"
"""The MCP server that `configure` writes down."""

STEP = "mcpServer/startupStatus/updated"

SERVERS_S = 300.0
"""For each of them to be ready; a Python process alone takes seconds on a busy machine."""


def configure(home: Path, more: str = "", settings: str = "") -> None:
    """Choose the offline model, and a real MCP server that this package ships.

    `more` is said of that server besides; `settings` are lines of TOML in front of it.
    """
    command = to_json(sys.executable).decode()
    (home / "config.toml").write_text(
        f'model_provider = "offline"\n{settings}\n[mcp_servers.{SERVER}]\n'
        f"command = {command}\nargs = ['-m', 'app_server.clients.demo.tools']\n{more}"
    )


class DemoThread:
    """A thread that one client uses."""

    def __init__(self, transcript: Transcript, client: Client, thread_id: str) -> None:
        self.transcript = transcript
        self.client = client
        self.id = thread_id
        self.servers_s = SERVERS_S
        """Seconds for MCP servers to start, each."""

    async def wait_for_servers(self, names: Collection[str]) -> None:
        """Wait until every named MCP server is ready; a turn does not wait for them.

        Raises:
            CheckFailed: one did not start, or not within `servers_s`; the text says which and why.
        """
        left = set(names)

        def is_end(step: JsonObject) -> bool:
            ours = step["threadId"] == self.id and step["name"] in left
            return bool(ours and step["status"] != "starting")

        while left:
            try:
                step = await self.client.wait_for(STEP, is_end, timeout_s=self.servers_s)
            except TimeoutError as exc:
                waited = ", ".join(sorted(left))
                within = f"were not ready in {self.servers_s:g} s"
                text = f"MCP servers of thread {self.id} {within}: {waited}"
                raise CheckFailed(text) from exc
            if step["status"] != "ready":
                raise CheckFailed(f"MCP server {step['name']} did not start: {step['error']}")
            left.discard(step["name"])

    async def begin(self, text: str, **options: Json) -> None:
        """Begin a turn with a user's message."""
        self.transcript.say("user", text)
        content = [{"type": "text", "text": text}]
        await self.client.call("turn/start", {"threadId": self.id, "input": content, **options})

    async def items(self, last: str) -> list[JsonObject]:
        """Return the completed items, up to the next one of the type `last`."""
        items: list[JsonObject] = []

        def keep(params: JsonObject) -> bool:
            if params["threadId"] != self.id:
                return False
            items.append(params["item"])
            return bool(params["item"]["type"] == last)

        await self.client.wait_for("item/completed", keep)
        return items

    async def end(self) -> JsonObject:
        """Return the turn once it has ended."""
        event = await self.client.wait_for(
            "turn/completed", lambda params: params["threadId"] == self.id
        )
        turn: JsonObject = event["turn"]
        return turn

    async def turns(self) -> list[JsonObject]:
        """Read all turns of the thread."""
        params = {"threadId": self.id, "includeTurns": True}
        turns: list[JsonObject] = (await self.client.call("thread/read", params))["thread"]["turns"]
        return turns
