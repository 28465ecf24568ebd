"""Failures of the thread store: missing, busy, damaged, or newer threads."""

from collections.abc import Iterator
from contextlib import contextmanager

from app_server.threads.log.faults import FirstLineDamaged, LogTooNew, NotARollout
from app_server.threads.log.file.locks import LockBusy


class ThreadNotFound(Exception):
    """There is no such thread."""


class ThreadExists(Exception):
    """There is a thread of this id already."""


class InvalidThreadId(Exception):
    """The thread id is not a UUID."""


class ThreadBusy(LockBusy):
    """Another process writes the thread; `holder` says which."""


class ThreadArchived(Exception):
    """The thread must be brought back from the archive before it is loaded."""


class ThreadTooNew(Exception):
    """A newer version of this server wrote the thread."""


class ThreadDamaged(Exception):
    """The first line of the thread's log cannot be read, so nothing is known of it."""


class ThreadOfCodex(Exception):
    """The thread is Codex's alone, whose files are never altered."""


@contextmanager
def log_failures(thread_id: str) -> Iterator[None]:
    """Raise failures of a log as those of its thread."""
    try:
        yield
    except FirstLineDamaged:
        raise ThreadDamaged(thread_id) from None
    except (FileNotFoundError, NotARollout):
        raise ThreadNotFound(thread_id) from None
    except LogTooNew:
        raise ThreadTooNew(thread_id) from None
