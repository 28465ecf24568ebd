"""What was said to questions, in the thread's log.

Source: docs/tools.md, "Approvals and rules".
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import anyio

from app_server.mcp.tools.calls import cut_middle
from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from protocol.log.rollout import ApprovalDecided

MAX_SUBJECT_BYTES = 4_096
"""Of what is written down of a question."""

Action: TypeAlias = Literal["command", "fileChange", "permissions", "mcpToolCall", "network"]
By: TypeAlias = Literal["user", "reviewer", "server", "hook", "policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An action that somebody was asked about."""

    action: Action
    turn_id: str
    item_id: str
    """The item that clients see of it."""
    subject: str
    """What it is, in a line."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one thread."""

    thread: LiveThread
    clock: Clock

    async def write(
        self,
        asked: Asked,
        decision: str,
        by: By,
        client: str | None = None,
        rule: list[str] | None = None,
    ) -> None:
        """Write a decision down; see ApprovalDecided for what the words mean.

        Raises:
            OSError: the disk refused, or the thread was unloaded.
        """
        record = ApprovalDecided(
            at_ms=self.clock.now_ms(),
            turn_id=asked.turn_id,
            item_id=asked.item_id,
            action=asked.action,
            subject=cut_middle(asked.subject, MAX_SUBJECT_BYTES),
            decision=decision,
            by=by,
            client=client,
            rule=rule,
        )
        # The end of the turn syncs it, as it does its items.
        await self.thread.append(record, sync=False)

    async def write_withdrawn(self, asked: Asked) -> None:
        """Write down that a question was withdrawn, also in a task that is being cancelled."""
        # Whatever stopped the turn is what comes through.
        with anyio.CancelScope(shield=True), suppress(OSError):
            await self.write(asked, "cancel", "server")
