"""A client that lists apps of a server, which asks an endpoint of apps."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.apps.fake_apps import (
    FakeApps,
    Snapshot,
    as_port,
)
from tests.support.harness import Served, WireClient, serve

UPDATED = "app/list/updated"


@dataclass
class Desk:
    """A server with scripted apps, and a client."""

    served: Served
    client: WireClient
    apps: FakeApps

    async def listed(self, **params: Any) -> tuple[list[list[str]], list[str]]:
        """List apps; gives the lists that were sent before the answer, and the answer."""
        request = await self.client.request("app/list", params)
        told: list[list[str]] = []
        while True:
            message = await self.client.receive()
            if message.get("id") == request:
                return told, shown(message["result"]["data"])
            assert message["method"] == UPDATED
            told.append(shown(message["params"]["data"]))

    async def lists_before(self, mark: int) -> list[list[str]]:
        """Return the lists that are sent before the answer to one more question."""
        request = await self.client.request("thread/loaded/list", {"limit": mark})
        told: list[list[str]] = []
        while (message := await self.client.receive()).get("id") != request:
            told.append(shown(message["params"]["data"]))
        return told


def shown(apps: Sequence[Any]) -> list[str]:
    """Return ids; those of apps that can be used have a `+`, those that are off a `-`."""
    return [
        ("+" if app["isAccessible"] else "") + app["id"] + ("" if app["isEnabled"] else "-")
        for app in apps
    ]


@asynccontextmanager
async def open_desk(home: Path, apps: FakeApps, config: str = "") -> AsyncIterator[Desk]:
    async with (
        serve(home, config=config, apps=as_port(apps)) as served,
        served.client() as client,
    ):
        yield Desk(served, client, apps)
    shares = [one.shares for one in (apps.published, apps.fresh) if isinstance(one, Snapshot)]
    assert shares == [0] * len(shares), "a snapshot was kept"
