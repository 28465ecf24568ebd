"""The only place that builds the rooms and joins them; start, drain, stop.

Source: docs/architecture.md, "Life of a process".
"""

import gc
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from app_server.accounts.accounts import Accounts
from app_server.accounts.settings import AccountSettings, read_account_settings
from app_server.apps.account import FixedAccount
from app_server.apps.lazy import LateApps
from app_server.config.effective import Configuration
from app_server.config.file import ConfigFile
from app_server.config.requirements import SYSTEM_REQUIREMENTS, requirements_of
from app_server.config.values import ConfigError
from app_server.extension.registry import ExtensionRegistry
from app_server.handlers.apps.servers import AppServers
from app_server.handlers.late import LateHandlers
from app_server.handlers.server.lifecycle import LifecycleHandlers
from app_server.host.environments import Environments
from app_server.mcp.catalog.config import read_mcp_settings
from app_server.mcp.loading import load_sdk
from app_server.memory.budget import MemoryBudget
from app_server.memory.settings import MemorySettings, read_memory_settings
from app_server.plugins.contributor import Plugins
from app_server.plugins.store import PluginStore
from app_server.rpc.connection import ConnectionLimits, MessageStream, RpcConnection
from app_server.rpc.hub import Hub
from app_server.rpc.lazy_dispatch import LateDispatcher
from app_server.runtime.clock import Clock, SystemClock
from app_server.runtime.loader import RETRY_FIRST_S, RETRY_MOST_S, Lazy, load, load_module
from app_server.server.apps_account import AppsAccount
from app_server.server.areas import AreaPorts, account_area, make_dispatcher
from app_server.sessions.ports import SessionPorts
from app_server.sessions.registry import Sessions
from app_server.signals.lazy import LateSignals
from app_server.signals.notifications import SignalNews, settings_as_stored
from app_server.threads.log.state import ThreadState
from app_server.threads.store import ThreadStore
from app_server.transport.address import Address, StdioAddress, TcpAddress, UnixAddress
from app_server.transport.peer_user.own_user import CAN_LOOK, OwnUser
from app_server.transport.stdio import open_stdio
from app_server.transport.websocket import (
    OpenListener,
    WebSocketLimits,
    listen_tcp,
    listen_unix,
)
from app_server.turns.approval.persistent import LastingApprovals
from app_server.turns.model.interface import Model
from app_server.turns.model.lazy import LazyModel

logger = logging.getLogger(__name__)

COLLECT_AFTER = (10_000, 100, 20)
"""New objects before the garbage collector looks at the youngest, and how often it does that before
it looks at older ones. Whoever makes 100,000 at once that stay, as a list of thousands of tools is,
would set off dozens of looks at all of them, during which nobody else runs."""

VERSION = "0.1.0"
"""This package's version; tests compare it with pyproject.toml."""

APPROVALS_OF_APPS = "apps"
"""Where registrations of apps say that their lasting approvals belong."""

UNLOAD_DELAY_S = 1800.0
DRAIN_S = 30.0
CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is started with."""

    home: Path
    listen: Sequence[Address]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Of config.toml, from the command line."""
    requirements: Path = SYSTEM_REQUIREMENTS
    """What an administrator demands; only tests have another one."""
    cwd: Path = field(default_factory=Path.cwd)
    drain_s: float = DRAIN_S
    """How long running turns may go on after the first signal to stop."""
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    websocket: WebSocketLimits = field(default_factory=WebSocketLimits)


class HomeUnusable(OSError):
    """The home folder cannot be read or written; the text says why and what to do."""

    def __str__(self) -> str:
        """Say it without a number."""
        return str(self.strerror)


class AppServer:
    """One server process."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        model: Model | None = None,
        extensions: ExtensionRegistry | None = None,
        apps: AppServers | None = None,
    ) -> None:
        """`clock`, `model` and `extensions` stand in for the real ones in tests.

        `apps` is an `AppsPort` (app_server/handlers/apps/port.py, which is imported late); without
        one there are no apps.
        """
        self._settings = settings
        self._clock = clock or SystemClock()
        as_written = Configuration(
            settings.home, settings.requirements, settings.overrides, settings.cwd
        )
        read_settings = partial(_account_settings, as_written)
        self._accounts = Accounts(settings.home, read_settings, self._clock.now_ms)
        self._lazy_model = LazyModel(self._offline_url, self._accounts)
        self._model = model or self._lazy_model
        self._file = ConfigFile(settings.home)
        self._plugins = Plugins(PluginStore(settings.home), self._is_available)
        self._late_apps: LateApps | None = None
        if extensions is None:
            self._late_apps = LateApps(settings.home, self._instance_of, self._plugins)
            extensions = ExtensionRegistry(
                [self._plugins, self._late_apps],
                {APPROVALS_OF_APPS: self._approve_app},
                [self._late_apps],
            )
        self._extensions = extensions
        self._apps = self._late_apps or apps
        self._hub = Hub(self._clock.now_ms)
        self.memory: MemoryBudget | None = None
        """Of the threads; None before `run`."""
        self._store = ThreadStore(settings.home)
        self._configuration = Configuration(
            settings.home,
            settings.requirements,
            settings.overrides,
            settings.cwd,
            self._is_signed_in,
        )
        self._connections: set[RpcConnection] = set()
        self._all_gone = anyio.Event()
        self._stopping = anyio.Event()
        self._hurrying = anyio.Event()
        self._offline = Lazy("the offline model", self._start_offline)
        self._background: anyio.abc.TaskGroup | None = None
        self._requests: LateDispatcher | None = None
        self._account: LateHandlers | None = None
        self._environments: Environments | None = None
        self._signals: LateSignals | None = None

    def stop(self) -> None:
        """Ask the server to stop: the first time running turns may end, the second time not."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    async def run(self, ready: Callable[[Sequence[str]], None]) -> None:
        """Serve until asked to stop; `ready` hears the addresses once clients can connect.

        Raises:
            OSError: an address cannot be bound, or the home directory cannot be used.
        """
        await self._open_home()
        await self._plugins.load()
        try:
            async with anyio.create_task_group() as self._background:
                self._background.start_soon(self._store.run)
                try:
                    async with anyio.create_task_group() as work:
                        await self._serve(work, ready)
                finally:
                    self._background.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _only_member(group) from None
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                await self._lazy_model.aclose()
                if self._signals is not None:
                    await self._signals.aclose()
                await self._store.aclose()

    async def _open_home(self) -> None:
        home = self._settings.home
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._store.open()
        except OSError as exc:
            raise HomeUnusable(
                exc.errno,
                f"the home folder cannot be used: {exc.strerror} ({exc.filename}); "
                f"app-server doctor --home {home} says more",
            ) from exc

    async def _serve(
        self, work: anyio.abc.TaskGroup, ready: Callable[[Sequence[str]], None]
    ) -> None:
        assert self._background is not None
        environments = self._environments = Environments(self._background)
        ports = SessionPorts(
            self._store,
            self._model,
            self._hub,
            self._clock,
            LastingApprovals(self._file, self._extensions),
            environments,
            self._extensions,
            self._log_grew,
            self._configuration.requirements,
        )
        unload_delay_s, memory = await self._first_settings()
        self._hub.streams.limits = memory.stream
        sessions = Sessions(ports, work, unload_delay_s)
        budget = self.memory = MemoryBudget(memory.budget_bytes, self._hub.streams, sessions)
        environments.on_connection = partial(_tell_of_environment, sessions, self._plugins)
        news = SignalNews(self._hub)
        self._signals = LateSignals(
            self._settings.home,
            self._background,
            self._store,
            sessions,
            self._clock,
            news.announce,
            partial(settings_as_stored, self._configuration),
        )
        areas = AreaPorts(
            self._store,
            sessions,
            self._hub,
            self._clock,
            self._configuration,
            self._file,
            self._extensions,
            environments,
            self._accounts,
            self._plugins,
            self._apps,
            self._signals,
            news,
            budget,
            lambda: [connection.load for connection in self._connections],
            self._background,
            LifecycleHandlers(self._settings.home, VERSION),
        )
        self._account = account_area(areas)
        self._requests = make_dispatcher(areas, self._account)
        self._background.start_soon(sessions.unloading.run)
        self._background.start_soon(budget.run)
        try:
            async with AsyncExitStack() as stack:
                listeners = [
                    await stack.enter_async_context(self._listen(address))
                    for address in self._settings.listen
                ]
                urls = [listener.url for listener in listeners]
                self._store.address = next((url for url in urls if url != "stdio://"), None)
                ready(urls)
                self._background.start_soon(self._warm_up)
                if self._late_apps is not None:
                    self._background.start_soon(self._serve_apps, self._late_apps)
                await self._stopping.wait()
                for listener in listeners:
                    listener.stop_accepting()
                await self._drain(sessions)
                await sessions.aclose()
                await self._say_goodbye()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                await sessions.aclose()
                await environments.aclose()

    async def _drain(self, sessions: Sessions) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_hurried, tasks.cancel_scope)
            with anyio.move_on_after(self._settings.drain_s):
                await sessions.drain()
            tasks.cancel_scope.cancel()

    async def _cancel_when_hurried(self, scope: anyio.CancelScope) -> None:
        await self._hurrying.wait()
        scope.cancel()

    async def _say_goodbye(self) -> None:
        for connection in self._connections:
            connection.finish()
        with anyio.move_on_after(CLOSE_S):
            while self._connections:
                self._all_gone = anyio.Event()
                await self._all_gone.wait()

    async def converse(self, stream: MessageStream) -> None:
        """Hold the conversation with one client, from when the server is ready."""
        assert self._requests is not None
        connection = RpcConnection(stream, self._requests, self._hub, self._settings.connection)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._all_gone.set()

    @asynccontextmanager
    async def _listen(self, address: Address) -> AsyncIterator["_Listening"]:
        match address:
            case TcpAddress():
                own_user = await self._own_user()
                async with listen_tcp(
                    address, self.converse, self._settings.websocket, own_user
                ) as tcp:
                    yield tcp
            case UnixAddress():
                async with listen_unix(address, self.converse, self._settings.websocket) as unix:
                    yield unix
            case StdioAddress():
                assert self._background is not None
                self._background.start_soon(self._converse_on_stdio)
                yield _StdioListening()

    async def _own_user(self) -> OwnUser | None:
        """Return what keeps other users away; None where they may come, or cannot be told apart."""
        try:
            view = (await self._configuration.read()).view()
            refuses = view.boolean("refuse_other_users", default=True)
        except ConfigError as exc:
            logger.warning("other users are refused, as the configuration cannot be used: %s", exc)
            refuses = True
        return OwnUser() if refuses and CAN_LOOK else None

    async def _converse_on_stdio(self) -> None:
        await self.converse(await open_stdio())
        if len(self._settings.listen) == 1:
            # The only client there will ever be has gone: nobody waits for its turns.
            self.stop()
            self.stop()

    async def _is_signed_in(self) -> bool:
        return (await self._accounts.look()).credentials is not None

    async def _first_settings(self) -> tuple[float, MemorySettings]:
        """Read what is read once: when threads are unloaded, and how much memory they may take."""
        try:
            config = await self._configuration.read()
            for warning in requirements_of(config).warnings:
                logger.warning("%s", warning)
            delay_s = config.view().integer("thread_unload_delay_secs")
            memory = read_memory_settings(config)
        except ConfigError as exc:
            # Every request that needs the configuration says so too.
            logger.warning("the configuration cannot be used: %s", exc)
            return UNLOAD_DELAY_S, MemorySettings()
        return UNLOAD_DELAY_S if delay_s is None else float(delay_s), memory

    async def _warm_up(self) -> None:
        """Load what the first requests and turns will need, now that nobody waits for it.

        What fails is tried again, after RETRY_FIRST_S and then twice as long each time up to
        RETRY_MOST_S; whoever needs it sooner has it tried at once.
        """
        assert self._requests is not None
        parts: list[Callable[[], Awaitable[object]]] = [
            self._requests.prepare,
            self._lazy_model.prepare,
        ]
        if self._account is not None:
            # From here on it tells clients of changes that nobody asked for.
            parts.append(self._account.load)
        if self._signals is not None:
            parts.append(self._signals.resume)
        parts.append(self._load_sdk_if_used)
        wait_s = RETRY_FIRST_S
        while parts := [part for part in parts if not await _succeeds(part)]:
            await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_MOST_S)
        # Modules and types live as long as the process: collections need not look at them again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)

    async def _load_sdk_if_used(self) -> None:
        try:
            await self._accounts.load()
            mcp = read_mcp_settings(await self._configuration.read())
        except ConfigError:
            # Whoever starts a thread will be told.
            logger.debug("the configuration cannot be used yet")
            return
        if any(server.enabled for server in mcp.servers.values()):
            await load_sdk()

    def _log_grew(self, state: ThreadState) -> None:
        if self._signals is not None:
            self._signals.log_grew(state)

    def _instance_of(self, environment_id: str) -> str | None:
        assert self._environments is not None
        return self._environments.instance_of(environment_id)

    def _is_available(self, environment_id: str) -> bool:
        return self._instance_of(environment_id) is not None

    async def _approve_app(self, path: Sequence[str]) -> None:
        await self._file.write(path, "approve")

    async def _serve_apps(self, apps: LateApps) -> None:
        """Serve apps for as long as the server lives; without them it goes on.

        What fails is tried again, after RETRY_FIRST_S and then twice as long each time up to
        RETRY_MOST_S.
        """
        wait_s = RETRY_FIRST_S
        while True:
            try:
                await self._run_apps(apps)
            except Exception as exc:
                logger.exception("apps are not served")
                apps.give_up(exc)
            else:
                apps.give_up()
                return
            await anyio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_MOST_S)

    async def _run_apps(self, apps: LateApps) -> None:
        """Serve the apps of the account, or those of the demo, from when there is a reason to."""
        try:
            config = await self._configuration.read()
            is_demo = config.view().at("apps_service").boolean("demo", default=False)
            await self._accounts.load()
        except ConfigError:
            # Whoever starts a thread will be told.
            logger.debug("there are no apps, as the configuration cannot be used")
            return
        if not is_demo:
            await apps.run(AppsAccount(self._accounts))
            return
        hosted = await load_module("app_server.clients.demo.hosted.endpoint")
        endpoint = hosted.HostedEndpoint()
        async with endpoint.serve():
            account = FixedAccount(endpoint.token.get_secret_value(), endpoint.account_id)
            await apps.run(account, endpoint.base_url)

    async def _offline_url(self) -> str:
        return self._offline.value or await self._offline.get()

    async def _start_offline(self) -> str:
        assert self._background is not None
        serve_offline_model = await load(_offline_model)
        url: str = await self._background.start(_hold, serve_offline_model())
        return url


def _offline_model() -> Callable[[], AbstractAsyncContextManager[str]]:
    from app_server.turns.model.offline import serve_offline_model

    return serve_offline_model


async def _hold(
    context: AbstractAsyncContextManager[str], *, task_status: anyio.abc.TaskStatus[str]
) -> None:
    """Keep a context open until cancelled; its value is the status."""
    async with context as value:
        task_status.started(value)
        await anyio.sleep_forever()


async def _succeeds(part: Callable[[], Awaitable[object]]) -> bool:
    try:
        await part()
    except Exception as exc:
        # Nothing of what is loaded ahead may end the server.
        logger.warning("something cannot be loaded yet: %s", exc)
        return False
    return True


async def _account_settings(configuration: Configuration) -> AccountSettings:
    return read_account_settings(await configuration.read())


def _tell_of_environment(
    sessions: Sessions, plugins: Plugins, environment_id: str, connected: bool
) -> None:
    plugins.environment_changed()
    for session in sessions:
        session.mcp.environment_changed(environment_id, connected)


def _only_member(error: BaseException) -> BaseException:
    """Take a lone exception out of the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class _StdioListening:
    url = "stdio://"

    def stop_accepting(self) -> None:
        """Do nothing: stdio has one client."""


_Listening = OpenListener | _StdioListening


async def serve(settings: Settings, ready: Callable[[Sequence[str]], None]) -> None:
    """Run a server until SIGTERM or SIGINT; a second signal stops running turns at once."""
    await serve_until_signalled(AppServer(settings), ready)


async def serve_until_signalled(server: AppServer, ready: Callable[[Sequence[str]], None]) -> None:
    """Run this server until it is stopped, or SIGTERM or SIGINT, as `serve` does."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signals, server)
            await server.run(ready)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _only_member(group) from None


async def _stop_on_signals(server: AppServer) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            logger.info("signal %s", number)
            server.stop()
