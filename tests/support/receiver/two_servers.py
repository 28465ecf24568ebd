"""Two servers on one home, of which one holds a thread."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.harness import Served, WireClient, serve
from tests.support.model import ScriptedModel


@dataclass
class Two:
    """Two servers on one home, and a client of each."""

    model: ScriptedModel
    asked: Served
    """Is asked, and holds no thread."""
    client: WireClient
    holding: Served
    holder: WireClient
    """A client of the one that holds the thread."""
    thread_id: str


@asynccontextmanager
async def two_servers(home: Path, *, holder_first: bool) -> AsyncIterator[Two]:
    """Run two servers, one of which has a thread."""
    model = ScriptedModel()
    async with (
        serve(home, model=model) as one,
        serve(home, model=model) as other,
        one.client() as first,
        other.client() as second,
    ):
        holding, holder = (one, first) if holder_first else (other, second)
        asked, client = (other, second) if holder_first else (one, first)
        thread_id = await holder.start_thread()
        await holder.turn(thread_id, "hello")
        yield Two(model, asked, client, holding, holder, thread_id)
