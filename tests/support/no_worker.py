"""Times at which no worker thread is free, to see what is answered without one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter


@asynccontextmanager
async def no_worker_free() -> AsyncIterator[None]:
    """Take every worker thread for as long as the context lasts; others wait for theirs."""
    limiter = current_default_thread_limiter()
    borrowers = [object() for _ in range(int(limiter.total_tokens))]
    taken: list[object] = []
    try:
        for borrower in borrowers:
            await limiter.acquire_on_behalf_of(borrower)
            taken.append(borrower)
        yield
    finally:
        for borrower in taken:
            limiter.release_on_behalf_of(borrower)
