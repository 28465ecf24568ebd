"""Bodies of HTTP messages that are read as a whole, up to a bound of the caller's choice."""

from collections.abc import AsyncIterable


class TooManyBytes(Exception):
    """A body is larger than its reader accepts."""


async def read_bounded(
    pieces: AsyncIterable[bytes], limit_bytes: int, too_large: Exception | None = None
) -> bytes:
    """Read the pieces of a body to its end; at most one piece more than the bound is taken.

    Raises:
        `too_large`, or TooManyBytes without one: the body has more than `limit_bytes`.
    """
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > limit_bytes:
            raise too_large or TooManyBytes(f"larger than {limit_bytes} bytes")
    return bytes(body)


async def read_beginning(pieces: AsyncIterable[bytes], limit_bytes: int) -> bytes:
    """Read the first `limit_bytes` of a body."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) >= limit_bytes:
            break
    return bytes(body[:limit_bytes])
