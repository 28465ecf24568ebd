"""threads: items that go on behind their turn, in the log, in its pages and in copies."""

from pathlib import Path
from typing import Any

import pytest

from app_server.threads.files.writers import FileLog
from app_server.threads.log.reading import load_state
from tests.support.files.fifos import write_fifo
from tests.support.harness import WireClient, claim, serve, write_config
from tests.support.model import ScriptedModel, calls
from tests.support.processes import running
from tests.support.turn_tools.turn_commands import DELTA, SOON_MS, Desk, command, desk
from tests.support.turns import held_clocks, start_turn


async def left(at: Desk) -> dict[str, Any]:
    """Leave a command running behind its turn, and give its item as it began."""
    await at.run("mkfifo go")
    await at.go_on(command("echo up; cat go"), "up\n")
    [started] = at.items("item/started")
    return started


async def let_go(at: Desk, item_id: str) -> dict[str, Any]:
    await write_fifo(at.folder / "go", "gone\n")
    ended = await at.client.wait_for("item/completed", lambda p: p["item"]["id"] == item_id)
    item: dict[str, Any] = ended["params"]["item"]
    return item


async def paged(client: WireClient, thread_id: str) -> list[tuple[int, dict[str, Any]]]:
    """Give the command items of the pages of history, each with the number of its turn."""
    params = {"threadId": thread_id, "itemsView": "full", "sortDirection": "asc"}
    page = await client.call("thread/turns/list", params)
    return [
        (number, item)
        for number, turn in enumerate(page["data"])
        for item in turn["items"]
        if item["type"] == "commandExecution"
    ]


@claim("commands:background")
async def test_an_item_ends_in_its_own_turn_in_memory_in_pages_and_in_the_log(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as at:
        started = await left(at)
        # The index has read the log up to here.
        assert [(number, item["status"]) for number, item in await paged(at.client, at.thread_id)][
            1:
        ] == [(1, "inProgress")]
        await at.client.turn(at.thread_id, "another turn")
        completed = await let_go(at, started["id"])
        assert completed["aggregatedOutput"] == "up\ngone\n"
        assert (await paged(at.client, at.thread_id))[1:] == [(1, completed)]
        assert (await at.stored())[1:] == [completed]
        session = at.served.services.sessions.find(at.thread_id)
        assert session is not None
        live = session.log.state
        assert live.unfinished == {}
        [path] = at.served.home.glob(f"threads/**/*{at.thread_id}.jsonl")
        assert load_state(FileLog(path)) == live


@claim("commands:background")
async def test_an_end_outlives_a_revert_of_the_turn_it_came_in(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        started = await left(at)
        turn = await at.client.turn(at.thread_id, "dropped")
        completed = await let_go(at, started["id"])
        session = at.served.services.sessions.find(at.thread_id)
        assert session is not None
        await session.revert(turn["id"])
        assert (await at.stored())[1:] == [completed]
        assert (await paged(at.client, at.thread_id))[1:] == [(1, completed)]
        assert session.log.state.unfinished == {}


@claim("commands:background")
async def test_a_copy_of_a_thread_has_no_command_that_runs(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        started = await left(at)
        forked = await at.client.call("thread/fork", {"threadId": at.thread_id})
        [_, copied] = await paged(at.client, forked["thread"]["id"])
        assert (copied[1]["id"], copied[1]["status"], copied[1]["exitCode"]) == (
            started["id"],
            "failed",
            -1,
        )
        completed = await let_go(at, started["id"])
        forked = await at.client.call("thread/fork", {"threadId": at.thread_id})
        assert (await paged(at.client, forked["thread"]["id"]))[1:] == [(1, completed)]


@claim("commands:background")
@pytest.mark.process
async def test_a_server_that_was_killed_completes_what_it_left_running(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with running(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread(
                cwd=str(tmp_path), sandbox="danger-full-access", approvalPolicy="never"
            )
            line = command("echo up; sleep 1000", yield_time_ms=SOON_MS)
            model.scripts[:] = [calls({"call_id": "c", **line})]
            async with held_clocks(client, thread_id):
                await start_turn(client, thread_id, "go")
                assert (await client.wait_for(DELTA))["params"]["delta"] == "up\n"
            await client.wait_for("turn/completed")
            server.process.kill()
            await server.ended()
        async with serve(tmp_path, model=model) as served, served.client() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            [(number, item)] = await paged(client, thread_id)
            assert (number, item["status"], item["exitCode"], item["aggregatedOutput"]) == (
                0,
                "failed",
                -1,
                "up\n",
            )
