"""host: exec server: what its commands print."""

import os
from pathlib import Path

import anyio
import anyio.lowlevel

from app_server.host.commands.local_commands import CommandLaunch, LocalCommand, LocalCommands
from app_server.host.commands.output import OnOutput, Stream
from app_server.host.exec.server.commands import run_command
from app_server.host.proxy.gate import Gate
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.permissions.sandbox.roots import read_machine_paths
from protocol.exec.processes import CommandStartParams
from protocol.turns.policy import DangerFullAccessSandboxPolicy
from tests.support.files.fifos import read_fifo
from tests.support.harness import WAIT_S

SIZE = 300_000
"""Less than a pipe holds, and more than a stream reader wants."""


class SlowMachine(LocalCommands):
    """Commands print before it is known that they were started."""

    def __init__(self, printed: Path) -> None:
        super().__init__()
        self._printed = printed
        self.read_early = 0

    async def start(
        self,
        launch: CommandLaunch,
        sandbox_policy: EffectivePolicy,
        on_output: OnOutput,
        gate: Gate | None = None,
    ) -> LocalCommand:
        is_started = False

        def take(stream: Stream, data: bytes) -> None:
            self.read_early += 0 if is_started else len(data)
            on_output(stream, data)

        command = await super().start(launch, sandbox_policy, take, gate)
        await read_fifo(self._printed)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        is_started = True
        return command


async def test_nothing_is_read_of_a_command_before_it_can_be_made_to_wait(tmp_path: Path) -> None:
    os.mkfifo(printed := tmp_path / "printed")
    machine = SlowMachine(printed)
    params = CommandStartParams(
        process_id=1,
        line=f"head -c {SIZE} /dev/zero; echo > {printed}; head -c {SIZE} /dev/zero",
        login=False,
        sandbox_policy=DangerFullAccessSandboxPolicy(),
    )
    try:
        with anyio.fail_after(WAIT_S):
            async with run_command(machine, params, read_machine_paths(str(tmp_path))) as child:
                assert len(await child.stdout.read(-1)) == 2 * SIZE
                await child.ended.wait()
        assert (machine.read_early, child.returncode) == (0, 0)
    finally:
        await machine.aclose()
