"""Apps service, the interface of this package.

Knows: who is signed in, what every part of this package does. Does not know: clients, turns, the
package of MCP; threads get its servers as registrations, like any other.
Source: docs/apps.md, "The service", "Snapshots", "Turns".
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import anyio
import anyio.abc
import anyio.to_thread

from app_server.apps.account import AppsUnavailable, AuthPort, PluginPort
from app_server.apps.connection import AppsConnections, Connection, ConnectionPorts, Timer
from app_server.apps.files.environments import Machines
from app_server.apps.inventory.inventory import Connector
from app_server.apps.policy import AppsPolicy, Use
from app_server.apps.presentation import ApprovalTemplates, app_context
from app_server.apps.published import Published
from app_server.apps.routes.generation import Generation
from app_server.apps.settings import AppsSettings
from app_server.apps.upstream.bearer import SIGN_IN_CHANGED
from app_server.config.values import ConfigError
from app_server.extensions.contract.registration import ContributionContext, Registration
from app_server.extensions.contract.turns import Presentation, ToolCall, TurnExtension

logger = logging.getLogger(__name__)

MAX_SIGN_INS = 3
"""Attempts of one wait for apps while the sign-in changes."""

MAX_THREADS = 4096
"""Whose servers are remembered, for what their items show."""

END_S = 5.0
"""For generations to end at the shutdown."""

Settings: TypeAlias = Mapping[str, Any]
"""The settings in force, as config.toml has them."""


class Snapshot:
    """A generation, leased; use it as a context, or call `release`."""

    def __init__(self, published: Published, *, is_live: bool) -> None:
        self.is_live = is_live
        """Whether it was fetched since the sign-in or the start, not read from disk."""
        self.published = published
        self._lease = published.generation.lease()

    @property
    def apps(self) -> Sequence[Connector]:
        """Connectors with a real tool."""
        return self.published.generation.inventory.installed

    def missing(self, app_ids: Sequence[str]) -> list[str]:
        """Return the apps that the account has not linked, in their order."""
        linked = {connector.id for connector in self.published.generation.inventory.connectors}
        return [id_ for id_ in app_ids if id_ not in linked]

    def release(self) -> None:
        """Release the generation; called any number of times."""
        self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()


INSTRUCTIONS = """\
<apps_instructions>
The user has installed apps. A user names one as [$name](app://id) in a message; use its tools \
then. Use the tools of an app unasked, too, where they fit what the user wants. Every app is a \
namespace of its own among your tools, or is found with the tool search. Listing resources tells \
nothing about apps.
</apps_instructions>"""


class AppsService(TurnExtension):
    """The apps of the signed-in account. `run` owns all tasks that it starts."""

    id = "codex_apps"

    def __init__(
        self,
        home: Path,
        auth: AuthPort,
        plugins: PluginPort,
        machines: Machines | None = None,
        *,
        base_url: str | None = None,
        environ: Mapping[str, str] = os.environ,
        timer: Timer | None = None,
    ) -> None:
        """Prepare; requests are made when they are needed.

        Without `machines` no argument carries a file. `base_url` stands over the configured
        address.

        Raises:
            BadDebugToken: the variable with the debug token makes no sense.
        """
        self._auth = auth
        self._plugins = plugins
        self._timer = timer or Timer()
        self._connections = AppsConnections(home, auth, machines, base_url, environ)
        self._by_thread: OrderedDict[str, Published] = OrderedDict()
        self._publications = 0
        self._ports: ConnectionPorts | None = None
        self._ending = anyio.Event()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Serve until `begin_shutdown`; then all generations end within END_S, leased or not."""
        templates = await anyio.to_thread.run_sync(ApprovalTemplates.load)
        unsubscribe = self._auth.subscribe(self._connections.signed_in_or_out)
        try:
            async with anyio.create_task_group() as tasks:
                self._ports = ConnectionPorts(
                    tasks,
                    anyio.Lock(),
                    templates,
                    self._bump,
                    served := set[Generation](),
                    self._timer,
                )
                task_status.started()
                await self._ending.wait()
                generations = tuple(served)
                self._connections.end_all()
                with anyio.move_on_after(END_S, shield=True):
                    async with anyio.create_task_group() as closing:
                        for generation in generations:
                            closing.start_soon(generation.close)
                tasks.cancel_scope.cancel()
        finally:
            self._ports = None
            unsubscribe()

    def begin_shutdown(self) -> None:
        """Refuse new work; `run` ends the rest."""
        self._ending.set()

    # What is published.

    def revision(self) -> int:
        """Return a number that grows whenever `contribute` would say something else."""
        return self._publications + self._auth.current().revision + self._plugins.revision()

    def _bump(self) -> None:
        self._publications += 1

    # Direct questions.

    def current_snapshot(self, config: Settings) -> Snapshot | None:
        """Return the published snapshot for these settings and sign-in, without network."""
        connection = self._connection(AppsSettings.read(config), make=False)
        if connection is None or connection.published is None:
            return None
        return Snapshot(connection.published, is_live=connection.is_live)

    async def snapshot_allowing_cached(self, config: Settings) -> Snapshot | None:
        """Return the first that can be had, from disk or fetched; None without apps.

        Raises:
            AppsUnavailable, ConfigError
        """
        return await self._ask(config, Connection.first)

    async def snapshot(self, config: Settings) -> Snapshot | None:
        """Return the freshest that can be had; see `Connection.fresh`. None without apps.

        Raises:
            AppsUnavailable, ConfigError
        """
        return await self._ask(config, Connection.fresh)

    async def refresh_snapshot(self, config: Settings) -> Snapshot | None:
        """Fetch a new snapshot; None without apps.

        Raises:
            AppsUnavailable, ConfigError
        """
        return await self._ask(config, Connection.refresh)

    async def prepare_mcp_servers(self, config: Settings) -> None:
        """Have something published, if threads are given servers at all.

        Raises:
            AppsUnavailable, ConfigError
        """
        if AppsSettings.read(config).serves_mcp:
            snapshot = await self.snapshot_allowing_cached(config)
            if snapshot is not None:
                snapshot.release()

    async def known_connectors(self, config: Settings) -> Sequence[Connector]:
        """Return the connectors with a real tool, as published or cached on disk; sends no request.

        It is the same whether the settings allow apps or not.

        Raises:
            ConfigError
        """
        settings = replace(AppsSettings.read(config), enabled=True)
        connection = self._connection(settings)
        return () if connection is None else await connection.known()

    async def _ask(
        self, config: Settings, question: Callable[[Connection], Awaitable[Published]]
    ) -> Snapshot | None:
        """Ask a connection, and the next one if the sign-in changes; None without apps."""
        settings = AppsSettings.read(config)
        for _ in range(MAX_SIGN_INS):
            connection = self._connection(settings)
            if connection is None:
                return None
            try:
                return Snapshot(await question(connection), is_live=connection.is_live)
            except AppsUnavailable:
                if self._connections.has(connection):
                    raise
        raise AppsUnavailable(SIGN_IN_CHANGED)

    # Servers for threads.

    def contribute(self, context: ContributionContext) -> Sequence[Registration]:
        """Return the servers there are now; see Contributor."""
        try:
            settings = AppsSettings.read(context.config)
            connection = self._connection(settings) if settings.serves_mcp else None
            published = None if connection is None else connection.published
            if connection is not None and context.mode == "discover" and connection.is_stale:
                connection.start()
            self._remember(context.thread_id, published)
            if connection is None:
                return []
            use = Use(
                AppsPolicy.read(context.config, context.requirements),
                connection.origin,
                self._plugins.app_names(context.config, context.thread_id),
            )
            connection.publishing.record_use(use)
            return [] if published is None else published.registrations(use)
        except ConfigError as exc:
            logger.warning("the settings of apps make no sense: %s", exc)
            return []

    async def discovered(self, context: ContributionContext) -> None:
        """Wait for the end of the first look at the apps, if threads have any; see Contributor."""
        try:
            settings = AppsSettings.read(context.config)
        except ConfigError:
            # `contribute` says so.
            return
        connection = self._connection(settings) if settings.serves_mcp else None
        if connection is not None:
            await connection.looked()

    def looking_since(self, context: ContributionContext) -> float | None:
        """Return when the first look at the apps began, while it lasts; see Contributor."""
        try:
            settings = AppsSettings.read(context.config)
        except ConfigError:
            # `contribute` says so.
            return None
        connection = self._connection(settings, make=False) if settings.serves_mcp else None
        return None if connection is None else connection.looking_since_s

    async def refresh(self, context: ContributionContext) -> None:
        """Fetch again if threads have servers; see Contributor. A failure keeps the former ones."""
        try:
            if AppsSettings.read(context.config).serves_mcp:
                snapshot = await self.refresh_snapshot(context.config)
                if snapshot is not None:
                    snapshot.release()
        except (AppsUnavailable, ConfigError) as exc:
            logger.warning("the apps cannot be fetched again: %s", exc)

    # Turns.

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> str | None:
        """Return instructions about apps, if the model has a tool of one."""
        published = None if context.thread_id is None else self.shown_to(context.thread_id)
        if published is None or not any(server in published.made.routes for server, _ in tools):
            return None
        wanted = AppsSettings.read(context.config).includes_instructions
        return INSTRUCTIONS if wanted else None

    def present(self, call: ToolCall) -> Presentation | None:
        """Name the app that a call goes to."""
        published = self.shown_to(call.thread_id)
        route = None if published is None else published.made.routes.get(call.server)
        tool = None if route is None else route.tools.get(call.tool)
        if route is None or tool is None:
            return None
        uri = tool.resources[0] if tool.resources else None
        return Presentation(app_context(route.connector, tool), uri)

    def shown_to(self, thread_id: str) -> Published | None:
        """Return the snapshot of a thread's servers."""
        return self._by_thread.get(thread_id)

    def _remember(self, thread_id: str | None, published: Published | None) -> None:
        if thread_id is None:
            return
        self._by_thread.pop(thread_id, None)
        if published is not None:
            self._by_thread[thread_id] = published
            if len(self._by_thread) > MAX_THREADS:
                self._by_thread.popitem(last=False)

    def _connection(self, settings: AppsSettings, *, make: bool = True) -> Connection | None:
        if self._ports is None or self._ending.is_set():
            return None
        return self._connections.find(settings, self._ports, make=make)
