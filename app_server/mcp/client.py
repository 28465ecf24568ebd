"""One connection to one MCP server, from the choice of a revision to the last answer.

app_server/mcp/loading.py imports it, beside the event loop. Requests travel as plain
dictionaries: the SDK's typed session would refuse tools and results that a host must pass on as
they are.
Source: MCP 2025-06-18; MCP 2026-07-28; docs/mcp.md, "Revisions of the protocol", "Connections",
"Headers from a command".
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from uuid import uuid4

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
from app_server.mcp.record import ServerRecord, log_line
from app_server.mcp.stdio import LAST_LINES, ServerProcess, run_server
from app_server.mcp.tools.listing import Listing
from app_server.mcp.tunnel import open_dial
from app_server.mcp_wire.errors import (
    EndedByQuestion,
    McpError,
    PeerError,
    ProgressCallback,
    RequestRefused,
    RequestTimedOut,
    TransportClosed,
)
from app_server.mcp_wire.handshake import OPENAI_FORM, Handshake
from app_server.mcp_wire.http.authorized import CredentialSource
from app_server.mcp_wire.http.mirrored import Mirrored, mirrored_headers, usable_tools
from app_server.mcp_wire.http.refusals import SESSION_ENDED, UNREACHABLE
from app_server.mcp_wire.http.transport import Streams, open_http
from app_server.mcp_wire.json_rpc_client import (
    CANCELLED,
    FLOOD,
    MAX_ASKED,
    MAX_REPORTING,
    STRAY,
    TOO_MANY,
    Caller,
    JsonRpcClient,
)
from app_server.mcp_wire.revisions import (
    LOG_KEY,
    NAMED_BY,
    UNSUPPORTED_VERSION,
    WrongRevision,
    asks_for_input,
    inputs_of,
)
from app_server.observability.telemetry.spans import trace_context
from app_server.runtime.cut_text import cut_middle
from app_server.runtime.late_event import LateEvent
from protocol.jsonrpc.errors import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION

logger = logging.getLogger(__name__)

MAX_REASON_BYTES = 2000
"""Of what a server says when it refuses the handshake; the middle of a longer text is cut out."""

STDIO_PROBE_S, HTTP_PROBE_S = 1.0, 10.0
"""For a server to say which revisions it has, before it is sent `initialize` as well."""

PROBE_PART = 4
"""At most this part of the time for the start goes into that."""

MAX_ROUNDS = 10
"""Times that one call is made again with answers to what the server wants to know."""

STATE_ONLY_S, MAX_STATE_ONLY_S = 0.05, 0.25
"""Before a call is made again whose server asked nothing; twice as long each time."""

LISTEN = "subscriptions/listen"

LISTEN_S = 1.0
"""Before changes of tools are asked for again, when the stream with them has ended; twice as long
each time, until one has lasted for MAX_LISTEN_WAIT_S."""

MAX_LISTEN_WAIT_S = 60.0
"""At most, before that."""

MAX_LISTENS = 2
"""Such requests in a row that the server does not take up."""

HEADER_MISMATCH = -32020

LOG_LEVEL = "info"
"""Of messages of a server's log that are asked for, where a server sends none without that."""

FAULTS = {
    STRAY: "answered a request that was not made",
    FLOOD: f"sent more than {MAX_REPORTING} pieces of progress that a thread had not taken",
    TOO_MANY: f"sent a thread more than {MAX_ASKED} requests at a time",
}
"""What a server does against its own calls alone."""

CLIENT_INFO = {"name": "app-server-mcp-client", "title": "app-server", "version": PROTOCOL_VERSION}


class McpClient:
    """An McpConnection over a conversation.

    When the server has ended the session, or has another revision now, the request that met this
    begins anew, and is made again, once: the server has not accepted it.
    """

    def __init__(
        self,
        streams: Streams,
        owner: ConnectionOwner,
        config: ServerConfig,
        process: ServerProcess | None,
        protocol: str | None = None,
    ) -> None:
        """Make a client that has not been introduced; `protocol` wins over that of `config`."""
        self._rpc = rpc = JsonRpcClient(*streams)
        self._outgoing = streams[1]
        self.pid = None if process is None else process.pid
        self._owner = owner
        self._introduction_s = config.startup_timeout_s
        self._introducing = anyio.Lock()
        self._sessions = 0
        self._over_http = process is None
        asked: JsonObject = {
            "elicitation": {"form": {}, "url": {}},
            "extensions": {OPENAI_FORM: {}},
        }
        self._handshake = Handshake(
            rpc,
            CLIENT_INFO,
            asked if owner.can_elicit else {},
            protocol or config.protocol,
            owner.learned.protocol_version,
            min(
                HTTP_PROBE_S if process is None else STDIO_PROBE_S,
                config.startup_timeout_s / PROBE_PART,
            ),
        )
        self._mirrored: dict[str, Mirrored] = {}
        """What of the arguments of a tool goes into headers, by its raw name."""
        self._listens = anyio.Event()
        """Set once it is known whether the server is to be asked for changes of its tools."""
        self._tells_changes = False
        self._is_heard = False
        self._listening = anyio.CancelScope()
        """Around the stream of changes."""
        self._logs = False
        """Whether requests ask for messages of the server's log."""
        self.closed = LateEvent()

    @property
    def keeps_session(self) -> bool:
        """Whether the server may remember what was said, once it has been introduced."""
        return not self._handshake.revision.is_stateless and bool(self._outgoing.has_session)

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
        caller: Caller | None = None,
    ) -> JsonObject:
        """Call a method of the server; see McpConnection.

        What the server wants to know before it answers is asked here, in the caller's task. Errors
        have nothing of what the server was given to sign in with.
        """
        try:
            return await self._request(method, params, timeout_s, on_progress, caller)
        except PeerError as exc:
            await anyio.to_thread.run_sync(self._owner.record.redact_error, exc)
            raise

    async def _request(
        self,
        method: str,
        params: JsonObject,
        timeout_s: float | None,
        on_progress: ProgressCallback | None,
        caller: Caller | None,
    ) -> JsonObject:
        session, agreed = self._sessions, self._handshake.revision
        try:
            return await self._ask(method, params, timeout_s, on_progress, caller)
        except PeerError as exc:
            if _has_other_revision(exc, is_stateless=agreed.is_stateless):
                self._handshake.forget()
                self._owner.learned.protocol_version = None
                await self._begin_anew(session)
                if self._handshake.revision == agreed:
                    raise
            elif exc.code == HEADER_MISMATCH and method == "tools/call" and self._over_http:
                # Which arguments go into headers has changed.
                await list_all(self, "tools/list", "tools")
            elif _has_ended_session(exc):
                await self._begin_anew(session)
            else:
                raise
        return await self._ask(method, params, timeout_s, on_progress, caller)

    async def _ask(
        self,
        method: str,
        params: JsonObject,
        timeout_s: float | None,
        on_progress: ProgressCallback | None,
        caller: Caller | None,
    ) -> JsonObject:
        pause_s = STATE_ONLY_S
        asked = params
        for rounds in range(MAX_ROUNDS + 1):
            result = await self._call(method, asked, timeout_s, on_progress, caller)
            if not asks_for_input(result) or not self._handshake.revision.is_stateless:
                return await self._usable(result) if method == "tools/list" else result
            if rounds == MAX_ROUNDS:
                break
            inputs = inputs_of(result)
            asked = dict(params)
            if inputs:
                asked["inputResponses"] = await self._inputs(inputs, caller)
                pause_s = STATE_ONLY_S
            else:
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, MAX_STATE_ONLY_S)
            if "requestState" in result:
                asked["requestState"] = result["requestState"]
        raise PeerError(INTERNAL_ERROR, f"the server asked for input more than {MAX_ROUNDS} times")

    async def _inputs(
        self, inputs: Mapping[str, tuple[str, JsonObject]], caller: Caller | None
    ) -> JsonObject:
        """Answer the questions of one result, side by side, as if each were a request.

        Raises:
            PeerError: one of them is refused; there is no place for that in what is sent.
        """
        answers: dict[str, JsonObject] = {}
        refused: list[RequestRefused] = []
        async with anyio.create_task_group() as tasks:

            async def answer(key: str, method: str, params: JsonObject) -> None:
                try:
                    answers[key] = await self._answered(method, params, caller)
                except RequestRefused as exc:
                    refused.append(exc)
                    tasks.cancel_scope.cancel()

            for key, (method, params) in inputs.items():
                tasks.start_soon(answer, key, method, params)
        if refused:
            raise PeerError(refused[0].code, str(refused[0]))
        return answers

    async def _usable(self, result: JsonObject) -> JsonObject:
        """Take note of what goes into headers, and leave tools out that break the rules of that."""
        tools = result.get("tools")
        if not self._over_http or not self._handshake.revision.is_stateless:
            return result
        if not isinstance(tools, list):
            return result
        kept, mirrored, faults = await anyio.to_thread.run_sync(usable_tools, tools)
        self._mirrored |= mirrored
        for fault in faults:
            self._owner.record.misbehaved(fault)
        return {**result, "tools": kept}

    async def _call(
        self,
        method: str,
        params: JsonObject,
        timeout_s: float | None,
        on_progress: ProgressCallback | None,
        caller: Caller | None,
        *,
        may_cancel: bool = True,
    ) -> JsonObject:
        context = trace_context()
        revision = self._handshake.revision
        if self._logs and method in NAMED_BY:
            params = {**params, "_meta": {**(params.get("_meta") or {}), LOG_KEY: LOG_LEVEL}}
        headers = {**revision.headers(method, params), **context}
        if method == "tools/call" and (mirrored := self._mirrored.get(str(params.get("name")))):
            headers |= mirrored_headers(mirrored, params.get("arguments"))
        try:
            result = await self._rpc.call(
                method,
                revision.dressed(_in_trace(params, context)),
                headers=headers,
                timeout_s=timeout_s,
                on_progress=on_progress,
                caller=caller,
                may_cancel=may_cancel,
            )
            return revision.result(method, result)
        except TransportClosed:
            self.closed.set()
            raise
        except WrongRevision as exc:
            self._owner.record.misbehaved(exc.what)
            raise

    async def introduce(self) -> JsonObject:
        """Agree on a revision, in a new session if it has them; returns the introduction.

        Raises:
            PeerError, TransportClosed, RequestTimedOut
        """
        hello = await self._handshake.run(self._introduction_s)
        self._sessions += 1
        revision = self._handshake.revision
        self._owner.learned.protocol_version = revision.version
        self._owner.record.agreed(revision.version)
        self._tells_changes = revision.is_stateless and _tells_changes(hello)
        capabilities = hello.get("capabilities")
        has_log = isinstance(capabilities, dict) and "logging" in capabilities
        self._logs = revision.is_stateless and has_log
        self._listens.set()
        return hello

    async def listen(self) -> None:
        """Ask for changes of the tools where they are told only then; returns when there are none.

        Source: MCP 2026-07-28, "Subscriptions".
        """
        await self._listens.wait()
        in_vain, wait_s = 0, LISTEN_S
        wanted: JsonObject = {"notifications": {"toolsListChanged": True}}
        while self._tells_changes and in_vain < MAX_LISTENS:
            self._is_heard, began_at = False, anyio.current_time()
            try:
                with anyio.CancelScope() as self._listening:
                    await self._call(LISTEN, wanted, None, None, None, may_cancel=False)
            except TransportClosed:
                return
            except McpError:
                logger.debug("changes of tools are not told")
            in_vain = 0 if self._is_heard else in_vain + 1
            if anyio.current_time() - began_at >= MAX_LISTEN_WAIT_S:
                wait_s = LISTEN_S
            await anyio.sleep(wait_s)
            wait_s = min(wait_s * 2, MAX_LISTEN_WAIT_S)
            # What has changed meanwhile was told to nobody.
            self._owner.tools_changed()

    async def _begin_anew(self, ended: int) -> None:
        async with self._introducing:
            if self._sessions == ended:
                await self.introduce()

    async def _answer(
        self, method: str, params: JsonObject, caller: Caller | None
    ) -> JsonObject | None:
        """Answer a request of the server; `caller` made the call that it belongs to, if known.

        There is no answer in a revision in which servers make no requests.
        """
        if self._handshake.revision.is_stateless:
            self._owner.record.misbehaved(
                f"sent a request, {method[:100]!r}, which its revision has not"
            )
            return None
        return await self._answered(method, params, caller)

    async def _answered(self, method: str, params: JsonObject, caller: Caller | None) -> JsonObject:
        if method == "ping":
            return {}
        if method in ("elicitation/create", OPENAI_FORM) and self._owner.can_elicit:
            if method == OPENAI_FORM:
                params = {**params, "mode": OPENAI_FORM}
            if params.get("mode") == "url" and "elicitationId" not in params:
                # Clients know the question by it; revisions without sessions have none.
                params = {**params, "elicitationId": uuid4().hex}
            asker = self._owner if caller is None else caller.asker
            return await asker.elicit(params, caller)
        raise RequestRefused(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _on_notification(self, method: str, params: JsonObject, caller: Caller | None) -> None:
        """Take a notification of the server; most are nothing to us."""
        fault = FAULTS.get(method)
        if fault is not None:
            self._owner.record.misbehaved(fault)
        elif method == "notifications/message":
            asker = self._owner if caller is None else caller.asker
            asker.logged(log_line(params), caller)
        elif method == CANCELLED and self._handshake.revision.is_stateless:
            self._cancelled(self._rpc.method_of(params.get("requestId")))
        elif method == "notifications/tools/list_changed":
            self._owner.tools_changed()
        elif method == "notifications/subscriptions/acknowledged":
            self._is_heard = True

    def _cancelled(self, method: str | None) -> None:
        """End the stream of changes; servers may cancel no other request of ours.

        Source: MCP 2026-07-28, "Subscriptions", "Cancellation".
        """
        if method == LISTEN:
            self._listening.cancel()
        elif method is not None:
            self._owner.record.misbehaved(f"cancelled a request of the client, {method}")


def _tells_changes(hello: JsonObject) -> bool:
    capabilities = hello.get("capabilities")
    tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
    return isinstance(tools, dict) and tools.get("listChanged") is True


def _has_other_revision(error: PeerError, *, is_stateless: bool) -> bool:
    """Whether an error can mean that the server does not have the agreed revision any more."""
    if error.code == UNSUPPORTED_VERSION:
        return True
    if not is_stateless:
        return False
    status = error.data.get("status") if isinstance(error.data, dict) else None
    return error.code == INVALID_REQUEST or (error.code == UNREACHABLE and status in (400, 405))


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


def tokens_of(
    config: ServerConfig, processes: Processes, record: ServerRecord
) -> TokenSource | None:
    """Return the source of a server's OAuth tokens; None for a server without sign-in."""
    http = config.transport
    if not isinstance(http, HttpTransport) or http.oauth.home is None or not http.signs_in:
        return None
    target = SignInTarget.of(config, http, processes)
    return TokenSource(target, CredentialStore(http.oauth.home, http.oauth.store), record.sent)


@asynccontextmanager
async def open_streams(
    config: ServerConfig,
    cwd: str,
    tokens: TokenSource | None,
    processes: Processes,
    record: ServerRecord,
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
        command = HeaderCommand(run, headers, record.sent)
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
    tokens = tokens_of(config, processes, owner.record)
    elsewhere = config.environment_id != LOCAL
    try:
        try:
            await _serve_once(config, cwd, owner, processes, tokens)
        except EndedByQuestion:
            # Servers of an older revision may end at what they do not know: once more, without it.
            await _serve_once(config, cwd, owner, processes, tokens, protocol="2025")
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


async def _serve_once(
    config: ServerConfig,
    cwd: str,
    owner: ConnectionOwner,
    processes: Processes,
    tokens: TokenSource | None,
    *,
    protocol: str | None = None,
) -> None:
    async with open_streams(config, cwd, tokens, processes, owner.record) as (streams, process):
        if process is not None:
            process.write_to(owner.record.output)
        client = McpClient(streams, owner, config, process, protocol)
        ended_by_question: EndedByQuestion | None = None
        async with anyio.create_task_group() as tasks:
            await tasks.start(client.run)
            tasks.start_soon(client.listen)
            try:
                await _start(config, client, process, tokens, owner)
            except EndedByQuestion as exc:
                ended_by_question = exc
            tasks.cancel_scope.cancel()
    if ended_by_question is not None:
        raise ended_by_question


async def _start(
    config: ServerConfig,
    client: McpClient,
    process: ServerProcess | None,
    tokens: TokenSource | None,
    owner: ConnectionOwner,
) -> None:
    try:
        with anyio.fail_after(config.startup_timeout_s):
            listing = await _shake_hands(client, config, owner)
    except EndedByQuestion:
        raise
    except (TimeoutError, ListTooLarge, RequestTimedOut, TransportClosed, PeerError) as exc:
        failure = await _failure_of(exc, config, process, tokens)
        failure.last_lines = "" if process is None else process.last_lines()
        owner.failed(failure)
    else:
        owner.ready(client, listing)
        await _until_over(client, owner)
        if not owner.stop.is_set():
            words = "" if process is None else await process.last_words(LAST_LINES)
            owner.lost(": ".join(filter(None, ("the server ended", words))))


async def _failure_of(
    error: TimeoutError | McpError,
    config: ServerConfig,
    process: ServerProcess | None,
    tokens: TokenSource | None,
) -> StartupFailed:
    match error:
        case TimeoutError() | RequestTimedOut():
            return StartupTimedOut(config.startup_timeout_s)
        case TransportClosed():
            words = await process.last_words() if process is not None else ""
            reason = ": ".join(filter(None, ("the server ended too early", words)))
            lost = process is not None and process.is_out_of_reach
            return StartupFailed(reason, is_away=lost and config.environment_id != LOCAL)
        case PeerError():
            return _refusal(error, signed_in_before=tokens is not None and tokens.had_credential)
    return StartupFailed(str(error))


def _refusal(error: PeerError, *, signed_in_before: bool) -> StartupFailed:
    status = error.data.get("status") if isinstance(error.data, dict) else None
    lacks_scopes = isinstance(error.data, dict) and "scopes" in error.data and signed_in_before
    if status == 401 or (status == 403 and lacks_scopes):
        return NotLoggedIn(again=signed_in_before)
    # The text is the server's, and goes to clients.
    reason = cut_middle(error.message, MAX_REASON_BYTES)
    return StartupFailed(
        reason,
        transient=isinstance(status, int) and status >= 500,
        is_refusal=status not in (403, 503),
    )


async def _until_over(client: McpClient, owner: ConnectionOwner) -> None:
    async with anyio.create_task_group() as tasks:
        for event in (owner.stop, client.closed):
            tasks.start_soon(_cancel_when, event, tasks.cancel_scope)


async def _cancel_when(event: LateEvent, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _shake_hands(client: McpClient, config: ServerConfig, owner: ConnectionOwner) -> Listing:
    hello = await client.introduce()
    if config.known is not None:
        return config.known
    with measured_list(config):
        try:
            tools, meta = await list_all(client, "tools/list", "tools")
        except PeerError as exc:
            # One that declares no tools may know no list of them.
            if exc.code != METHOD_NOT_FOUND or "tools" in (hello.get("capabilities") or {}):
                raise
            tools, meta = [], None
    owner.record.listed(tools)
    return await anyio.to_thread.run_sync(Listing.of, hello, tools, meta)
