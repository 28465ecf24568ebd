"""host: processes on this machine."""

import asyncio
import errno
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.runtime.launch import Launch
from tests.support.files.fifos import open_fifo_to_write
from tests.support.harness import WAIT_S
from tests.support.host.exec_conversations import PYTHON, processes, python
from tests.support.host.exec_peer import HOLD, Holders


async def test_a_process_has_pipes_a_folder_and_the_variables_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED", "ours")
    monkeypatch.setenv("HIDDEN", "ours")
    code = (
        "import os, sys; sys.stderr.write('e'); "
        "print(sys.stdin.readline().strip(), os.getcwd(), os.getpgrp() == os.getpid(), "
        "[os.environ.get(name) for name in ('PASSED', 'HIDDEN', 'GIVEN')])"
    )
    launch = Launch(
        PYTHON, ["-c", code], {"GIVEN": "g"}, ["PATH", "PASSED", "GIVEN"], str(tmp_path)
    )
    async with processes() as local, local.run(launch) as child:
        child.write(b"in\n")
        await child.drain()
        with anyio.fail_after(WAIT_S):
            said = (await child.stdout.read()).decode()
            assert await child.stderr.read() == b"e"
            await child.ended.wait()
        assert said == f"in {tmp_path} True ['ours', None, 'g']\n"
        assert child.returncode == 0


async def test_a_process_that_ignores_everything_is_killed_with_its_group(tmp_path: Path) -> None:
    code = (
        "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); "
        + HOLD
        + "[signal.pause() for _ in iter(int, 1)]"
    )
    async with processes() as local, Holders(tmp_path).watch() as holders:
        async with local.run(python(code, str(holders.path))) as child:
            child.terminate_s = 0.05
            await holders.held(2)
        assert child.returncode == -signal.SIGKILL
        await holders.ended()


async def test_pipes_that_somebody_else_holds_do_not_keep_us(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = (
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); held = open(sys.argv[1]); os.write(1, b'x'); held.read()\n"
    )
    async with processes() as local:
        with anyio.fail_after(WAIT_S):
            async with local.run(python(code, str(fifo))) as child:
                let_go = await open_fifo_to_write(fifo)
                assert await child.stdout.readexactly(1) == b"x"
                await child.ended.wait()
        assert child.returncode == 0
        os.close(let_go)


async def test_what_cannot_be_started_says_why() -> None:
    async with processes() as local:
        with pytest.raises(FileNotFoundError) as caught:
            async with local.run(Launch("/no/such")):
                raise AssertionError
        assert caught.value.errno == errno.ENOENT
        assert local.reaper.groups == set()


async def test_what_is_cancelled_while_it_starts_leaves_nothing_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.connect_write_pipe

    async def cancel_while_it_starts(*arguments: Any) -> Any:
        # The process runs, and asyncio has not connected its pipes yet.
        await holders.held(1)
        scope.cancel()
        return await connect(*arguments)

    async with processes() as local, Holders(tmp_path).watch() as holders:
        await local.reaper.ready()
        monkeypatch.setattr(loop, "connect_write_pipe", cancel_while_it_starts)
        script = f"exec 9>{holders.path}; sleep 600 & printf x >&9; wait"
        with anyio.CancelScope() as scope:
            async with local.run(Launch("sh", ["-c", script])):
                await anyio.sleep_forever()
        await holders.ended()
