"""Why a thread can never take its signals, as their receipts say it. No I/O.

Source: docs/signals.md, "Stages".
"""

from app_server.config.values import ConfigError
from app_server.mcp.errors import RequiredServersFailed
from app_server.signals.recipients import NoRecipient
from app_server.threads.store import ThreadArchived, ThreadDamaged, ThreadNotFound, ThreadTooNew

LASTING = (
    NoRecipient,
    ThreadArchived,
    ThreadDamaged,
    ThreadNotFound,
    ThreadTooNew,
    ConfigError,
    RequiredServersFailed,
)
"""Errors of loading or reading a thread after which no later try is made."""


def failure_of(error: Exception, thread_id: str) -> tuple[str, str]:
    """Return `error.code` and `error.message` of the receipts, for one of the LASTING errors."""
    match error:
        case NoRecipient():
            return error.code, str(error)
        case ThreadNotFound():
            return "threadNotFound", "the thread is gone"
        case ThreadArchived():
            return "threadArchived", f"thread {thread_id} is archived"
        case ThreadTooNew():
            return "threadNotLoadable", "a newer version of this server wrote the thread"
        case ThreadDamaged():
            return "threadNotLoadable", "the log of the thread is damaged in its first line"
        case _:
            return "threadNotLoadable", str(error)
