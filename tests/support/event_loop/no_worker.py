"""Times at which no worker thread is free, to see what is answered without one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import anyio
import anyio.to_thread


@asynccontextmanager
async def no_worker_free() -> AsyncIterator[None]:
    """Let everybody who wants a worker thread wait for as long as the context lasts."""
    free, run_sync = anyio.Event(), anyio.to_thread.run_sync

    async def wait_and_run(*arguments: Any, **options: Any) -> Any:
        await free.wait()
        return await run_sync(*arguments, **options)

    try:
        with patch.object(anyio.to_thread, "run_sync", wait_and_run):
            yield
    finally:
        free.set()
