"""Readable transcript of a demo: steps with durations, messages and checks."""

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import anyio

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


async def run_demo(scenario: Callable[[Transcript, Path], Awaitable[None]]) -> int:
    """Run a demo in a folder of its own, which is removed afterwards.

    Returns the exit status: 0 only if every step was checked. A closed terminal (SIGHUP) and
    SIGTERM end it as SIGINT does, with what it has started.
    """
    _end_by_interrupt(signal.SIGHUP, signal.SIGTERM)
    transcript = Transcript()
    with tempfile.TemporaryDirectory(prefix="app-server-demo-") as folder:
        try:
            await scenario(transcript, Path(folder))
        except NotInstalled as exc:
            print_to_stderr(f"app-server demo: {exc}")
            return 1
        except anyio.EndOfStream:
            transcript.close("The demo failed: a server closed its connection, or ended.")
            return 1
        except (CheckFailed, RpcError, TimeoutError, RuntimeError, OSError) as exc:
            transcript.close(f"The demo failed: {type(exc).__name__}: {exc}")
            return 1
    transcript.close(f"All {transcript.checks} checks hold.")
    return 0


def _end_by_interrupt(*numbers: signal.Signals) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        # Once: a second interrupt would end the cleaning up.
        for number in numbers:
            loop.add_signal_handler(number, lambda: None)
        signal.raise_signal(signal.SIGINT)

    for number in numbers:
        loop.add_signal_handler(number, end)
