"""Streamable HTTP: the two streams that the client reads and writes, over HTTP requests.

Every message of ours is a POST of its own, in a task of its own. What goes wrong with one of them
is the answer to that request alone.
Source: MCP 2025-06-18, "Transports"; docs/mcp.md, "Connections".
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio
import httpx2

from app_server.mcp_wire.http.authorized import AuthorizedSender, CredentialSource
from app_server.mcp_wire.http.exchange import HttpSender, LimitedSender, Unreachable, leave
from app_server.mcp_wire.http.listener import Inbox, Listener
from app_server.mcp_wire.http.loopback import Dial, is_loopback, open_loopback
from app_server.mcp_wire.http.redirects import follow, origin_of, shown
from app_server.mcp_wire.http.refusals import stand_in
from app_server.mcp_wire.http.remote import open_remote, trusted_certificates
from app_server.mcp_wire.http.session import SESSION_HEADER, Session
from app_server.mcp_wire.messages import (
    JSONRPCNotification,
    JSONRPCRequest,
    RequestId,
    SessionMessage,
)
from app_server.mcp_wire.revisions import VERSION_HEADER

logger = logging.getLogger(__name__)

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
