"""Web servers of tests end when their connections have.

uvicorn sleeps a tenth of a second at the end of each server, and between looks whether connections
and requests have ended. Hundreds of tests end one or two servers.
"""

import asyncio
import sys
from types import ModuleType

LONGEST_SLEEP_S = 0.005


async def _sleep(delay_s: float) -> None:
    await asyncio.sleep(min(delay_s, LONGEST_SLEEP_S))


def pytest_collection_finish() -> None:
    """Let uvicorn sleep shortly, where a test needs it."""
    uvicorn = sys.modules.get("uvicorn.server")
    if uvicorn is not None:
        quick = ModuleType("asyncio")
        quick.__dict__.update(vars(asyncio) | {"sleep": _sleep})
        uvicorn.__dict__["asyncio"] = quick
