"""From a text of any size to its message, without keeping the event loop from others for long."""

import asyncio

import anyio

from protocol.envelope import Batch, Message, parse_message, refused
from protocol.value_count import MAX_VALUES, PIECE_CHARS, ValueCount


async def read_message(text: str) -> Message | Batch:
    """Read one text; it is not parsed if it holds more than MAX_VALUES values.

    Once begun, this is not cancelled by a scope outside of it: what was received gets its answer.
    """
    # A value takes two characters at least.
    if len(text) <= MAX_VALUES:
        return parse_message(text)
    count = ValueCount()
    with anyio.CancelScope(shield=True):
        for start in range(0, len(text), PIECE_CHARS):
            count.add(text[start : start + PIECE_CHARS])
            if count.values > MAX_VALUES:
                return refused(None, f"a message may hold at most {MAX_VALUES} values")
            await asyncio.sleep(0)
    return parse_message(text)
