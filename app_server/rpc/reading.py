"""From a text of any size to its message, without keeping the event loop from others for long."""

import asyncio

import anyio

from protocol.jsonrpc.envelope import Batch, Message, parse_message, refused
from protocol.jsonrpc.value_count import MAX_VALUES, PIECE_CHARS, ValueCount


def is_short(text: str) -> bool:
    """Whether a text can be parsed at once: a value takes two characters at least."""
    return len(text) <= MAX_VALUES


async def read_long(text: str) -> Message | Batch:
    """Read a text that is not short; it is not parsed if it holds more than MAX_VALUES values.

    Once begun, this is not cancelled by a scope outside of it: what was received gets its answer.
    """
    count = ValueCount()
    with anyio.CancelScope(shield=True):
        for start in range(0, len(text), PIECE_CHARS):
            count.add(text[start : start + PIECE_CHARS])
            if count.values > MAX_VALUES:
                return refused(None, f"a message may hold at most {MAX_VALUES} values")
            await asyncio.sleep(0)
    return parse_message(text)
