"""The threads of a server that is one of several: lost with its lease, and taken from dead ones.

Source: docs/scale.md, "Nodes".
"""

import logging
from collections.abc import Callable, Iterable, Sequence

import anyio
import anyio.abc
import anyio.to_thread

from app_server.config.node import settings_digest
from app_server.config.values import ConfigError
from app_server.handlers.services import Services
from app_server.sessions.registry import announce_unloaded
from app_server.sessions.session import ThreadSession
from app_server.signals.notifications import settings_as_stored
from app_server.threads.failures import (
    OwnershipLost,
    StoreUnavailable,
    ThreadBusy,
    ThreadNotFound,
)
from app_server.threads.log.live import LogClosed
from app_server.threads.nodes import LeaseEnded, LeaseRenewed, Nodes, ThreadsLost
from app_server.turns.slot import SessionClosed

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between looks at what dead nodes left behind, where none is known to have died."""
SETTINGS_LOOK_S = 10.0
"""Seconds between looks at the settings that others compare with theirs."""
UNREADABLE = "unreadable"
"""In the place of a digest."""
MAX_AT_ONCE = 8
"""Threads that are taken over at a time."""
RETRY_S = 60.0
"""Seconds until a thread that could not be taken over is tried again."""

OUT_OF_DATE = (
    "the log of the thread has more than this server knew: it is read again, here or by the server "
    "that has taken it over"
)
ENDED = (
    "this server cannot reach the database, so what it does is stopped: another server may take "
    "its threads over"
)


class Ownership:
    """Acts for all threads upon what happens to the nodes of a store."""

    def __init__(
        self,
        services: Services,
        nodes: Nodes,
        has_subscribers: Callable[[str], bool],
        *,
        max_at_once: int = MAX_AT_ONCE,
        look_s: float = LOOK_S,
    ) -> None:
        """`has_subscribers` says whether a client of this server is subscribed to a thread.

        At most `max_at_once` threads of dead nodes are loaded at a time. Without a death there are
        `look_s` between looks for them.
        """
        self._has_subscribers = has_subscribers
        self._look_s = look_s
        self._services = services
        self._sessions = services.sessions
        self._nodes = nodes
        self._limit = anyio.CapacityLimiter(max_at_once)
        self._retry_at: dict[str, float] = {}
        """Threads that could not be taken over, and when they are tried again."""

    async def run(self) -> None:
        """Follow the lease, and take over what others left behind; until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_lease, tasks)
            tasks.start_soon(self._take_over)
            tasks.start_soon(self._announce_settings)

    # The lease of this server.

    async def _follow_lease(self, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            match await self._nodes.news():
                case LeaseEnded():
                    await self._stop_all()
                case LeaseRenewed():
                    await self._go_on()
                case ThreadsLost():
                    # Not those that were taken since: this may have waited.
                    await self._drop([one for one in self._stored() if one.log.is_lost], tasks)

    async def _announce_settings(self) -> None:
        """Show others what this server's settings are, also after they were changed."""
        shown: str | None = None
        while True:
            try:
                config = await self._services.configuration.read_as_is()
            except ConfigError:
                digest = UNREADABLE
            else:
                digest = await anyio.to_thread.run_sync(
                    settings_digest, config, self._services.home
                )
            if digest != shown:
                try:
                    await self._nodes.announce_settings(digest)
                    shown = digest
                except OSError as exc:
                    logger.info("the digest of the settings is not shown yet: %s", exc)
            await anyio.sleep(SETTINGS_LOOK_S)

    def _stored(self) -> list[ThreadSession]:
        """Return the loaded threads that others could write."""
        return [session for session in self._sessions if not session.log.ephemeral]

    async def _stop_all(self) -> None:
        """Interrupt what runs; the threads stay, and their ends are written with the next lease."""
        async with anyio.create_task_group() as tasks:
            for session in self._stored():
                if session.slot.turn is not None or session.works_on:
                    session.clients.warning(ENDED)
                session.slot.cancel()
                tasks.start_soon(session.commands.end_background)

    async def _go_on(self) -> None:
        for session in self._stored():
            try:
                await session.log.settle()
            except (LogClosed, OwnershipLost):
                # Unloaded, or about to be.
                continue
            except OSError as exc:
                logger.warning("thread %s is behind until its next change: %s", session.log.id, exc)
            session.run_next_soon()

    async def _drop(self, sessions: Iterable[ThreadSession], tasks: anyio.abc.TaskGroup) -> None:
        """Unload threads of which nothing more may be written as they are known here."""
        async with anyio.create_task_group() as unloading:
            for session in sessions:
                session.log.abandon()
                session.clients.warning(OUT_OF_DATE)
                unloading.start_soon(self._unload, session.log.id, tasks)

    async def _unload(self, thread_id: str, tasks: anyio.abc.TaskGroup) -> None:
        if await self._sessions.unload(thread_id):
            announce_unloaded(self._services.hub, thread_id)
        # What follows the lease does not wait for it.
        tasks.start_soon(self._read_again, thread_id)

    async def _read_again(self, thread_id: str) -> None:
        """Load a thread that nobody else has: its log had more than was known here.

        An append of which nobody knew whether it was written had been. The store keeps the thread
        for this server meanwhile.
        """
        try:
            owner = await self._nodes.owner(thread_id)
        except OSError as exc:
            logger.info("thread %s is left to who asks for it: %s", thread_id, exc)
            return
        is_own = owner is not None and owner.node_id == self._nodes.own_id
        if is_own and not self._sessions.draining:
            await self._take(thread_id)

    # Threads of dead nodes.

    async def _take_over(self) -> None:
        death = self._nodes.next_death
        while True:
            with anyio.move_on_after(self._look_s):
                await death.wait()
            # Before the look: one that comes during it may not be seen by it.
            death = self._nodes.next_death
            if not self._nodes.is_held or self._sessions.draining:
                continue
            try:
                left = await self._nodes.left_behind()
            except OSError as exc:
                logger.info("what dead nodes left behind is looked at later: %s", exc)
                continue
            if left:
                await self._take_all(left)

    async def _take_all(self, left: Sequence[str]) -> None:
        now_s = anyio.current_time()
        self._retry_at = {one: at_s for one, at_s in self._retry_at.items() if at_s > now_s}
        async with anyio.create_task_group() as tasks:
            for thread_id in sorted(left, key=lambda one: not self._has_subscribers(one)):
                if thread_id not in self._retry_at:
                    tasks.start_soon(self._take, thread_id)

    async def _take(self, thread_id: str) -> None:
        """Load a thread, which ends its open turn, and go on with what waits in it."""
        loading = self._sessions.loading
        try:
            async with self._limit, loading.locked(thread_id) as found:
                session = found.session
                if session is None:
                    stored = await settings_as_stored(self._services.configuration, found.state)
                    session = await loading.load(found, *stored)
        except (ThreadBusy, ThreadNotFound, OwnershipLost, SessionClosed):
            # Another node was first, somebody has deleted it, or this one stops.
            return
        except StoreUnavailable as exc:
            # Found again by the next look of whoever can.
            logger.warning("thread %s cannot be taken over: %s", thread_id, exc)
            return
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("thread %s cannot be taken over", thread_id)
            self._retry_at[thread_id] = anyio.current_time() + RETRY_S
            return
        logger.info("thread %s, which had work, goes on here", thread_id)
        if not session.clients.began:
            session.clients.status(session.status)
            session.clients.begin()
        session.resumed()
