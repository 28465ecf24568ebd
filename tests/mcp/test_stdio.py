"""mcp: the pipes of a server that is a process, without the rest of this server around them."""

import asyncio
import os
import sys
from pathlib import Path

import anyio
import pytest

from app_server.mcp import stdio
from app_server.mcp.catalog.config import LOCAL, StdioTransport
from app_server.mcp.stdio import ServerProcess, run_server
from app_server.mcp_wire.messages import JSONRPCRequest, JSONRPCResponse, SessionMessage
from tests.support.event_loop.turns import counted_turns
from tests.support.files.fifos import read_fifo
from tests.support.harness import WAIT_S, claim
from tests.support.host.elsewhere import machines


class Printed:
    """A process that has printed everything at once, and ended."""

    def __init__(self, output: bytes) -> None:
        self.stdout = asyncio.StreamReader(limit=2 * len(output))
        self.stdout.feed_data(output)
        self.stdout.feed_eof()
        self.stderr = asyncio.StreamReader()
        self.ended = anyio.Event()
        self.returncode: int | None = None
        self.pid: int | None = None
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


FLOOD = """
import os, select, sys
line = b'{"jsonrpc":"2.0","method":"m","params":{"data":"%b"}}\\n' % (b"x" * 900)
written, outcome = 0, "written"
os.set_blocking(1, False)
while written < 4 * 1024 * 1024:
    if not select.select([], [1], [], 0.3)[1]:
        outcome = "held back"
        break
    written += os.write(1, line)
with open(sys.argv[1], "w") as pipe:
    pipe.write(outcome)
os.set_blocking(1, True)
sys.stdin.readline()
os.write(1, b'{"jsonrpc":"2.0","id":1,"result":{}}\\n')
sys.stdin.read()
"""
"""Writes lines until nobody takes them any more, and then answers one request."""


@claim("mcp:hostile")
async def test_a_server_that_floods_is_held_back_so_that_its_answer_comes_soon(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    launch = StdioTransport(sys.executable, ["-c", FLOOD, str(pipe)]).launch(LOCAL, str(tmp_path))
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call")
    async with machines() as environments, run_server(environments, LOCAL, launch) as server:
        with anyio.fail_after(WAIT_S):
            outcome = await read_fifo(pipe)
            await server.send(SessionMessage(request))
            ahead = 0
            async for message in server:
                assert isinstance(message, SessionMessage)
                if isinstance(message.message, JSONRPCResponse):
                    break
                ahead += 1
    assert (outcome, ahead < 512) == ("held back", True)


@pytest.mark.parametrize("above", [0, 1], ids=["at-the-limit", "above"])
async def test_a_line_of_the_limit_is_read_and_a_longer_one_ends_the_server(
    above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "MAX_MESSAGE_BYTES", 100_000)
    line = b'{"jsonrpc":"2.0","method":"%b"}'
    line = line % (b"m" * (100_000 - len(line) + 2 + above))
    server = ServerProcess(Printed(b"%b\n{}\n" % line))
    received = [message async for message in server]
    assert len(received) == (0 if above else 2)


async def test_a_last_line_without_an_end_counts() -> None:
    line = b'{"jsonrpc":"2.0","method":"m"}'
    server = ServerProcess(Printed(line + b"\n" + line))
    assert len([message async for message in server]) == 2
