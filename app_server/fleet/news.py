"""News of lists for clients of this node: threads that others began, named, archived or deleted.

What this node tells its clients of such changes it tells the other nodes: the ids of the threads,
and whether they were begun. A node that hears of a thread compares its row with what it knew.
Source: docs/scale.md, "News of lists".
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import starmap

import anyio

from app_server.handlers.services import Services
from app_server.handlers.threads.stored import show_thread
from app_server.threads.failures import ThreadDamaged, ThreadNotFound, ThreadTooNew
from app_server.threads.news import ThreadChange, ThreadNews
from app_server.threads.rows import ThreadQuery, ThreadRow
from protocol.model import WireModel
from protocol.threads.notifications import (
    ThreadArchivedNotification,
    ThreadDeletedNotification,
    ThreadNameUpdatedNotification,
    ThreadStartedNotification,
    ThreadUnarchivedNotification,
)

logger = logging.getLogger(__name__)

GATHER_S = 0.1
"""Seconds between two rounds of news of this node."""
RETRY_S = 1.0
"""Seconds until the others are told what they could not be."""
NEWEST = 50
"""Rows of each list, archived or not, in which lost news are looked for."""
FIRST = 200
"""Rows of each list that are remembered at first: some come among the newest as others go."""
MAX_KNOWN = 10_000
"""Rows that are remembered, and threads that the others could not be told of."""
NEW_MS = 60_000
"""Between the begin of a thread and its last change, as its owner counts them, up to which one that
nobody has told of is a new one."""

OF_LISTS = (
    ThreadArchivedNotification,
    ThreadDeletedNotification,
    ThreadNameUpdatedNotification,
    ThreadUnarchivedNotification,
)


class ListNews:
    """News between this node's clients and the other nodes."""

    def __init__(
        self,
        services: Services,
        news: ThreadNews,
        notified_by_owner: Callable[[str, WireModel], set[int]],
    ) -> None:
        """`notified_by_owner` returns the clients that a thread's owner sends an event."""
        self._services = services
        self._news = news
        self._notified_by_owner = notified_by_owner
        self._changed: dict[str, bool] = {}
        """Threads to tell of, and whether they were begun."""
        self._has_changed = anyio.Event()
        self._known: OrderedDict[str, tuple[str | None, bool]] = OrderedDict()
        """Name and archive of threads, the last seen at the end."""
        self._began_ms = time.time() * 1000
        services.hub.on_broadcast = self._note

    async def run(self) -> None:
        """Tell and hear, until cancelled."""
        async with anyio.create_task_group() as tasks, aclosing(self._news.subscribe()) as told:
            tasks.start_soon(self._tell)
            is_first = True
            async for changes in told:
                try:
                    if changes:
                        await self._hear(changes)
                    elif is_first or self._services.hub.connections.peers:
                        await self._look(is_silent=is_first)
                        is_first = False
                except OSError as exc:
                    logger.warning("news of threads are left out: %s", exc)

    def _note(self, event: WireModel) -> None:
        if isinstance(event, OF_LISTS):
            thread_id = event.thread_id
        elif isinstance(event, ThreadStartedNotification) and not event.thread.ephemeral:
            thread_id = event.thread.id
        else:
            return
        is_new = isinstance(event, ThreadStartedNotification)
        self._changed[thread_id] = is_new or self._changed.get(thread_id, False)
        self._has_changed.set()

    async def _tell(self) -> None:
        fails = False
        while True:
            await self._has_changed.wait()
            self._has_changed = anyio.Event()
            changed, self._changed = self._changed, {}
            changes = list(starmap(ThreadChange, changed.items()))
            try:
                # Whether or not others hear of it: this node's clients have.
                await self._keep_own(changes)
                await self._news.publish(changes)
            except OSError as exc:
                if not fails:
                    logger.warning("other nodes are told of changes later: %s", exc)
                fails = True
                # They look for themselves, too, but find no deletion.
                self._keep_untold(changed)
                await anyio.sleep(RETRY_S)
            else:
                fails = False
                await anyio.sleep(GATHER_S)

    def _keep_untold(self, changed: Mapping[str, bool]) -> None:
        for thread_id, is_new in changed.items():
            self._changed[thread_id] = is_new or self._changed.get(thread_id, False)
        for thread_id in list(self._changed)[:-MAX_KNOWN]:
            del self._changed[thread_id]
        self._has_changed.set()

    async def _keep_own(self, changes: Sequence[ThreadChange]) -> None:
        """Remember what this node's clients have been told."""
        for thread_id, _ in changes:
            try:
                self._keep(await self._services.store.lists.find(thread_id))
            except ThreadNotFound:
                self._known.pop(thread_id, None)

    async def _hear(self, changes: Sequence[ThreadChange]) -> None:
        for thread_id, is_new in changes:
            try:
                row = await self._services.store.lists.find(thread_id)
            except ThreadNotFound:
                self._known.pop(thread_id, None)
                self._announce(thread_id, ThreadDeletedNotification(thread_id=thread_id))
                continue
            await self._compare(row, is_new=is_new)

    async def _look(self, *, is_silent: bool) -> None:
        """Look at the newest rows for what nobody has told."""
        for archived in (False, True):
            limit = FIRST if is_silent else NEWEST
            query = ThreadQuery(limit=limit, sort_key="updated_at_ms", archived=archived)
            for row in (await self._services.store.lists.page(query)).rows:
                if is_silent and row.created_at_ms < self._began_ms:
                    self._keep(row)
                elif self._known.get(row.id) != (row.name, row.archived):
                    # No other clock than that of its owner says whether it is new.
                    is_new = row.updated_at_ms - row.created_at_ms < NEW_MS
                    await self._compare(row, is_new=is_new)

    async def _compare(self, row: ThreadRow, *, is_new: bool) -> None:
        known = self._known.get(row.id)
        self._keep(row)
        if self._services.sessions.find(row.id) is not None:
            # Its clients have heard it here.
            return
        is_new = is_new and known is None
        if is_new:
            try:
                state = await self._services.store.read(row.id)
            except (ThreadNotFound, ThreadTooNew, ThreadDamaged):
                return
            thread = show_thread(self._services, state)
            self._announce(row.id, ThreadStartedNotification(thread=thread))
        for event in _differences(row, known, is_new=is_new):
            self._announce(row.id, event)

    def _keep(self, row: ThreadRow) -> None:
        self._known[row.id] = row.name, row.archived
        self._known.move_to_end(row.id)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def _announce(self, thread_id: str, event: WireModel) -> None:
        hub = self._services.hub
        others = hub.connections.peers.keys() - hub.connections.of_nodes
        for connection_id in others - self._notified_by_owner(thread_id, event):
            hub.notify(connection_id, event)


def _differences(
    row: ThreadRow, known: tuple[str | None, bool] | None, *, is_new: bool
) -> Iterator[WireModel]:
    name, archived = (None, False) if known is None else known
    if row.name != name and not is_new:
        yield ThreadNameUpdatedNotification(
            thread_id=row.id, **({} if row.name is None else {"thread_name": row.name})
        )
    if row.archived and not archived:
        yield ThreadArchivedNotification(thread_id=row.id)
    if archived and not row.archived:
        yield ThreadUnarchivedNotification(thread_id=row.id)
