"""The stream of one session from the router: signals in, acknowledgements and own signals out.

It lasts: what breaks is opened again after a while, behind the last signal that was acknowledged.
Source: docs/receiver.md, "The session stream".
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from app_server.clients.receiver.backoff import Backoff
from app_server.clients.receiver.failpoints import reached
from app_server.clients.receiver.router.envelope import Envelope
from app_server.clients.receiver.router.wire import (
    MAX_FRAME_BYTES,
    REPLACED,
    RouterAddress,
    parse_frame,
    render_frame,
)
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

USER_AGENT = "app-server-receiver"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of one stream. Seconds."""

    open_s: float = 10.0
    """For the connection and the handshake."""
    ping_s: float = 20.0
    """Between pings."""
    pong_s: float = 20.0
    """For a pong; then the router counts as gone."""
    close_s: float = 2.0
    send_s: float = 10.0
    """For the router to say that it has a signal of ours."""
    max_sends: int = 16
    """Signals of ours that wait for the router's word."""


class NotSent(Exception):
    """The router did not say that it has a signal; sending it again under its id is harmless."""


class Inbox(Protocol):
    """Destination of signals."""

    async def take(self, signal: Json, raw: bytes) -> None:
        """Take a signal of the router; it is on disk when this returns.

        Waits for as long as there is no room for it.
        """

    async def cursor(self) -> str | None:
        """Return the last cursor that `move_cursor` was given."""

    async def move_cursor(self, cursor: str) -> None:
        """Record that everything up to a cursor was acknowledged."""


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow none: the key was meant for this address."""
        return exc


class SessionStream:
    """One session's stream."""

    def __init__(
        self,
        address: RouterAddress,
        inbox: Inbox,
        backoff: Backoff,
        limits: StreamLimits | None = None,
    ) -> None:
        self._address = address
        self._inbox = inbox
        self._backoff = backoff
        self._limits = limits or StreamLimits()
        self._socket: ClientConnection | None = None
        self._sends: dict[str, asyncio.Future[str | None]] = {}
        self._logged: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the router can be read from."""
        return self._socket is not None

    async def run(self) -> None:
        """Receive until cancelled."""
        while True:
            at_most = await self._follow()
            await self._backoff.wait(at_most=at_most)

    async def send(self, envelope: Envelope) -> None:
        """Give a signal to the router for another session.

        Raises:
            NotSent: with a sentence for the agent.
        """
        if self._socket is None:
            raise NotSent("the router cannot be reached")
        if len(self._sends) >= self._limits.max_sends or envelope.id in self._sends:
            raise NotSent("too many signals wait for the router")
        word: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._sends[envelope.id] = word
        try:
            with anyio.fail_after(self._limits.send_s):
                await self._socket.send(render_frame("send", signal=envelope.to_wire()))
                refusal = await word
        except (TimeoutError, ConnectionClosed) as exc:
            raise NotSent("the router did not answer") from exc
        finally:
            del self._sends[envelope.id]
        if refusal is not None:
            raise NotSent(f"the router refuses it: {refusal}")

    async def _follow(self) -> bool:
        """Receive until the connection ends; whether to stay away for long."""
        try:
            async with _open(self._address, await self._inbox.cursor(), self._limits) as socket:
                self._socket = socket
                self._log_state(None)
                while True:
                    await self._take(await socket.recv(), socket)
                    self._backoff.reset()
        except InvalidStatus as exc:
            status = exc.response.status_code
            self._log_state(f"HTTP status {status}")
            return status in (401, 403)
        except ConnectionClosed as exc:
            is_replaced = exc.rcvd is not None and exc.rcvd.code == REPLACED
            self._log_state("another receiver has this session" if is_replaced else "it has gone")
            return is_replaced
        except (OSError, TimeoutError, ValueError, WebSocketException) as exc:
            self._log_state(type(exc).__name__)
            return False
        finally:
            self._socket = None
            for word in self._sends.values():
                if not word.done():
                    word.set_result("the connection was lost")

    async def _take(self, text: str | bytes, socket: ClientConnection) -> None:
        raw = text if isinstance(text, bytes) else text.encode()
        frame = parse_frame(text)
        if frame is None:
            # Without a cursor it cannot be acknowledged; the next signal's says as much.
            await self._inbox.take(None, raw)
            return
        match frame.get("type"):
            case "signal":
                await self._take_signal(frame, raw, socket)
            case "accepted" | "refused" as kind:
                word = self._sends.get(str(frame.get("signal_id")))
                if word is not None and not word.done():
                    word.set_result(None if kind == "accepted" else str(frame.get("reason")))
            case kind:
                logger.debug("a frame of the router was passed over: %.20r", kind)

    async def _take_signal(self, frame: JsonObject, raw: bytes, socket: ClientConnection) -> None:
        reached("received")
        await self._inbox.take(frame.get("signal"), raw)
        reached("taken")
        cursor = frame.get("cursor")
        if isinstance(cursor, str):
            await socket.send(render_frame("ack", cursor=cursor))
            reached("acked")
            await self._inbox.move_cursor(cursor)

    def _log_state(self, why: str | None) -> None:
        """Log how it stands with the router, once for each reason in a row."""
        if why == self._logged:
            return
        self._logged = why
        if why is None:
            logger.info("the router is there")
        else:
            logger.warning("the router cannot be reached: %s", why)


def _open(address: RouterAddress, cursor: str | None, limits: StreamLimits) -> connect:
    return _Connect(
        address.stream_url(cursor),
        additional_headers={"Authorization": f"Bearer {address.key}"},
        user_agent_header=USER_AGENT,
        # A loopback address is here, whatever proxy there is.
        proxy=None if address.is_loopback else True,
        compression=None,
        max_size=MAX_FRAME_BYTES,
        open_timeout=limits.open_s,
        close_timeout=limits.close_s,
        ping_interval=limits.ping_s,
        ping_timeout=limits.pong_s,
    )
