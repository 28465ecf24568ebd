"""A timeout that begins again whenever something moves.

Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def until_idle(limit_s: float) -> AsyncIterator[Callable[[], None]]:
    """Give what other tasks call when something moved; it must not be called after the context.

    Raises:
        TimeoutError: nothing has moved for `limit_s` seconds.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(limit_s) as idle:

        def moved() -> None:
            # What moves while this task is being cancelled comes too late.
            if not idle.expired():
                idle.reschedule(loop.time() + limit_s)

        yield moved
