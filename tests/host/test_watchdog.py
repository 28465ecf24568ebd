"""host: the watchdog of children."""

import os
import signal

import anyio
import pytest

from app_server.host.watchdog import read_groups
from app_server.runtime.launch import Launch
from tests.support.harness import WAIT_S
from tests.support.host.exec_conversations import processes, python


def test_the_watchdog_knows_the_groups_that_are_left() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"+10\n+11\n-10\n+1")
    os.write(writer, b"2\n-99\n+13")
    os.close(writer)
    assert read_groups(reader) == {11, 12}
    os.close(reader)


async def test_a_group_that_has_ended_is_not_watched_any_more() -> None:
    async with processes() as local:
        async with local.run(python("input()")) as child:
            assert local.reaper.groups == {child.pid}
            child.write(b"\n")
            with anyio.fail_after(WAIT_S):
                await child.ended.wait()
                while local.reaper.groups:
                    await anyio.lowlevel.checkpoint()
            assert child.group_is_gone
        async with local.run(python("input()")) as child:
            assert local.reaper.groups == {child.pid}
        assert local.reaper.groups == set()


async def test_a_watchdog_that_died_is_replaced_and_knows_all_groups() -> None:
    async with processes() as local, local.run(python("input()")) as first:
        before = local.reaper.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        with anyio.fail_after(WAIT_S):
            while local.reaper.pid is not None:
                await anyio.lowlevel.checkpoint()
        async with local.run(python("input()")) as second:
            assert local.reaper.pid not in (None, before)
            # It ends what it knows when its pipe ends, as it would at our death.
            with anyio.fail_after(WAIT_S):
                await local.reaper.aclose()
                await first.ended.wait()
                await second.ended.wait()
            assert (first.returncode, second.returncode) == (-signal.SIGTERM, -signal.SIGTERM)


async def test_children_start_without_a_watchdog_where_there_can_be_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app_server.host.scripts.sys.executable", "/no/such")
    async with processes() as local, local.run(Launch("true", inherited=["PATH"])) as child:
        with anyio.fail_after(WAIT_S):
            await child.ended.wait()
        assert local.reaper.pid is None
    assert "no watchdog" in caplog.text
