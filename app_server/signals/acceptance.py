"""What a signal becomes when it is accepted. No I/O.

Source: docs/signals.md, "Bounds".
"""

import hashlib

from pydantic_core import to_json

from app_server.signals.ledger import Entry
from app_server.signals.recipients import Recipient
from protocol.signals.delivery import SignalDeliverParams
from protocol.signals.frame import Framed, frame_item

MAX_WAKES = 8
"""Turns that one source may begin in one thread within WAKE_WINDOW_MS."""
WAKE_WINDOW_MS = 60_000


def accepted(
    params: SignalDeliverParams,
    recipient: Recipient,
    item_id: str,
    now_ms: int,
    wakes_before: int,
    *,
    thread_has_tool: bool = False,
) -> Entry:
    """Make the entry of a new signal.

    `wakes_before` counts the turns that its source began in the thread within the window; one that
    would begin more is passive, and its receipt says so. One whose time is over is expired.
    `thread_has_tool` says whether the model can call the tool that the sender names.
    """
    signal = params.signal
    wakes = params.mode == "wake"
    is_limited = wakes and wakes_before >= MAX_WAKES
    ends_ms = None
    if signal.ttl_seconds is not None:
        born_ms = now_ms if signal.created_at is None else signal.created_at * 1000
        ends_ms = born_ms + signal.ttl_seconds * 1000
    over = ends_ms is not None and ends_ms <= now_ms
    framed = Framed(
        signal.source,
        signal.type,
        signal.sender,
        signal.id,
        signal.summary,
        params.payload_tool if thread_has_tool else None,
    )
    return Entry(
        source=signal.source,
        id=signal.id,
        digest=digest_of(params),
        thread_id=recipient.thread_id,
        sender=signal.sender,
        item="" if over else to_json(frame_item(framed)).decode(),
        wakes=wakes and not is_limited,
        steers=params.on_busy == "steer",
        stage="expired" if over else "accepted",
        recipient_state=recipient.state,
        at_ms=now_ms,
        item_id=item_id,
        expires_at_ms=ends_ms,
        error_code="wakeLimit" if is_limited else None,
        error_message=_WAKE_LIMITED if is_limited else None,
    )


_WAKE_LIMITED = f"delivered as passive: a source may wake a thread {MAX_WAKES} times a minute"


def digest_of(params: SignalDeliverParams) -> str:
    """Return a digest by which a signal sent again differs from another one under its id."""
    # A receiver may come to know its tool between two tries.
    body = params.model_dump(mode="json", exclude={"payload_tool"})
    return hashlib.sha256(to_json(body)).hexdigest()
