"""sessions: a thread whose session cannot be imported at the moment."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from app_server.config.values import Config
from app_server.runtime.loader import LoadFailed
from app_server.threads.files.store import FileStore
from app_server.turns.slot import SessionClosed
from tests.support.harness import WAIT_S, serve
from tests.support.model import Gate
from tests.support.threads.stores import created, sessions_of


async def test_a_thread_is_left_alone_while_what_runs_threads_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(work: object) -> object:
        raise LoadFailed("OSError: no disk")

    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(ephemeral=False)
        await client.turn(thread_id, "one")
    with monkeypatch.context() as broken:
        broken.setattr("app_server.sessions.loading.load", fail)
        async with serve(tmp_path) as served, served.client() as client:
            for method, params in (
                ("thread/resume", {"threadId": thread_id}),
                ("thread/fork", {"threadId": thread_id}),
                ("thread/start", {}),
            ):
                refused = await client.refusal(method, params)
                assert (refused.code, refused.data["code"]) == (-32603, "loadFailed")
                assert refused.data["detail"] == "OSError: no disk"
            assert (await client.call("thread/loaded/list", {}))["data"] == []
            broken.undo()
            await client.call("thread/resume", {"threadId": thread_id})
            await client.turn(thread_id, "two")
            assert served.model.inputs()[-1] == ("user", "two")


async def test_nothing_is_loaded_by_a_start_that_waited_while_the_server_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    async def held(work: Callable[[], object]) -> object:
        gate.reached.set()
        await gate.opened.wait()
        return work()

    monkeypatch.setattr("app_server.sessions.loading.load", held)
    store = FileStore(tmp_path)
    await store.open()
    async with anyio.create_task_group() as tasks:
        sessions = sessions_of(tmp_path, store, tasks)
        starting = asyncio.create_task(sessions.loading.start_once(created(), Config({})))
        with anyio.fail_after(WAIT_S):
            await gate.reached.wait()
            await sessions.aclose()
            gate.opened.set()
            with pytest.raises(SessionClosed):
                await starting
        assert list(sessions) == []
    await store.aclose()


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_fork_that_cannot_be_loaded_leaves_no_thread(
    tmp_path: Path, *, ephemeral: bool
) -> None:
    required = {"mcp_servers.must.command": "/no/such", "mcp_servers.must.required": True}
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(ephemeral=False)
        await client.turn(thread_id, "one")
        fork = {"threadId": thread_id, "config": required, "ephemeral": ephemeral}
        refused = await client.refusal("thread/fork", fork)
        assert (refused.code, refused.data["code"]) == (-32603, "requiredMcpServersFailed")
        listed = (await client.call("thread/list", {}))["data"]
        assert [thread["id"] for thread in listed] == [thread_id]
        assert (await client.call("thread/loaded/list", {}))["data"] == [thread_id]
        assert [path.stem for path in (tmp_path / "threads").rglob("*.jsonl")] == [thread_id]
