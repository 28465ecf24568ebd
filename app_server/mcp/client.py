"""One connection to one MCP server, from the handshake to the last answer.

app_server/mcp/loading.py imports it, beside the event loop. Requests travel as plain
dictionaries: the SDK's typed session would refuse tools and results that a host must pass on as
they are.
Source: MCP 2025-06-18; docs/mcp.md, "Connections", "Headers from a command".
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
import anyio.to_thread
import httpx2
from anyio.abc import TaskStatus

from app_server.mcp.bounds import ListTooLarge
from app_server.mcp.catalog.config import (
    LOCAL,
    HttpTransport,
    ServerConfig,
    ServerUnavailable,
    StdioTransport,
)
from app_server.mcp.connection import ConnectionOwner, list_all
from app_server.mcp.errors import HeaderCommandFailed, NotLoggedIn, StartupFailed, StartupTimedOut
from app_server.mcp.header_command import HeaderCommand, run_command
from app_server.mcp.measurements import measured_list
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.tokens import TokenSource
from app_server.mcp.processes import Processes
from app_server.mcp.stdio import LAST_LINES, ServerProcess, run_server
from app_server.mcp.tools.call_contents import cut_middle
from app_server.mcp.tools.listing import Listing
from app_server.mcp.tunnel import open_dial
from app_server.mcp_wire.errors import (
    PeerError,
    ProgressCallback,
    RequestRefused,
    RequestTimedOut,
    TransportClosed,
)
from app_server.mcp_wire.handshake import OPENAI_FORM, Handshake
from app_server.mcp_wire.http.authorized import CredentialSource
from app_server.mcp_wire.http.refusals import SESSION_ENDED, UNREACHABLE
from app_server.mcp_wire.http.transport import Streams, open_http
from app_server.mcp_wire.json_rpc_client import Asker, JsonRpcClient
from app_server.observability.telemetry.spans import trace_context
from protocol.jsonrpc.errors import METHOD_NOT_FOUND
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION

MAX_REASON_BYTES = 2000
"""Of what a server says when it refuses the handshake; the middle of a longer text is cut out."""

CLIENT_INFO = {"name": "app-server-mcp-client", "title": "app-server", "version": PROTOCOL_VERSION}


class McpClient:
    """An McpConnection over a conversation.

    When the server has ended the session, the request that met this begins a new one, and is made
    again, once: the server has not accepted it.
    """

    def __init__(self, streams: Streams, owner: ConnectionOwner, introduction_s: float) -> None:
        """Make a client that has not been introduced; that may take `introduction_s`."""
        self._rpc = rpc = JsonRpcClient(*streams)
        self._outgoing = streams[1]
        self.pid: int | None = None
        self._owner = owner
        self._introduction_s = introduction_s
        self._introducing = anyio.Lock()
        self._sessions = 0
        asked: JsonObject = {
            "elicitation": {"form": {}, "url": {}},
            "extensions": {OPENAI_FORM: {}},
        }
        self._handshake = Handshake(rpc, CLIENT_INFO, asked if owner.can_elicit else {})
        self.closed = anyio.Event()

    @property
    def keeps_session(self) -> bool:
        """Whether the server may remember what was said, once it has been introduced."""
        keeps: bool = self._outgoing.has_session
        return keeps

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Read from the server until it ends; requests can be made once this has started."""
        try:
            await self._rpc.run(self._answer, self._on_notification, task_status=task_status)
        finally:
            self.closed.set()

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        timeout_s: float | None = None,
        on_progress: ProgressCallback | None = None,
        asker: Asker | None = None,
    ) -> JsonObject:
        """Call a method of the server; see McpConnection."""
        session = self._sessions
        try:
            return await self._call(method, params, timeout_s, on_progress, asker)
        except PeerError as exc:
            if not _has_ended_session(exc):
                raise
        await self._begin_anew(session)
        return await self._call(method, params, timeout_s, on_progress, asker)

    async def _call(
        self,
        method: str,
        params: JsonObject,
        timeout_s: float | None,
        on_progress: ProgressCallback | None,
        asker: Asker | None,
    ) -> JsonObject:
        context = trace_context()
        try:
            return await self._rpc.call(
                method,
                _in_trace(params, context),
                headers={**self._handshake.headers, **context},
                timeout_s=timeout_s,
                on_progress=on_progress,
                asker=asker,
            )
        except TransportClosed:
            self.closed.set()
            raise

    async def introduce(self) -> JsonObject:
        """Shake hands, in a new session; returns the server's introduction.

        Raises:
            PeerError, TransportClosed, RequestTimedOut
        """
        hello = await self._handshake.run(self._introduction_s)
        self._sessions += 1
        return hello

    async def _begin_anew(self, ended: int) -> None:
        async with self._introducing:
            if self._sessions == ended:
                await self.introduce()

    async def _answer(self, method: str, params: JsonObject, asker: Asker | None) -> JsonObject:
        """Answer a request of the server; `asker` made the call that it belongs to, if known."""
        if method == "ping":
            return {}
        if method in ("elicitation/create", OPENAI_FORM) and self._owner.can_elicit:
            if method == OPENAI_FORM:
                params = {**params, "mode": OPENAI_FORM}
            return await (asker or self._owner).elicit(params)
        raise RequestRefused(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _on_notification(self, method: str) -> None:
        """Take a notification of the server; all but one are nothing to us."""
        if method == "notifications/tools/list_changed":
            self._owner.tools_changed()


def _in_trace(params: JsonObject, context: Mapping[str, str]) -> JsonObject:
    """Put the context of a trace into `_meta`, the only place for it that all transports have.

    Source: MCP SEP-414.
    """
    meta: JsonObject = params.get("_meta") or {}
    if not context or "traceparent" in meta:
        return params
    return {**params, "_meta": {**meta, **context}}


def _has_ended_session(error: PeerError) -> bool:
    return (error.code, error.message, error.data) == (UNREACHABLE, SESSION_ENDED, {"status": 404})


def tokens_of(config: ServerConfig, processes: Processes) -> TokenSource | None:
    """Return the source of a server's OAuth tokens; None for a server without sign-in."""
    http = config.transport
    if not isinstance(http, HttpTransport) or http.oauth.home is None or not http.signs_in:
        return None
    target = SignInTarget.of(config, http, processes)
    return TokenSource(target, CredentialStore(http.oauth.home, http.oauth.store))


@asynccontextmanager
async def open_streams(
    config: ServerConfig, cwd: str, tokens: TokenSource | None, processes: Processes
) -> AsyncIterator[tuple[Streams, ServerProcess | None]]:
    """Open the streams, beside the process if it is one; leaving closes them, and ends it.

    Raises:
        OSError: its process cannot be run; a ConnectionError: its environment is out of reach.
        ServerUnavailable: the variable of its token is not set, or its URL makes no sense.
        HeaderCommandFailed: its command for headers failed.
    """
    where, http = config.environment_id, config.transport
    if isinstance(http, StdioTransport):
        async with run_server(processes, where, http.launch(where, cwd)) as process:
            yield (process, process), process
        return
    if where != LOCAL:
        await _check_reach(where, httpx2.URL(http.url), processes)
    headers = http.headers(config.name)
    credentials: list[CredentialSource] = [] if tokens is None else [tokens]
    if http.header_command is not None:
        folder = cwd if where == LOCAL else None
        run = partial(run_command, processes, where, http.header_command, folder)
        command = HeaderCommand(run, headers)
        await command.current()
        credentials.append(command)
    async with AsyncExitStack() as stack:
        dial = None
        if where != LOCAL:
            dial = await stack.enter_async_context(open_dial(processes, where))
        opening = open_http(http.url, headers, *credentials, dial=dial)
        yield await stack.enter_async_context(opening), None


async def _check_reach(environment_id: str, url: httpx2.URL, processes: Processes) -> None:
    if url.scheme not in ("http", "https") or not url.host:
        raise ServerUnavailable("its URL is neither http nor https")
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        async with processes.open_connection(environment_id, url.host, port):
            pass
    except OSError as exc:
        # With a number it is that machine that refuses: the handshake says so.
        if exc.errno is None:
            raise


async def serve_connection(
    config: ServerConfig, cwd: str, owner: ConnectionOwner, processes: Processes
) -> None:
    """Hold a connection to a server from start to end; returns when it is over.

    The owner's `ready` or `failed` is called before anything is torn down. The owner decides with
    `stop` when the connection ends; it ends too when the server does. Cancelling stops the server
    as well.
    """
    tokens = tokens_of(config, processes)
    elsewhere = config.environment_id != LOCAL
    try:
        async with open_streams(config, cwd, tokens, processes) as (streams, process):
            client = McpClient(streams, owner, config.startup_timeout_s)
            client.pid = None if process is None else process.pid
            async with anyio.create_task_group() as tasks:
                await tasks.start(client.run)
                await _start(config, client, process, tokens, owner)
                tasks.cancel_scope.cancel()
    except OSError as exc:
        reason = str(exc) if exc.errno is None else f"{exc.strerror} (os error {exc.errno})"
        if exc.filename is not None:
            # The command, or the folder that it is to run in.
            reason = f"{exc.filename}: {reason}"
        owner.failed(
            StartupFailed(
                reason,
                transient=isinstance(exc, ConnectionError),
                is_away=elsewhere and isinstance(exc, ConnectionError | TimeoutError),
            )
        )
    except (ServerUnavailable, HeaderCommandFailed, ValueError) as exc:
        owner.failed(StartupFailed(str(exc)))


async def _start(
    config: ServerConfig,
    client: McpClient,
    process: ServerProcess | None,
    tokens: TokenSource | None,
    owner: ConnectionOwner,
) -> None:
    try:
        with anyio.fail_after(config.startup_timeout_s):
            listing = await _shake_hands(client, config)
    except (TimeoutError, RequestTimedOut):
        owner.failed(StartupTimedOut(config.startup_timeout_s))
    except TransportClosed:
        words = await process.last_words() if process is not None else ""
        reason = ": ".join(filter(None, ("the server ended too early", words)))
        lost = process is not None and process.is_out_of_reach
        owner.failed(StartupFailed(reason, is_away=lost and config.environment_id != LOCAL))
    except ListTooLarge as exc:
        owner.failed(StartupFailed(str(exc)))
    except PeerError as exc:
        again = tokens is not None and tokens.had_credential
        owner.failed(_startup_failure(exc, signed_in_before=again))
    else:
        owner.ready(client, listing)
        await _until_over(client, owner)
        if not owner.stop.is_set():
            words = "" if process is None else await process.last_words(LAST_LINES)
            owner.lost(": ".join(filter(None, ("the server ended", words))))


def _startup_failure(error: PeerError, *, signed_in_before: bool) -> StartupFailed:
    status = error.data.get("status") if isinstance(error.data, dict) else None
    if status == 401:
        return NotLoggedIn(again=signed_in_before)
    # The text is the server's, and goes to clients.
    reason = cut_middle(error.message, MAX_REASON_BYTES)
    return StartupFailed(reason, transient=isinstance(status, int) and status >= 500)


async def _until_over(client: McpClient, owner: ConnectionOwner) -> None:
    async with anyio.create_task_group() as tasks:
        for event in (owner.stop, client.closed):
            tasks.start_soon(_cancel_when, event, tasks.cancel_scope)


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _shake_hands(client: McpClient, config: ServerConfig) -> Listing:
    hello = await client.introduce()
    if config.known is not None:
        return config.known
    with measured_list(config):
        tools, meta = await list_all(client, "tools/list", "tools")
    return await anyio.to_thread.run_sync(Listing.of, hello, tools, meta)
