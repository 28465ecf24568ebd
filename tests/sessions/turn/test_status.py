"""The status of a thread whose turns fail: what clients are told, and until when."""

from pathlib import Path
from typing import Any

from tests.support.harness import WireClient, claim, serve
from tests.support.model import Gate, Refusal, says
from tests.support.turns import start_turn

FAILED = {"type": "systemError"}
IDLE = {"type": "idle"}


async def shown(client: WireClient, thread_id: str) -> list[Any]:
    """Give the status that each method shows."""
    here = {"threadId": thread_id}
    read = await client.call("thread/read", here)
    listed = await client.call("thread/list", {})
    resumed = await client.call("thread/resume", {**here, "excludeTurns": True})
    of_list = [row["status"] for row in listed["data"] if row["id"] == thread_id]
    return [read["thread"]["status"], *of_list, resumed["thread"]["status"]]


async def told(client: WireClient) -> tuple[str, list[Any]]:
    """Wait for the end of a turn; gives how it ended, and the statuses until then."""
    messages = await client.until("turn/completed")
    return messages[-1]["params"]["turn"]["status"], [
        message["params"]["status"]
        for message in messages
        if message.get("method") == "thread/status/changed"
    ]


@claim("turns:failed")
async def test_a_thread_has_failed_from_the_end_of_a_failed_turn_to_the_next_turn(
    tmp_path: Path,
) -> None:
    active = {"type": "active", "activeFlags": []}
    refusal = Refusal(400, {"error": {"message": "why"}})
    async with serve(tmp_path) as served, served.client() as client:
        gate = Gate()
        served.model.scripts += [refusal, refusal, says("good"), refusal, [gate], refusal]
        thread_id = await client.start_thread()
        for end, status in (("failed", FAILED), ("failed", FAILED), ("completed", IDLE)):
            await start_turn(client, thread_id, "go")
            assert await told(client) == (end, [active, status])
            assert await shown(client, thread_id) == [status] * 3
        await start_turn(client, thread_id, "go")
        assert await told(client) == ("failed", [active, FAILED])
        # Another thread with the same history has not failed.
        fork = await client.call("thread/fork", {"threadId": thread_id})
        assert fork["thread"]["status"] == IDLE
        await client.call("thread/name/set", {"threadId": thread_id, "name": "n"})
        assert await shown(client, thread_id) == [FAILED] * 3
        turn_id = await start_turn(client, thread_id, "go")
        await gate.wait_until_reached()
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        assert await told(client) == ("interrupted", [active, IDLE])
        await start_turn(client, thread_id, "go")
        assert await told(client) == ("failed", [active, FAILED])
    async with serve(tmp_path) as served, served.client() as client:
        resumed = await client.call("thread/resume", {"threadId": thread_id})
        assert resumed["thread"]["status"] == IDLE
