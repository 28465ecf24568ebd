"""Attachments of threads, their owners and bounds."""

import time
from pathlib import Path

import pytest

from tests.support.harness import claim, serve
from tests.support.threads.organization import NOBODY, threads_of


@claim("attachments:add", "attachments:owners")
async def test_attachments_are_added_once_and_their_owners_found(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        served.client() as client,
        served.client(experimental=False) as other,
    ):
        a, b = await threads_of(client, 2)
        began_s = int(time.time())
        ask = {"threadId": a, "attachmentType": "pr", "identityKey": "k", "payload": {"n": 1}}
        made = await client.call("thread/attachment/add", ask)
        attachment = made["attachment"]
        assert made == {
            "outcome": "created",
            "attachment": {
                "id": attachment["id"],
                "attachmentType": "pr",
                "identityKey": "k",
                "payload": {"n": 1},
                "createdAt": attachment["createdAt"],
            },
        }
        assert began_s <= attachment["createdAt"] <= time.time()
        again = await client.call("thread/attachment/add", ask | {"payload": 2})
        assert again == {"outcome": "existing", "attachment": attachment}
        more = await client.call("thread/attachment/add", ask | {"identityKey": "l"})
        await client.call("thread/attachment/add", ask | {"threadId": b, "payload": None})
        first = await client.call("thread/attachment/list", {"threadId": a, "limit": 1})
        assert first["data"] == [attachment]
        rest = await client.call(
            "thread/attachment/list", {"threadId": a, "cursor": first["nextCursor"]}
        )
        assert rest == {"data": [more["attachment"]], "nextCursor": None}
        assert await client.call("thread/attachment/list", {"threadId": NOBODY}) == {
            "data": [],
            "nextCursor": None,
        }
        names = {"attachmentType": "pr", "identityKey": "k"}
        await client.call("thread/archive", {"threadId": a})
        page = await client.call("thread/attachmentOwner/list", names | {"limit": 1})
        assert page["data"] == [{"threadId": a, "archived": True}]
        rest = await client.call(
            "thread/attachmentOwner/list", names | {"cursor": page["nextCursor"]}
        )
        assert rest == {"data": [{"threadId": b, "archived": False}], "nextCursor": None}
        active = await client.call("thread/attachmentOwner/list", names | {"archived": False})
        assert active == rest
        for _ in range(2):
            assert await client.call("thread/attachment/remove", names | {"threadId": a}) == {}
        left = await client.call("thread/attachmentOwner/list", names)
        assert left == rest
        stored = await client.call("thread/attachment/list", {"threadId": a})
        assert stored["data"] == [more["attachment"]]
        told = [(await other.wait_for("thread/attachment/updated"))["params"] for _ in range(4)]
        assert [(each["threadId"], each["identityKey"], each["operation"]) for each in told] == [
            (a, "k", "created"),
            (a, "l", "created"),
            (b, "k", "created"),
            (a, "k", "deleted"),
        ]


@claim("attachments:bounds")
async def test_attachments_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.handlers.organization.attachments.MAX_ATTACHMENTS", 3)
    async with serve(tmp_path) as served, served.client() as client:
        (thread_id,) = await threads_of(client, 1)
        ephemeral = await client.start_thread(ephemeral=True)
        ask = {"threadId": thread_id, "attachmentType": "t", "identityKey": "k", "payload": 1}
        for change, message in (
            ({"attachmentType": ""}, "attachmentType must not be empty"),
            ({"identityKey": ""}, "identityKey must not be empty"),
            ({"identityKey": "x" * 1025}, "identityKey must have at most 1024 characters"),
            ({"payload": "x" * 65_536}, "attachment payload must not exceed 65536 bytes"),
            ({"threadId": NOBODY}, f"thread not found: {NOBODY}"),
            ({"threadId": ephemeral}, f"thread not found: {ephemeral}"),
        ):
            error = await client.refusal("thread/attachment/add", ask | change)
            assert (error.code, error.message) == (-32602, message)
        for number in range(3):
            big = {"identityKey": str(number), "payload": "x" * 60_000}
            await client.call("thread/attachment/add", ask | big)
        error = await client.refusal("thread/attachment/add", ask)
        assert error.message == "the thread has 3 attachments already"
        monkeypatch.setattr("app_server.handlers.organization.attachments.MAX_LIST_BYTES", 100_000)
        page = await client.call("thread/attachment/list", {"threadId": thread_id})
        assert [each["identityKey"] for each in page["data"]] == ["0"]
        error = await client.refusal(
            "thread/attachment/list", {"threadId": thread_id, "cursor": "zz"}
        )
        assert error.message == "invalid cursor: zz"
