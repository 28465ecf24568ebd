"""Several calls of one response: side by side where that is safe, one after another where not.

Like a lock for readers and writers: calls that may overlap run together, any other runs alone,
after all before it and before all after it.
Source: docs/mcp.md, "Calls".
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Generic, Protocol, TypeVar

import anyio

Call = TypeVar("Call")
Output = TypeVar("Output")
Kept = TypeVar("Kept", contravariant=True)

MAX_SIDE_BY_SIDE = 32
"""Calls of one response that run at a time; the others wait their turn."""


class Keep(Protocol[Kept]):
    """Writes outputs down."""

    async def __call__(self, *outputs: Kept) -> None:
        """Return when they are in the log."""


async def run_calls(
    calls: Sequence[Call],
    may_overlap: Callable[[Call], bool],
    run: Callable[[Call], Awaitable[Output]],
    keep: Keep[Output],
) -> None:
    """Run calls, begin them in order, and keep their outputs in order.

    An output is kept as soon as those before it are. Cancelling stops the calls that run; when one
    fails the others are stopped and its failure comes through. Either way the outputs of calls that
    had ended are kept.
    """
    outputs = _Outputs(keep)
    limit = anyio.CapacityLimiter(MAX_SIDE_BY_SIDE)

    async def run_one(index: int, call: Call) -> None:
        async with limit:
            await outputs.add(index, await run(call))

    try:
        for together, group in groupby(enumerate(calls), lambda entry: may_overlap(entry[1])):
            if together:
                async with anyio.create_task_group() as tasks:
                    for index, call in group:
                        tasks.start_soon(run_one, index, call)
            else:
                for index, call in group:
                    await run_one(index, call)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await outputs.keep_rest()


class _Outputs(Generic[Output]):
    def __init__(self, keep: Keep[Output]) -> None:
        self._keep = keep
        self._ended: dict[int, Output] = {}
        self._next = 0
        self._keeping = anyio.Lock()

    async def add(self, index: int, output: Output) -> None:
        self._ended[index] = output
        # Cut off between the write and the note of it, an output would be written twice.
        with anyio.CancelScope(shield=True):
            async with self._keeping:
                ready: list[Output] = []
                while self._next in self._ended:
                    ready.append(self._ended.pop(self._next))
                    self._next += 1
                if ready:
                    await self._keep(*ready)

    async def keep_rest(self) -> None:
        if self._ended:
            with anyio.CancelScope(shield=True):
                await self._keep(*(self._ended[index] for index in sorted(self._ended)))
