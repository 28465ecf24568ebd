"""The bridge: takes signals off the stream, and carries them to the agent one after another.

Invariant: a signal is in the ledger before the router is told that it may forget it; one task
injects, the oldest signal first.
Source: docs/receiver.md.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import anyio

from app_server.clients.receiver.agent.strategies import AppServerInjectStrategy
from app_server.clients.receiver.agent.surface import CodexSurface
from app_server.clients.receiver.backoff import Backoff
from app_server.clients.receiver.ledger import Ledger, LedgerBroken, LedgerFull, Shown
from app_server.clients.receiver.router.envelope import (
    BadEnvelope,
    Envelope,
    Mode,
    parse_envelope,
)
from app_server.clients.receiver.router.session_stream import NotSent, SessionStream
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_SHOWN = 50
MAX_SHOWN_BYTES = 64 * 1024
"""Bodies of signals in one tool result; the first is there whatever its size."""

MAX_ADDED_BYTES = 16 * 1024
"""Bodies of signals in the result of a tool that was called for something else."""


class Bridge:
    """One session's signals. An Inbox of a stream."""

    def __init__(
        self,
        ledger: Ledger,
        surface: CodexSurface,
        backoff: Backoff,
        now: Callable[[], int],
        modes: Mapping[str, Mode],
    ) -> None:
        """`now` gives Unix seconds. `modes` override those of envelopes, by type."""
        self.ledger = ledger
        self._surface = surface
        self._backoff = backoff
        self._now = now
        self._modes = modes
        self._news = anyio.Event()
        self._room = anyio.Event()

    async def take(self, signal: Json, raw: bytes) -> None:
        """Record a signal; an invalid one goes to the dead letters."""
        try:
            envelope = parse_envelope(signal, self._modes)
        except BadEnvelope as exc:
            # Its content may be anything; it is in the dead letters, for people alone.
            logger.warning("a signal makes no sense: %s", exc)
            keep = partial(self.ledger.dead_letters.add, str(exc), raw, self._now())
            await self._when_possible(keep)
            return
        if await self._when_possible(partial(self.ledger.take, envelope)):
            self._news.set()

    async def _when_possible(self, write: Callable[[], Awaitable[Result]]) -> Result:
        """Write as soon as the ledger lets us."""
        backoff = Backoff(chance=lambda: 0.0)
        while True:
            self._room = anyio.Event()
            try:
                return await write()
            except LedgerFull:
                logger.warning("the ledger is full: signals stay with the router")
            except LedgerBroken as exc:
                logger.error("signals stay with the router: %s", exc)
            # Another process with this ledger may make room, too.
            with anyio.move_on_after(backoff.next_delay_s()):
                await self._room.wait()

    async def cursor(self) -> str | None:
        """Return how far the router was answered."""
        return await self._when_possible(self.ledger.cursor.read)

    async def move_cursor(self, cursor: str) -> None:
        """Note how far the router was answered."""
        await self._when_possible(partial(self.ledger.cursor.move, cursor))

    async def carry(self) -> None:
        """Inject signals of the ledger, until cancelled."""
        await self._when_possible(self.ledger.recover)
        while True:
            self._news = anyio.Event()
            try:
                is_done = await self.drain()
            except LedgerBroken as exc:
                logger.error("nothing is injected: %s", exc)
                is_done = False
            if is_done:
                self._backoff.reset()
                await self._news.wait()
            else:
                with anyio.move_on_after(self._backoff.next_delay_s()):
                    await self._news.wait()

    async def drain(self) -> bool:
        """Try to inject all that waits; False if some of it has to be tried again later."""
        await self.ledger.expire(self._now())
        if accepted := await self.ledger.with_server():
            await self._surface.refresh()
            await self._surface.follow(accepted)
        due = await self.ledger.due()
        while due:
            await self._surface.refresh()
            for entry in due:
                strategy = self._surface.signal_strategy()
                if not isinstance(strategy, AppServerInjectStrategy):
                    return False
                await strategy.deliver(entry.envelope)
                self._room.set()
            tried = {entry.envelope.id for entry in due}
            due = await self.ledger.due()
            if any(entry.envelope.id in tried for entry in due):
                return False
        # Until the server says that they are in the thread, or failed.
        return not await self.ledger.with_server()

    async def show(self) -> Shown:
        """Return the waiting signals for a tool result, once the thread's are known."""
        await self.ledger.expire(self._now())
        for entry in await self.ledger.uncertain():
            await self._surface.settle(entry)
        await self._surface.follow(await self.ledger.with_server())
        return await self.ledger.show(MAX_SHOWN, MAX_SHOWN_BYTES)

    async def show_new(self) -> Shown:
        """Return waiting unseen signals for the result of an unrelated tool."""
        await self.ledger.expire(self._now())
        return await self.ledger.show_new(MAX_SHOWN, MAX_ADDED_BYTES)

    async def ack(self, signal_ids: list[str]) -> list[str]:
        """Settle signals that a tool result has shown, and return the settled ones."""
        acked = list(await self.ledger.ack(signal_ids))
        self._room.set()
        return acked


class BridgeSession:
    """Session of a bridge: a name, a stream to the router, a surface."""

    def __init__(
        self,
        session: str,
        stream: SessionStream | None,
        surface: CodexSurface,
        now: Callable[[], int],
    ) -> None:
        """Without a stream there is no router. `now` gives Unix seconds."""
        self.session = session
        self.now = now
        self._stream = stream
        self._surface = surface
        self.is_in_charge = False
        """Whether this process has the session; others of the same session only show signals."""

    def tools_were_listed(self) -> None:
        """Note that the agent has the receiver's tools."""
        self._surface.tools_were_listed()

    async def send(self, envelope: Envelope) -> None:
        """Send a signal to another session.

        Raises:
            NotSent
        """
        if self._stream is None:
            raise NotSent("no router is configured")
        if not self.is_in_charge:
            raise NotSent("another receiver has this session")
        await self._stream.send(envelope)

    def status(self) -> JsonObject:
        """Say how it stands; no keys, no addresses."""
        if self._stream is None:
            router = "none"
        elif not self.is_in_charge:
            router = "standby"
        else:
            router = "connected" if self._stream.is_open else "unreachable"
        return {
            "session": self.session,
            "router": router,
            "app_server": "connected" if self._surface.is_connected else "none",
            "thread_id": self._surface.thread_id,
        }
