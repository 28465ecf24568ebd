"""Areas that few clients use at once: imported when the first of their methods is called."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from app_server.rpc.context import Handler, RequestContext
from app_server.runtime.loader import Lazy, load_module
from protocol.model import WireModel


class LateHandlers:
    """Stands for the handlers of a module that is not imported yet."""

    def __init__(self, module: str, name: str, methods: Sequence[str], *ports: Any) -> None:
        """`name` is the class in `module`; it is made with `ports` and serves `methods`."""
        self._module = module
        self._name = name
        self._ports = ports
        self._methods = methods
        self._routes = Lazy(f"handlers of {', '.join(methods)}", self._make)

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {method: partial(self._call, method) for method in self._methods}

    async def load(self) -> Mapping[str, Handler]:
        """Import the module, beside the event loop, and return its own routes.

        Raises:
            LoadFailed: it cannot be imported now.
        """
        return await self._routes.get()

    async def _make(self) -> Mapping[str, Handler]:
        module = await load_module(self._module)
        routes: Mapping[str, Handler] = getattr(module, self._name)(*self._ports).routes
        return routes

    async def _call(self, method: str, context: RequestContext, params: Any) -> WireModel:
        routes = self._routes.value or await self.load()
        return await routes[method](context, params)
