"""Streamable HTTP: the two streams that the client reads and writes, over HTTP requests.

First come the URL, the session id and the headers that every request of a connection has.

Every message of ours is a POST of its own, in a task of its own. What goes wrong with one of them
is the answer to that request alone. Responses are read as JSON or as events; a stream of events
that ends without the answer is asked for again, from its last event on.
Source: MCP 2025-06-18, "Transports"; WHATWG HTML, 9.2; docs/mcp.md, "Connections".
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self, TypeAlias

import anyio
import httpx2

from app_server.mcp_wire.http.authorized import AuthorizedSender, CredentialSource
from app_server.mcp_wire.http.exchange import (
    BodyBroken,
    HttpRequest,
    HttpResponse,
    HttpSender,
    LimitedSender,
    Unreachable,
    leave,
    media_type,
    read_body,
)
from app_server.mcp_wire.http.loopback import Dial, is_loopback, open_loopback
from app_server.mcp_wire.http.redirects import follow, origin_of, redirect_of, shown
from app_server.mcp_wire.http.refusals import encoding, not_followed, refusal, stand_in
from app_server.mcp_wire.http.remote import open_remote, trusted_certificates
from app_server.mcp_wire.messages import (
    CONNECTION_CLOSED,
    MAX_MESSAGE_BYTES,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    NoMessage,
    RequestId,
    SessionMessage,
    read_message,
)
from app_server.mcp_wire.revisions import STATELESS, VERSION_HEADER
from app_server.runtime.http.event_stream import EventParser, EventTooLarge, SseEvent
from app_server.runtime.loop_share import LoopShare
from protocol.jsonrpc.errors import INVALID_REQUEST, PARSE_ERROR
from protocol.server.lifecycle import PROTOCOL_VERSION

SESSION_HEADER = "mcp-session-id"

ACCEPTED = "application/json, text/event-stream"

OURS = ("connection", "content-length", "te", "trailer", "transfer-encoding", "upgrade")
"""Header names of framing and of the connection, which a configuration may not set."""


class Session:
    """Makes the requests of one connection."""

    id: str | None
    """As the server gave it; None if it does without, or has not given one yet."""
    version: str | None
    """As it was agreed; None before that."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Take a server's address, and headers for every request.

        Credentials in the URL become a header, unless there is one.

        Raises:
            httpx2.InvalidURL, ValueError: that makes no sense. The text has no values of headers.
        """
        given = httpx2.URL(url)
        if given.scheme not in ("http", "https") or not given.host:
            raise ValueError("its url is not an http URL")
        self.id = None
        self.version = None
        self.url = given.copy_with(userinfo=b"", fragment=None)
        self._headers = {
            **({"authorization": _basic(given)} if given.userinfo else {}),
            **{name.lower(): _checked(name, value) for name, value in headers.items()},
            "accept-encoding": "identity",
            "user-agent": f"app-server-mcp-client/{PROTOCOL_VERSION}",
        }

    @property
    def is_stateless(self) -> bool:
        """Whether the revision is one where a closed response cancels, and is not taken up."""
        return self.version == STATELESS

    def post(
        self, message: bytes, more: Mapping[str, str] | None = None, *, in_session: bool = True
    ) -> HttpRequest:
        """Make the request that brings a message; headers of every request win over `more`."""
        headers = {
            **(more or {}),
            **self._headers,
            "accept": ACCEPTED,
            "content-type": "application/json",
        }
        return self._request("POST", headers, message, in_session=in_session)

    def get(self, last_id: bytes = b"") -> HttpRequest:
        """Make the request for a stream of events, after the event with an id."""
        headers = {
            **self._headers,
            "accept": "text/event-stream",
            "cache-control": "no-store",
        }
        if last_id:
            headers["last-event-id"] = last_id.decode("latin-1")
        return self._request("GET", headers)

    def delete(self) -> HttpRequest:
        """Make the request that ends the session."""
        return self._request("DELETE", {**self._headers, "accept": ACCEPTED})

    def _request(
        self, method: str, headers: dict[str, str], body: bytes = b"", *, in_session: bool = True
    ) -> HttpRequest:
        if in_session:
            if self.id is not None:
                headers[SESSION_HEADER] = self.id
            if self.version is not None:
                headers[VERSION_HEADER] = self.version
        return HttpRequest(method, self.url, headers, body)


def _basic(url: httpx2.URL) -> str:
    return "Basic " + base64.b64encode(f"{url.username}:{url.password}".encode()).decode()


def _checked(name: str, value: str) -> str:
    if name.lower() in OURS:
        raise ValueError(f"the header {name!r} is not for the configuration to set")
    if not (name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
        raise ValueError(f"the header {name!r} has characters that HTTP does not know")
    return value


logger = logging.getLogger(__name__)


RETRY_S = 1.0
"""Before a stream is asked for again, where the server does not say how long."""

MIN_RETRY_S, MAX_RETRY_S = 0.01, 300.0
"""Bounds in seconds of the `retry` field of a server's event stream."""

MAX_TRIES = 2
"""To get a stream again; one that was got begins anew."""

PIECE_BYTES = 4096
"""Of a stream that are parsed at once: there may be a thousand events in them."""

MAX_EVENT_ID_BYTES = 1024
"""Of an event's id that we send back; a stream whose last id is longer is not asked for again."""

MAX_WAITING = 64
"""Queued messages; a further `put` waits."""


class Inbox:
    """The reading end of a transport. It does not end by itself: HTTP does not."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[SessionMessage] = asyncio.Queue(MAX_WAITING)

    async def put(self, message: JSONRPCMessage, in_response_to: RequestId | None = None) -> None:
        """Bring a message; waits while too many have not been taken."""
        await self._messages.put(SessionMessage(message, in_response_to=in_response_to))

    async def fail(self, request_id: RequestId, error: ErrorData) -> None:
        """Answer one of our requests in place of the server."""
        await self.put(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        return await self._messages.get()


class NotOffered(Exception):
    """The server has no stream of events to give."""


class EventStream:
    """Passes on the messages of a stream of events; knows where it can be taken up again."""

    def __init__(self, inbox: Inbox, share: LoopShare, answer_to: RequestId | None = None) -> None:
        """Read a stream; with `answer_to` it ends with the answer to that request."""
        self.last_id = b""
        self.retry_s = RETRY_S
        self._inbox = inbox
        self._share = share
        self._answer_to = answer_to

    async def relay(self, response: HttpResponse) -> bool:
        """Pass on what comes, until the answer (true) or the end of the response (false).

        Raises:
            EventTooLarge: one event is larger than MAX_MESSAGE_BYTES.
        """
        parser = EventParser(MAX_MESSAGE_BYTES)
        # The first piece and its first event are no more work than an answer in JSON, which waits
        # for no share: answers to calls that are in flight together go on together.
        is_first = True
        try:
            while received := await response.receive():
                for begin in range(0, len(received), PIECE_BYTES):
                    if not is_first:
                        await self._share.wait()
                    events = parser.feed(received[begin : begin + PIECE_BYTES])
                    self._remember(parser)
                    for event in events:
                        if not is_first:
                            await self._share.wait()
                        is_first = False
                        if await self._pass_on(event):
                            return True
                    is_first = False
        except BodyBroken:
            logger.debug("an event stream broke off", exc_info=True)
        return False

    def _remember(self, parser: EventParser) -> None:
        if parser.last_id:
            is_short = len(parser.last_id) <= MAX_EVENT_ID_BYTES
            self.last_id = parser.last_id if is_short else b""
        if parser.retry_ms is not None:
            self.retry_s = min(max(parser.retry_ms / 1000, MIN_RETRY_S), MAX_RETRY_S)

    async def _pass_on(self, event: SseEvent) -> bool:
        if event.name != b"message" or not event.data:
            return False
        try:
            message = await read_message(event.data)
        except NoMessage as exc:
            if self._answer_to is None:
                logger.debug("an event is no message: %s", type(exc).__name__)
                return False
            text = f"Failed to parse SSE message: {exc}"
            await self._inbox.fail(self._answer_to, ErrorData(code=PARSE_ERROR, message=text))
            return True
        is_answer = False
        if self._answer_to is not None and isinstance(message, JSONRPCResponse | JSONRPCError):
            message.id, is_answer = self._answer_to, True
        await self._inbox.put(message, self._answer_to)
        return is_answer


class Listener:
    """Turns responses of a server into messages of one connection's inbox."""

    def __init__(self, sender: HttpSender, session: Session, inbox: Inbox) -> None:
        self._sender = sender
        self._session = session
        self._inbox = inbox
        self._share = LoopShare()

    async def read_answer(
        self, request_id: RequestId, request: HttpRequest, response: HttpResponse
    ) -> None:
        """Bring the answer to a request, or an error in its place, into the inbox."""
        kind = media_type(response)
        if response.status >= 400 or response.status == 202 or encoding(response):
            await self._inbox.fail(request_id, await _error_for(request, response))
        elif (target := redirect_of(request, response)) is not None:
            await leave(response)
            await self._inbox.fail(request_id, not_followed(target))
        elif kind == "application/json":
            await self._read_json(request_id, response)
        elif kind == "text/event-stream":
            await self._read_events(request_id, response)
        else:
            await leave(response)
            text = f"Unexpected content type: {kind}"
            await self._inbox.fail(request_id, ErrorData(code=INVALID_REQUEST, message=text))

    async def _read_json(self, request_id: RequestId, response: HttpResponse) -> None:
        try:
            content = await read_body(response, MAX_MESSAGE_BYTES)
            message = await read_message(content)
        except (BodyBroken, NoMessage) as exc:
            reason = str(exc)
        else:
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                message.id = request_id
                await response.aclose()
                await self._inbox.put(message)
                return
            reason = "it is no answer"
        finally:
            await response.aclose()
        text = f"Failed to parse JSON response: {reason}"
        await self._inbox.fail(request_id, ErrorData(code=PARSE_ERROR, message=text))

    async def _read_events(self, request_id: RequestId, response: HttpResponse) -> None:
        stream = EventStream(self._inbox, self._share, request_id)
        following: HttpResponse | None = response
        try:
            while following is not None:
                if await _relay(stream, following):
                    return
                if not stream.last_id or self._session.is_stateless:
                    reason = "SSE stream ended without a response"
                    break
                following = await self._take_up(stream)
            else:
                reason = "SSE stream ended and reconnection attempts were exhausted"
        except NotOffered:
            reason = "SSE stream ended, and the server does not go on with it"
        except EventTooLarge:
            reason = f"SSE stream failed: an event is larger than {MAX_MESSAGE_BYTES} bytes"
        await self._inbox.fail(request_id, ErrorData(code=CONNECTION_CLOSED, message=reason))

    async def read_session_events(self) -> None:
        """Bring what the server says by itself; returns when it does not offer that (any more)."""
        stream = EventStream(self._inbox, self._share)
        try:
            following = await self._ask_for(stream) or await self._take_up(stream)
            while following is not None:
                await _relay(stream, following)
                following = await self._take_up(stream)
        except NotOffered:
            logger.debug("the server offers no stream of events")
        except EventTooLarge:
            logger.warning("an event of a session is larger than %d bytes", MAX_MESSAGE_BYTES)

    async def _take_up(self, stream: EventStream) -> HttpResponse | None:
        for _ in range(MAX_TRIES):
            await asyncio.sleep(stream.retry_s)
            if (response := await self._ask_for(stream)) is not None:
                return response
        return None

    async def _ask_for(self, stream: EventStream) -> HttpResponse | None:
        try:
            response = await follow(self._sender, self._session.get(stream.last_id))
        except Unreachable as exc:
            logger.debug("a stream of events cannot be had: %s", type(exc).__name__)
            return None
        if response.status == 200 and media_type(response) == "text/event-stream":
            return response
        await leave(response)
        if response.status == 405:
            raise NotOffered
        return None


async def _relay(stream: EventStream, response: HttpResponse) -> bool:
    try:
        is_answered = await stream.relay(response)
        if is_answered:
            await leave(response)
        return is_answered
    finally:
        await response.aclose()


async def _error_for(request: HttpRequest, response: HttpResponse) -> ErrorData:
    if response.status >= 400:
        in_session = SESSION_HEADER in request.headers
        return await refusal(response, request.url, in_session=in_session, limit=MAX_MESSAGE_BYTES)
    await leave(response)
    if response.status == 202:
        text = "the server answered a request with 202 Accepted"
        return ErrorData(code=INVALID_REQUEST, message=text)
    # A bound on a body means nothing before it is decoded.
    word = encoding(response)
    text = f"content-encoding {word} from {shown(request.url)}, which was not asked for"
    return stand_in(502, text)


Streams: TypeAlias = tuple[Any, Any]
"""A stream of messages in, and one out, as the SDK's transports give them."""

MAX_CALLS = 95
"""Requests under way at a time, a connection each; one above that waits for another to end."""

MAX_ONE_WAY = 4
"""Notifications and answers under way at a time, on connections of their own: a server that does
not answer must still be told that we gave up. With these, the session's stream and the calls there
are 100 connections at most."""

MAX_ONE_WAY_WAITING = 1000
"""Notifications and answers that wait for their turn; those above that are dropped."""

ONE_WAY_S = 10.0
"""For a notification or an answer to be taken, with the wait for its turn."""

END_SESSION_S = 2.0
"""For the DELETE that ends a session."""


class HttpMessageSink:
    """The writing end of a transport; what comes back goes to an inbox."""

    def __init__(
        self,
        sender: HttpSender,
        session: Session,
        inbox: Inbox,
        tasks: asyncio.TaskGroup,
        *,
        max_calls: int = MAX_CALLS,
    ) -> None:
        """Send requests of a session, in tasks of a group, at most `max_calls` at a time."""
        self.max_one_way_waiting = MAX_ONE_WAY_WAITING
        """Notifications and answers that wait for their turn; those above that are dropped."""
        self.one_way_s = ONE_WAY_S
        """Seconds for a notification or an answer to be taken, with the wait for its turn."""
        self.end_session_s = END_SESSION_S
        """Seconds for the DELETE that ends a session."""
        self._sender = sender
        self._session = session
        self._inbox = inbox
        self._listener = Listener(sender, session, inbox)
        self._tasks = tasks
        self._asking: dict[RequestId, asyncio.Task[None]] = {}
        self._waiting: set[RequestId] = set()
        """Of those the requests that have not begun: the server does not know of them."""
        self._notifying: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._call_slots = asyncio.Semaphore(max_calls)
        self._one_way_slots = asyncio.Semaphore(MAX_ONE_WAY)
        self._is_closed = False

    @property
    def has_session(self) -> bool:
        """Whether the server began a session with its last introduction."""
        return self._session.id is not None

    async def send(self, item: SessionMessage, /) -> None:
        """Begin to send one message.

        Returns at once, except that `notifications/initialized` is waited for, at most `one_way_s`:
        requests that come after it have to arrive after it.

        Raises:
            anyio.BrokenResourceError: too many messages wait to be sent; this one is dropped.
            anyio.ClosedResourceError: the transport was closed.
        """
        if self._is_closed:
            raise anyio.ClosedResourceError
        message, headers = item.message, item.headers or {}
        if item.headers is not None:
            self._session.version = headers.get(VERSION_HEADER, self._session.version)
        body = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if isinstance(message, JSONRPCRequest):
            self._waiting.add(message.id)
            self._asking[message.id] = self._tasks.create_task(self._ask(message, body, headers))
        elif isinstance(message, JSONRPCNotification):
            if message.method == "notifications/initialized":
                await self._notify(body)
                self._listen()
            elif (
                cancelled := _cancelled_by(message)
            ) in self._waiting or self._session.is_stateless:
                self._give_up(cancelled)
            else:
                self._begin_notifying(body, cancelled)
        else:
            self._begin_notifying(body)

    async def _ask(self, message: JSONRPCRequest, body: bytes, headers: Mapping[str, str]) -> None:
        is_first = message.method == "initialize"
        try:
            async with self._call_slots:
                self._waiting.discard(message.id)
                request = self._session.post(body, headers, in_session=not is_first)
                response = await follow(self._sender, request)
                try:
                    if is_first and response.status < 300:
                        self._session.id = response.headers.get(SESSION_HEADER)
                    await self._listener.read_answer(message.id, request, response)
                finally:
                    await response.aclose()
        except Unreachable as exc:
            text = f"cannot reach {shown(self._session.url)}: {exc}"
            await self._inbox.fail(message.id, stand_in(503, text))
        finally:
            self._asking.pop(message.id, None)

    def _begin_notifying(self, body: bytes, gives_up: RequestId | None = None) -> None:
        if len(self._notifying) >= self.max_one_way_waiting:
            self._give_up(gives_up)
            raise anyio.BrokenResourceError
        task = self._tasks.create_task(self._notify(body, gives_up))
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _notify(self, body: bytes, gives_up: RequestId | None = None) -> None:
        try:
            async with asyncio.timeout(self.one_way_s), self._one_way_slots:
                await leave(await follow(self._sender, self._session.post(body)))
        except (Unreachable, TimeoutError) as exc:
            logger.debug("a message was not taken: %s", type(exc).__name__)
        finally:
            self._give_up(gives_up)

    def _give_up(self, request_id: RequestId | None) -> None:
        # In a session a closed connection does not cancel a request: a server that knows of it is
        # notified first. Without sessions it is all that cancels.
        if request_id is not None and (task := self._asking.pop(request_id, None)) is not None:
            self._waiting.discard(request_id)
            task.cancel()

    def _listen(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        has_session = self._session.id is not None
        reading = self._listener.read_session_events
        self._listening = self._tasks.create_task(reading()) if has_session else None

    def close(self) -> None:
        """End everything that is under way."""
        self._is_closed = True
        listening = [] if self._listening is None else [self._listening]
        for task in (*self._asking.values(), *self._notifying, *listening):
            task.cancel()

    async def end_session(self) -> None:
        """End the session at the server, if there is one, within `end_session_s`."""
        if self._session.id is None:
            return
        try:
            async with asyncio.timeout(self.end_session_s):
                await leave(await follow(self._sender, self._session.delete()))
        except (Unreachable, TimeoutError) as exc:
            logger.debug("a session was not ended: %s", type(exc).__name__)


def _cancelled_by(message: JSONRPCNotification) -> RequestId | None:
    if message.method != "notifications/cancelled" or message.params is None:
        return None
    found: RequestId | None = message.params.get("requestId")
    return found


@asynccontextmanager
async def open_http(
    url: str,
    headers: Mapping[str, str],
    *credentials: CredentialSource,
    post_limit_bytes: int | None = None,
    dial: Dial | None = None,
    max_calls: int = MAX_CALLS,
) -> AsyncIterator[Streams]:
    """Open the streams to a server; leaving ends everything under way, then the session.

    Requests carry what `credentials` give; of those with one header the first wins.
    `post_limit_bytes` bounds whole responses to POST requests, streams of events too. `dial`
    connects to the server on another machine. A request above `max_calls` waits for another to end.

    Raises:
        httpx2.InvalidURL, ValueError: the URL or a header makes no sense.
    """
    session = Session(url, headers)
    async with _open_sender(session, credentials, dial) as opened:
        sender = opened if post_limit_bytes is None else LimitedSender(opened, post_limit_bytes)
        inbox = Inbox()
        async with asyncio.TaskGroup() as tasks:
            transport = HttpMessageSink(sender, session, inbox, tasks, max_calls=max_calls)
            try:
                yield inbox, transport
            finally:
                transport.close()
                with anyio.CancelScope(shield=True):
                    await transport.end_session()


@asynccontextmanager
async def _open_sender(
    session: Session, credentials: Sequence[CredentialSource], dial: Dial | None
) -> AsyncIterator[HttpSender]:
    async with await _opening(session.url, dial) as sender:
        chain: HttpSender = sender
        for tokens in credentials:
            chain = AuthorizedSender(chain, origin_of(session.url), tokens)
        yield chain


async def _opening(url: httpx2.URL, dial: Dial | None) -> AbstractAsyncContextManager[HttpSender]:
    if dial is not None:
        tls = await trusted_certificates() if url.scheme == "https" else None
        return open_loopback(url, dial, tls)
    return open_loopback(url) if is_loopback(url) else open_remote(url)
