"""The one place that imports httpx late: it costs 70 ms that a start should not wait for."""

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, cast

import anyio
import anyio.to_thread

from app_server.accounts.accounts import Accounts
from app_server.turns.model import EventBatches, Model, ModelRequest


class _Client(Model, Protocol):
    async def aclose(self) -> None: ...


class LazyModel:
    """A Model that makes its HTTP client when it is first asked."""

    def __init__(self, offline_url: Callable[[], Awaitable[str]], accounts: Accounts) -> None:
        """See app_server.turns.model_client.ModelClient."""
        self._offline_url = offline_url
        self._accounts = accounts
        self._client: _Client | None = None
        self._making = anyio.Lock()

    async def prepare(self) -> None:
        """Import and make the client now."""
        async with self._making:
            if self._client is None:
                module = await anyio.to_thread.run_sync(
                    importlib.import_module, "app_server.turns.model_client"
                )
                client = module.ModelClient(self._offline_url, self._accounts)
                self._client = cast(_Client, client)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[EventBatches]:
        """Make one call; see Model."""
        if self._client is None:
            await self.prepare()
        assert self._client is not None
        async with self._client.stream(request) as batches:
            yield batches

    async def aclose(self) -> None:
        """Close the client, if there is one."""
        if self._client is not None:
            await self._client.aclose()
