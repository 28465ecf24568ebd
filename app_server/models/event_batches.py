"""The stream of one response, from bytes to events, in batches as they arrive.

Source: docs/wire.md, "Bounds"; docs/config.md, "Models".
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import anyio

from app_server.models.bounds import ResponseBounds, too_long
from app_server.models.failures import idle
from app_server.models.interface import (
    LimitsReported,
    ModelEvent,
    ModelFailure,
    ResponseCompleted,
)
from app_server.models.wire import EventReader
from app_server.runtime.http.event_stream import EventParser, EventTooLarge, SseEvent
from app_server.runtime.loop_share import LoopShare
from protocol.server.account import RateLimitSnapshot

MAX_EVENT_BYTES = 16 * 1024 * 1024
BATCH = 8
"""Events that are given out before streams of other models have their turn."""


class EventChunks:
    """The events of a response, as many at a time as one read brings."""

    def __init__(self, chunks: AsyncIterator[bytes], idle_s: float, share: LoopShare) -> None:
        """`idle_s` bounds how long no event comes."""
        self.bounds = ResponseBounds()
        self._chunks = chunks
        self._parser = EventParser(MAX_EVENT_BYTES)
        self._idle_s = idle_s
        self.share = share

    async def next(self) -> Sequence[SseEvent] | None:
        """Wait for the next events that have data; None at the end of the stream.

        Raises:
            ModelFailure: nothing but comments, or parts of an event, came in time; or too much.
        """
        deadline = anyio.current_time() + self._idle_s
        events = await self._read()
        if events is None or events:
            return events
        # Each read has the same limit; only where one brings no event another timer is needed.
        try:
            with anyio.fail_after(deadline - anyio.current_time()):
                while events is not None and not events:
                    events = await self._read()
        except TimeoutError as exc:
            raise idle() from exc
        return events

    async def _read(self) -> Sequence[SseEvent] | None:
        await self.share.wait()
        chunk = await anext(self._chunks, None)
        if chunk is None:
            return None
        self.bounds.read(len(chunk))
        try:
            return self._parser.feed(chunk)
        except EventTooLarge as exc:
            raise too_long(f"an event has more than {MAX_EVENT_BYTES} bytes") from exc


async def event_batches(
    chunks: EventChunks, reader: EventReader, limits: Sequence[RateLimitSnapshot]
) -> AsyncGenerator[Sequence[ModelEvent], None]:
    """Give the events of a response; what came before a failure is given out first.

    The usage limits that the response came with come before all else, if there are any.

    Raises:
        ModelFailure: the stream reports one, breaks off, is too long, or makes no sense.
    """
    bounds, share = chunks.bounds, chunks.share
    if limits:
        yield (LimitsReported(limits),)
    while (received := await chunks.next()) is not None:
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
                return
            if len(events) >= BATCH:
                yield events
                events = []
                await share.wait()
        if events:
            yield events
    yield [piece for event in reader.end() for piece in bounds.take(event, 0)]
