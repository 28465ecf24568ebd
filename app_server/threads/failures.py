"""Failures of the thread store: missing, busy, damaged, or newer threads; a store out of reach."""

import errno
import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """Process that writes a thread; all None when that is not known."""

    pid: int | None = None
    started_at: int | None = None
    """Unix seconds of the start of the process."""
    address: str | None = None
    """Address that it listens on, if other clients can connect there."""

    def __str__(self) -> str:
        """Say it in a few words."""
        process = "an unknown process" if self.pid is None else f"process {self.pid}"
        return process if self.address is None else f"{process} at {self.address}"


class ThreadNotFound(Exception):
    """There is no such thread."""


class ThreadExists(Exception):
    """There is a thread of this id already."""


class InvalidThreadId(Exception):
    """The thread id is not a UUID."""


def uuid_of(thread_id: str) -> uuid.UUID:
    """Return the UUID of a thread id.

    Raises:
        InvalidThreadId: not a UUID in its usual form.
    """
    try:
        parsed = uuid.UUID(thread_id)
    except ValueError:
        raise InvalidThreadId(thread_id) from None
    if str(parsed) != thread_id:
        raise InvalidThreadId(thread_id)
    return parsed


class ThreadBusy(Exception):
    """Another process writes the thread; `holder` says which, as far as it is known."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(str(holder))
        self.holder = holder


class ThreadArchived(Exception):
    """The thread must be brought back from the archive before it is loaded."""


class ThreadTooNew(Exception):
    """A newer version of this server wrote the thread."""


class ThreadDamaged(Exception):
    """The first line of the thread's log cannot be read, so nothing is known of it."""


class ThreadOfCodex(Exception):
    """The thread is Codex's alone, whose files are never altered."""


class TurnNotFound(Exception):
    """The thread has no such turn."""


class TurnInProgress(Exception):
    """The turn has not ended yet."""


class StoreUnavailable(OSError):
    """The store does not take or give anything now; nothing was changed, unless it says so."""

    def __init__(self, text: str, reason: str, *, retriable: bool) -> None:
        """`reason` is a code for clients; `retriable` says whether a later try may succeed."""
        super().__init__(errno.EIO, text)
        self.reason = reason
        self.retriable = retriable

    def __str__(self) -> str:
        """Say it without a number."""
        return str(self.strerror)


TAKEN_OVER = "another server has taken the thread over"


class OwnershipLost(StoreUnavailable):
    """Another server writes the thread, or may do so before this one has its lease again."""
