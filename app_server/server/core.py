"""Dispatch of requests, between listeners and services: loaded once clients can connect.

From top to bottom: the core; what is loaded ahead in the background, and the schedule of the
garbage collector, which looks at everything only while there is no work (a collection stops every
thread); the serving of the account's apps.

Source: docs/architecture.md, "Life of a process"; docs/apps.md, "Accounts";
https://docs.python.org/3/library/gc.html#gc.set_threshold.
"""

import gc
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.abc

from app_server import VERSION
from app_server.accounts.account_errors import AccountError
from app_server.accounts.accounts import Accounts
from app_server.accounts.credentials import AuthState, Credentials
from app_server.apps.account import FixedAccount
from app_server.apps.lazy import LazyApps
from app_server.config.effective import Configuration
from app_server.config.values import ConfigError
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.handlers.services import Services
from app_server.handlers.serving import find_handler
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.mcp.loading import load_client
from app_server.models.catalogue.providers import chosen_provider
from app_server.observability.telemetry.sending import sending
from app_server.rpc.connection import Conversations
from app_server.rpc.context import RequestContext
from app_server.rpc.dispatch import Dispatcher
from app_server.rpc.hub import Hub
from app_server.rpc.message_stream import MessageStream
from app_server.rpc.operations import FindEffect, Operations
from app_server.runtime.clock import STARTED_AT, SystemClock
from app_server.runtime.loader import RETRY_FIRST_S, RETRY_MOST_S, Lazy, load, load_module
from app_server.server.blocking_context import in_worker
from app_server.server.home import home_errors
from app_server.server.listeners import Listener
from app_server.server.services import Built, build_services
from app_server.server.settings import Settings, Substitutes
from app_server.server.settings_watch import SettingsWatch
from app_server.sessions.registry import Sessions
from app_server.threads.nodes import NodeSettings
from app_server.threads.opening.stores import Stores, open_stores
from app_server.threads.operations import Operation
from app_server.threads.servers import ServerEntry
from protocol.contract.specs import build_types
from protocol.integrations.mcp import McpServerStatusUpdatedNotification
from protocol.log.rollout import ItemCompleted, ThreadCreated, TurnCompleted
from protocol.log.rollout import Settings as ThreadSettings
from protocol.model import WireModel
from protocol.threads.thread import Thread
from protocol.turns.items import (
    AgentMessageThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    UserMessageThreadItem,
)
from protocol.turns.turn import Turn

if TYPE_CHECKING:
    from app_server.fleet.news import ListNews
    from app_server.fleet.routing import Group
    from app_server.handlers.host.environments import SharedEnvironments
    from app_server.handlers.server.account import AccountNews
    from app_server.handlers.server.config_problems import ConfigProblems
    from app_server.server.node import GroupNode
    from app_server.server.ownership import Ownership


logger = logging.getLogger(__name__)

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

    def answer_client(self, stream: MessageStream) -> Coroutine[Any, Any, None]:
        """Hold the conversation with one client."""
        if self._group is None:
            return self._conversations.converse(stream, self._requests)
        return self._answer_in_group(stream, self._group)

    async def _answer_in_group(self, stream: MessageStream, group: "Group") -> None:
        client_routes = (await load(_routing)).client_routes
        async with client_routes(self._requests, group) as routes:
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


YOUNG = 1_000
"""New objects before the youngest are looked at: less than 1 ms."""

MIDDLE = 10
"""Collections of the youngest before one of the middle generation: less than 5 ms."""

NEVER = 2**31 - 1

LOOK_S = 10.0
"""Between two looks whether a collection of everything is due."""

IDLE_SHARE = 0.02
"""Of a core: a process that used less since the last look has no work."""

DUE = 20
"""Looks at the middle generation, after which one is due without work: 220,000 objects."""

OVERDUE = 100
"""The same for one that waits for nothing: 1,100,000 objects, about 100 MB."""


def start_collecting() -> None:
    """Look at what there is for the last time, and at what comes in small steps.

    Modules and types live as long as the process. Done once, also where it runs several servers.
    """
    if gc.get_threshold()[2] == NEVER:
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


async def collect_when_idle(look_s: float = LOOK_S) -> None:
    """Collect everything now and then, if possible while there is no work; until cancelled."""
    while True:
        used_s, now_s = time.process_time(), time.monotonic()
        await anyio.sleep(look_s)
        share = (time.process_time() - used_s) / max(time.monotonic() - now_s, 1e-3)
        if is_due(gc.get_count()[2], is_idle=share < IDLE_SHARE):
            gc.collect()


def is_due(looks: int, *, is_idle: bool) -> bool:
    """Whether everything is to be collected after so many looks at the middle generation."""
    return looks >= (DUE if is_idle else OVERDUE)


async def warm_up(parts: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Load the parts in their order, in the background.

    What fails is tried again, after RETRY_FIRST_S and then twice as long each time up to
    RETRY_MOST_S; whoever needs it sooner has it tried at once.
    """
    wait_s = RETRY_FIRST_S
    while parts := [part for part in parts if not await _succeeds(part)]:
        await anyio.sleep(wait_s)
        wait_s = min(2 * wait_s, RETRY_MOST_S)
    start_collecting()


async def load_client_if_used(accounts: Accounts, configuration: Configuration) -> None:
    """Import the client of MCP servers where some are configured."""
    try:
        await accounts.load()
        mcp = read_mcp_settings(await configuration.read())
    except ConfigError:
        # Whoever starts a thread gets the error.
        logger.debug("the configuration cannot be used yet")
        return
    if any(server.enabled for server in mcp.servers.values()):
        await load_client()


def build_first_types() -> None:
    """Build the wire types that the first turn needs; for the importer's thread.

    Validators are built at first use (protocol/model.py). Those with items of turns take 10 to 20
    ms each, which would be the event loop's.
    """
    build_types(
        Thread,
        Turn,
        UserMessageThreadItem,
        AgentMessageThreadItem,
        ItemStartedNotification,
        ItemCompletedNotification,
        McpServerStatusUpdatedNotification,
        ThreadCreated,
        ThreadSettings,
        ItemCompleted,
        TurnCompleted,
    )


async def _succeeds(part: Callable[[], Awaitable[object]]) -> bool:
    try:
        await part()
    except Exception as exc:  # noqa: BLE001
        # Nothing of what is loaded ahead may end the server.
        logger.warning("something cannot be loaded yet: %s", exc)
        return False
    return True


PAUSE_S = 60.0
"""Seconds for which a renewed token is not renewed again when it is refused as well."""


async def serve_apps(
    apps: LazyApps,
    registry: ExtensionRegistry,
    accounts: Accounts,
    configuration: Configuration,
    *,
    retry_first_s: float = RETRY_FIRST_S,
) -> None:
    """Serve apps until cancelled; without them the server goes on.

    What fails is tried again, after `retry_first_s` and then twice as long each time up to
    RETRY_MOST_S.
    """
    wait_s = retry_first_s
    while True:
        try:
            await _run_apps(apps, registry, accounts, configuration)
        except ConfigError as exc:
            # The check of the configuration says so, and it may be corrected.
            apps.give_up(exc)
        except Exception as exc:
            logger.exception("apps are not served")
            apps.give_up(exc)
        else:
            apps.give_up()
            return
        await anyio.sleep(wait_s)
        wait_s = min(2 * wait_s, RETRY_MOST_S)


async def _run_apps(
    apps: LazyApps,
    registry: ExtensionRegistry,
    accounts: Accounts,
    configuration: Configuration,
) -> None:
    """Serve the apps from when there is a reason to."""
    config = await configuration.read()
    is_demo = config.view().at("apps_service").boolean("demo", default=False)
    await accounts.load()
    if not is_demo:
        await apps.run(AppsAccount(accounts), registry)
        return
    # The demo is a client, above this package: it is named, not imported.
    hosted = await load_module("app_server.clients.demo.hosted.endpoint")
    endpoint = hosted.HostedEndpoint()
    async with endpoint.serve():
        account = FixedAccount(endpoint.token.get_secret_value(), endpoint.account_id)
        await apps.run(account, registry, endpoint.base_url)


@dataclass(frozen=True, slots=True)
class SignIn:
    """Credentials, and a number that grows with every sign-in and sign-out."""

    credentials: Credentials | None
    revision: int


class AppsAccount:
    """The AuthPort (app_server/apps/account.py) of the account that is signed in."""

    def __init__(self, accounts: Accounts, now_s: Callable[[], float] = anyio.current_time) -> None:
        self._accounts = accounts
        self._now_s = now_s
        self._replaced: str | None = None
        self._pause_ends_s = 0.0

    def current(self) -> SignIn:
        """Return what holds now; never waits."""
        return _sign_in(self._accounts.current())

    def subscribe(self, listener: Callable[[SignIn], None], /) -> Callable[[], None]:
        """Call a function at every change; returns what ends that."""
        return self._accounts.subscribe(lambda state: listener(_sign_in(state)))

    @property
    def is_recent(self) -> bool:
        """Whether `look` would return what is known, and look at nothing."""
        return self._accounts.is_recent

    async def look(self) -> SignIn:
        """Return what holds, also when another process has changed it."""
        return _sign_in(await self._accounts.look())

    async def fresh(self) -> SignIn:
        """Return the credentials, after renewing a token near its end if that can be done."""
        return _sign_in(await self._accounts.fresh())

    async def renewed(self, refused: str, /) -> SignIn:
        """Have a token that a server refused renewed, unless that was done; see AuthPort.

        What came for a refused token is left alone for PAUSE_S: a server that refuses every token
        must not have the issuer asked with every request.
        """
        worn = self._accounts.current().credentials
        is_paused = refused == self._replaced and self._now_s() < self._pause_ends_s
        if worn is None or worn.token != refused or is_paused:
            return self.current()
        try:
            found = (await self._accounts.replace(worn)).credentials
        except AccountError as exc:
            logger.warning("the token was not renewed: %s", exc)
            found = worn
        self._replaced = None if found is None else found.token
        self._pause_ends_s = self._now_s() + PAUSE_S
        return self.current()


def _sign_in(state: AuthState) -> SignIn:
    return SignIn(state.credentials, state.sign_in)
