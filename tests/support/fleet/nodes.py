"""Servers with one database: each behind a proxy of its own, with a home of its own."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.support.fleet.proxy import DatabaseProxy
from tests.support.harness import write_config
from tests.support.model import ScriptedModel
from tests.support.postgresql import Cluster, name_of
from tests.support.processes import Running, running
from tests.support.threads.nodes import SECRET

LEASE_S = 3


class FleetNode:
    """One server, which can be killed and started again."""

    def __init__(self, home: Path, proxy: DatabaseProxy, database: str) -> None:
        self.home = home
        self.proxy = proxy
        self._url = proxy.url(database)
        self._stack = AsyncExitStack()
        self.running: Running | None = None

    async def start(self) -> None:
        """Start the server, and wait until it listens."""
        self.running = await self._stack.enter_async_context(
            running(self.home, APP_SERVER_STORE=self._url, LOG_LEVEL="warning")
        )

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

    def __init__(self, cluster: Cluster, database: str, nodes: list[FleetNode]) -> None:
        self.cluster = cluster
        self.database = database
        self.nodes = nodes


@asynccontextmanager
async def fleet_of(count: int, cluster: Cluster, url: str, folder: Path) -> AsyncIterator[Fleet]:
    """Run servers with one database and one scripted model, which says "ok" to all."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModel().serve())
        folder.mkdir(exist_ok=True)
        secret_file = folder / "secret"
        secret_file.write_text(SECRET)
        fleet = Fleet(cluster, name_of(url), [])
        for number in range(count):
            proxy = DatabaseProxy(cluster.folder)
            await stack.enter_async_context(proxy.listening())
            home = folder / f"node{number}"
            shared = f'node_secret_file = "{secret_file}"\nlease_seconds = {LEASE_S}\n'
            write_config(home, model.url, shared)
            node = FleetNode(home, proxy, fleet.database)
            stack.push_async_callback(node.kill)
            await node.start()
            fleet.nodes.append(node)
        yield fleet
