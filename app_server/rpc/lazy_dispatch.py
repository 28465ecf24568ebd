"""The one place that imports jsonrpcserver late: 50 ms that a start should not wait for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from app_server.rpc.context import Handler, RequestContext
from app_server.runtime.loader import Lazy, LoadFailed, load
from protocol.envelope import Request, render_error
from protocol.errors import RpcError, internal_error

if TYPE_CHECKING:
    from app_server.rpc.dispatch import Dispatcher


class LazyDispatcher:
    """A Dispatcher that is made when the first request comes, or soon after the start."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        """See app_server.rpc.dispatch.Dispatcher."""
        self._handlers = handlers
        self._dispatcher = Lazy("the dispatch of requests", self._make)

    async def prepare(self) -> None:
        """Import and make the dispatcher now.

        Raises:
            LoadFailed: it cannot be imported now.
            ValueError: a handler is for no method of the contract.
        """
        await self._dispatcher.get()

    async def dispatch(self, context: RequestContext, request: Request) -> str:
        """Answer one request; see Dispatcher."""
        try:
            dispatcher = self._dispatcher.value or await self._dispatcher.get()
        except LoadFailed as exc:
            error = load_failed(request.method, exc).to_wire()
            return render_error(request.id, error, jsonrpc=context.jsonrpc)
        return await dispatcher.dispatch(context, request)

    async def _make(self) -> "Dispatcher":
        return (await load(_dispatcher))(self._handlers)


def load_failed(method: str, failure: LoadFailed) -> RpcError:
    """Say that what a method needs could not be imported; the next request tries again."""
    return internal_error(
        f"{method} needs what cannot be loaded: {failure}",
        "loadFailed",
        method=method,
        detail=str(failure),
    )


def _dispatcher() -> "type[Dispatcher]":
    from app_server.rpc.dispatch import Dispatcher

    return Dispatcher
