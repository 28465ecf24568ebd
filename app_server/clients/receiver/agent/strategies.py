"""The two ways of a signal to the agent: into its thread, or into the next tool result.

The ledger decides between them: what one of them has shown, the other does not show.
Source: docs/receiver.md, "Two ways".
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import anyio

from app_server.clients.app_connection import ConnectionLost
from app_server.clients.receiver.agent.item import Presence, find_in_log, log_exists
from app_server.clients.receiver.agent.thread_link import (
    ACCEPTED,
    IN_THREAD,
    LOST,
    Recipient,
    SignalRefused,
    ThreadLink,
    Unclear,
)
from app_server.clients.receiver.failpoints import reached
from app_server.clients.receiver.ledger import Entry, Ledger
from app_server.clients.receiver.router.envelope import Envelope

logger = logging.getLogger(__name__)

DELIVER_S = 5.0
"""For one delivery, from the first question to the last answer."""

NO_LOG = "/"
"""Stands for the log of a thread that has none here: nothing is ever found in it."""


class Strategy(Protocol):
    """A way to the agent."""

    async def deliver(self, envelope: Envelope) -> bool:
        """Deliver a signal: True when it is in the thread, False when the ledger keeps it.

        Saying it again with the same signal changes nothing.

        Raises:
            LedgerFull: it is neither there nor there.
        """


class PiggybackStrategy:
    """Keeps signals until the agent asks for them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def deliver(self, envelope: Envelope) -> bool:
        """Keep a signal; never True."""
        await self._ledger.take(envelope)
        return False


@dataclass(frozen=True, slots=True)
class Route:
    """Server, thread, and the strategy for a server that does not answer."""

    link: ThreadLink
    recipient: Recipient
    when_lost: Callable[[], Awaitable[None]]
    """Lets go of the connection, so that what is under way on it ends."""
    deadline_s: float = DELIVER_S
    payload_tool: str | None = None
    """The tool of the agent that gives whole signals; None while it has none."""


class AppServerInjectStrategy:
    """Strategy that injects signals into a thread, and keeps the ones that it cannot inject."""

    def __init__(self, ledger: Ledger, route: Route) -> None:
        self._ledger = ledger
        self._route = route

    async def deliver(self, envelope: Envelope) -> bool:
        """Put a signal into the thread within 5 s, or keep it."""
        await self._ledger.take(envelope)
        entry = await self._ledger.entry(envelope.id)
        if entry is None or entry.state not in ("waiting", "uncertain"):
            return entry is not None and entry.state == "injected"
        try:
            with anyio.fail_after(self._route.deadline_s):
                return await self._attempt(entry)
        except (TimeoutError, ConnectionLost):
            logger.warning("a signal waits: the app-server does not answer")
            await self._ledger.doubt(envelope.id)
            await self._route.when_lost()
        except Unclear as exc:
            logger.warning("a signal waits: the app-server failed: %s", exc)
            await self._ledger.doubt(envelope.id)
        except SignalRefused as exc:
            logger.warning("a signal waits: the app-server refuses it: %s", exc)
            await self._ledger.give_back(envelope.id, "injecting")
        return False

    async def _attempt(self, entry: Entry) -> bool:
        route, signal_id = self._route, entry.envelope.id
        if entry.state == "uncertain":
            if entry.thread_id is not None:
                await route.link.wait_for_earlier(entry.thread_id)
            match await settle(self._ledger, entry):
                case Presence.PRESENT:
                    return True
                case Presence.UNKNOWN if not self._is_idempotent(entry):
                    return False
                case _:
                    pass
        thread_id = route.recipient.thread_id
        # A delivery by `signal/deliver` leaves no path: saying it again is harmless.
        path = None if route.link.takes_signals else route.recipient.log_path or NO_LOG
        was_there = await log_exists(path)
        if not await self._ledger.begin(signal_id, thread_id, path, log_was_there=was_there):
            return False
        reached("begun")
        is_in_history = await route.link.put(
            entry.envelope, route.payload_tool, thread_id, lambda: reached("sent")
        )
        reached("answered")
        if is_in_history:
            await self._ledger.injected(signal_id)
        else:
            await self._ledger.accepted(signal_id, "injecting")
        reached("recorded")
        return is_in_history

    def _is_idempotent(self, entry: Entry) -> bool:
        return (
            self._route.link.takes_signals
            and entry.log_path is None
            and entry.thread_id == self._route.recipient.thread_id
        )


async def settle(ledger: Ledger, entry: Entry) -> Presence:
    """Determine the outcome of an uncertain injection and record it."""
    presence = await find_in_log(entry.log_path, entry.envelope.id, was_there=entry.log_was_there)
    if presence is not Presence.UNKNOWN:
        is_in_thread = presence is Presence.PRESENT
        await ledger.resolve(entry.envelope.id, entry.state, is_in_thread=is_in_thread)
    return presence


async def follow(ledger: Ledger, entry: Entry, link: ThreadLink) -> None:
    """Ask a server for the state of a signal that it has, or may have, and record it.

    Raises:
        ConnectionLost
    """
    signal_id = entry.envelope.id
    stage = await link.stage(signal_id, entry.thread_id)
    if stage == ACCEPTED:
        await ledger.accepted(signal_id, entry.state)
    elif stage in IN_THREAD:
        await ledger.resolve(signal_id, entry.state, is_in_thread=True)
    elif entry.state == "accepted" and stage is not None:
        logger.warning("a signal waits: for the app-server it is %s", stage)
        if stage == LOST:
            await ledger.resolve(signal_id, entry.state, is_in_thread=False)
        else:
            await ledger.give_back(signal_id, entry.state)
