"""Several calls of one response: side by side where that is safe, one after another where not.

Like a lock for readers and writers: calls that may overlap run together, any other runs alone,
after all before it and before all after it.
Source: docs/mcp.md, "Calls".
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import TypeVar

import anyio

Call = TypeVar("Call")
Output = TypeVar("Output")

MAX_SIDE_BY_SIDE = 32
"""Calls of one response that run at a time; the others wait their turn."""


async def run_calls(
    calls: Sequence[Call],
    may_overlap: Callable[[Call], bool],
    run: Callable[[Call], Awaitable[Output]],
) -> list[Output]:
    """Run calls, begin them in order, and return their outputs in order.

    Cancelling stops those that run. When one fails, the others are stopped and its failure comes
    through.
    """
    outputs: list[Output] = []
    for together, group in groupby(calls, may_overlap):
        if together:
            outputs += await _run_together(list(group), run)
        else:
            for call in group:
                outputs.append(await run(call))
    return outputs


async def _run_together(
    calls: Sequence[Call], run: Callable[[Call], Awaitable[Output]]
) -> list[Output]:
    outputs: dict[int, Output] = {}
    limit = anyio.CapacityLimiter(MAX_SIDE_BY_SIDE)

    async def run_one(index: int, call: Call) -> None:
        async with limit:
            outputs[index] = await run(call)

    try:
        async with anyio.create_task_group() as tasks:
            for index, call in enumerate(calls):
                tasks.start_soon(run_one, index, call)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return [outputs[index] for index in range(len(calls))]
