"""Schedule of the garbage collector: in small steps, and in whole while there is no work.

A collection stops every thread. One of young objects is short, as they are few; one of all objects
takes 50 ms and more once lists of thousands of tools are loaded. Most of what the server lets go of
is in no cycle, and is freed without any.
Source: https://docs.python.org/3/library/gc.html#gc.set_threshold
"""

import gc
import time

import anyio

YOUNG = 1_000
"""New objects before the youngest are looked at: less than 1 ms."""

MIDDLE = 10
"""Collections of the youngest before one of the middle generation: less than 5 ms."""

NEVER = 2**31 - 1

LOOK_S = 10.0
"""Between two looks whether a collection of everything is due."""

IDLE_SHARE = 0.02
"""Of a core: a process that used less since the last look has no work."""

DUE = 20
"""Looks at the middle generation, after which one is due without work: 220,000 objects."""

OVERDUE = 100
"""The same for one that waits for nothing: 1,100,000 objects, about 100 MB."""


def start_collecting() -> None:
    """Look at what there is for the last time, and at what comes in small steps.

    Modules and types live as long as the process. Done once, also where it runs several servers.
    """
    if gc.get_threshold()[2] == NEVER:
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


async def collect_when_idle(look_s: float = LOOK_S) -> None:
    """Collect everything now and then, if possible while there is no work; until cancelled."""
    while True:
        used_s, now_s = time.process_time(), time.monotonic()
        await anyio.sleep(look_s)
        share = (time.process_time() - used_s) / max(time.monotonic() - now_s, 1e-3)
        if is_due(gc.get_count()[2], is_idle=share < IDLE_SHARE):
            gc.collect()


def is_due(looks: int, *, is_idle: bool) -> bool:
    """Whether everything is to be collected after so many looks at the middle generation."""
    return looks >= (DUE if is_idle else OVERDUE)
