"""One server process: start, drain, stop.

Source: docs/architecture.md, "Life of a process".
"""

import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from app_server.extension.registry import ExtensionRegistry
from app_server.handlers.lazy import LazyHandlers
from app_server.handlers.services import Services
from app_server.handlers.table import TABLE
from app_server.rpc.connection import MessageStream
from app_server.rpc.hub import Hub
from app_server.rpc.lazy_dispatch import LazyDispatcher
from app_server.runtime.clock import Clock, SystemClock
from app_server.runtime.loader import load
from app_server.server.apps import serve_apps
from app_server.server.conversations import Conversations
from app_server.server.first_types import build_first_types
from app_server.server.garbage_collection import collect_when_idle
from app_server.server.listeners import Listeners
from app_server.server.services import Built, Substitutes, build_services
from app_server.server.settings import Settings
from app_server.server.warm_up import load_sdk_if_used, warm_up
from app_server.sessions.registry import Sessions
from app_server.threads.store import ThreadStore
from app_server.transport.stdio import open_stdio
from app_server.turns.model.interface import Model

if TYPE_CHECKING:
    from app_server.handlers.apps.port import AppsPort

logger = logging.getLogger(__name__)

CLOSE_S = 10.0


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
        apps: "AppsPort | None" = None,
    ) -> None:
        """`clock`, `model`, `extensions` and `apps` stand in for the real ones in tests.

        `apps` is taken where `extensions` are given; without it there are no apps then.
        """
        self._settings = settings
        clock = clock or SystemClock()
        self._substitutes = Substitutes(clock=clock, model=model, extensions=extensions, apps=apps)
        self._hub = Hub(clock.now_ms)
        self._conversations = Conversations(self._hub, settings.connection)
        self._store = ThreadStore(settings.home)
        self._stopping = anyio.Event()
        self._hurrying = anyio.Event()
        self._requests: LazyDispatcher | None = None
        self.services: Services | None = None
        """None before `run`."""

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
        background, work = anyio.create_task_group(), anyio.create_task_group()
        built = await build_services(
            self._settings,
            self._substitutes,
            store=self._store,
            hub=self._hub,
            connection_loads=self._conversations.loads,
            background=background,
            work=work,
        )
        self.services = built.services
        await built.services.plugins.load()
        try:
            async with background:
                background.start_soon(self._store.run)
                try:
                    async with work:
                        await self._serve(built, ready)
                finally:
                    background.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _only_member(group) from None
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                await built.services.model_lists.aclose()
                await built.lazy_model.aclose()
                await built.services.signals.aclose()
                await self._store.aclose()

    async def converse(self, stream: MessageStream) -> None:
        """Hold the conversation with one client, from when the server is ready."""
        assert self._requests is not None
        await self._conversations.hold(stream, self._requests)

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

    async def _serve(self, built: Built, ready: Callable[[Sequence[str]], None]) -> None:
        services = built.services
        background, sessions = services.tasks, services.sessions
        handlers = [LazyHandlers(row, services) for row in TABLE]
        self._requests = LazyDispatcher(
            {method: handler for lazy in handlers for method, handler in lazy.routes.items()}
        )
        background.start_soon(sessions.unloading.run)
        background.start_soon(services.memory.run)
        background.start_soon(collect_when_idle)
        listeners = Listeners(
            self.converse,
            self._converse_on_stdio,
            services.configuration,
            self._settings.websocket,
            background,
        )
        try:
            async with AsyncExitStack() as stack:
                opened = [
                    await stack.enter_async_context(listeners.open(address))
                    for address in self._settings.listen
                ]
                urls = [listener.url for listener in opened]
                self._store.address = next((url for url in urls if url != "stdio://"), None)
                ready(urls)
                background.start_soon(warm_up, _parts_at_start(built, self._requests, handlers))
                if built.lazy_apps is not None:
                    background.start_soon(
                        serve_apps, built.lazy_apps, services.accounts, services.configuration
                    )
                await self._stopping.wait()
                for listener in opened:
                    listener.stop_accepting()
                await self._drain(sessions)
                await sessions.aclose()
                await self._conversations.finish(CLOSE_S)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                await sessions.aclose()
                await services.commands.aclose()
                await services.environments.aclose()

    async def _drain(self, sessions: Sessions) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_hurried, tasks.cancel_scope)
            with anyio.move_on_after(self._settings.drain_s):
                await sessions.drain()
            tasks.cancel_scope.cancel()

    async def _cancel_when_hurried(self, scope: anyio.CancelScope) -> None:
        await self._hurrying.wait()
        scope.cancel()

    async def _converse_on_stdio(self) -> None:
        await self.converse(await open_stdio())
        if len(self._settings.listen) == 1:
            # The only client there will ever be has gone: nobody waits for its turns.
            self.stop()
            self.stop()


def _parts_at_start(
    built: Built, requests: LazyDispatcher, handlers: Sequence[LazyHandlers]
) -> list[Callable[[], Awaitable[object]]]:
    """Return what loads the parts that are needed first, in the order of the need."""
    services = built.services
    return [
        requests.prepare,
        *(lazy.load for lazy in handlers if lazy.at_start),
        partial(load, build_first_types),
        built.lazy_model.prepare,
        services.signals.resume,
        partial(load_sdk_if_used, services.accounts, services.configuration),
    ]


def _only_member(error: BaseException) -> BaseException:
    """Take a lone exception out of the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


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
