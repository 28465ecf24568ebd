"""Named pipes between a test and a process; no wait for the other side is without a bound."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

import anyio

from tests.support.harness import WAIT_S

T = TypeVar("T")


async def _within_bound(call: Callable[[], T]) -> T:
    with anyio.fail_after(WAIT_S):
        # The thread stays where it is if nobody comes: it ends with this process.
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


async def read_fifo(fifo: Path) -> str:
    """Read until the last writer has closed it.

    Raises:
        TimeoutError: nobody wrote, or closed it, within `WAIT_S`.
    """
    return await _within_bound(fifo.read_text)


async def open_fifo(fifo: Path) -> IO[str]:
    """Open for reading, once somebody has it open for writing.

    Raises:
        TimeoutError: nobody did within `WAIT_S`.
    """
    return await _within_bound(partial(open, fifo))


async def open_fifo_to_write(fifo: Path) -> int:
    """Open for writing, once somebody has it open for reading; gives a descriptor.

    Raises:
        TimeoutError: nobody did within `WAIT_S`.
    """
    return await _within_bound(partial(os.open, fifo, os.O_WRONLY))


async def write_fifo(fifo: Path, text: str) -> None:
    """Write, once somebody has it open for reading.

    Raises:
        TimeoutError: nobody did within `WAIT_S`.
    """
    descriptor = await open_fifo_to_write(fifo)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
