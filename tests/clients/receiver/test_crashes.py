"""The bridge, the demo router or a server is killed: a signal is in the thread once."""

import os
import signal as signals
from pathlib import Path
from typing import Any

import pytest

from app_server.clients.receiver.failpoints import Step
from app_server.peer.connection import open_client
from tests.support.receiver.bridge_steps import BRIDGE_STEPS
from tests.support.receiver.peer import signal
from tests.support.receiver.processes import (
    bridge,
    left_with_router,
    post,
    router_process,
    server_process,
    states,
    times_in_log,
    until,
)
from tests.support.receiver.threads import arrived, start_thread

pytestmark = pytest.mark.process


@pytest.mark.slow
async def test_a_server_that_dies_in_between_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with (
        router_process(tmp_path) as (router, _),
        server_process(tmp_path) as (server, process),
    ):
        thread = await start_thread(server, tmp_path)
        named = ["--thread", thread["id"]]
        async with bridge(tmp_path, router=router, server=server, options=named) as texi:
            await texi.initialize()
            await post(router, signal("s1"))
            await until(lambda: states(texi.ledger) == {"s1": "injected"})
            os.kill(process.pid, signals.SIGKILL)
            await process.wait()
            await post(router, signal("s2"))
            await until(lambda: states(texi.ledger).get("s2") == "waiting")
            async with server_process(tmp_path, "--listen", server):
                await post(router, signal("s3"))
                done = dict.fromkeys(["s1", "s2", "s3"], "injected")
                await until(lambda: states(texi.ledger) == done)
                assert (await texi.call("prism_signals_pending"))["signals"] == []
                # The server's end is none of the bridge's business.
                assert await texi.leave() == 0
                async with open_client(server, "terminal") as client:
                    await client.call("thread/read", {"threadId": thread["id"]})

    assert [times_in_log(thread["path"], one) for one in ("s1", "s2", "s3")] == [1, 1, 1]


@pytest.mark.slow
async def test_a_bridge_killed_at_any_step_leaves_one_item_in_the_thread(tmp_path: Path) -> None:
    async with (
        server_process(tmp_path) as (server, _),
        router_process(tmp_path) as (router, _),
    ):
        for step in BRIDGE_STEPS:
            await _kill_at(tmp_path, server, router, step)


TWICE: list[tuple[Step, Step]] = [
    ("taken", "begun"),
    ("begun", "sent"),
    ("begun", "answered"),
    ("acked", "sent"),
    ("taken", "recorded"),
]
"""A step that leaves the signal out of the thread, and one of the next life that may not."""


@pytest.mark.slow
async def test_a_bridge_killed_twice_leaves_one_item_in_the_thread(tmp_path: Path) -> None:
    async with (
        server_process(tmp_path) as (server, _),
        router_process(tmp_path) as (router, _),
    ):
        for steps in TWICE:
            await _kill_at(tmp_path, server, router, *steps)


async def _kill_at(home: Path, server: str, router: str, *steps: Step) -> None:
    name = " then ".join(steps)
    # A server knows a signal by its id, whichever thread it went to.
    first, second = (f"{'-'.join(steps)}-{number}" for number in (1, 2))
    folder = home / name
    folder.mkdir()
    thread = await start_thread(server, folder)
    here = {"router": router, "server": server, "cwd": folder}
    await post(router, signal(first, to=name))
    for step in steps:
        async with bridge(home, name, kill_at=step, **here) as dying:  # type: ignore[arg-type]
            assert await dying.ended() == -signals.SIGKILL
    async with bridge(home, name, **here) as texi:  # type: ignore[arg-type]
        await post(router, signal(second, to=name))
        await until(lambda: states(texi.ledger) == dict.fromkeys([first, second], "injected"))
        await until(lambda: left_with_router(home, name) == [])
        await texi.initialize()
        assert (await texi.call("prism_signals_pending"))["signals"] == []
    counts = [times_in_log(thread["path"], one) for one in (first, second)]
    assert (name, counts) == (name, [1, 1])


@pytest.mark.parametrize("tool", ["prism_signals_pending", "prism_status"])
@pytest.mark.slow
async def test_a_bridge_killed_while_it_shows_a_signal_shows_it_again_and_does_not_inject_it(
    tmp_path: Path, tool: str
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    async with (
        server_process(tmp_path) as (server, _),
        router_process(tmp_path) as (router, _),
    ):
        thread = await start_thread(server, folder)
        async with bridge(tmp_path, router=router, kill_at="shown") as dying:
            await dying.initialize()
            await post(router, signal("s1"))
            await until(lambda: states(dying.ledger) == {"s1": "waiting"})
            with pytest.raises((EOFError, ConnectionError)):
                await dying.call(tool)
            assert await dying.ended() == -signals.SIGKILL
        async with bridge(tmp_path, router=router, server=server, cwd=folder) as texi:
            await texi.initialize()
            await post(router, signal("s2"))
            await until(lambda: states(texi.ledger) == {"s1": "shown", "s2": "injected"})
            shown = await texi.call("prism_signals_pending")

    assert shown["signals"] == [arrived()]
    assert [times_in_log(thread["path"], one) for one in ("s1", "s2")] == [0, 1]


@pytest.mark.parametrize(
    "step", ["router:stored", "router:sent", "router:acked", "router:forgotten"]
)
@pytest.mark.slow
async def test_a_router_killed_at_any_step_leaves_one_item_in_the_thread(
    tmp_path: Path, step: Step
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    async with server_process(tmp_path) as (server, _):
        thread = await start_thread(server, folder)
        async with router_process(tmp_path, kill_at=step) as (router, dying):
            port = int(router.rpartition(":")[2])
            async with bridge(tmp_path, router=router, server=server, cwd=folder) as texi:
                await texi.initialize()
                await texi.until_status(router="connected")
                # It may die before it says that it has the signal; a sender says it again then.
                try:
                    await post(router, signal("s1"))
                except Exception:  # noqa: BLE001
                    assert step in ("router:stored", "router:sent")
                assert await _end_of(dying) == -signals.SIGKILL
                async with router_process(tmp_path, port):
                    await post(router, signal("s1"), signal("s2"))
                    await until(
                        lambda: states(texi.ledger) == dict.fromkeys(["s1", "s2"], "injected")
                    )
                    await until(lambda: left_with_router(tmp_path, "Texi") == [])

    assert [times_in_log(thread["path"], one) for one in ("s1", "s2")] == [1, 1]


async def _end_of(process: Any) -> int:
    status: int = await process.wait()
    return status
