"""What of a thread is unread."""

from pathlib import Path
from typing import Any

from tests.support.harness import WireClient, claim, serve
from tests.support.model import Gate, Refusal
from tests.support.threads.metadata import USER_INPUT


async def read_state(client: WireClient, thread_id: str) -> Any:
    """Return a thread's read state, which lists show as well."""
    read = (await client.call("thread/read", {"threadId": thread_id}))["readState"]
    listed = await client.call("thread/list", {})
    assert listed["readStates"][thread_id] == read
    return read


@claim("unread:turns")
async def test_what_a_turn_said_is_unread_from_its_end_on(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        served.client() as client,
        served.client(experimental=False) as stable,
    ):
        thread_id = await client.start_thread()
        await stable.call("thread/resume", {"threadId": thread_id})
        unread = await client.call("thread/read", {"threadId": thread_id})
        assert unread["readState"] is None
        stopped = Gate()
        served.model.scripts.append([stopped])
        turn = await client.call("turn/start", {"threadId": thread_id, "input": USER_INPUT})
        await stopped.wait_until_reached()
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": turn["turn"]["id"]})
        told = await client.until("turn/completed")
        assert "thread/readState/changed" not in [message.get("method") for message in told]
        initial = {"firstUnread": None, "revision": f"initial:{thread_id}"}
        assert await read_state(client, thread_id) == initial
        served.model.scripts.append(Refusal(400, {"error": {"message": "no"}}))
        failed = await client.turn(thread_id, "fails")
        state = await read_state(client, thread_id)
        assert state["firstUnread"] == {"type": "turn", "turnId": failed["id"]}
        await client.call("turn/start", {"threadId": thread_id, "input": USER_INPUT})
        told = await client.until("turn/completed")
        marks = [
            each["params"] for each in told if each.get("method") == "thread/readState/changed"
        ]
        later = await read_state(client, thread_id)
        assert marks == [{"threadId": thread_id, "readState": later}]
        assert later["firstUnread"] == state["firstUnread"]
        assert later["revision"] != state["revision"]
        # Clients without the opt-in hear of turns, and not of what is unread.
        heard = [await stable.until("turn/completed") for _ in range(3)]
        assert "thread/readState/changed" not in [
            message.get("method") for messages in heard for message in messages
        ]
        shown = await stable.call("thread/read", {"threadId": thread_id})
        assert list(shown) == ["thread"]


@claim("unread:update")
async def test_a_read_state_changes_only_from_the_one_that_the_user_saw(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        seen_state = await read_state(client, thread_id)

        async def update(kind: str, revision: str) -> Any:
            params = {
                "threadId": thread_id,
                "operation": {"type": kind},
                "expectedRevision": revision,
            }
            return await client.call("thread/readState/update", params)

        unread = (await update("unread", seen_state["revision"]))["readState"]
        assert unread["firstUnread"] == {"type": "threadStart"}
        told = await client.wait_for("thread/readState/changed")
        assert told["params"] == {"threadId": thread_id, "readState": unread}
        await client.turn(thread_id, "more")
        still = await read_state(client, thread_id)
        assert still["firstUnread"] == {"type": "threadStart"}
        params = {
            "threadId": thread_id,
            "operation": {"type": "read"},
            "expectedRevision": unread["revision"],
        }
        error = await client.refusal("thread/readState/update", params)
        assert (error.code, error.message) == (-32600, "read state changed")
        assert error.data == {
            "code": "readStateConflict",
            "reason": "readStateConflict",
            "readState": still,
        }
        read = (await update("read", still["revision"]))["readState"]
        assert read["firstUnread"] is None
        assert await read_state(client, thread_id) == read
        ephemeral = await client.start_thread(ephemeral=True)
        error = await client.refusal("thread/readState/update", params | {"threadId": ephemeral})
        assert error.message == "thread read state unavailable"
        # Only subscribers hear of it: the other client is told of the thread's end first.
        await client.call("thread/archive", {"threadId": thread_id})
        heard = [message["method"] for message in await other.until("thread/archived")]
        assert "thread/readState/changed" not in heard
