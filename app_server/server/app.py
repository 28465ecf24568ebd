"""One server process: start, stop. It listens first, and loads what serves requests then.

Source: docs/architecture.md, "Life of a process".
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.abc
import anyio.to_thread

from app_server import VERSION
from app_server.config.effective import read_start_settings
from app_server.observability.log_context import NODE
from app_server.runtime.exception_groups import only_member
from app_server.runtime.http.peer_user import others_are_let_in
from app_server.runtime.loader import load
from app_server.server.home import prepare_home
from app_server.server.listeners import Listeners, accept_failures_logged_once
from app_server.server.settings import Settings, Substitutes
from app_server.transport.stdio import open_stdio
from app_server.transport.websocket import NodeEntrance, WebSocketStream, always_ready

if TYPE_CHECKING:
    from app_server.config.node import GroupSettings
    from app_server.extensions.contract.registry import ExtensionRegistry
    from app_server.handlers.integrations.apps_port import AppsPort
    from app_server.handlers.services import Services
    from app_server.rpc.message_stream import MessageStream
    from app_server.runtime.clock import Clock
    from app_server.server.core import Core
    from app_server.server.node import GroupNode
    from app_server.transport.guards import ListenerGuards
    from app_server.transport.tokens import TokenGate

logger = logging.getLogger(__name__)

Phase = Literal["serving", "stopping"]
"""Requests are answered; the server was asked to stop, and running turns may end."""


ACP_PATH = "/acp"
"""Of a listener: clients that ask for it speak the Agent Client Protocol."""


def _unreported(phase: Phase) -> None:
    """Do nothing; the default of a callback."""


class AppServer:
    """One server process."""

    def __init__(
        self,
        settings: Settings,
        *,
        extensions: "ExtensionRegistry | None" = None,
        apps: "AppsPort | None" = None,
        clock: "Clock | None" = None,
    ) -> None:
        """`extensions`, `apps` and `clock` stand in for the real ones in tests.

        `apps` is taken where `extensions` are given; without it there are no apps then.
        """
        self._settings = settings
        self._substitutes = Substitutes(extensions=extensions, apps=apps, clock=clock)
        self._stopping = anyio.Event()
        self._hurrying = anyio.Event()
        self._core: Core | None = None
        self.loaded = anyio.Event()
        """Set once requests are served, or cannot be; until then they wait."""

    @property
    def services(self) -> "Services | None":
        """Services that the handlers use; None before they are loaded."""
        return None if self._core is None else self._core.services

    def stop(self) -> None:
        """Ask the server to stop: the first time running turns may end, the second time not."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    async def run(
        self,
        ready: Callable[[Sequence[str]], None],
        report: Callable[[Phase], None] = _unreported,
    ) -> None:
        """Serve until asked to stop; `ready` is called with the addresses that clients can use.

        Requests that come before `report` is called with `serving` wait until then. Neither
        callback may wait.

        Raises:
            OSError: an address cannot be bound, or the home directory cannot be used.
            ConfigError: the configuration has a fault, and that is to end the start.
            LoadFailed: this installation lacks a part of the server.
        """
        await anyio.to_thread.run_sync(prepare_home, self._settings.home)
        if self._settings.is_strict:
            await (await load(_strict_check))(self._settings)
        background = anyio.create_task_group()
        try:
            async with background:
                try:
                    await self._serve(background, ready, report)
                finally:
                    background.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise only_member(group) from None
        finally:
            if self._core is not None:
                await self._core.aclose()

    def serve_client(self, stream: "MessageStream") -> Coroutine[Any, Any, None]:
        """Hold the conversation with one client, from when its requests can be served."""
        # Each write of the conversation resumes all that awaits it: no more than that stands there.
        if self._core is not None:
            return self._core.answer_client(stream)
        return self._serve_when_loaded(stream)

    async def _serve_when_loaded(self, stream: "MessageStream") -> None:
        await self.loaded.wait()
        if self._core is not None:
            await self._core.answer_client(stream)

    async def serve_node(self, stream: "MessageStream") -> None:
        """Hold the conversation with a client of another node, as that one passes it on."""
        await self.loaded.wait()
        if self._core is not None:
            await self._core.answer_node(stream)

    async def serve_acp(self, stream: "MessageStream") -> None:
        """Hold the conversation with one client of the Agent Client Protocol."""
        serve_acp_client = await load(_open_acp)
        await serve_acp_client(stream, self.serve_client, VERSION)

    async def _converse_on_socket(self, stream: WebSocketStream) -> None:
        if stream.path == ACP_PATH:
            await self.serve_acp(stream)
        else:
            await self.serve_client(stream)

    def _node_id(self) -> str | None:
        return None if self._core is None else self._core.node_id

    def _is_ready(self) -> bool:
        return self._core is not None and self._core.has_lease

    async def _serve(
        self,
        background: anyio.abc.TaskGroup,
        ready: Callable[[Sequence[str]], None],
        report: Callable[[Phase], None],
    ) -> None:
        settings = self._settings
        async with AsyncExitStack() as stack:
            stack.enter_context(accept_failures_logged_once())
            # Before anything begins that listens: all of it inherits this.
            first = await read_start_settings(settings.sources, settings.store)
            store = first.store and first.store.taking_password(os.environ)
            settings = replace(settings, store=store, node=first.node, lease_s=first.lease_s)
            node = None
            if settings.node is not None:
                node = await (await load(_open_node))(settings.node)
            stack.callback(others_are_let_in.reset, others_are_let_in.set(first.lets_others_in))
            if store is not None:
                stack.callback(NODE.reset, NODE.set(self._node_id))
            listeners = Listeners(
                conversation=self._converse_on_socket,
                on_stdio=self._converse_on_stdio,
                limits=settings.websocket,
                tasks=background,
                tokens=await self._token_gate(stack),
                origins=settings.guards.origins,
                is_ready=self._is_ready if settings.store is not None else always_ready,
                nodes=None if node is None else NodeEntrance(node.tokens, self.serve_node),
            )
            opened = [
                await stack.enter_async_context(listeners.open(address))
                for address in settings.listen
            ]
            urls = [listener.url for listener in opened]
            if store is None:
                # Requests wait for what is imported now; a database may refuse this server.
                ready(urls)
            try:
                open_core = await load(_open_core)
                self._core = await open_core(settings, self._substitutes, urls, background, node)
            finally:
                self.loaded.set()
            if store is not None:
                ready(urls)
            report("serving")
            background.start_soon(self._report_stop, report)
            await self._core.serve(opened, self._stopping, self._hurrying)

    async def _report_stop(self, report: Callable[[Phase], None]) -> None:
        await self._stopping.wait()
        report("stopping")

    async def _token_gate(self, stack: AsyncExitStack) -> "TokenGate | None":
        guards = self._settings.guards
        if not guards.wants_token:
            return None
        open_gate = await load(_open_gate)
        return await stack.enter_async_context(open_gate(guards))

    async def _converse_on_stdio(self) -> None:
        await self.serve_client(await open_stdio())
        if len(self._settings.listen) == 1:
            # The only client there will ever be has gone: nobody waits for its turns.
            self.stop()
            self.stop()


def _open_acp() -> "Callable[..., Awaitable[None]]":
    # Of most servers no client speaks it.
    from app_server.acp.agent import serve_acp_client

    return serve_acp_client


def _open_gate() -> "Callable[[ListenerGuards], AbstractAsyncContextManager[TokenGate]]":
    # Most servers are started without.
    from app_server.server.tokens import token_gate

    return token_gate


def _open_node() -> "Callable[[GroupSettings], Awaitable[GroupNode]]":
    # With a database, and a secret of its servers, alone.
    from app_server.server.node import open_node

    return open_node


def _open_core() -> "Callable[..., Awaitable[Core]]":
    # What is imported stays: looking for garbage meanwhile finds none, and takes a tenth longer.
    # So does looking for it behind that; a process that runs several servers imports once.
    collects, is_first = gc.isenabled(), "app_server.server.core" not in sys.modules
    gc.disable()
    try:
        from app_server.server.core import Core
    finally:
        if is_first:
            gc.freeze()
        if collects:
            gc.enable()

    return Core.open


def _strict_check() -> "Callable[[Settings], Awaitable[None]]":
    # All that reads settings, which other servers import when clients can connect.
    from app_server.server.strict_check import check_strictly

    return check_strictly


async def serve(
    settings: Settings,
    ready: Callable[[Sequence[str]], None],
    report: Callable[[Phase], None] = _unreported,
) -> None:
    """Run a server until SIGTERM or SIGINT; a second signal stops running turns at once."""
    await serve_until_signalled(AppServer(settings), ready, report)


async def serve_until_signalled(
    server: AppServer,
    ready: Callable[[Sequence[str]], None],
    report: Callable[[Phase], None] = _unreported,
) -> None:
    """Run this server until it is stopped, or SIGTERM or SIGINT, as `serve` does."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signals, server)
            await server.run(ready, report)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only_member(group) from None


async def _stop_on_signals(server: AppServer) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            logger.info("signal %s", number)
            server.stop()
