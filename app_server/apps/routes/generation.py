"""One inventory, served until its last lease ends: a port, and a server and bearer for each route.

Nothing of a generation changes; another inventory is another generation.
Source: docs/apps.md, "Generations".
"""

import secrets
import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import SecretStr

from app_server.apps.files.files import FileSupport
from app_server.apps.inventory.inventory import Inventory
from app_server.apps.inventory.names import RESOURCES, Route
from app_server.apps.routes.backing import (
    AuthGuard,
    Backing,
    OpenStreams,
    RouteBounds,
    Running,
    SessionPool,
)
from app_server.apps.routes.http import GuardedRoutes, LazyRouteApp, serve_when_wanted
from app_server.apps.routes.sign_in import Refresh
from app_server.extensions.contract.registration import Lease, Owner
from app_server.runtime.http.listening import HOST
from app_server.runtime.loader import load

if TYPE_CHECKING:
    from app_server.apps.routes.local_server import RouteApp

BEARER_BYTES = 32
"""Random ones, from the system; base64url makes 43 characters of them."""

CLOSE_S = 1.0
"""For requests to get their last answer when a generation ends."""


@dataclass(frozen=True, slots=True)
class GenerationPorts:
    """The resources that all generations of one account share."""

    pool: SessionPool
    guard: AuthGuard
    files: FileSupport | None
    """Without them tools are listed as they are, and arguments go upstream as they are."""
    refresh: Refresh
    """Called when a user has signed in to an app."""
    bounds: RouteBounds = field(default_factory=RouteBounds)


class Generation:
    """An immutable set of local MCP servers.

    Lives until its last lease is released, or until it is closed; before the first lease it waits.
    """

    def __init__(
        self, inventory: Inventory, routes: Collection[Route], ports: GenerationPorts
    ) -> None:
        """Draw the bearers; `open_generation` also opens the port."""
        self.id = uuid4().hex
        self.inventory = inventory
        self.routes = routes
        self.leases = 0
        self._running = Running()
        self._backing = Backing(
            self.id, ports.pool, ports.guard, OpenStreams(), self._running, ports.bounds
        )
        self._ports = ports
        self._bearers = {
            name: SecretStr(secrets.token_urlsafe(BEARER_BYTES))
            for name in (RESOURCES, *(route.server for route in routes))
        }
        self._guarded = GuardedRoutes(ports.guard)
        self._closing = anyio.Event()
        self._answered = anyio.Event()
        self._closed = anyio.Event()

    @property
    def owner(self) -> Owner:
        """The owner that its registrations name."""
        return _GenerationOwner(self)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._guarded.port

    @property
    def is_closing(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._closing.is_set()

    def url(self, server: str) -> str:
        """Return the address of a route, by the name of its server; `codex_apps` is one."""
        return f"http://{HOST}:{self.port}{_path(server)}"

    def bearer(self, server: str) -> SecretStr:
        """Return the bearer token of one route."""
        return self._bearers[server]

    def lease(self) -> Lease:
        """Lease the generation: it is served until the lease is released.

        A lease of a generation that has ended is given too: whoever connects learns it there.
        """
        self.leases += 1
        return _GenerationLease(self)

    def _released(self) -> None:
        self.leases -= 1
        if not self.leases:
            self._closing.set()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serve until the end.

        Raises:
            OSError: no port can be opened; nothing was started.
        """
        try:
            async with (
                serve_when_wanted(self._guarded) as port,
                anyio.create_task_group() as tasks,
            ):
                routes = {route.server: route for route in self.routes}
                for name in (RESOURCES, *routes):
                    open_app = partial(self._open_app, tasks, routes.get(name))
                    self._guarded.add(_path(name), self._bearers[name], LazyRouteApp(open_app))
                self._guarded.port = port
                task_status.started()
                await self._closing.wait()
                await self._end_sessions()
        finally:
            self._closing.set()
            self._closed.set()
            # They lead back here: without them thousands of tools are freed with the last holder,
            # and not by the garbage collector, which stops everything for that.
            self._guarded.clear()

    async def _open_app(self, tasks: TaskGroup, route: Route | None) -> "RouteApp":
        """Make the server of a connector, or that of the resources."""
        app = await load(self._make_app, route)
        await tasks.start(self._hold_open, app)
        return app

    def _make_app(self, route: Route | None) -> "RouteApp":
        # This brings the MCP SDK, which takes as long as a first list of tools does.
        from app_server.apps.routes.connector import ConnectorServer
        from app_server.apps.routes.local_server import RouteApp, resource_server

        if route is None:
            server = resource_server(self._backing)
        else:
            ports = self._ports
            server = ConnectorServer(route, self._backing, ports.files, ports.refresh).server
        return RouteApp(server, self._backing)

    async def _hold_open(self, app: "RouteApp", *, task_status: TaskStatus[None]) -> None:
        # Each in a task of its own: their sessions end side by side.
        async with app.run():
            task_status.started()
            await self._answered.wait()

    async def _end_sessions(self) -> None:
        self._guarded.close()
        self._running.end()
        with anyio.move_on_after(CLOSE_S):
            await self._guarded.wait_until_answered()
        self._answered.set()

    async def ended(self) -> None:
        """Wait until all leases have ended and the port is closed."""
        await self._closed.wait()

    async def close(self) -> None:
        """Close it, leased or not, and wait until the port is closed; idempotent."""
        self._closing.set()
        await self._closed.wait()


class _GenerationOwner(Owner):
    """An owner with a weak reference: registrations do not keep an ended generation in memory."""

    def __init__(self, generation: Generation) -> None:
        super().__init__(generation.id)
        self._generation = weakref.ref(generation)

    def lease(self) -> Lease:
        generation = self._generation()
        return _GenerationLease(None) if generation is None else generation.lease()


class _GenerationLease:
    def __init__(self, generation: Generation | None) -> None:
        self._generation = generation

    def release(self) -> None:
        """Release the lease; idempotent."""
        generation, self._generation = self._generation, None
        if generation is not None:
            generation._released()


def _path(server: str) -> str:
    return f"/mcp/{server}"


async def open_generation(
    tasks: TaskGroup, inventory: Inventory, routes: Collection[Route], ports: GenerationPorts
) -> Generation:
    """Serve an inventory on a port of its own; `tasks` is where it lives.

    Raises:
        OSError: no port can be opened.
    """
    generation = Generation(inventory, routes, ports)
    await tasks.start(generation.run)
    return generation
