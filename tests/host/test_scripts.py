"""host: the scripts that the server runs beside itself, started and ended whole."""

import signal
import subprocess
from functools import partial
from pathlib import Path

import anyio
import pytest

from app_server.host.commands.local_commands import Spawner, SpawnerGone
from app_server.host.reaper import Reaper
from app_server.host.sandbox.linux.process_limits import ServerGroup
from app_server.host.scripts import end_script, start_script
from tests.support.harness import WAIT_S


@pytest.fixture
def reads_its_input(tmp_path: Path) -> Path:
    script = tmp_path / "reads.py"
    script.write_text("import sys; sys.stdin.read()")
    return script


@pytest.fixture
def never_ends(tmp_path: Path) -> Path:
    script = tmp_path / "hangs.py"
    script.write_text("import signal\nwhile True: signal.pause()")
    return script


async def test_a_helper_whose_starter_is_cancelled_is_started_whole(reads_its_input: Path) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        process = await start_script(reads_its_input, stdin=subprocess.PIPE)
    assert process.returncode is None
    assert process.stdin is not None
    process.stdin.close()
    await end_script(process, WAIT_S)
    assert process.returncode == 0


async def test_a_helper_is_waited_for_by_a_cancelled_task(reads_its_input: Path) -> None:
    process = await start_script(reads_its_input, stdin=subprocess.PIPE)
    assert process.stdin is not None
    with anyio.CancelScope() as scope:
        scope.cancel()
        process.stdin.close()
        await end_script(process, WAIT_S)
    assert process.returncode == 0


async def test_a_helper_that_does_not_end_in_time_is_killed(never_ends: Path) -> None:
    process = await start_script(never_ends, stdin=subprocess.DEVNULL)
    await end_script(process, 0)
    assert process.returncode == -signal.SIGKILL


async def test_a_cancelled_first_child_leaves_no_watchdog_behind() -> None:
    reaper = Reaper()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reaper.ready)
            await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert reaper.pid is not None
    await reaper.aclose()
    assert reaper.pid is None


async def test_a_cancelled_first_command_leaves_no_spawner_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = ServerGroup()
    with anyio.CancelScope() as scope:
        # Its worker thread cancels what waits for it, and the start begins with the next step.
        monkeypatch.setattr(group, "entrance", partial(anyio.from_thread.run_sync, scope.cancel))
        spawner = Spawner(group)
        await spawner.prepare()
    assert spawner.pid is not None
    await spawner.aclose()
    assert spawner.pid is None
    with pytest.raises(SpawnerGone):
        await spawner.prepare()
