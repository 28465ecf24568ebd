"""Dispatch of requests, between listeners and services: loaded once clients can connect.

Source: docs/architecture.md, "Life of a process".
"""

import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc

from app_server import VERSION
from app_server.config.effective import Configuration
from app_server.config.values import ConfigError
from app_server.handlers.services import Services
from app_server.handlers.serving import find_handler
from app_server.models.catalogue.providers import chosen_provider
from app_server.observability.telemetry.sending import sending
from app_server.rpc.connection import Conversations
from app_server.rpc.context import RequestContext
from app_server.rpc.dispatch import Dispatcher
from app_server.rpc.hub import Hub
from app_server.rpc.message_stream import MessageStream
from app_server.rpc.operations import FindEffect, Operations
from app_server.runtime.clock import STARTED_AT, SystemClock
from app_server.runtime.loader import Lazy, load
from app_server.server.apps import serve_apps
from app_server.server.blocking_context import in_worker
from app_server.server.home import home_errors
from app_server.server.listeners import Listener
from app_server.server.services import Built, build_services
from app_server.server.settings import Settings, Substitutes
from app_server.server.settings_watch import SettingsWatch
from app_server.server.start import (
    build_first_types,
    collect_when_idle,
    load_client_if_used,
    warm_up,
)
from app_server.sessions.registry import Sessions
from app_server.threads.nodes import NodeSettings
from app_server.threads.opening.stores import Stores, open_stores
from app_server.threads.operations import Operation
from app_server.threads.servers import ServerEntry
from protocol.model import WireModel

if TYPE_CHECKING:
    from app_server.fleet.news import ListNews
    from app_server.fleet.routing import Group
    from app_server.handlers.host.environments import SharedEnvironments
    from app_server.handlers.server.account import AccountNews
    from app_server.handlers.server.config_problems import ConfigProblems
    from app_server.server.node import GroupNode
    from app_server.server.ownership import Ownership

CLOSE_S = 10.0

FIRST_METHODS = (
    "initialize",
    "thread/start",
    "thread/resume",
    "thread/list",
    "turn/start",
    "mcpServerStatus/list",
)
"""Methods that clients call first: loaded soon after the start, with the rest of their areas."""


class Core:
    """The services of one server, and the conversations with its clients."""

    def __init__(
        self,
        built: Built,
        conversations: Conversations,
        work: anyio.abc.TaskGroup,
        settings: Settings,
        stores: Stores,
        opened: AsyncExitStack,
        group: "Group | None" = None,
    ) -> None:
        """Join what `open` has made; `work` is entered by `serve`, `opened` left by `aclose`.

        `group`: other nodes of it are passed requests, and pass theirs on.
        """
        self.services: Services = built.services
        self._built = built
        self._conversations = conversations
        self._work = work
        self._settings = settings
        self._nodes = stores.nodes
        self._opened = opened
        self._group = group
        self._operations = Operations(stores.operations, self.services.clock, _find_effect)
        self._requests = Dispatcher(
            find_handler, self.services, self.services.metrics, self._operations
        )

    @classmethod
    async def open(
        cls,
        settings: Settings,
        substitutes: Substitutes,
        urls: Sequence[str],
        background: anyio.abc.TaskGroup,
        node: "GroupNode | None" = None,
    ) -> Self:
        """Open the home, and make the services; `background` is cancelled when the server ends.

        `node` is this server, where it is one of a group.

        Raises:
            HomeUnusable: the stored threads cannot be opened.
            ConfigError: nobody can say where the others of the group reach this node.
        """
        hub = Hub(SystemClock().now_ms, first_request_id=secrets.randbelow(1 << 20) << 20)
        conversations = Conversations(hub, settings.connection)
        address = _address(urls) if node is None else node.announced(urls)
        about = NodeSettings(
            lease_s=settings.lease_s,
            address=address,
            is_reached=node is not None and address is not None,
            version=VERSION,
        )
        stores = await open_stores(settings.home, settings.store, about)
        store = stores.threads
        if node is not None:
            node.owners = stores.nodes
        work = anyio.create_task_group()
        opened = AsyncExitStack()
        try:
            opened.push_async_callback(store.aclose)
            about_home = home_errors(settings.home) if settings.store is None else nullcontext()
            with about_home:
                await store.open()
            built = await build_services(
                settings,
                substitutes,
                stores=stores,
                node=node,
                conversations=conversations,
                background=background,
                work=work,
            )
            services = built.services
            opened.push_async_callback(services.signals.aclose)
            opened.push_async_callback(services.notifications.aclose)
            opened.push_async_callback(built.lazy_model.aclose)
            opened.push_async_callback(services.model_lists.aclose)
            await services.plugins.load()
            # Before the first turn: what it has no observer for is found with the next start only.
            await services.notifications.resume()
            entry = ServerEntry(
                pid=os.getpid(),
                version=VERSION,
                started_at=STARTED_AT,
                addresses=urls,
                token_file=str(token_file) if (token_file := settings.guards.token_file) else None,
            )
            collected = sending(services.configuration, VERSION, lambda: store.figures)
            await opened.enter_async_context(collected)
            await opened.enter_async_context(in_worker(stores.servers.announced(entry)))
        except BaseException:
            await _close(opened)
            raise
        group = None
        if node is not None:
            group = (await load(_group_of))(node, services)
        if stores.news is not None:
            notified = _nobody if group is None else group.notified_by_owner
            list_news = (await load(_list_news))(services, stores.news, notified)
            background.start_soon(list_news.run)
        return cls(built, conversations, work, settings, stores, opened, group)

    @property
    def has_lease(self) -> bool:
        """Whether this server may write its threads; one with files always may."""
        return self._nodes is None or self._nodes.is_held

    @property
    def node_id(self) -> str | None:
        """Id of this server in its group; see Nodes.own_id. None: its threads are in files."""
        return None if self._nodes is None else self._nodes.own_id

    async def answer_client(self, stream: MessageStream) -> None:
        """Hold the conversation with one client."""
        if self._group is None:
            await self._conversations.converse(stream, self._requests)
            return
        client_routes = (await load(_routing)).client_routes
        async with client_routes(self._requests, self._group) as routes:
            await self._conversations.converse(stream, routes)

    async def answer_node(self, stream: MessageStream) -> None:
        """Hold the conversation with a client of another node."""
        if self._group is not None:
            own = (await load(_routing)).OwnRequests(self._requests, self._group)
            await self._conversations.converse_with_node(stream, own)

    async def serve(
        self, listeners: Sequence[Listener], stopping: anyio.Event, hurrying: anyio.Event
    ) -> None:
        """Serve until `stopping`, and then until what runs has ended, or `hurrying`."""
        services = self.services
        services.tasks.start_soon(services.store.run)
        services.tasks.start_soon(services.sessions.unloading.run)
        services.tasks.start_soon(services.memory.run)
        services.tasks.start_soon(services.mcp_pool.run)
        services.tasks.start_soon(collect_when_idle)
        if self._nodes is not None:
            ownership = (await load(_ownership))(services, self._nodes, self._has_subscribers)
            services.tasks.start_soon(ownership.run)
        if self._settings.store is not None:
            services.tasks.start_soon(_follow_environments, services)
        if self._settings.watches_files:
            services.tasks.start_soon(SettingsWatch(services).run)
        async with self._work:
            try:
                services.tasks.start_soon(warm_up, self._parts_at_start())
                if self._built.lazy_apps is not None:
                    services.tasks.start_soon(
                        serve_apps,
                        self._built.lazy_apps,
                        services.extensions,
                        services.accounts,
                        services.configuration,
                    )
                await stopping.wait()
                for listener in listeners:
                    listener.stop_accepting()
                await self._drain(services.sessions, hurrying)
                await services.sessions.aclose()
                await self._conversations.finish(CLOSE_S)
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                    await services.sessions.aclose()
                    await services.mcp_pool.aclose()
                    await services.commands.aclose()
                    await services.environments.aclose()

    async def aclose(self) -> None:
        """Close what is open, once nothing runs any more."""
        self._opened.push_async_callback(self._operations.aclose)
        await _close(self._opened)

    def _has_subscribers(self, thread_id: str) -> bool:
        """Whether a client of this server is subscribed to a thread, whoever writes it."""
        if self.services.hub.has_subscribers(thread_id):
            return True
        return self._group is not None and self._group.has_subscribers(thread_id)

    async def _drain(self, sessions: Sessions, hurrying: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when, hurrying, tasks.cancel_scope)
            with anyio.move_on_after(self._settings.drain_s):
                await sessions.drain()
            tasks.cancel_scope.cancel()

    def _parts_at_start(self) -> list[Callable[[], Awaitable[object]]]:
        """Return what loads the parts that are needed first, in the order of the need."""
        services = self.services
        return [
            partial(_warn_of_provider, services.configuration, services.config_problems),
            *(partial(self._requests.load, method) for method in FIRST_METHODS),
            partial(_announce_account, services),
            services.sessions.loading.prepare,
            partial(load, build_first_types),
            self._built.lazy_model.prepare,
            services.signals.resume,
            partial(load_client_if_used, services.accounts, services.configuration),
            services.commands.load_sandbox,
            partial(_find_config_problems, services.config_problems),
        ]


async def _find_effect(
    context: RequestContext[Services], request: WireModel, operation: Operation
) -> WireModel | None:
    find_effect = await load(_effects)
    return await find_effect(context, request, operation)


def _effects() -> FindEffect:
    # For requests that are sent again after a crash.
    from app_server.handlers.effects import find_effect

    return find_effect


def _ownership() -> "type[Ownership]":
    # With a database alone.
    from app_server.server.ownership import Ownership

    return Ownership


def _address(urls: Sequence[str]) -> str | None:
    """Return where others find this server."""
    return next((url for url in urls if url != "stdio://"), None)


def _routing() -> ModuleType:
    # For servers that share a database.
    from app_server.fleet import routing

    return routing


def _nobody(_: str, __: WireModel) -> set[int]:
    return set()


def _list_news() -> "type[ListNews]":
    from app_server.fleet.news import ListNews

    return ListNews


def _group_of() -> "Callable[[GroupNode, Services], Group]":
    from app_server.server.node import group_of

    return group_of


async def _close(opened: AsyncExitStack) -> None:
    """Close what was opened, the last first, also for who is cancelled; CLOSE_S in all."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
        await opened.aclose()


async def _warn_of_provider(configuration: Configuration, problems: "Lazy[ConfigProblems]") -> None:
    """Log first what keeps every thread from its model; the other checks are imported later."""
    try:
        chosen_provider(await configuration.read())
    except ConfigError:
        await _find_config_problems(problems)


async def _announce_account(services: Services) -> None:
    """Notify clients of changes of the account from now on."""
    services.part(await load(_account_news))


def _account_news() -> "type[AccountNews]":
    # With the handlers of the account, which come after those of threads and turns.
    from app_server.handlers.server.account import AccountNews

    return AccountNews


async def _follow_environments(services: Services) -> None:
    """Take in what clients of other servers add."""
    await services.part(await load(_shared_environments)).run()


def _shared_environments() -> "type[SharedEnvironments]":
    # It brings the WebSocket client.
    from app_server.handlers.host.environments import SharedEnvironments

    return SharedEnvironments


async def _find_config_problems(problems: "Lazy[ConfigProblems]") -> None:
    """Log what is wrong with the files of settings, also where no client comes."""
    await (await problems.get()).find_at_start()


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
