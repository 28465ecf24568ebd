"""Notifications to receivers outside: what is to be sent, and how far each has come.

Source: docs/notifications.md, "Dead letters".
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, UInt32, WireModel

NotificationState = TypeAliasType("NotificationState", Literal["waiting", "delivered", "dead"])
"""`waiting` is tried until it is `delivered`, or `dead` after 3 days or as nobody wants it."""


class NotificationListParams(WireModel):
    """Page through notifications, newest first."""

    state: NotificationState | None = None
    """Null lists all."""
    cursor: str | None = None
    """Opaque, from `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Notifications a page; null lets the server choose, 0 counts as 1."""


class NotificationEntry(WireModel):
    """One event for one receiver, without its body."""

    id: str
    """As the receiver knows it."""
    receiver: str
    """Its name in the settings, or its kind and host or program."""
    event: str
    thread_id: str
    state: NotificationState
    created_at_ms: Int64
    """Unix milliseconds of the event."""
    ended_at_ms: Int64 | None = None
    """Unix milliseconds; null while it waits."""
    attempts: UInt32
    error: str | None = None
    """Failure of the last attempt."""


class NotificationListResponse(WireModel):
    """One page; `next_cursor` is null at the end."""

    data: list[NotificationEntry]
    next_cursor: str | None = None
