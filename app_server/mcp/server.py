"""One configured server: its status, its connection, its last listing.

Status goes from `starting` to exactly one of `ready`, `failed`, `cancelled`, and each step is told
once. A server that dies later keeps its listing.
Source: docs/mcp.md, "Connections".
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import anyio

from app_server.mcp.config import VALID_NAME, ServerConfig
from app_server.mcp.errors import (
    ClientUnavailable,
    NotLoggedIn,
    StartupFailed,
    StartupTimedOut,
    TransportClosed,
    UnknownServer,
)
from app_server.mcp.listing import Listing
from app_server.mcp.loading import Connector
from app_server.mcp.peer import Peer

logger = logging.getLogger(__name__)

Status: TypeAlias = Literal[
    "notStarted",
    "starting",
    "connected",
    "authenticationRequired",
    "failed",
    "cancelled",
    "disabled",
]

StartupStep: TypeAlias = Literal["starting", "ready", "failed", "cancelled"]

StatusCallback: TypeAlias = Callable[[str, StartupStep, str | None], None]
"""Hears the raw name, the step, and the text of a failure."""

RETRY_WAITS_S = (0.3, 1.0)
"""Before the second and the third try of a server that was out of reach."""


class McpServer:
    """One server of one set; also the owner of its connection."""

    def __init__(
        self,
        config: ServerConfig,
        told: StatusCallback,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.config = config
        self.status: Status = "notStarted" if config.startable else "disabled"
        self.listing = Listing()
        self.failure: StartupFailed | None = None
        self.settled = anyio.Event()
        """Set once a start has been decided, or will not be tried."""
        self.stop = anyio.Event()
        self._told = told
        self._sleep = sleep
        self._peer: Peer | None = None
        self._signed_in = anyio.Event()
        self._may_retry = False
        self._running = anyio.CancelScope()
        if not config.startable:
            self.settled.set()

    async def run(self, load_connector: Callable[[], Awaitable[Connector]], cwd: str) -> None:
        """Start the server and hold its connection until it ends or is stopped."""
        with self._running:
            self._begin()
            if VALID_NAME.fullmatch(self.config.name) is None:
                pattern = f"^{VALID_NAME.pattern}$"
                reason = (
                    f"Invalid MCP server name '{self.config.name}': must match pattern {pattern}"
                )
                self.failed(StartupFailed(reason))
                return
            connect = await load_connector()
            await self._connect(connect, cwd)
            while self.status == "authenticationRequired" and await self._until_signed_in():
                self._begin()
                await self._connect(connect, cwd)

    def _begin(self) -> None:
        self.status, self.failure = "starting", None
        self._signed_in = anyio.Event()
        if self.settled.is_set():
            self.settled = anyio.Event()
        self._told(self.config.name, "starting", None)

    async def _connect(self, connect: Connector, cwd: str) -> None:
        for wait_s in (*RETRY_WAITS_S, None):
            self._may_retry = wait_s is not None
            await self._connect_once(connect, cwd)
            if wait_s is None or self.settled.is_set():
                return
            await self._sleep(wait_s)

    async def _until_signed_in(self) -> bool:
        """Wait for a sign-in; False when the server is to be stopped instead."""
        async with anyio.create_task_group() as tasks:
            for event in (self.stop, self._signed_in):
                tasks.start_soon(_cancel_when, event, tasks.cancel_scope)
        return not self.stop.is_set()

    def credentials_changed(self) -> None:
        """Hear that somebody signed in; a server that waits for that starts again."""
        self._signed_in.set()

    async def _connect_once(self, connect: Connector, cwd: str) -> None:
        try:
            await connect(self.config, cwd, self)
        except Exception:
            # The SDK's tasks may raise anything; it must not reach other servers or the thread.
            logger.exception("MCP server %s: its connection broke", self.config.name)
            if not self.settled.is_set():
                self.failed(StartupFailed("the connection broke"))
        if self.status == "connected":
            self.status = "failed"
            self.failure = StartupFailed("Transport closed")

    def ready(self, peer: Peer, listing: Listing) -> None:
        """Take the connection into service."""
        if self.settled.is_set():
            return
        self.status, self._peer, self.listing = "connected", peer, listing
        self._settle("ready", None)

    def failed(self, failure: StartupFailed) -> None:
        """Note that the start failed, unless it will be tried again."""
        if self.settled.is_set() or (failure.transient and self._may_retry):
            return
        self.status = "authenticationRequired" if isinstance(failure, NotLoggedIn) else "failed"
        self.failure = failure
        self._settle("failed", _for_people(self.config.name, failure))

    @property
    def reauthentication_required(self) -> bool:
        """Whether it failed because a sign-in that there was does not hold any more."""
        return isinstance(self.failure, NotLoggedIn) and self.failure.again

    @property
    def has_started(self) -> bool:
        """Whether the server was ready at some time."""
        return self._peer is not None

    def cancel_start(self) -> None:
        """Give a start up that is not decided yet."""
        if self.status == "starting":
            self.status = "cancelled"
            self.failure = StartupFailed("cancelled")
            self._settle("cancelled", None)
            self._running.cancel()

    def _settle(self, step: StartupStep, error: str | None) -> None:
        self.settled.set()
        self._told(self.config.name, step, error)

    async def connected_peer(self) -> Peer:
        """Return the connection, waiting for a start that is under way.

        Raises:
            UnknownServer: the server is disabled.
            ClientUnavailable: it did not start.
            TransportClosed: it has ended.
        """
        if self.status == "disabled":
            raise UnknownServer(self.config.name)
        await self.settled.wait()
        if self._peer is None:
            raise ClientUnavailable(f"failed to get client: {self.failure}")
        if self._peer.closed.is_set():
            raise TransportClosed
        return self._peer


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _for_people(name: str, failure: StartupFailed) -> str:
    match failure:
        case StartupTimedOut():
            return (
                f"MCP client for `{name}` timed out after {failure.timeout_s:g} seconds. Add or "
                f"adjust `startup_timeout_sec` in your config.toml:\n"
                f"[mcp_servers.{name}]\nstartup_timeout_sec = XX"
            )
        case NotLoggedIn():
            return f"The {name} MCP server is not logged in. Run `codex mcp login {name}`."
    return f"MCP client for `{name}` failed to start: {failure}"
