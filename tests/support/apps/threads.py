"""A thread whose model calls apps."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app_server.apps.account import PluginPort
from app_server.apps.routes.generation import Generation
from app_server.clients.demo.hosted.endpoint import (
    READS,
    HostedConnector,
    HostedTool,
)
from app_server.extensions.contract.registry import ExtensionRegistry
from protocol.model import JsonObject
from tests.support.apps.hosted import connector, serve_hosted
from tests.support.apps.service import Apps, nothing, open_apps, runs
from tests.support.harness import Served, WireClient, serve
from tests.support.mcp_peers.shelf import Shelf
from tests.support.model import calls, says

STARTED = "mcpServer/startupStatus/updated"
CALL = "tools/call"
CAL = "codex_apps__cal"


def app(id_: str, name: str, tool: str, annotations: JsonObject = READS) -> HostedConnector:
    """Make an app with one tool; its upstream name is `cal_TOOL`."""
    bare = HostedConnector(id_, name, "An app of a test.")
    definition = bare.tool(tool, tool, {}, annotations, nothing).definition
    made = HostedTool({**definition, "name": f"cal_{tool}"}, nothing)
    return HostedConnector(id_, name, bare.description, (made,))


@dataclass
class Desk:
    """A service, and a thread of a server that has its servers."""

    apps: Apps
    served: Served
    client: WireClient
    approved: list[Sequence[str]]
    shelf: Shelf
    thread_id: str = ""

    async def open_thread(self) -> None:
        """Start a thread once there are apps, and wait for their servers."""
        await self.apps.service.prepare_mcp_servers(self.apps.config)
        left = len(self.apps.contribute("current"))
        self.thread_id = await self.client.start_thread()
        while left:
            await self.client.wait_for(STARTED, lambda p: p["status"] == "ready")
            left -= 1

    async def publish(self, *connectors: HostedConnector) -> None:
        """Have the endpoint list other apps, and the service fetch them."""
        self.apps.hosted.endpoint.connectors[:] = connectors
        snapshot = await self.apps.service.refresh_snapshot(self.apps.config)
        assert snapshot is not None
        snapshot.release()

    def generation(self) -> Generation:
        """Return what the thread's servers were made of."""
        shown = self.apps.service.shown_to(self.thread_id)
        assert shown is not None
        return shown.generation

    def route_of(self, connector_id: str) -> tuple[str, str]:
        """Return the names that the first tool of an app has here."""
        snapshot = self.apps.service.current_snapshot(self.apps.config)
        assert snapshot is not None
        with snapshot:
            routes = snapshot.published.made.routes.values()
            route = next(route for route in routes if route.connector.id == connector_id)
            return route.server, next(iter(route.tools))

    async def run(self, server: str, tool: str, answer: Any = None) -> tuple[list[Any], Any]:
        """Run a turn whose model makes a call; gives the questions, and the item as it ended."""
        function = {"namespace": f"mcp__{server}", "name": tool}
        self.served.model.scripts += [calls(function), says("done")]
        params = {"threadId": self.thread_id, "input": [{"type": "text", "text": "go"}]}
        await self.client.call("turn/start", params)
        questions, items = [], []
        while True:
            message = await self.client.receive()
            match message.get("method"):
                case "mcpServer/elicitation/request":
                    questions.append(message["params"])
                    await self.client.send({"id": message["id"], "result": answer})
                case "item/completed" if message["params"]["item"]["type"] == "mcpToolCall":
                    items.append(message["params"]["item"])
                case "turn/completed":
                    [item] = items
                    return questions, item

    def namespaces(self) -> list[str]:
        """Return the namespaces that the last model request declared."""
        tools = self.served.model.requests[-1].get("tools", [])
        return [entry["name"] for entry in tools if entry["type"] == "namespace"]

    def forwarded(self) -> int:
        """Return how many calls came to the endpoint."""
        return self.apps.hosted.script.names().count(CALL)

    async def direct(self, server: str = CAL, tool: str = "_look") -> int:
        """Begin a call without a turn; gives the id of the request."""
        params = {"threadId": self.thread_id, "server": server, "tool": tool}
        return await self.client.request("mcpServer/tool/call", params)


@asynccontextmanager
async def open_desk(
    tmp_path: Path,
    *connectors: HostedConnector,
    config: str = "",
    plugins: PluginPort | None = None,
) -> AsyncIterator[Desk]:
    approved: list[Sequence[str]] = []

    async def persist(path: Sequence[str]) -> None:
        approved.append(path)

    shelf = Shelf()
    async with (
        serve_hosted(connectors or [connector(*runs("look"), id_="cal")]) as hosted,
        open_apps(tmp_path / "apps", hosted, plugins) as apps,
    ):
        registry = ExtensionRegistry([apps.service, shelf], {"apps": persist}, [apps.service])
        settings = f'chatgpt_base_url = "{hosted.endpoint.base_url}"\n{config}'
        async with (
            serve(tmp_path / "home", config=settings, extensions=registry) as served,
            served.client() as client,
        ):
            yield Desk(apps, served, client, approved, shelf)
