"""host: programs that clients run, and where their output goes."""

import os
from pathlib import Path

import anyio.lowlevel

from app_server.host.commands.local_commands import LocalCommands
from app_server.host.programs import Ended, Program, ProgramOrder, ProgramOutput
from app_server.permissions.sandbox.policy import UNRESTRICTED
from tests.support.files.fifos import read_fifo
from tests.support.host.commands import sh

SIZE = 300_000
"""Less than a pipe holds, and more than is sent at once."""


async def test_nothing_is_read_of_a_program_before_it_runs(tmp_path: Path) -> None:
    """What it prints until then has no bound: nothing could make it wait."""
    os.mkfifo(printed := tmp_path / "printed")
    sent: list[int] = []
    output = ProgramOutput(None, lambda stream, piece, ended: sent.append(len(piece)), lambda: 0)
    launch = sh(f"head -c {SIZE} /dev/zero; echo > {printed}; head -c {SIZE} /dev/zero")
    program = Program(
        ProgramOrder(kind="process", launch=launch, takes_input=False, timeout_s=None), output
    )
    commands = LocalCommands()
    try:
        await program.start(commands, UNRESTRICTED)
        await read_fifo(printed)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        assert (sent, output.kept("stdout")) == ([], "")
        assert await program.run() == Ended(0, has_all_output=True)
        assert sum(sent) == 2 * SIZE
    finally:
        await commands.aclose()
