"""Letting go of many values."""

import weakref
from itertools import pairwise

import anyio
import anyio.lowlevel

from app_server.runtime.freeing import free_in_pieces


class Value:
    """Something that is freed."""


async def test_no_more_than_a_piece_is_freed_before_others_run() -> None:
    values: list[object] = [Value() for _ in range(1_000)]
    alive = weakref.WeakSet(values)
    counts = [len(alive)]

    async def count() -> None:
        while alive:
            counts.append(len(alive))
            await anyio.lowlevel.checkpoint()
        counts.append(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        tasks.start_soon(free_in_pieces, values, 100)
        del values
    freed = [before - after for before, after in pairwise(counts)]
    assert (max(freed), counts[-1]) == (100, 0)
