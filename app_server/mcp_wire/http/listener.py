"""Reads into an inbox what a server sends: responses, as JSON or as events; the session's stream.

A stream of events that ends without the answer is asked for again, from its last event on.
Source: MCP 2025-06-18, "Transports"; WHATWG HTML, 9.2; docs/mcp.md, "Connections".
"""

import asyncio
import logging
from typing import Self

from app_server.mcp_wire.http.exchange import (
    BodyBroken,
    HttpRequest,
    HttpResponse,
    HttpSender,
    Unreachable,
    leave,
    media_type,
    read_body,
)
from app_server.mcp_wire.http.redirects import follow, redirect_of, shown
from app_server.mcp_wire.http.refusals import encoding, not_followed, refusal, stand_in
from app_server.mcp_wire.http.session import SESSION_HEADER, Session
from app_server.mcp_wire.messages import (
    CONNECTION_CLOSED,
    MAX_MESSAGE_BYTES,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    NoMessage,
    RequestId,
    SessionMessage,
    read_message,
)
from app_server.runtime.http.event_stream import EventParser, EventTooLarge, SseEvent
from app_server.runtime.loop_share import LoopShare
from protocol.jsonrpc.errors import INVALID_REQUEST, PARSE_ERROR

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
