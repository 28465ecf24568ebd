"""One connection to one MCP server, from the handshake to the last answer.

Importing this module imports the MCP SDK, which takes a while: app_server/mcp/loading.py does it in
a worker thread when the first server starts. Requests travel as plain dictionaries through the
SDK's dispatcher, which owns ids, progress and cancellation; its typed session would refuse tools
and results that a host must pass on as they are.
Source: MCP 2025-06-18; docs/mcp.md, "Connections".
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions, DispatchContext, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from app_server.mcp.config import (
    HttpTransport,
    ServerConfig,
    ServerUnavailable,
    StdioTransport,
)
from app_server.mcp.errors import (
    NotLoggedIn,
    PeerError,
    RequestTimedOut,
    StartupFailed,
    StartupTimedOut,
    TransportClosed,
)
from app_server.mcp.http import Streams, open_http
from app_server.mcp.listing import Listing
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.tokens import TokenSource
from app_server.mcp.peer import ConnectionOwner, ProgressCallback, list_all
from app_server.mcp.stdio import ServerProcess, run_server
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

MCP_VERSION = "2025-06-18"
CLIENT_INFO = {"name": "app-server-mcp-client", "title": "app-server", "version": PROTOCOL_VERSION}
VERSION_HEADER = "mcp-protocol-version"

CLOSED_MESSAGE = "Connection closed"
"""What the SDK says when the transport has ended; other texts with its code are the peer's."""


class McpClient:
    """A Peer over the SDK's dispatcher."""

    def __init__(self, dispatcher: JSONRPCDispatcher) -> None:
        self._dispatcher = dispatcher
        self.closed = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Read from the server until it ends; requests can be made once this has started."""
        try:
            await self._dispatcher.run(
                _refuse_request, _ignore_notification, task_status=task_status
            )
        finally:
            self.closed.set()

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        timeout_s: float | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> JsonObject:
        """Call a method of the server; see Peer."""
        options: CallOptions = {"headers": {VERSION_HEADER: MCP_VERSION}}
        if timeout_s is not None:
            options["timeout"] = timeout_s
        if on_progress is not None:
            options["on_progress"] = cast(ProgressFnT, on_progress)
        if method == "initialize":
            options["cancel_on_abandon"] = False
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as exc:
            if exc.code == CONNECTION_CLOSED and exc.message == CLOSED_MESSAGE:
                raise TransportClosed from exc
            if exc.code == REQUEST_TIMEOUT and timeout_s is not None:
                raise RequestTimedOut(method, timeout_s) from exc
            raise PeerError(exc.code, exc.message, exc.data) from exc

    async def notify(self, method: str) -> None:
        """Tell the server something that has no parameters."""
        await self._dispatcher.notify(method, None, {"headers": {VERSION_HEADER: MCP_VERSION}})


async def _refuse_request(
    context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
) -> dict[str, Any]:
    if method == "ping":
        return {}
    raise MCPError(code=METHOD_NOT_FOUND, message=f"Method not found: {method}")


async def _ignore_notification(
    context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
) -> None:
    logger.debug("MCP notification: %s", method)


async def serve_connection(config: ServerConfig, cwd: str, owner: ConnectionOwner) -> None:
    """Hold a connection to a server from start to end; returns when it is over.

    The owner hears `ready` or `failed`, before anything is torn down, and decides with `stop` when
    the connection ends; it ends too when the server does. Cancelling stops the server as well.
    """
    tokens = _tokens(config)
    try:
        async with _open(config, cwd, tokens) as (streams, process):
            client = McpClient(JSONRPCDispatcher(*streams))
            async with anyio.create_task_group() as tasks:
                await tasks.start(client.run)
                await _start(config, client, process, tokens, owner)
                tasks.cancel_scope.cancel()
    except OSError as exc:
        owner.failed(StartupFailed(f"{exc.strerror} (os error {exc.errno})"))
    except (ServerUnavailable, ValueError) as exc:
        owner.failed(StartupFailed(str(exc)))


def _tokens(config: ServerConfig) -> TokenSource | None:
    http = config.transport
    if not isinstance(http, HttpTransport) or http.oauth.home is None or not http.signs_in:
        return None
    return TokenSource(config.name, http, CredentialStore(http.oauth.home, http.oauth.store))


async def _start(
    config: ServerConfig,
    client: McpClient,
    process: ServerProcess | None,
    tokens: TokenSource | None,
    owner: ConnectionOwner,
) -> None:
    try:
        with anyio.fail_after(config.startup_timeout_s):
            listing = await _shake_hands(client)
    except TimeoutError:
        owner.failed(StartupTimedOut(config.startup_timeout_s))
    except TransportClosed:
        words = process.last_words if process is not None else ""
        owner.failed(StartupFailed(": ".join(filter(None, ("the server ended too early", words)))))
    except PeerError as exc:
        again = tokens is not None and tokens.had_credential
        owner.failed(_startup_failure(exc, signed_in_before=again))
    else:
        owner.ready(client, listing)
        await _until_over(client, owner)


def _startup_failure(error: PeerError, *, signed_in_before: bool) -> StartupFailed:
    status = error.data.get("status") if isinstance(error.data, dict) else None
    if status == 401:
        return NotLoggedIn(again=signed_in_before)
    return StartupFailed(error.message, transient=isinstance(status, int) and status >= 500)


async def _until_over(client: McpClient, owner: ConnectionOwner) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when, owner.stop, tasks.cancel_scope)
        tasks.start_soon(_cancel_when, client.closed, tasks.cancel_scope)


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


@asynccontextmanager
async def _open(
    config: ServerConfig, cwd: str, tokens: TokenSource | None
) -> AsyncIterator[tuple[Streams, ServerProcess | None]]:
    match config.transport:
        case StdioTransport() as stdio:
            directory = stdio.cwd or cwd
            async with run_server(
                stdio.command, stdio.args, stdio.environment(), directory
            ) as process:
                yield (process, process), process
        case HttpTransport() as http:
            async with open_http(http.url, http.headers(config.name), tokens) as streams:
                yield streams, None


async def _shake_hands(client: McpClient) -> Listing:
    hello = await client.request(
        "initialize",
        {"protocolVersion": MCP_VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO},
    )
    await client.notify("notifications/initialized")
    tools, meta = await list_all(client, "tools/list", "tools")
    return Listing.of(hello, tools, meta)
