"""notification/list: the outbox as clients see it."""

from pathlib import Path
from typing import Any

from tests.support.harness import WireClient, claim, serve
from tests.support.notifications.receiver import Receiver, rendered


async def gauges(client: WireClient) -> dict[str, int]:
    figures: list[dict[str, Any]] = (await client.call("server/diagnostics", {}))["gauges"]
    return {
        one["name"].removeprefix("notifications."): one["value"]
        for one in figures
        if one["name"].startswith("notifications.")
    }


@claim("notifications:dead-letters")
async def test_dead_letters_are_listed_without_their_bodies(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        receiver.answers = [200, 410]
        config = rendered(**receiver.entry(tmp_path, "turnCompleted", name="mine"))
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            for text in "ab":
                await client.turn(thread_id, text)
            first, second = await receiver.distinct(2)
            found: list[dict[str, Any]] = []
            while not found:
                page = await client.call("notification/list", {"state": "dead", "limit": 5})
                found = page["data"]
            (dead,) = found
            assert page["nextCursor"] is None
            assert dead.pop("createdAtMs") <= dead.pop("endedAtMs")
            assert dead == {
                "id": second["data"]["id"],
                "receiver": "mine",
                "event": "turnCompleted",
                "threadId": thread_id,
                "state": "dead",
                "attempts": 1,
                "error": "answered 410",
            }
            page = await client.call("notification/list", {"limit": 1})
            rest = await client.call("notification/list", {"cursor": page["nextCursor"]})
            ids = [one["id"] for one in (*page["data"], *rest["data"])]
            assert ids == [second["data"]["id"], first["data"]["id"]]
            refusal = await client.refusal("notification/list", {"cursor": "x"})
            assert (refusal.code, refusal.data["code"]) == (-32600, "invalidCursor")
            counts = {"waiting": 0, "delivered": 1, "dead": 1, "unwritten": 0}
            assert await gauges(client) == counts


async def test_a_home_without_notifications_has_none(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        empty: dict[str, Any] = {"data": [], "nextCursor": None}
        assert await client.call("notification/list", {}) == empty
        assert await gauges(client) == {}
    assert not (tmp_path / "notifications").exists()
