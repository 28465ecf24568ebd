"""Entries of a ledger, its results, and its bounds.

Source: docs/receiver.md, "The ledger".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app_server.clients.receiver.router.envelope import Envelope

State: TypeAlias = Literal[
    "waiting", "injecting", "uncertain", "accepted", "shown", "injected", "acked", "expired"
]
"""The first five are open, the others are ends.

`waiting`: nobody has seen it. `injecting`: a request that may put it into the thread is under way.
`uncertain`: how that ended is not known. `accepted`: the server has it in a ledger of its own, and
puts it into the thread later, or says that it failed. `shown`: a tool result has shown it, so it is
never injected any more.
"""


class LedgerFull(Exception):
    """As many signals wait as may; the router keeps this one."""


class LedgerBroken(Exception):
    """The file is no ledger of this version, or cannot be used; every use of it may raise this."""


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """Bounds of one ledger."""

    max_open: int = 1000
    """Unseen and unacknowledged signals; the next one is refused."""
    max_open_bytes: int = 16 * 1024 * 1024
    """The same, as bytes of their bodies."""
    max_settled: int = 10_000
    """Signals that are done with; the oldest are forgotten."""
    max_settled_bytes: int = 16 * 1024 * 1024
    """The same as bytes; beyond it the oldest lose their bodies and keep their ids."""
    max_dead: int = 100
    """Dead letters; the oldest are forgotten."""
    max_dead_bytes: int = 16 * 1024
    """Of one dead letter; it is cut there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One signal in the ledger."""

    envelope: Envelope
    state: State
    is_doubtful: bool = False
    """A tool result shows it although it may be in the thread already."""
    log_path: str | None = None
    """Log of the last attempt, if that was by `thread/inject_items`."""
    log_was_there: bool = False
    thread_id: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """Waiting signals of one look."""

    entries: Sequence[Entry]
    more: int
    """Signals that did not fit."""
