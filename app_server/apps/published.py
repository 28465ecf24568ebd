"""Published inventories of apps, and the replacement of one by another.

Source: docs/apps.md, "Discovery", "Registrations".
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from operator import is_

import anyio.abc
import anyio.to_thread

from app_server.apps.account import AppsUnavailable
from app_server.apps.inventory.inventory import Inventory, build_inventory
from app_server.apps.inventory.names import Route, allocate_routes
from app_server.apps.policy import Use, registrations
from app_server.apps.presentation import ApprovalTemplates, PresentedTools
from app_server.apps.routes.generation import Generation, GenerationPorts, open_generation
from app_server.apps.routes.handshakes import Manifests, make_manifests
from app_server.apps.upstream.bearer import SIGN_IN_CHANGED
from app_server.extensions.contract.registration import Lease, Registration
from app_server.runtime.loop_share import free_in_pieces
from protocol.model import JsonObject

MAX_USES = 8
"""Uses whose registrations are kept ready; those of further ones are made when they are wanted."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The routes, metadata and manifests made of an inventory before it is served."""

    inventory: Inventory
    routes: Mapping[str, Route]
    """By server."""
    presented: Mapping[str, PresentedTools]
    """By server."""
    manifests: Manifests


@dataclass(frozen=True, slots=True)
class Published:
    """One generation, as it is used."""

    generation: Generation
    made: Prepared
    _registrations: list[tuple[Use, Sequence[Registration]]] = field(default_factory=list)

    def registrations(self, use: Use) -> Sequence[Registration]:
        """Return the servers, that of resources first; the same ones for equal uses."""
        for known, made in self._registrations:
            if known == use:
                return made
        fresh = registrations(self.generation, use, self.made.presented, self.made.manifests)
        self._registrations.append((use, fresh))
        del self._registrations[:-MAX_USES]
        return fresh

    def parts(self) -> list[object]:
        """Return the parts with most of the memory: tools and their metadata."""
        inventory = self.made.inventory
        return [
            *inventory.raw_tools,
            *(tool for connector in inventory.connectors for tool in connector.tools),
            *(tool for manifest in self.made.manifests.values() for tool in manifest.tools),
            *(one.metadata for _, made in self._registrations for one in made),
        ]

    def make_ready(self, uses: Sequence[Use]) -> None:
        """Make the registrations for uses: a matter for worker threads."""
        for use in uses:
            self.registrations(use)


def prepare(
    tools: Sequence[JsonObject],
    before: Published | None,
    templates: ApprovalTemplates,
    *,
    has_files: bool,
) -> Prepared | None:
    """Prepare an inventory for publishing; None if it equals the published one.

    A full inventory takes some ten ms: for worker threads.

    Raises:
        InconsistentInventory: a connector goes by two names.
    """
    old = Prepared(Inventory((), ()), {}, {}, {}) if before is None else before.made
    inventory = build_inventory(tools, old.inventory.connectors)
    is_served = before is not None and not before.generation.is_closing
    if is_served and inventory.connectors == old.inventory.connectors:
        return None
    routes = {route.server: route for route in allocate_routes(inventory, old.routes)}
    presented = {
        server: old.presented[server]
        if old.routes.get(server) is route
        else PresentedTools(route, templates)
        for server, route in routes.items()
    }
    manifests = make_manifests(
        routes.values(), has_files=has_files, old_routes=old.routes, before=old.manifests
    )
    return Prepared(inventory, routes, presented, manifests)


logger = logging.getLogger(__name__)


class NoPort(AppsUnavailable):
    """No port of this machine can be opened to serve apps on."""


class Publishing:
    """The published inventory, and former ones that are still leased."""

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        means: GenerationPorts,
        templates: ApprovalTemplates,
        served: set[Generation],
    ) -> None:
        """Run generations in `tasks`, and keep them in `served` until they have ended."""
        self.current: Published | None = None
        self._tasks = tasks
        self._means = means
        self._templates = templates
        self._served = served
        self._lease: Lease | None = None
        self._count = 0
        """Generations of this account that have not ended."""
        self._uses: list[Use] = []
        """The last distinct `Use`s of threads, the latest last."""
        self._is_over = False

    def record_use(self, use: Use) -> None:
        """Record the settings of a thread, so that its registrations are prepared in time."""
        if use not in self._uses:
            self._uses.append(use)
            del self._uses[:-MAX_USES]

    async def publish(self, tools: Sequence[JsonObject]) -> bool:
        """Serve an inventory in the place of the one before; gives whether it is another one.

        Raises:
            InconsistentInventory: a connector goes by two names.
            NoPort: it cannot be served.
            AppsUnavailable: `end` was called meanwhile.
        """
        before = self.current
        if before is not None and not before.generation.is_closing:
            known = before.made.inventory.raw_tools
            tools = await anyio.to_thread.run_sync(with_known, known, tools)
            if len(tools) == len(known) and all(map(is_, known, tools)):
                return False
        has_files = self._means.files is not None
        work = partial(prepare, tools, before, self._templates, has_files=has_files)
        made = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        if made is not None:
            await self._serve(made)
            if before is not None:
                self._tasks.start_soon(_free, before)
        return True

    async def _serve(self, made: Prepared) -> None:
        try:
            generation = await open_generation(
                self._tasks, made.inventory, made.routes.values(), self._means
            )
        except OSError as exc:
            logger.warning("the apps cannot be served: %s", exc)
            raise NoPort("no port can be opened") from exc
        self._count += 1
        self._served.add(generation)
        self._tasks.start_soon(self._wait_for_end, generation)
        lease = generation.lease()
        published = Published(generation, made)
        try:
            # What threads will ask for is made beside the event loop.
            await anyio.to_thread.run_sync(published.make_ready, tuple(self._uses))
            if self._is_over:
                raise AppsUnavailable(SIGN_IN_CHANGED)
        except BaseException:
            lease.release()
            raise
        old, self._lease = self._lease, lease
        self.current = published
        if old is not None:
            old.release()

    async def _wait_for_end(self, generation: Generation) -> None:
        await generation.ended()
        self._served.discard(generation)
        self._count -= 1
        self._close_pool_if_idle()

    def _close_pool_if_idle(self) -> None:
        if self._is_over and not self._count:
            self._means.pool.shut_down()

    def end(self) -> None:
        """Withdraw the inventory; a generation lives on while it is leased.

        The pool is closed with the last of them.
        """
        self._is_over = True
        self.current, lease, self._lease = None, self._lease, None
        if lease is not None:
            lease.release()
        self._close_pool_if_idle()


def with_known(before: Sequence[JsonObject], now: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """Return tools, with the one of `before` in the place of an equal one: it is compared once."""
    # One tool at a time, so that other threads run meanwhile.
    return [old if old == new else new for old, new in zip_longest(before[: len(now)], now)]


async def _free(replaced: Published) -> None:
    """Free an inventory in pieces once its generation has ended; at once it would take 10 ms."""
    await replaced.generation.ended()
    parts = replaced.parts()
    del replaced
    await free_in_pieces(parts)
