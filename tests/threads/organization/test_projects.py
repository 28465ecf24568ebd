"""Projects: made, changed, moved and deleted, their threads, imports and pages."""

from pathlib import Path
from typing import Any

from app_server.threads.files.locks import WriterLock
from tests.support.harness import WireClient, claim, serve
from tests.support.threads.organization import NOBODY, listed, threads_of


async def create(client: WireClient, name: str, key: str = "", **params: Any) -> Any:
    params = {"name": name, "roots": [], "idempotencyKey": key or name, **params}
    return (await client.call("project/create", params))["project"]


@claim("projects:edit", "projects:told")
async def test_projects_are_made_changed_moved_and_deleted(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        served.client() as client,
        served.client() as other,
        served.client(experimental=False) as stable,
    ):
        roots = [{"path": "/tmp/a/../b"}]
        one = await create(client, " One ", roots=roots, metadata={"x": "y"})
        assert one == {
            "id": one["id"],
            "name": "One",
            "roots": [{"path": "/tmp/b"}],
            "metadata": {"x": "y"},
            "position": 0,
            "createdAt": one["createdAt"],
            "updatedAt": one["createdAt"],
            "recencyAt": None,
        }
        assert await create(client, "Other", key=" One ") == one
        two = await create(client, "Two")
        assert await client.call("project/read", {"projectId": two["id"]}) == {"project": two}
        assert await client.call("project/update", {"projectId": one["id"]}) == {"project": one}
        changed = await client.call(
            "project/update", {"projectId": one["id"], "name": "Eins", "roots": [], "metadata": {}}
        )
        assert changed["project"] == one | {
            "name": "Eins",
            "roots": [],
            "metadata": {},
            "updatedAt": changed["project"]["updatedAt"],
        }
        move = {"projectId": two["id"], "beforeProjectId": one["id"]}
        assert await client.call("project/move", move) == {}
        order = (await client.call("project/list", {}))["data"]
        assert [(each["id"], each["position"]) for each in order] == [
            (two["id"], 0),
            (one["id"], 1),
        ]
        await client.call("project/move", {"projectId": two["id"]})
        assert await client.call("project/delete", {"projectId": two["id"]}) == {}
        told = []
        for _ in range(6):
            params = (await other.wait_for("project/changed"))["params"]
            told.append((params["projectId"], params["changeType"]))
        assert told == [
            (one["id"], "created"),
            (two["id"], "created"),
            (one["id"], "updated"),
            (two["id"], "updated"),
            (two["id"], "updated"),
            (two["id"], "deleted"),
        ]
        gone = await client.refusal(
            "project/create", {"name": "Two", "roots": [], "idempotencyKey": "Two"}
        )
        assert (gone.code, gone.message) == (
            -32602,
            "idempotency key refers to deleted project: Two",
        )
        # Clients without the opt-in hear of threads alone.
        thread_id = await client.start_thread()
        heard = await stable.until("thread/started")
        assert [message["method"] for message in heard] == ["thread/started"]
        assert heard[0]["params"]["thread"]["id"] == thread_id


@claim("projects:refused")
async def test_what_makes_no_sense_of_projects_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        one = await create(client, "One")
        new = {"name": "x", "roots": [], "idempotencyKey": "new"}
        same = [{"path": "/a"}, {"path": "/a/"}]
        for method, params, message in (
            ("create", new | {"name": " "}, "project name must not be empty"),
            ("create", new | {"idempotencyKey": ""}, "idempotencyKey must not be empty"),
            ("create", new | {"roots": same}, "duplicate project root: /a"),
            (
                "create",
                new | {"roots": [{"path": "a"}]},
                "Invalid params: `roots.0.path`: must be an absolute path",
            ),
            (
                "create",
                new | {"name": "x" * 65_536},
                "a project must have at most 65536 characters",
            ),
            ("read", {"projectId": "nope"}, "project not found: nope"),
            ("update", {"projectId": "nope"}, "project not found: nope"),
            (
                "update",
                {"projectId": one["id"], "metadata": {"a": "x" * 65_536}},
                "a project must have at most 65536 characters",
            ),
            ("delete", {"projectId": "nope"}, "project not found: nope"),
            ("move", {"projectId": "nope"}, "project not found: nope"),
            (
                "move",
                {"projectId": one["id"], "beforeProjectId": "nope"},
                "before project not found: nope",
            ),
            (
                "move",
                {"projectId": one["id"], "beforeProjectId": one["id"]},
                f"project {one['id']} cannot be moved before itself",
            ),
            ("list", {"sortDirection": "asc"}, "sortDirection requires sortKey"),
            (
                "list",
                {"cursor": "x"},
                "invalid project cursor: malformed or mismatched sort anchor",
            ),
            ("import", new | {"threads": [NOBODY]}, f"thread not found: {NOBODY}"),
            ("import", new | {"threads": ["x"]}, "thread not found: x"),
            ("import", new | {"threads": ["x", "x"]}, "duplicate thread id: x"),
        ):
            error = await client.refusal(f"project/{method}", params)
            assert (error.code, error.message) == (-32602, message)
        assert (await client.call("project/list", {}))["data"] == [one]


@claim("projects:threads")
async def test_threads_belong_to_projects_until_these_are_deleted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        one = await create(client, "One")
        started = await client.start_thread(projectId=one["id"])
        await client.turn(started, "hi")
        (loose,) = await threads_of(client, 1)
        error = await client.refusal("thread/start", {"projectId": "nope"})
        assert (error.code, error.message) == (-32600, "project not found: nope")
        moved = {"threadId": loose, "projectId": one["id"]}
        for _ in range(2):
            answer = await client.call("thread/metadata/update", moved)
            assert answer["thread"]["projectId"] == one["id"]
        told = await other.wait_for("thread/project/updated")
        assert told["params"] == moved
        assert await listed(client, projectId=one["id"]) == [loose, started]
        assert await listed(client, projectId=None) == []
        recency = (await client.call("project/read", {"projectId": one["id"]}))["project"]
        thread = (await client.call("thread/read", {"threadId": loose}))["thread"]
        assert recency["recencyAt"] == thread["recencyAt"]
        await client.call("thread/metadata/update", {"threadId": loose, "projectId": ""})
        # The second assignment of the same project was not told: this one follows the first.
        told = await other.wait_for("thread/project/updated")
        assert told["params"] == {"threadId": loose, "projectId": None}
        assert await listed(client, projectId=None) == [loose]
        await client.call("project/delete", {"projectId": one["id"]})
        assert await listed(client, projectId=None) == [loose, started]
        thread = (await client.call("thread/read", {"threadId": started}))["thread"]
        assert thread["projectId"] is None
        for project_id, message in (
            ("", "projectId must not be empty"),
            (one["id"], f"project not found: {one['id']}"),
        ):
            error = await client.refusal("thread/list", {"projectId": project_id})
            assert (error.code, error.message) == (-32602, message)


@claim("projects:import")
async def test_an_import_takes_threads_in_and_is_made_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        a, b = await threads_of(client, 2)
        await client.call("thread/archive", {"threadId": a})
        ask = {"name": "Imp", "roots": [], "threads": [a, b], "idempotencyKey": "i"}
        made = (await client.call("project/import", ask))["project"]
        told = await client.until("thread/project/updated")
        told.append(await client.wait_for("thread/project/updated"))
        told = [each["params"] for each in told if "project" in each["method"]]
        assert told == [
            {"projectId": made["id"], "changeType": "created"},
            {"threadId": a, "projectId": made["id"]},
            {"threadId": b, "projectId": made["id"]},
        ]
        assert await listed(client, projectId=made["id"]) == [b]
        assert await listed(client, projectId=made["id"], archived=True) == [a]
        await client.call("thread/metadata/update", {"threadId": b, "projectId": ""})
        again = await client.call("project/import", ask | {"name": "Other"})
        assert again["project"]["id"] == made["id"]
        assert await listed(client, projectId=made["id"]) == []
        ask = {"name": "Both", "roots": [], "threads": [b], "idempotencyKey": "j"}
        async with served.client() as other:
            asked = [(each, await each.request("project/import", ask)) for each in (client, other)]
            both = [(await each.answer(number))["result"]["project"] for each, number in asked]
        assert both[0] == both[1]
        assert await listed(client, projectId=both[0]["id"]) == [b]


async def test_an_import_that_fails_leaves_threads_where_they_were(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        a, b = await threads_of(client, 2)
        one = await create(client, "One")
        await client.call("thread/metadata/update", {"threadId": a, "projectId": one["id"]})
    lock = WriterLock(tmp_path / "locks" / f"{b}.lock")
    async with serve(tmp_path) as served, served.client() as client:
        ask = {"name": "Imp", "roots": [], "threads": [a, b], "idempotencyKey": "i"}
        error = await client.refusal("project/import", ask)
        assert error.data["code"] == "threadBusy"
        assert await listed(client, projectId=one["id"]) == [a]
        assert [each["id"] for each in (await client.call("project/list", {}))["data"]] == [
            one["id"]
        ]
        lock.release()
        made = (await client.call("project/import", ask))["project"]
        assert await listed(client, projectId=made["id"]) == [b, a]


@claim("projects:pages")
async def test_pages_of_projects_stay_valid_while_projects_come_and_go(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        made = [await create(client, name) for name in "abcd"]
        ids = [each["id"] for each in made]
        for project_id in (ids[2], ids[0]):
            thread_id = await client.start_thread(projectId=project_id)
            await client.turn(thread_id, "hi")

        async def pages(**params: Any) -> list[str]:
            found: list[str] = []
            cursor = None
            while True:
                page = await client.call("project/list", {"limit": 1, "cursor": cursor, **params})
                found.extend(each["id"] for each in page["data"])
                cursor = page["nextCursor"]
                if cursor is None:
                    return found

        assert await pages() == ids
        assert await pages(sortKey="position", sortDirection="desc") == ids[::-1]
        assert await pages(sortKey="recencyAt") == [ids[0], ids[2], ids[3], ids[1]]
        assert await pages(sortKey="recencyAt", sortDirection="asc") == [
            ids[2],
            ids[0],
            ids[1],
            ids[3],
        ]
        page = await client.call("project/list", {"limit": 2})
        await client.call("project/delete", {"projectId": ids[1]})
        rest = await client.call("project/list", {"cursor": page["nextCursor"]})
        assert [each["id"] for each in rest["data"]] == ids[2:]
        error = await client.refusal(
            "project/list", {"cursor": page["nextCursor"], "sortKey": "recencyAt"}
        )
        assert error.data["code"] == "invalidCursor"
