"""threads: the methods thread/* as clients use them."""

from pathlib import Path
from typing import Any

from tests.support.harness import claim, serve
from tests.support.model import Gate
from tests.support.threads.stores import CLOCK, raw


@claim("threads:started", "threads:restart")
async def test_a_restart_finds_every_thread_as_it_was(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        result = await client.call(
            "thread/start",
            {
                "model": "m1",
                "cwd": "/tmp",
                "approvalPolicy": "never",
                "sandbox": "workspace-write",
                "developerInstructions": "be kind",
                "threadSource": "user",
            },
        )
        thread = result["thread"]
        started = await client.wait_for("thread/started")
        assert started["params"]["thread"] == thread
        assert thread["id"] == thread["sessionId"]
        assert (thread["preview"], thread["turns"]) == ("", [])
        assert (thread["status"], thread["ephemeral"]) == ({"type": "idle"}, False)
        assert (thread["cliVersion"], thread["originator"]) == ("0.169.0", "test")
        assert (result["model"], result["cwd"]) == ("m1", "/tmp")
        assert result["approvalPolicy"] == "never"
        assert result["sandbox"]["type"] == "workspaceWrite"
        assert Path(thread["path"]).exists()
        await client.turn(thread["id"], "hello")
        await client.call("thread/name/set", {"threadId": thread["id"], "name": " my thread "})
        with_turns = {"threadId": thread["id"], "includeTurns": True}
        before = (await client.call("thread/read", with_turns))["thread"]
        empty = await client.start_thread()
    async with serve(tmp_path) as served, served.client() as client:
        stored = (await client.call("thread/read", with_turns))["thread"]
        gone = {"status": {"type": "notLoaded"}, "environments": None, "canAcceptDirectInput": None}
        assert stored == before | gone
        assert stored["name"] == "my thread"
        listed = (await client.call("thread/list", {}))["data"]
        assert listed == [stored | {"turns": []}]
        resumed = await client.call("thread/resume", {"threadId": thread["id"]})
        assert resumed["thread"] == before
        assert {key: resumed[key] for key in ("model", "cwd", "approvalPolicy", "sandbox")} == {
            key: result[key] for key in ("model", "cwd", "approvalPolicy", "sandbox")
        }
        usage = await client.wait_for("thread/tokenUsage/updated")
        assert usage["params"]["tokenUsage"]["total"]["totalTokens"] == 15
        await client.turn(thread["id"], "again")
        sent = served.model.items()
        assert [(item["role"], item["content"][0]["text"]) for item in sent] == [
            ("developer", "be kind"),
            ("user", "hello"),
            ("assistant", "ok"),
            ("user", "again"),
        ]
        assert (await client.call("thread/resume", {"threadId": empty}))["thread"]["id"] == empty


@claim("threads:resume-unknown", "threads:not-found")
async def test_threads_that_are_not_there_are_named_in_the_error(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        unknown = CLOCK.new_id()
        for method, params, text in (
            ("thread/resume", {}, f"no rollout found for thread id {unknown}"),
            ("thread/read", {}, f"thread not loaded: {unknown}"),
            ("thread/archive", {}, f"no rollout found for thread id {unknown}"),
            ("thread/unarchive", {}, f"no archived rollout found for thread id {unknown}"),
            ("thread/name/set", {"name": "x"}, f"no rollout found for thread id {unknown}"),
            ("thread/inject_items", {"items": [raw("x")]}, f"thread not found: {unknown}"),
            ("turn/start", {"input": []}, f"thread not found: {unknown}"),
            ("turn/steer", {"input": [], "expectedTurnId": "x"}, f"thread not found: {unknown}"),
            ("turn/interrupt", {"turnId": ""}, f"thread not found: {unknown}"),
            ("mcpServer/tool/call", {"server": "s", "tool": "t"}, f"thread not found: {unknown}"),
            ("mcpServerStatus/list", {}, f"thread not found: {unknown}"),
        ):
            error = await client.refusal(method, {"threadId": unknown, **params})
            assert (error.code, error.message) == (-32600, text)
            assert error.data == {"code": "threadNotFound", "threadId": unknown}
        assert await client.call("thread/unsubscribe", {"threadId": unknown}) == {
            "status": "notLoaded"
        }
        strange = await client.refusal("thread/resume", {"threadId": "zz"})
        assert (strange.message, strange.data["code"]) == (
            "invalid thread id: zz",
            "invalidThreadId",
        )


@claim("threads:list-filters")
async def test_lists_page_and_filter(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        names = ["one", "two", "three"]
        made = []
        for name in names:
            made.append(await client.start_thread(cwd=f"/tmp/{name}"))
            await client.turn(made[-1], f"about {name}")
        page = await client.call("thread/list", {"limit": 2})
        assert [thread["id"] for thread in page["data"]] == [made[2], made[1]]
        rest = await client.call("thread/list", {"cursor": page["nextCursor"], "limit": 0})
        assert [thread["id"] for thread in rest["data"]] == [made[0]]
        assert rest["nextCursor"] is None

        async def found(**params: Any) -> list[str]:
            result = await client.call("thread/list", params)
            return [names[made.index(thread["id"])] for thread in result["data"]]

        assert await found(searchTerm="TWO") == ["two"]
        assert await found(cwd="/tmp/three/../one") == ["one"]
        assert await found(cwd=["/tmp/one", "/tmp/two"], sortDirection="asc") == ["one", "two"]
        assert await found(modelProviders=["scripted"]) == ["three", "two", "one"]
        assert await found(modelProviders=["openai"]) == []
        assert await found(sourceKinds=["cli"]) == []
        assert await found(excludedThreadIds=made[:2]) == ["three"]
        assert await found(sectionId="x") == await found(parentThreadId=made[0]) == []
        bad = await client.refusal("thread/list", {"cursor": "zz"})
        assert (bad.code, bad.message) == (-32600, "invalid cursor: zz")
        assert bad.data == {"code": "invalidCursor", "cursor": "zz"}
        loaded = await client.call("thread/loaded/list", {"limit": 2})
        assert loaded == {"data": made[:2], "nextCursor": made[1]}
        following = await client.call("thread/loaded/list", {"cursor": made[1]})
        assert following == {"data": made[2:], "nextCursor": None}
        bad = await client.refusal("thread/loaded/list", {"cursor": "zz"})
        assert bad.message == "invalid cursor: zz"


@claim("threads:archive")
async def test_archiving_puts_a_thread_away_and_unarchiving_brings_it_back(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts.append([gate])
        await client.call(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        )
        await gate.wait_until_reached()
        here = {"threadId": thread_id}
        assert await client.call("thread/archive", here) == {}
        gate.opened.set()
        messages = await client.until("thread/archived")
        assert [
            message["params"].get("turn", message["params"]).get("status")
            for message in messages
            if message["method"] in ("turn/completed", "thread/status/changed")
        ][-3:] == [{"type": "idle"}, "interrupted", {"type": "notLoaded"}]
        archived = await other.wait_for("thread/archived")
        assert archived["params"] == here
        assert (await client.refusal("turn/start", {**here, "input": []})).message == (
            f"thread not found: {thread_id}"
        )
        refused = await client.refusal("thread/resume", here)
        assert refused.data == {"code": "threadArchived", **here}
        assert (await client.call("thread/list", {}))["data"] == []
        away = (await client.call("thread/list", {"archived": True}))["data"]
        assert [thread["id"] for thread in away] == [thread_id]
        back = await client.call("thread/unarchive", here)
        # It counts as a change, which may fall into the next second.
        assert back["thread"] == {**away[0], "updatedAt": back["thread"]["updatedAt"]}
        assert back["thread"]["updatedAt"] >= away[0]["updatedAt"]
        assert (await other.wait_for("thread/unarchived"))["params"] == here
        assert (await client.refusal("thread/unarchive", here)).message == (
            f"no archived rollout found for thread id {thread_id}"
        )
        assert (await client.call("thread/list", {}))["data"] == [back["thread"]]
