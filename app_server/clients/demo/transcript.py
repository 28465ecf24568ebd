"""Readable transcript of a demo: steps with durations, messages and checks."""

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import anyio

from app_server.runtime.exception_groups import only_member
from app_server.runtime.standard_streams import one_line, print_to_stderr
from protocol.jsonrpc.errors import RpcError

BOLD, DIM, GREEN, RED, CYAN, RESET = (
    "\033[1m",
    "\033[2m",
    "\033[32m",
    "\033[31m",
    "\033[36m",
    "\033[0m",
)

MAX_LINE = 160
"""Characters of what somebody says."""


class CheckFailed(Exception):
    """Failed check of a step."""


class NotInstalled(Exception):
    """Missing program or package that a demo needs; the text says how to get it."""


class Transcript:
    """Print events as they happen; in colour on a terminal. Failed writes are ignored."""

    def __init__(self, stream: TextIO | None = sys.stdout) -> None:
        """`stream` None, which is Python's value for a closed one, prints to no stream."""
        self._stream = stream
        self._coloured = stream is not None and stream.isatty()
        self.checks = 0

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show a step and how long it took."""
        self._print(f"\n{BOLD}{title}{RESET}")
        began = time.perf_counter()
        yield
        self._print(f"  {DIM}{(time.perf_counter() - began) * 1000:.1f} ms{RESET}")

    def say(self, who: str, text: str) -> None:
        """Print a speaker and a text on one line of bounded length."""
        line = one_line(" ".join(text.split()))
        shown = line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"
        self._print(f"  {CYAN}{who:>8}{RESET}  {shown}")

    def check(self, claim: str, holds: bool) -> None:
        """Show a claim and whether it holds.

        Raises:
            CheckFailed: it does not.
        """
        if not holds:
            self._print(f"  {RED}{'failed':>8}{RESET}  {one_line(claim)}")
            raise CheckFailed(claim)
        self.checks += 1
        self._print(f"  {GREEN}{'checked':>8}{RESET}  {one_line(claim)}")

    def close(self, text: str) -> None:
        """Show the last line."""
        self._print(f"\n{BOLD}{one_line(text)}{RESET}")

    def _print(self, text: str) -> None:
        if not self._coloured:
            for code in (BOLD, DIM, GREEN, RED, CYAN, RESET):
                text = text.replace(code, "")
        if self._stream is not None:
            write = getattr(self._stream, "write_as_it_is", self._stream.write)
            with suppress(OSError):
                write(f"{text}\n")
                self._stream.flush()


INTERRUPTED = 130
"""Exit status of a demo that a signal ended: that of a shell for SIGINT."""


async def run_demo(scenario: Callable[[Transcript, Path], Awaitable[None]]) -> int:
    """Run a demo in a folder of its own, which is removed afterwards.

    Returns the exit status: 0 only if every step was checked. A closed terminal (SIGHUP) and
    SIGTERM end it as SIGINT does, with what it has started.
    """
    transcript = Transcript()
    with (
        _cancelled_by(signal.SIGHUP, signal.SIGTERM) as came,
        tempfile.TemporaryDirectory(prefix="app-server-demo-") as folder,
    ):
        try:
            try:
                await scenario(transcript, Path(folder))
            except BaseExceptionGroup as group:
                raise only_member(group) from group
        except NotInstalled as exc:
            print_to_stderr(f"app-server demo: {exc}")
            return 1
        except anyio.EndOfStream:
            transcript.close("The demo failed: a server closed its connection, or ended.")
            return 1
        except (CheckFailed, RpcError, TimeoutError, RuntimeError, OSError) as exc:
            transcript.close(f"The demo failed: {type(exc).__name__}: {exc}")
            return 1
        except asyncio.CancelledError:
            if not came:
                raise
            return INTERRUPTED
    transcript.close(f"All {transcript.checks} checks hold.")
    return 0


@contextmanager
def _cancelled_by(*numbers: signal.Signals) -> Iterator[Sequence[signal.Signals]]:
    """Cancel this task at the first of these signals; yields those that came.

    Not by SIGINT, which is ignored in a program that a script runs in the background. What is
    ignored already, as SIGHUP by nohup, stays so.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came: list[signal.Signals] = []

    def take(number: signal.Signals) -> None:
        came.append(number)
        # Once: a second time would end the cleaning up.
        if len(came) == 1:
            task.cancel()

    taken = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    for number in taken:
        loop.add_signal_handler(number, take, number)
    try:
        yield came
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
