"""Sections of threads, and lists by section and project."""

from pathlib import Path
from typing import Any

from app_server.threads.organization import PINNED
from tests.support.harness import claim, serve
from tests.support.threads.organization import NOBODY, listed, threads_of


@claim("sections:edit")
async def test_sections_are_made_renamed_listed_and_deleted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        look = {"icon": "star", "color": None}
        made = [
            (await client.call("threadSection/create", params))["section"]
            for params in ({"name": " One "}, {"name": "Two", "appearance": look})
        ]
        assert [(each["name"], each["appearance"]) for each in made] == [
            ("One", None),
            ("Two", look),
        ]
        pinned = PINNED.model_dump(mode="json")
        everything = {"data": [pinned, *made], "nextCursor": None}
        assert await client.call("threadSection/list", {}) == everything
        page = await client.call("threadSection/list", {"limit": 2})
        assert page == {"data": [pinned, made[0]], "nextCursor": made[0]["id"]}
        rest = await client.call("threadSection/list", {"cursor": page["nextCursor"], "limit": 0})
        assert rest == {"data": made[1:], "nextCursor": None}
        renamed = await client.call(
            "threadSection/update", {"sectionId": made[1]["id"], "name": "Zwei"}
        )
        assert renamed == {"section": made[1] | {"name": "Zwei"}}
        plain = {"sectionId": made[1]["id"], "name": "Zwei", "appearance": None}
        assert (await client.call("threadSection/update", plain))["section"]["appearance"] is None
        assert await client.call("threadSection/delete", {"sectionId": made[0]["id"]}) == {}
        left = await client.call("threadSection/list", {})
        assert [section["name"] for section in left["data"]] == ["Pinned", "Zwei"]


@claim("sections:shown")
async def test_every_answer_with_a_thread_shows_its_section_and_project(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        (thread_id,) = await threads_of(client, 1)
        (turn,) = (await client.call("thread/turns/list", {"threadId": thread_id}))["data"]
        new = {"name": "One", "roots": [], "idempotencyKey": "one"}
        project_id = (await client.call("project/create", new))["project"]["id"]
        here = {"threadId": thread_id}
        await client.call("thread/metadata/update", here | {"projectId": project_id})
        await client.call("thread/section/move", here | {"sectionId": PINNED.id})
        (found,) = (await client.call("thread/search", {"searchTerm": "about 0"}))["data"]
        shown = [
            found["thread"],
            (await client.call("thread/resume", here))["thread"],
            (await client.call("thread/revert", here | {"beforeTurnId": turn["id"]}))["thread"],
            (await client.call("thread/read", here))["thread"],
        ]
    pinned = PINNED.model_dump(mode="json")
    filed = [(thread["section"], thread["projectId"]) for thread in shown]
    assert filed == [(pinned, project_id)] * 4


@claim("sections:refused")
async def test_what_makes_no_sense_of_sections_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        (thread_id,) = await threads_of(client, 1)
        ephemeral = await client.start_thread(ephemeral=True)
        for method, params, code, message in (
            ("threadSection/create", {"name": " "}, -32602, "section name must not be empty"),
            (
                "threadSection/create",
                {"name": "x" * 4097},
                -32602,
                "a section's name and look must have at most 4096 characters",
            ),
            (
                "threadSection/update",
                {"sectionId": "nope", "name": "x"},
                -32602,
                "thread section not found: nope",
            ),
            (
                "threadSection/update",
                {"sectionId": PINNED.id, "name": "x"},
                -32602,
                "the built-in pinned section cannot be renamed",
            ),
            (
                "threadSection/delete",
                {"sectionId": PINNED.id},
                -32602,
                "the built-in pinned section cannot be deleted",
            ),
            (
                "threadSection/delete",
                {"sectionId": "nope"},
                -32602,
                "thread section not found: nope",
            ),
            (
                "thread/section/move",
                {"threadId": thread_id, "sectionId": "nope"},
                -32600,
                "section nope does not exist",
            ),
            (
                "thread/section/move",
                {"threadId": NOBODY, "sectionId": PINNED.id},
                -32600,
                f"thread not found: {NOBODY}",
            ),
            (
                "thread/section/move",
                {"threadId": ephemeral, "sectionId": PINNED.id},
                -32600,
                f"ephemeral thread does not support section moves: {ephemeral}",
            ),
            (
                "thread/section/move",
                {"threadId": thread_id, "sectionId": None, "beforeThreadId": NOBODY},
                -32600,
                "beforeThreadId requires a non-null sectionId",
            ),
            (
                "thread/section/move",
                {"threadId": thread_id, "sectionId": PINNED.id, "beforeThreadId": thread_id},
                -32600,
                f"thread {thread_id} cannot be moved before itself",
            ),
            (
                "thread/section/move",
                {"threadId": thread_id, "sectionId": PINNED.id, "beforeThreadId": NOBODY},
                -32600,
                f"before thread {NOBODY} is not in section {PINNED.id}",
            ),
            (
                "thread/list",
                {"sortKey": "section_position"},
                -32600,
                "section-position sorting requires a section filter",
            ),
        ):
            error = await client.refusal(method, params)
            assert (error.code, error.message) == (code, message)


@claim("sections:move")
async def test_threads_keep_the_places_that_they_are_moved_to(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        a, b, c = await threads_of(client, 3)
        unused = await client.start_thread()

        async def move(thread_id: str, **params: Any) -> None:
            params = {"threadId": thread_id, "sectionId": PINNED.id, **params}
            assert await client.call("thread/section/move", params) == {}
            told = await client.wait_for("thread/section/changed")
            assert told["params"] == {"threadId": thread_id, "sectionId": params["sectionId"]}

        async def in_order(**params: Any) -> list[str]:
            return await listed(client, sectionId=PINNED.id, sortKey="section_position", **params)

        await move(a)
        await move(b)
        await move(c, beforeThreadId=b)
        await move(unused)
        assert await in_order() == [a, c, b, unused]
        assert await in_order(sortDirection="desc") == [unused, b, c, a]
        await move(b, beforeThreadId=a)
        await move(a)
        assert await in_order() == [b, c, unused, a]
        assert await listed(client, sectionId=PINNED.id) == [unused, c, b, a]
        await move(c, sectionId=None)
        assert await listed(client, sectionId=None) == [c]
        assert await listed(client, sectionId="nope") == []
        shown = (await client.call("thread/read", {"threadId": b}))["thread"]
        assert shown["section"] == PINNED.model_dump(mode="json")
        row = (await client.call("thread/list", {"searchTerm": "about 1"}))["data"][0]
        assert shown["sectionEnteredAt"] == row["sectionEnteredAt"] >= shown["createdAt"]
        page = await client.call(
            "thread/list", {"sectionId": PINNED.id, "sortKey": "section_position", "limit": 1}
        )
        await move(c, beforeThreadId=b)
        assert await in_order(cursor=page["nextCursor"]) == [unused, a]
        error = await client.refusal("thread/list", {"cursor": page["nextCursor"]})
        assert error.data["code"] == "invalidCursor"


@claim("sections:deleted")
async def test_threads_of_a_deleted_section_are_in_none(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        (thread_id,) = await threads_of(client, 1)
        made = await client.call("threadSection/create", {"name": "x"})
        section_id = made["section"]["id"]
        await client.call("thread/section/move", {"threadId": thread_id, "sectionId": section_id})
        assert await listed(client, sectionId=section_id) == [thread_id]
        await client.call("threadSection/delete", {"sectionId": section_id})
        assert await listed(client, sectionId=section_id) == []
        assert await listed(client, sectionId=None) == [thread_id]
        for shown in (
            (await client.call("thread/read", {"threadId": thread_id}))["thread"],
            (await client.call("thread/list", {}))["data"][0],
            (await client.call("thread/resume", {"threadId": thread_id}))["thread"],
        ):
            assert (shown["section"], shown["sectionEnteredAt"]) == (None, None)


@claim("threads:list-refused")
async def test_filters_that_make_no_sense_together_are_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for params, code, message in (
            (
                {"parentThreadId": NOBODY, "ancestorThreadId": NOBODY},
                -32600,
                "parentThreadId and ancestorThreadId are mutually exclusive",
            ),
            (
                {"parentThreadId": NOBODY, "attachedToThreadId": NOBODY},
                -32600,
                "attachedToThreadId cannot be combined with parentThreadId or ancestorThreadId",
            ),
            ({"parentThreadId": "x"}, -32600, "invalid parent thread id: x"),
            (
                {"includeAttachedThreads": True},
                -32600,
                "includeAttachedThreads requires a non-empty searchTerm",
            ),
            (
                {"excludedThreadIds": [NOBODY] * 101},
                -32602,
                "excludedThreadIds accepts at most 100 entries",
            ),
            ({"excludedThreadIds": ["x"]}, -32602, "invalid excluded thread id: x"),
        ):
            error = await client.refusal("thread/list", params)
            assert (error.code, error.message) == (code, message)
        assert await listed(client, attachedToThreadId=NOBODY) == []
        assert await listed(client, sourceKinds=["subAgent"]) == []
