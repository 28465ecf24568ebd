"""Who uses one share of the event loop gets it by turns, and others run in between."""

import asyncio
import weakref
from collections.abc import Callable
from itertools import pairwise

import anyio
import anyio.lowlevel

from app_server.runtime.loop_share import LoopShare, free_in_pieces


class Rounds:
    """A clock of its own, and what was done in each round of the event loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[list[str]] = [[]]
        self.running = True

    async def count(self) -> None:
        while self.running:
            self.done.append([])
            await asyncio.sleep(0)

    async def work(self, name: str, pieces: int, share: LoopShare) -> None:
        for _ in range(pieces):
            await share.wait()
            self.now += 0.4
            self.done[-1].append(name)


async def rounds_of(start: Callable[[Rounds, LoopShare], list[asyncio.Task[None]]]) -> Rounds:
    rounds = Rounds()
    share = LoopShare(1.0, lambda: rounds.now)
    counting = asyncio.create_task(rounds.count())
    await asyncio.wait(start(rounds, share))
    rounds.running = False
    await counting
    return rounds


async def test_streams_share_what_they_may_take_of_a_round_and_all_come_to_an_end() -> None:
    names = [f"stream {number}" for number in range(20)]
    rounds = await rounds_of(
        lambda rounds, share: [asyncio.create_task(rounds.work(name, 30, share)) for name in names]
    )
    everything = [name for done in rounds.done for name in done]
    assert {name: everything.count(name) for name in names} == dict.fromkeys(names, 30)
    assert max(map(len, rounds.done)) == 3, "a share of 1.0 in pieces of 0.4"
    firsts = [everything.index(name) for name in names]
    assert firsts == sorted(firsts), "first come, first served"
    assert firsts[-1] <= 3 * len(names), "nobody comes twice before everybody came once"


async def test_a_cancelled_waiter_for_the_share_blocks_no_other() -> None:
    def start(rounds: Rounds, share: LoopShare) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(rounds.work(str(number), 12, share)) for number in range(6)]
        for task in tasks[1::2]:
            asyncio.get_running_loop().call_later(0, task.cancel)
        return tasks

    rounds = await rounds_of(start)
    everything = [name for done in rounds.done for name in done]
    assert [everything.count(name) for name in "024"] == [12, 12, 12]


async def test_a_scope_that_is_cancelled_ends_who_always_has_more_to_do() -> None:
    share = LoopShare(0.0)
    done = 0

    async def work() -> None:
        nonlocal done
        for _ in range(10_000):
            await share.wait()
            done += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        while done < 10:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert done < 20


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
