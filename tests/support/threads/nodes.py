"""Nodes of a group: server processes on one database, with a home each and one model."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.support.fleet.proxy import NodeProxy
from tests.support.harness import write_config
from tests.support.model import ScriptedModel
from tests.support.processes import Running, running

SECRET = "a secret of thirty-two bytes, or more"


@dataclass(frozen=True)
class Nodes:
    """Nodes that run, and what they share."""

    all: list[Running]
    model: ScriptedModel
    folder: Path
    proxy: NodeProxy | None = None
    """Before the first node, where there is one: the way of the others to it."""

    def home(self, number: int) -> Path:
        """Return the home folder of a node."""
        return self.folder / f"node{number}"


def owners(database_url: str) -> dict[str, str]:
    """Return the threads that nodes have loaded, and the addresses of these. Blocks."""
    statement = """SELECT threads.id::text, nodes.address FROM threads
        JOIN nodes ON nodes.id = threads.owner WHERE NOT nodes.dead"""
    with psycopg.connect(database_url) as connection:
        return dict(connection.execute(statement).fetchall())


@asynccontextmanager
async def running_nodes(
    folder: Path,
    database_url: str,
    count: int = 2,
    *,
    config: str = "",
    model_url: str | None = None,
    behind_proxy: bool = False,
) -> AsyncIterator[Nodes]:
    """Run nodes; they pass requests on as they have a secret in common.

    `model_url` is that of another model than the scripted one. With `behind_proxy` the others reach
    the first node through one.
    """
    secret_file = folder / "secret"
    secret_file.write_text(SECRET)
    own = f'node_secret_file = "{secret_file}"\n'
    async with ScriptedModel().serve() as model, AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(_listening()) if behind_proxy else None
        nodes = Nodes([], model, folder, proxy)
        for number in range(count):
            home = nodes.home(number)
            address = ""
            if proxy is not None and number == 0:
                address = f'node_address = "ws://127.0.0.1:{proxy.port}"\n'
            write_config(home, model_url or model.url, own + address + config)
            options = ["--store", database_url]
            nodes.all.append(await stack.enter_async_context(running(home, options=options)))
            if address:
                assert proxy is not None
                proxy.node_port = urlsplit(nodes.all[0].urls[0]).port or 0
        yield nodes


@asynccontextmanager
async def _listening() -> AsyncIterator[NodeProxy]:
    proxy = NodeProxy()
    async with proxy.listening():
        yield proxy
