"""mcp: the pipes of a server that is a process, without the rest of this server around them."""

import asyncio

import anyio
import pytest

from app_server.mcp.stdio import ServerProcess
from tests.support.event_loop.turns import counted_turns


class Printed:
    """A process that has printed everything at once, and ended."""

    def __init__(self, output: bytes) -> None:
        self.stdout = asyncio.StreamReader(limit=2 * len(output))
        self.stdout.feed_data(output)
        self.stdout.feed_eof()
        self.stderr = asyncio.StreamReader()
        self.ended = anyio.Event()
        self.returncode: int | None = None
        self.unsent_bytes = 0

    def write(self, data: bytes, /) -> None:
        """Take input that nobody reads."""

    async def drain(self) -> None:
        """Wait for nothing."""


@pytest.mark.parametrize(
    ("line", "lines", "received"),
    [
        (b'{"jsonrpc":"2.0","method":"m"}', 5_000, 5_000),
        (b"{}", 5_000, 5_000),
        (b"", 50_000, 0),
    ],
)
async def test_others_run_while_very_many_lines_of_a_server_are_read(
    line: bytes, lines: int, received: int
) -> None:
    server = ServerProcess(Printed((line + b"\n") * lines))
    async with counted_turns() as turns:
        count = len([message async for message in server])
    assert (count, turns.count > 10) == (received, True)
