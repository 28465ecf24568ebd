"""How often others could run while something was done in pieces."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel


@dataclass
class LoopTurns:
    """Turns of another task on the event loop."""

    count: int = 0


@asynccontextmanager
async def counted_turns() -> AsyncIterator[LoopTurns]:
    """Let a task of its own run whenever it can, while the context lasts."""
    turns = LoopTurns()

    async def count() -> None:
        while True:
            turns.count += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        yield turns
        tasks.cancel_scope.cancel()
