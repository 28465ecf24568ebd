"""The built-in model, served on loopback from when a turn first asks for it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio
import anyio.abc

from app_server.runtime.loader import Lazy, load


class OfflineModel:
    """The endpoint of the built-in model."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        """`tasks` owns the endpoint."""
        self._tasks = tasks
        self._url = Lazy("the offline model", self._start)

    async def url(self) -> str:
        """Return the base URL; serve it first if need be.

        Raises:
            LoadFailed: what serves it cannot be imported now.
        """
        return self._url.value or await self._url.get()

    async def _start(self) -> str:
        serve_offline_model = await load(_serve_offline_model)
        url: str = await self._tasks.start(_hold, serve_offline_model())
        return url


def _serve_offline_model() -> Callable[[], AbstractAsyncContextManager[str]]:
    from app_server.turns.model.offline import serve_offline_model

    return serve_offline_model


async def _hold(
    context: AbstractAsyncContextManager[str], *, task_status: anyio.abc.TaskStatus[str]
) -> None:
    """Keep a context open until cancelled; its value is the status."""
    async with context as value:
        task_status.started(value)
        await anyio.sleep_forever()
