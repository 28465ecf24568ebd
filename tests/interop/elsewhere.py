"""Any client that takes a URL, unmodified, on a node that owns none of its threads.

python -m tests.interop.elsewhere node client.mts {url} "Hello there."

Runs a PostgreSQL, three nodes and a scripted model that says "You said: Hello there.", and then the
words, with the URL of a listener in the place of `{url}`: it passes to the third node what it gets,
and has threads begin at the other two by turns. Ends as the words end, and with 1 where they began
no thread, or one is not where it began.
Source: docs/scale.md, "Requests for other nodes".
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.fleet.elsewhere import Elsewhere
from tests.support.model import says
from tests.support.postgresql import prepare, running_cluster
from tests.support.processes import Running
from tests.support.threads.nodes import running_nodes

TURNS = 100


async def run(words: Sequence[str], folder: Path, database_url: str) -> int:
    """Run a client, and return the status that it ended with."""
    async with running_nodes(folder, database_url, 3) as nodes:
        *owners, asked = nodes.all
        nodes.model.scripts += [says("You said: Hello there.")] * TURNS
        elsewhere = Elsewhere(asked.urls[0], [owner.urls[0] for owner in owners])
        async with elsewhere.listening() as url:
            client = await asyncio.create_subprocess_exec(
                *(word.replace("{url}", url) for word in words)
            )
            status = await client.wait()
        at_owners = [thread_id for owner in owners for thread_id in await _loaded(owner)]
        are_there = sorted(at_owners) == sorted(elsewhere.begun) and not await _loaded(asked)
    if not elsewhere.begun or not are_there:
        sys.stderr.write(f"begun: {elsewhere.begun}, at their owners: {at_owners}\n")
        return status or 1
    return status


async def _loaded(node: Running) -> list[str]:
    async with node.client() as client:
        loaded: list[str] = (await client.call("thread/loaded/list", {}))["data"]
        return loaded


def main() -> int:
    """Make the database, and run the client."""
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        prepare(cluster)
        with cluster.database() as url:
            return asyncio.run(run(sys.argv[1:], Path(folder), url))


if __name__ == "__main__":
    sys.exit(main())
