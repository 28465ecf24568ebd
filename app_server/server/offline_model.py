"""The built-in model, served on loopback from when a turn first asks for it."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import anyio
import anyio.abc

from app_server.runtime.loader import Lazy, load


def offline_model_url(tasks: anyio.abc.TaskGroup) -> Callable[[], Awaitable[str]]:
    """Return what gives the base URL of the model, and has `tasks` serve it first if need be.

    It raises LoadFailed where what serves it cannot be imported now.
    """

    async def start() -> str:
        serve_offline_model = await load(_serve_offline_model)
        url: str = await tasks.start(_hold, serve_offline_model())
        return url

    return Lazy("the offline model", start).get


def _serve_offline_model() -> Callable[[], AbstractAsyncContextManager[str]]:
    from app_server.models.offline import serve_offline_model

    return serve_offline_model


async def _hold(
    context: AbstractAsyncContextManager[str], *, task_status: anyio.abc.TaskStatus[str]
) -> None:
    """Keep a context open until cancelled; its value is the status."""
    async with context as value:
        task_status.started(value)
        await anyio.sleep_forever()
