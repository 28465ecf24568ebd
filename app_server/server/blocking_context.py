"""Context managers that block, for the event loop."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


@asynccontextmanager
async def in_worker(manager: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a context manager in worker threads; it is left also when cancelled.

    It does not see exceptions of the block.
    """
    value = await anyio.to_thread.run_sync(manager.__enter__)
    try:
        yield value
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(manager.__exit__, None, None, None)
