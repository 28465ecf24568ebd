"""Any client that takes a URL, unmodified, on a node that owns none of its threads.

python -m tests.interop.elsewhere node client.mts {url} "Hello there."

Runs a PostgreSQL, three nodes and a scripted model that says "You said: Hello there.", and then the
words, with the URL of a listener in the place of `{url}`: it passes to the third node what it gets,
and has threads begin at the other two by turns. Ends as the words end, and with 1 where they began
no thread, or the third node has got one. The scripts beside this one have an option `--elsewhere`,
with which their clients are put on such a node.
Source: docs/scale.md, "Requests for other nodes".
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

from tests.support.fleet.elsewhere import Elsewhere, program
from tests.support.harness import write_config
from tests.support.model import ScriptedModel, says
from tests.support.postgresql import prepare, running_cluster
from tests.support.processes import EXECUTABLE, running
from tests.support.threads.nodes import SECRET, owners

TURNS = 100
NODES = 3

Program: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Path]]
"""Gives the program that clients of a home folder start in the place of a server."""


class Serving(Protocol):
    """Serves a home folder, with variables of its own, while its context lasts."""

    def __call__(self, home: Path, **environment: str) -> AbstractAsyncContextManager[str]:
        """Give the URL for clients."""


@asynccontextmanager
async def alone(home: Path, **environment: str) -> AsyncIterator[str]:
    """Run one server, with files; see Serving."""
    async with running(home, **environment) as server:
        yield server.urls[0]


@asynccontextmanager
async def elsewhere(home: Path, **environment: str) -> AsyncIterator[str]:
    """Run nodes of one home, and put clients on one that owns none of their threads; see Serving.

    Raises:
        AssertionError: at the end, where no thread was begun, or the node that was asked has one.
    """
    secret = home.with_name(f"{home.name}-node-secret")
    secret.write_text(SECRET)
    with running_cluster() as cluster:
        prepare(cluster)
        with cluster.database() as database_url:
            options = ["--store", database_url, "-c", f"node_secret_file={secret}"]
            async with AsyncExitStack() as stack:
                nodes = [
                    await stack.enter_async_context(running(home, options=options, **environment))
                    for _ in range(NODES)
                ]
                *others, asked = nodes
                listener = Elsewhere(asked.urls[0], [other.urls[0] for other in others])
                async with listener.listening() as url:
                    yield url
                assert listener.begun, "no thread was begun"
                owned = await asyncio.to_thread(owners, database_url)
                there = [one for one in listener.begun if owned.get(one) == asked.urls[0]]
                assert there == [], "the node that was asked has got threads"


@asynccontextmanager
async def own_program(_: Path) -> AsyncIterator[Path]:
    """Give the server itself; see Program."""
    yield EXECUTABLE


@asynccontextmanager
async def program_elsewhere(home: Path) -> AsyncIterator[Path]:
    """Give a program that speaks with a node which owns none of its threads; see Program."""
    async with elsewhere(home) as url:
        yield program(home, url)


async def run(words: Sequence[str], home: Path) -> int:
    """Run a client, and return the status that it ended with."""
    async with ScriptedModel().serve() as model:
        model.scripts += [says("You said: Hello there.")] * TURNS
        write_config(home, model.url)
        async with elsewhere(home) as url:
            client = await asyncio.create_subprocess_exec(
                *(word.replace("{url}", url) for word in words)
            )
            return await client.wait()


def main() -> int:
    """Run the program; returns its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(sys.argv[1:], Path(folder, "home")))


if __name__ == "__main__":
    sys.exit(main())
