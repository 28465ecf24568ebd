"""Commands on this machine, for tests."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from app_server.host.commands.local_commands import CommandLaunch, LocalCommand, LocalCommands
from app_server.host.commands.output import Stream
from tests.support.harness import WAIT_S

HOLD = 'exec 9>"$HELD"; printf x >&9; '
"""How a shell, and what it starts, holds the pipe of `Holders`."""


@asynccontextmanager
async def commands() -> AsyncIterator[LocalCommands]:
    """Run commands; leaving ends them."""
    all_of_them = LocalCommands()
    try:
        yield all_of_them
    finally:
        await all_of_them.aclose()


class Printed:
    """What a command printed."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Stream, bytes]] = []
        self._came = anyio.Event()

    def take(self, stream: Stream, data: bytes) -> None:
        self.pieces.append((stream, data))
        self._came.set()

    def of(self, stream: Stream) -> bytes:
        """Give all of one stream."""
        return b"".join(data for name, data in self.pieces if name == stream)

    async def more(self) -> None:
        """Wait for the next piece."""
        self._came = anyio.Event()
        await self._came.wait()

    async def until(self, text: bytes) -> None:
        """Wait until stdout has this."""
        with anyio.fail_after(WAIT_S):
            while text not in self.of("stdout"):
                await self.more()


def sh(line: str, env: dict[str, str] | None = None, cwd: str = "/", **more: Any) -> CommandLaunch:
    """Run a line in a shell with few variables."""
    variables = {"PATH": os.environ["PATH"]} | (env or {})
    return CommandLaunch(["/bin/sh", "-c", line], variables, cwd, **more)


async def finished(command: LocalCommand) -> int | None:
    """Wait for the end of a command and of all it left, and give its status."""
    with anyio.fail_after(WAIT_S):
        await command.finished.wait()
        await command.gone.wait()
    return command.returncode
