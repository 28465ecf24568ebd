"""The one place that imports jsonrpcserver late: 50 ms that a start should not wait for."""

import importlib
from collections.abc import Mapping
from typing import Protocol

import anyio
import anyio.to_thread

from app_server.rpc.context import Handler, RequestContext
from protocol.envelope import Request


class _Dispatcher(Protocol):
    async def dispatch(self, context: RequestContext, request: Request) -> str: ...


class LateDispatcher:
    """A Dispatcher that is made when the first request comes, or soon after the start."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        """See app_server.rpc.dispatch.Dispatcher."""
        self._handlers = handlers
        self._dispatcher: _Dispatcher | None = None
        self._making = anyio.Lock()

    async def prepare(self) -> None:
        """Import and make the dispatcher now.

        Raises:
            ValueError: a handler is for no method of the contract.
        """
        async with self._making:
            if self._dispatcher is None:
                module = await anyio.to_thread.run_sync(
                    importlib.import_module, "app_server.rpc.dispatch"
                )
                self._dispatcher = module.Dispatcher(self._handlers)

    async def dispatch(self, context: RequestContext, request: Request) -> str:
        """Answer one request; see Dispatcher."""
        if self._dispatcher is None:
            await self.prepare()
        assert self._dispatcher is not None
        return await self._dispatcher.dispatch(context, request)
