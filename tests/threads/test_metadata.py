"""What is stored about a thread besides what was said in it."""

from pathlib import Path
from typing import Any

from tests.support.harness import (
    claim,
    serve,
)
from tests.support.threads.metadata import NOBODY, seen


@claim("metadata:update")
async def test_what_is_given_changes_and_what_is_left_out_stays(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(daybreakEnabled=True)
        await client.turn(thread_id, "hi")
        before = (await client.call("thread/read", {"threadId": thread_id}))["thread"]

        async def update(**params: Any) -> Any:
            params = {"threadId": thread_id, **params}
            return (await client.call("thread/metadata/update", params))["thread"]

        changed = await update(gitInfo={"branch": " b ", "sha": "1"})
        assert changed == before | {"gitInfo": {"sha": "1", "branch": "b", "originUrl": None}}
        changed = await update(gitInfo={"branch": None, "originUrl": "u"}, daybreakEnabled=False)
        git = {"sha": "1", "branch": None, "originUrl": "u"}
        assert changed == before | {"gitInfo": git, "daybreakEnabled": False}
        assert await seen(client, thread_id, "gitInfo") == [git] * 3
        changed = await update(gitInfo={"sha": None, "originUrl": None})
        assert changed == before | {"daybreakEnabled": False}
        assert await seen(client, thread_id, "daybreakEnabled") == [False] * 3


@claim("metadata:refused")
async def test_metadata_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        ephemeral = await client.start_thread(ephemeral=True)
        git = {"branch": "b"}
        for params, message in (
            ({}, "thread metadata update must include at least one field"),
            ({"gitInfo": None}, "thread metadata update must include at least one field"),
            ({"gitInfo": {}}, "gitInfo must include at least one field"),
            ({"gitInfo": {"originUrl": " "}}, "gitInfo.originUrl must not be empty"),
            ({"gitInfo": {"sha": "x" * 4097}}, "gitInfo.sha must have at most 4096 characters"),
            ({"projectId": "nope"}, "project not found: nope"),
            ({"threadId": "x", "gitInfo": git}, "invalid thread id: x"),
            (
                {"threadId": NOBODY, "gitInfo": git},
                f"no rollout found for thread id {NOBODY}",
            ),
            (
                {"threadId": ephemeral, "gitInfo": git},
                f"ephemeral thread does not support metadata updates: {ephemeral}",
            ),
        ):
            error = await client.refusal(
                "thread/metadata/update", {"threadId": thread_id, **params}
            )
            assert (error.code, error.message) == (-32600, message)
        for start, message in (
            (
                {"ephemeral": True, "daybreakEnabled": False},
                "daybreakEnabled is not supported for ephemeral threads",
            ),
            ({"projectId": ""}, "projectId must not be empty"),
        ):
            error = await client.refusal("thread/start", start)
            assert (error.code, error.message) == (-32600, message)


@claim("metadata:stored")
async def test_threads_that_are_not_loaded_are_changed_in_their_logs(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
    async with serve(tmp_path) as served, served.client() as client:
        before = (await client.call("thread/read", {"threadId": thread_id}))["thread"]
        update = {"threadId": thread_id, "gitInfo": {"sha": "1"}, "daybreakEnabled": True}
        changed = (await client.call("thread/metadata/update", update))["thread"]
        git = {"sha": "1", "branch": None, "originUrl": None}
        assert changed == before | {"gitInfo": git, "daybreakEnabled": True}
        assert changed["status"] == {"type": "notLoaded"}
        assert (await client.call("thread/list", {}))["data"] == [changed]


async def test_changes_and_loads_of_one_thread_wait_for_each_other(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
    async with serve(tmp_path) as served, served.client() as one, served.client() as two:
        here = {"threadId": thread_id}
        for number in range(5):
            asked = [
                await one.request(
                    "thread/metadata/update", {**here, "gitInfo": {"sha": str(number)}}
                ),
                await one.request("thread/memoryMode/set", {**here, "mode": "disabled"}),
            ]
            resumed = await two.request("thread/resume", here)
            for answer in [await one.answer(request) for request in asked]:
                assert "error" not in answer
            assert "error" not in await two.answer(resumed)
            await two.call("thread/unsubscribe", here)
            await two.call("thread/archive", here)
            await two.call("thread/unarchive", here)
        state = await served.services.store.read(thread_id)
        assert state.metadata.git_info is not None
        assert state.metadata.git_info.sha == "4"


@claim("metadata:memory")
async def test_the_memory_mode_is_kept_and_there_are_no_memories(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        mode = {"threadId": thread_id, "mode": "disabled"}
        for _ in range(2):
            assert await client.call("thread/memoryMode/set", mode) == {}
        log = Path(str(served.services.store.shown_path(thread_id))).read_text()
        assert log.count('"type":"memoryModeChanged","mode":"disabled"') == 1
        state = await served.services.store.read(thread_id)
        assert state.metadata.memory_mode == "disabled"
        memory = await client.call("thread/memory/read", {"threadId": thread_id})
        assert memory == {"summary": None}
        error = await client.refusal("thread/memory/read", {"threadId": NOBODY})
        assert error.message == f"thread not found: {NOBODY}"
        error = await client.refusal("thread/memoryMode/set", mode | {"threadId": NOBODY})
        assert error.message == f"no rollout found for thread id {NOBODY}"
