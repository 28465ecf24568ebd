"""tools: a turn with commands that is cut off anywhere; tests/long/command_points.py has more."""

from pathlib import Path

import pytest

from tests.support.harness import claim
from tests.support.host.quick_spawner import QUICK_SPAWNER
from tests.support.turn_tools.command_points import (
    ACCESS,
    POINTS,
    begin,
    check_history,
    cut_off_by_kill,
    one_end,
    reach,
    serving,
)


@pytest.fixture(autouse=True)
def quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill what ignores SIGTERM, as one of the commands does, after a moment."""
    monkeypatch.setattr("app_server.host.commands.local_commands.SPAWNER", QUICK_SPAWNER)


@claim("commands:cut-off")
@pytest.mark.parametrize("point", range(1, POINTS + 1))
async def test_an_interrupt_ends_commands_wherever_it_comes(tmp_path: Path, point: int) -> None:
    async with serving(tmp_path) as (served, client, held):
        thread_id = await client.start_thread(**ACCESS)
        turn_id = await begin(client, served.model, thread_id, held.path)
        messages = await reach(client, point)
        if messages[-1].get("method") != "turn/completed":
            await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
            messages += await client.until("turn/completed")
        assert one_end(messages, turn_id) in ("interrupted", "completed")
        await check_history(client, served.model, thread_id, held)


@claim("commands:cut-off")
@pytest.mark.parametrize("point", range(2, POINTS + 1, 4))
async def test_a_client_that_leaves_changes_nothing(tmp_path: Path, point: int) -> None:
    async with serving(tmp_path) as (served, second, held):
        async with served.client() as first:
            thread_id = await first.start_thread(**ACCESS)
            await second.call("thread/resume", {"threadId": thread_id})
            turn_id = await begin(first, served.model, thread_id, held.path)
            await reach(first, point)
        messages = await second.until("turn/completed")
        assert one_end(messages, turn_id) == "completed"
        await check_history(second, served.model, thread_id, held)


@claim("commands:cut-off")
@pytest.mark.parametrize("point", range(1, POINTS + 1, 3))
async def test_a_thread_that_is_put_away_leaves_nothing(tmp_path: Path, point: int) -> None:
    async with serving(tmp_path) as (served, client, held):
        thread_id = await client.start_thread(**ACCESS)
        turn_id = await begin(client, served.model, thread_id, held.path)
        messages = await reach(client, point)
        await served.services.sessions.unload(thread_id)
        if messages[-1].get("method") != "turn/completed":
            messages += await client.until("turn/completed")
        assert one_end(messages, turn_id) in ("interrupted", "completed")
        await client.call("thread/resume", {"threadId": thread_id})
        await check_history(client, served.model, thread_id, held)


@claim("commands:cut-off")
@pytest.mark.process
@pytest.mark.parametrize("point", [3, 9, 15, 21])
async def test_a_server_that_is_killed_leaves_nothing(tmp_path: Path, point: int) -> None:
    await cut_off_by_kill(tmp_path, point)
