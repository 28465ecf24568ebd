"""Bounds of one response of a model, and the size of each of its events. No I/O.

What clients are sent of an item, in pieces or as a whole, has to fit into one of their messages,
which is likely to be 1 MiB at most; the rest keeps a model that never ends from filling memory.
Source: docs/wire.md, "Bounds".
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio
from pydantic_core import to_json

from app_server.models.interface import (
    CallInputDelta,
    EventReader,
    ItemAdded,
    ItemDone,
    LimitsReported,
    ModelEvent,
    ModelFailure,
    ReasoningDelta,
    ResponseCompleted,
    SummaryDelta,
    SummaryPartAdded,
    TextDelta,
    idle,
    with_status,
)
from app_server.runtime.http.event_stream import EventParser, EventTooLarge, SseEvent
from app_server.runtime.loop_share import LoopShare
from protocol.model import Json, JsonObject
from protocol.server.account import RateLimitSnapshot

MAX_ITEM_BYTES = 900_000
"""Of the text of one item, or the arguments of one call, as JSON."""
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""Of the pieces and the finished items of one response; an item that begins counts BEGUN_BYTES."""
MAX_STREAM_BYTES = 256 * 1024 * 1024
"""Bytes of the body of one response, with all that is not used."""
MAX_PARTS = 1024
"""Of a summary or the raw reasoning of one item."""
MAX_DELTA_CHARS = 64 * 1024
"""Of one piece of text that clients are sent; a longer one becomes several."""

BEGUN_BYTES = 1024

_Delta: TypeAlias = TextDelta | SummaryDelta | ReasoningDelta | CallInputDelta


@dataclass(slots=True)
class ResponseBounds:
    """Counts one response, event by event."""

    _streamed: int = 0
    _total: int = 0
    _texts: dict[str | None, int] = field(default_factory=dict)
    """Of items that have begun, by id; those of an item without one are under None."""

    def read(self, count: int) -> None:
        """Count bytes of the body.

        Raises:
            ModelFailure: the body is too long.
        """
        self._streamed += count
        if self._streamed > MAX_STREAM_BYTES:
            raise too_long(f"its stream has more than {MAX_STREAM_BYTES} bytes")

    def take(self, event: ModelEvent, size: int) -> Sequence[ModelEvent]:
        """Count an event whose data had `size` bytes; gives it in pieces of a size to pass on.

        Raises:
            ModelFailure: with this event the response is too long.
        """
        match event:
            case TextDelta() | SummaryDelta() | ReasoningDelta() | CallInputDelta():
                self._add_text(event)
                if len(event.delta) > MAX_DELTA_CHARS:
                    return _pieces(event)
            case ItemAdded():
                self._texts[_id_of(event.item)] = 0
                self._add(BEGUN_BYTES)
            case SummaryPartAdded():
                self._check_part(event.index)
                self._add(BEGUN_BYTES)
            case ItemDone():
                shown = _text_bytes(event.item)
                if shown > MAX_ITEM_BYTES:
                    raise _item_too_long()
                self._texts.pop(_id_of(event.item), None)
                # An item may be made of more events than the one that ends it.
                self._add(max(size, shown))
        return (event,)

    def _add_text(self, event: _Delta) -> None:
        if isinstance(event, SummaryDelta | ReasoningDelta):
            self._check_part(event.index)
        size = _json_bytes(event.delta)
        if event.item_id not in self._texts:
            self._add(BEGUN_BYTES)
        text = self._texts[event.item_id] = self._texts.get(event.item_id, 0) + size
        if text > MAX_ITEM_BYTES:
            raise _item_too_long()
        self._add(size)

    def _check_part(self, index: int) -> None:
        # One below 0 is no part: clients are sent it, as by the reference, and nothing is kept.
        if index >= MAX_PARTS:
            raise too_long(f"an item has a part {index} of at most {MAX_PARTS}")

    def _add(self, size: int) -> None:
        self._total += size
        if self._total > MAX_RESPONSE_BYTES:
            raise too_long(f"it has more than {MAX_RESPONSE_BYTES} bytes")


def too_long(why: str) -> ModelFailure:
    """Make the failure of a response that is cut off; it would be as long the next time."""
    return ModelFailure(
        f"the response of the model is too long: {why}",
        with_status("responseStreamDisconnected"),
    )


def _item_too_long() -> ModelFailure:
    return too_long(f"an item has more than {MAX_ITEM_BYTES} bytes of text")


def _pieces(event: _Delta) -> Sequence[ModelEvent]:
    text = event.delta
    starts = range(0, len(text), MAX_DELTA_CHARS)
    return [replace(event, delta=text[start : start + MAX_DELTA_CHARS]) for start in starts]


def _id_of(item: JsonObject) -> str | None:
    item_id = item.get("id")
    return item_id if isinstance(item_id, str) else None


def _text_bytes(item: JsonObject) -> int:
    """Return the size of what clients are shown of a finished item."""
    size = 0
    for member in ("content", "summary"):
        parts = item.get(member)
        for part in parts if isinstance(parts, list) else ():
            size += _json_bytes(part.get("text") if isinstance(part, dict) else None)
    return size + _json_bytes(item.get("arguments")) + _json_bytes(item.get("input"))


def _json_bytes(value: Json) -> int:
    if isinstance(value, str) and value.isascii() and value.isprintable():
        # JSON writes all of it as it is, but for these two.
        return len(value) + 2 + value.count('"') + value.count("\\")
    return 0 if value is None else len(to_json(value))


MAX_EVENT_BYTES = 16 * 1024 * 1024
END_S = 0.05
"""For the end of a stream whose response is complete; without it the connection is closed."""
BATCH = 8
"""Events that are given out before streams of other models have their turn."""


async def event_batches(
    chunks: AsyncIterator[bytes],
    reader: EventReader,
    limits: Sequence[RateLimitSnapshot],
    idle_s: float,
    share: LoopShare,
) -> AsyncGenerator[Sequence[ModelEvent], None]:
    """Give the events of a response, as many at a time as one read brings, or BATCH.

    What came before a failure is given out first. The usage limits that the response came with
    come before all else, if there are any. `idle_s` bounds how long no event comes: comments, and
    parts of an event, are none.

    Raises:
        ModelFailure: the stream reports one, breaks off, is too long, or makes no sense.
    """
    bounds, parser = ResponseBounds(), EventParser(MAX_EVENT_BYTES)
    if limits:
        yield (LimitsReported(limits),)
    while (received := await _received(chunks, parser, bounds, idle_s, share)) is not None:
        events: list[ModelEvent] = []
        for sse in received:
            try:
                for event in reader.read(sse):
                    events.extend(bounds.take(event, len(sse.data)))
            except ModelFailure:
                if events:
                    yield events
                raise
            if events and isinstance(events[-1], ResponseCompleted):
                yield events
                await _read_to_end(chunks)
                return
            if len(events) >= BATCH:
                yield events
                events = []
                await share.wait()
        if events:
            yield events
    yield [piece for event in reader.end() for piece in bounds.take(event, 0)]


async def _read_to_end(chunks: AsyncIterator[bytes]) -> None:
    """Read what comes behind a complete response: the next request can have its connection then."""
    with anyio.move_on_after(END_S):
        async for _ in chunks:
            pass


async def _received(
    chunks: AsyncIterator[bytes],
    parser: EventParser,
    bounds: ResponseBounds,
    idle_s: float,
    share: LoopShare,
) -> Sequence[SseEvent] | None:
    """Wait for the next events that have data; None at the end of the stream."""
    began_s = time.monotonic()
    # Each read has the same limit: only where one brings no event another timer is needed.
    left_s: float | None = None
    while True:
        try:
            with nullcontext() if left_s is None else anyio.fail_after(left_s):
                await share.wait()
                chunk = await anext(chunks, None)
        except TimeoutError as exc:
            raise idle() from exc
        if chunk is None:
            return None
        bounds.read(len(chunk))
        try:
            events = parser.feed(chunk)
        except EventTooLarge as exc:
            raise too_long(f"an event has more than {MAX_EVENT_BYTES} bytes") from exc
        if events:
            return events
        left_s = began_s + idle_s - time.monotonic()
