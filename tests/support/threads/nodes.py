"""Nodes of a group: server processes on one database, with a home each and one model."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

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

    def home(self, number: int) -> Path:
        """Return the home folder of a node."""
        return self.folder / f"node{number}"


@asynccontextmanager
async def running_nodes(
    folder: Path,
    database_url: str,
    count: int = 2,
    *,
    config: str = "",
    model_url: str | None = None,
) -> AsyncIterator[Nodes]:
    """Run nodes; they pass requests on as they have a secret in common.

    `model_url` is that of another model than the scripted one.
    """
    secret_file = folder / "secret"
    secret_file.write_text(SECRET)
    own = f'node_secret_file = "{secret_file}"\n'
    async with ScriptedModel().serve() as model, AsyncExitStack() as stack:
        nodes = Nodes([], model, folder)
        for number in range(count):
            home = nodes.home(number)
            write_config(home, model_url or model.url, own + config)
            options = ["--store", database_url]
            nodes.all.append(await stack.enter_async_context(running(home, options=options)))
        yield nodes
