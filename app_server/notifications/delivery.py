"""Delivery: what waits in the outbox is tried, by thread and receiver in order, until it is over.

Source: docs/notifications.md, "Webhooks", "Outbox".
"""

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from random import uniform

import anyio
import anyio.abc
import anyio.to_thread

from app_server.notifications.attempt import Attempt
from app_server.notifications.ports import NotificationPorts
from app_server.notifications.settings import Target
from app_server.threads.outbox import (
    EXPIRE_MS,
    EXPIRED,
    Claim,
    NotificationOutbox,
    OutboxEntry,
    OutboxState,
)

logger = logging.getLogger(__name__)

RETRY_S = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds until an attempt is repeated; the last one repeats."""
WRITE_RETRY_S = (1.0, 5.0, 15.0, 60.0)
"""The same for writes to the outbox."""
GATHER_S = 0.2
"""Seconds between two looks at the outbox, at least."""
MAX_AT_ONCE = 32
"""Attempts of one server at a time."""
MAX_OF_TARGET = 8
"""Of them for one receiver."""


class Delivery:
    """The attempts of one run of a server."""

    def __init__(
        self,
        outbox: NotificationOutbox,
        ports: NotificationPorts,
        run_id: str,
        *,
        retry_s: Sequence[float],
        look_s: float,
    ) -> None:
        """Repeat attempts after `retry_s`; look for other servers' entries every `look_s`."""
        self._outbox = outbox
        self._ports = ports
        self._run_id = run_id
        self._retry_s = retry_s
        self._look_s = look_s
        self._targets: dict[str, Target] = {}
        self._is_due = anyio.Event()
        self._in_flight: dict[tuple[str, str], str] = {}
        """Entries that are tried now, or were and are not written yet, with their targets."""
        self._settled: list[OutboxEntry] = []

    def take_targets(self, targets: Sequence[Target]) -> None:
        """Deliver to these receivers from now on."""
        self._targets = {target.id: target for target in targets}
        self.look()

    def look(self) -> None:
        """Look at the outbox soon; never waits."""
        self._is_due.set()

    async def settle(self) -> None:
        """Write the outcomes that are not written yet.

        Raises:
            OSError: the outbox cannot be written.
        """
        await anyio.to_thread.run_sync(self._write, self._settled)

    def _write(self, settled: Sequence[OutboxEntry]) -> None:
        nothing = Claim(run=self._run_id, targets=(), now_ms=0, limit=0)
        self._outbox.advance(settled, nothing)

    def _end_target(self, refused: OutboxEntry) -> None:
        """End the receiver of an entry that it refused for good."""
        self._write([refused])
        self._outbox.disable(refused.target, refused.ended_at_ms or 0, refused.error or "")

    async def run(self) -> None:
        """Try what is due, until cancelled; each attempt is a task."""
        # Attempts of a run before this one were cut off with it.
        self._in_flight = {entry.key: entry.target for entry in self._settled}
        async with anyio.create_task_group() as tasks:
            while True:
                self._is_due = anyio.Event()
                began_s, wait_s = anyio.current_time(), self._look_s
                try:
                    wait_s = min(wait_s, await self._advance(tasks))
                except OSError as exc:
                    logger.warning("the outbox of notifications cannot be used: %s", exc)
                    wait_s = min(wait_s, WRITE_RETRY_S[0])
                with anyio.move_on_after(wait_s):
                    await self._is_due.wait()
                # Outcomes and entries that come close together are one transaction.
                await anyio.sleep(max(0.0, began_s + GATHER_S - anyio.current_time()))

    async def _advance(self, tasks: anyio.abc.TaskGroup) -> float:
        """Write outcomes, begin the attempts that are due; return seconds until the next is.

        Raises:
            OSError: the outbox cannot be used; the outcomes are written later.
        """
        targets = self._targets
        if not targets and not self._settled:
            return self._look_s
        now_ms = self._ports.clock.now_ms()
        settled = list(self._settled)
        # What is settled now may be due again at once.
        tried = self._in_flight.keys() - {entry.key for entry in settled}
        limit = MAX_AT_ONCE + len(tried)
        of_target = Counter(self._in_flight[key] for key in tried)
        # What waits for a receiver that is slow must not hide what waits for others.
        free = [target for target in targets if of_target[target] < MAX_OF_TARGET]
        claim = Claim(run=self._run_id, targets=free, now_ms=now_ms, limit=limit)
        with anyio.CancelScope(shield=True):
            claimed = await anyio.to_thread.run_sync(self._outbox.advance, settled, claim)
        del self._settled[: len(settled)]
        for entry in settled:
            self._in_flight.pop(entry.key, None)
        is_full = False
        for entry in claimed.entries:
            if entry.key in tried:
                continue
            if len(self._in_flight) >= MAX_AT_ONCE:
                break
            if of_target[entry.target] >= MAX_OF_TARGET:
                is_full = True
                continue
            self._in_flight[entry.key] = entry.target
            of_target[entry.target] += 1
            tasks.start_soon(self._try, entry, targets[entry.target])
        if is_full and len(self._in_flight) < MAX_AT_ONCE:
            # There may be others behind those that have no room.
            return 0.0
        if claimed.next_at_ms is None:
            return self._look_s
        return max(claimed.next_at_ms - now_ms, 0) / 1000

    async def _try(self, entry: OutboxEntry, target: Target) -> None:
        attempt = await self._ports.senders.send(entry, target)
        now_ms = self._ports.clock.now_ms()
        settled = self._after(entry, attempt, now_ms)
        if attempt.is_gone:
            logger.error("%s answered 410 Gone, and is sent nothing more", entry.label)
            with suppress(OSError):
                await anyio.to_thread.run_sync(self._end_target, settled)
        if settled.state == "dead":
            logger.error(
                "notification %s for %s is given up: %s", entry.id, entry.label, settled.error
            )
        elif settled.state == "waiting":
            logger.info(
                "notification %s for %s is tried again: %s", entry.id, entry.label, attempt.error
            )
        self._settled.append(settled)
        self._is_due.set()

    def _after(self, entry: OutboxEntry, attempt: Attempt, now_ms: int) -> OutboxEntry:
        """Return an entry as it is after an attempt."""
        tries = entry.attempts + 1
        tried = replace(entry, attempts=tries, error=attempt.error)
        if attempt.error is None or attempt.is_gone:
            state: OutboxState = "dead" if attempt.is_gone else "delivered"
            return replace(tried, state=state, ended_at_ms=now_ms)
        delay_s = self._retry_s[min(tries, len(self._retry_s)) - 1] * uniform(0.9, 1.1)
        next_at_ms = now_ms + int(1000 * max(delay_s, attempt.after_s))
        if next_at_ms - entry.created_at_ms > EXPIRE_MS:
            return replace(
                tried, state="dead", ended_at_ms=now_ms, error=f"{EXPIRED}: {attempt.error}"
            )
        return replace(tried, next_at_ms=next_at_ms)
