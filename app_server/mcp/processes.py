"""The port for processes; `Environments` (app_server/host/environments.py) implements it."""

import asyncio
from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio

from app_server.runtime.launch import Launch

MAX_OUTPUT_BYTES = 64 * 1024
"""Of what one server wrote to stderr and logged; the newest stays."""


class ServerOutput:
    """What one server wrote to stderr, and messages of its log; kept in memory."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._is_cut = False

    def add(self, piece: bytes) -> None:
        """Keep a piece; of what is above the bound together the oldest bytes go."""
        self._pieces.append(piece)
        self._size += len(piece)
        while (excess := self._size - MAX_OUTPUT_BYTES) > 0:
            oldest = self._pieces.popleft()
            self._is_cut = True
            if len(oldest) > excess:
                self._pieces.appendleft(oldest[excess:])
            self._size -= min(len(oldest), excess)

    def text(self) -> str:
        """Return it as it was written, from the first whole line on; it may hold secrets."""
        text = b"".join(self._pieces).decode(errors="replace")
        return text.partition("\n")[2] if self._is_cut else text


class ChildProcess(Protocol):
    """A process with pipes, on this machine or on another."""

    @property
    def pid(self) -> int | None:
        """Id of the process; None if it is not one of this machine."""

    @property
    def stdout(self) -> asyncio.StreamReader:
        """The stream of its stdout; at EOF when the process has ended, or is out of reach."""

    @property
    def stderr(self) -> asyncio.StreamReader:
        """The stream of its stderr."""

    @property
    def ended(self) -> anyio.Event:
        """Set when the process has ended, or is out of reach."""

    @property
    def returncode(self) -> int | None:
        """Exit status, or the negative number of a signal; None while that is not known."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of input that have not been handed on yet."""

    def write(self, data: bytes, /) -> None:
        """Queue input, as a whole; never waits."""

    async def drain(self) -> None:
        """Wait until most of the input has been handed on; cancelling takes nothing back.

        Raises:
            OSError: the process takes no more.
        """


class Processes(Protocol):
    """Starts processes, and opens connections, in environments."""

    def has(self, environment_id: str) -> bool:
        """Whether this environment is known."""

    def instance_of(self, environment_id: str) -> str | None:
        """Return an id that changes when the environment is another one; None if it is unknown."""

    async def wait_until_reachable(self, environment_id: str) -> None:
        """Wait until a known environment can be reached; tries to, ever more rarely."""

    def run(self, environment_id: str, launch: Launch) -> AbstractAsyncContextManager[ChildProcess]:
        """Run a process there for as long as the context lasts; leaving ends it.

        Raises:
            ConnectionError: the environment is out of reach; this may pass by itself.
            OSError: the process cannot be started.
        """

    def open_connection(
        self, environment_id: str, host: str, port: int
    ) -> AbstractAsyncContextManager[ChildProcess]:
        """Connect to a server of an environment that is not this machine, while the context lasts.

        What comes from it is stdout. Leaving ends it.

        Raises:
            ConnectionError: without an `errno`: the environment is out of reach.
            OSError: nobody listens there.
        """
