"""Servers with one database: each behind a proxy of its own, with a home of its own."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.fleet.proxy import DatabaseProxy, NodeProxy
from tests.support.harness import write_config
from tests.support.model import ScriptedModel
from tests.support.postgresql import ROLE, Cluster, name_of
from tests.support.processes import Running, running, started
from tests.support.threads.nodes import SECRET

LEASE_S = 3


class FleetNode:
    """One server, which can be killed and started again."""

    def __init__(
        self, home: Path, proxy: DatabaseProxy, url: str, way: NodeProxy | None = None
    ) -> None:
        self.home = home
        self.proxy = proxy
        """Its way to PostgreSQL."""
        self.way = way
        """The way of the other nodes to it, where that has a proxy."""
        self._url = url
        self._stack = AsyncExitStack()
        self.running: Running | None = None

    async def start(self, version: Path | None = None) -> None:
        """Start the server, from a folder with another version of it, until it listens."""
        variables = {"APP_SERVER_STORE": self._url, "LOG_LEVEL": "warning"}
        self.running = await self._stack.enter_async_context(
            running(self.home, **variables)
            if version is None
            else started(self.home, PYTHONPATH=str(version), **variables)
        )
        if self.way is not None:
            self.way.node_port = urlsplit(self.running.urls[0]).port or 0

    async def stop(self) -> None:
        """Have its process end, as for an upgrade."""
        assert self.running is not None
        self.send_signal(signal.SIGTERM)
        await self.running.ended()
        await self.kill()

    async def kill(self) -> None:
        """End its process as a machine ends: with nothing written any more."""
        self.running = None
        await self._stack.aclose()

    def send_signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        assert self.running is not None
        os.kill(self.running.process.pid, number)


class Fleet:
    """Servers of one database."""

    def __init__(self, cluster: Cluster, database: str, model: ScriptedModel, folder: Path) -> None:
        self.cluster = cluster
        self.database = database
        self.model = model
        self.folder = folder
        self.nodes: list[FleetNode] = []


@asynccontextmanager
async def fleet_of(
    count: int,
    cluster: Cluster,
    url: str,
    folder: Path,
    *,
    standby: Cluster | None = None,
    lease_s: int = LEASE_S,
    have_ways: bool = False,
) -> AsyncIterator[Fleet]:
    """Run servers with one database, a standby as its other address, and one scripted model.

    With `have_ways` they reach one another through proxies, too.
    """
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModel().serve())
        folder.mkdir(exist_ok=True)
        secret_file = folder / "secret"
        secret_file.write_text(SECRET)
        fleet = Fleet(cluster, name_of(url), model, folder)
        for number in range(count):
            proxies = [DatabaseProxy(one.folder) for one in (cluster, standby) if one is not None]
            for proxy in proxies:
                await stack.enter_async_context(proxy.listening())
            home = folder / f"node{number}"
            shared = f'node_secret_file = "{secret_file}"\nlease_seconds = {lease_s}\n'
            way = None
            if have_ways:
                way = NodeProxy()
                await stack.enter_async_context(way.listening())
                shared += f'node_address = "ws://127.0.0.1:{way.port}"\n'
            write_config(home, model.url, shared)
            node = FleetNode(home, proxies[0], url_of(proxies, fleet.database), way)
            stack.push_async_callback(node.kill)
            await node.start()
            fleet.nodes.append(node)
        yield fleet


def url_of(proxies: Sequence[DatabaseProxy], database: str) -> str:
    """Return the URL of a database with several addresses, of which one can be written."""
    hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
    return f"postgresql://{ROLE}@{hosts}/{database}?sslmode=disable&target_session_attrs=read-write"
