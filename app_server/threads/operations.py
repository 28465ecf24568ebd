"""Operations: requests that a client named, so that they can be sent again; and the door to them.

An operation is written before its request has an effect, and again with the answer before that
goes out. In between the log of a thread says whether the effect is there (`mark`), or the id of
what the request makes is the operation's own (`made_id`).
Source: docs/sending_again.md, "Operations".
"""

import hashlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from app_server.runtime.clock import Clock

KEEP_MS = 24 * 3600 * 1000
"""Milliseconds that an operation is known."""
MAX_KEPT = 10_000
"""Operations of a home or a group that are known, the newest ones."""
MAX_ANSWER_CHARS = 64 * 1024
"""Of the answer of an operation; a larger one is made again, or told to be too large."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request under the id that its client chose."""

    id: str
    method: str
    digest: str
    """SHA-256 of method and params."""
    at_ms: int
    """Unix milliseconds of its first try."""
    holder: str
    """The server that works on it, or did so last."""
    is_done: bool = False
    answer: str | None = None
    """The result, JSON; None while it is not done, or where the ledger does not keep it."""

    @property
    def made_id(self) -> str:
        """The id of what the operation makes: a UUID, version 7, of its time; always the same."""
        random = hashlib.sha256(self.id.encode()).digest()[:10]
        value = (self.at_ms & (1 << 48) - 1) << 80 | int.from_bytes(random)
        value = value & ~(0xF << 76) | 0x7 << 76
        value = value & ~(0x3 << 62) | 0x2 << 62
        return str(uuid.UUID(int=value))


class OperationLedger(Protocol):
    """The operations of a home or a group of servers. Blocks; for any thread.

    Every method raises OSError where the ledger cannot be read or written.
    """

    @property
    def own_id(self) -> str:
        """The id of this server, as `Operation.holder` has it."""

    def begin(self, operation: Operation) -> Operation | None:
        """Note an operation, unless there is one of its id: that is returned, and None otherwise.

        It outlives the machine when this returns. Forgets operations that are too old or too many.
        """

    def finish(self, operation_id: str, answer: str | None) -> None:
        """Note that an operation is done; it outlives the machine when this returns."""

    def forget(self, operation_id: str) -> None:
        """Forget an operation that was refused: its id is free."""

    def take_over(self, operation: Operation) -> bool:
        """Become the holder of an operation that is not done; False: somebody else has."""

    def is_living(self, holder: str) -> bool:
        """Whether the server still runs that holds an operation."""

    def close(self) -> None:
        """Close the ledger."""


class OperationStore(Protocol):
    """The ledger of a store, which may not be there yet."""

    async def open(self) -> OperationLedger:
        """Open the ledger, or begin it.

        Raises:
            OSError: it cannot be used, or is of a newer version.
            LoadFailed: its code cannot be imported now.
        """


@dataclass(slots=True)
class _Running:
    operation: Operation
    is_marked: bool
    """Whether appends to logs carry its mark."""
    is_again: bool
    """Whether it was begun before, and cut off."""
    is_in_log: bool = False
    """Whether its mark was given."""
    is_over: bool = False
    """Whether the request has ended; tasks that it started go on with a copy of its context."""


_RUNNING: ContextVar[_Running | None] = ContextVar("operation", default=None)


@contextmanager
def running(
    operation: Operation, *, is_marked: bool, is_again: bool
) -> Iterator[Callable[[], bool]]:
    """Have the context belong to an operation; `is_marked`: logs say so of what is appended.

    What runs on after this context, such as a turn, does not belong to it. `is_again`: it was
    begun before, and cut off. Gives what says whether a log may have it.
    """
    now = _Running(operation, is_marked, is_again)
    token = _RUNNING.set(now)
    try:
        yield lambda: now.is_in_log
    finally:
        now.is_over = True
        _RUNNING.reset(token)


def _current() -> _Running | None:
    now = _RUNNING.get()
    return None if now is None or now.is_over else now


def mark() -> str | None:
    """Return the id of the operation that an append to a log belongs to."""
    now = _current()
    if now is None or not now.is_marked:
        return None
    now.is_in_log = True
    return now.operation.id


def again_since_ms() -> int | None:
    """Return when this request was begun before and cut off, Unix milliseconds; None: it was not.

    What it changes may be there already.
    """
    now = _current()
    return now.operation.at_ms if now is not None and now.is_again else None


def is_again() -> bool:
    """Whether this request was begun before and cut off; see `again_since_ms`."""
    return again_since_ms() is not None


def operation_made_id() -> str | None:
    """Return the id of what this request makes; None: its client gave it no name."""
    now = _current()
    return None if now is None else now.operation.made_id


def made_id(clock: Clock) -> str:
    """Return the id of what this request makes: the operation's own, or a new one."""
    return operation_made_id() or clock.new_id()
