"""Handlers that are imported and made with the first request for one of their methods."""

from collections.abc import Mapping
from functools import partial

import anyio

from app_server.handlers.services import Services
from app_server.handlers.table import Handlers, Row
from app_server.rpc.context import Handler, LazyHandler, Routes
from app_server.runtime.loader import Lazy, load


class LazyHandlers:
    """The handlers of one row of the table."""

    def __init__(self, row: Row, services: Services) -> None:
        self._row = row
        self._services = services
        self._handlers = Lazy(f"handlers of {', '.join(row.methods)}", self._make)

    @property
    def at_start(self) -> bool:
        """Whether they are loaded soon after the start."""
        return self._row.at_start

    @property
    def routes(self) -> Mapping[str, LazyHandler]:
        """Method to what loads its handler."""
        turn = anyio.Lock()
        return {
            method: LazyHandler(partial(self._one, method), turn) for method in self._row.methods
        }

    async def load(self) -> Routes:
        """Import the class and make it, if that is not done; return its own routes.

        Raises:
            LoadFailed: it cannot be imported now.
        """
        return await self._handlers.get()

    async def _make(self) -> Routes:
        handlers: Handlers = (await load(self._row.load))(self._services)
        return handlers.routes

    async def _one(self, method: str) -> Handler:
        return (await self.load())[method]
