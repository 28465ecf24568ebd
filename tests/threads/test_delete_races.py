"""Requests that meet the deletion of their thread; `tests/long/delete_races.py` at length."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.threads.files.history.history import FileHistory
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.index.rebuild import LogCheck, check_log
from app_server.threads.log.live import LogClosed
from protocol.log.rollout import NameChanged
from tests.long.delete_races import REQUESTS, left_of, run_rounds
from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.threads.stores import created, listed, open_store


@claim("threads:delete-races")
@pytest.mark.slow
async def test_no_request_leaves_anything_of_a_thread_that_is_deleted(tmp_path: Path) -> None:
    outcome = await run_rounds(tmp_path, 1, random.Random(11))
    assert outcome.problems == Counter()
    assert outcome.rounds == Counter(dict.fromkeys(REQUESTS, 1))


@claim("threads:delete-races")
@pytest.mark.slow
async def test_archiving_and_resuming_often_meet_the_deletion(tmp_path: Path) -> None:
    # The likeliest to leave something, as they put the thread away or read it again.
    methods = ["thread/archive", "thread/unarchive", "thread/resume"]
    outcome = await run_rounds(tmp_path, 5, random.Random(12), methods)
    assert outcome.problems == Counter()


async def stored(client: WireClient) -> str:
    """Make a thread that lists show, and have it put away."""
    thread_id = await client.start_thread()
    await client.turn(thread_id, "a preview")
    await client.call("thread/unsubscribe", {"threadId": thread_id, "unload": True})
    return thread_id


@claim("threads:delete-races")
@pytest.mark.parametrize("method", ["thread/delete", "thread/archive", "thread/unsubscribe"])
async def test_a_thread_is_not_put_away_in_the_middle_of_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    asked, going = anyio.Event(), anyio.Event()
    ask = FileHistory.ask

    async def hold(self: FileHistory, thread_id: str, *question: Any) -> Any:
        answer = await ask(self, thread_id, *question)
        asked.set()
        await going.wait()
        return answer

    async with serve(tmp_path) as served, served.client() as first, served.client() as second:
        thread_id = await first.start_thread()
        await first.turn(thread_id, "hello")
        await first.call("thread/unsubscribe", {"threadId": thread_id})
        sessions = served.services.sessions
        monkeypatch.setattr(FileHistory, "ask", hold)
        resumed = await first.request("thread/resume", {"threadId": thread_id})
        with anyio.fail_after(WAIT_S):
            await asked.wait()
        params: dict[str, Any] = {"threadId": thread_id}
        if method == "thread/unsubscribe":
            params["unload"] = True
        other = await second.request(method, params)
        with anyio.fail_after(WAIT_S):
            # Until it has put the thread away, or waits for that.
            while sessions.find(thread_id) is not None:
                if sessions.lock(thread_id).statistics().tasks_waiting:
                    break
                await anyio.lowlevel.checkpoint()
        going.set()
        assert (await first.answer(resumed))["result"]["thread"]["id"] == thread_id
        assert "result" in await second.answer(other)
        assert sessions.find(thread_id) is None


@claim("threads:delete-races")
async def test_deleting_a_thread_that_has_a_row_and_no_log_removes_the_row(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await stored(client)
        here = {"threadId": thread_id}
        Path((await client.call("thread/read", here))["thread"]["path"]).unlink()
        assert [t["id"] for t in (await client.call("thread/list", {}))["data"]] == [thread_id]
        assert await client.call("thread/delete", here) == {}
        assert (await other.wait_for("thread/deleted"))["params"] == here
        assert await left_of(client, tmp_path, thread_id) == []
        error = await client.refusal("thread/delete", here)
        assert (error.code, error.data["code"]) == (-32600, "threadNotFound")


async def test_the_row_of_a_thread_is_written_before_its_lock_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = ThreadIndex.put

    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        thread = await store.create(created())
        await thread.append(NameChanged(at_ms=6, name="named"))
        states: list[bool] = []
        closing = store.follower.index

        def look(self: ThreadIndex, rows: Any, *, is_open: bool) -> None:
            # The other store may look at the same time what its index lacks.
            if self is closing:
                states.append((tmp_path / "locks" / f"{thread.id}.lock").exists())
            put(self, rows, is_open=is_open)

        with monkeypatch.context() as patch:
            patch.setattr(ThreadIndex, "put", look)
            await store.unload(thread)
        assert states == [True]
        await other.delete(thread.id)
        assert await listed(store) == []


async def test_nothing_is_written_to_a_thread_that_was_put_away(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await store.unload(thread)
        before = Path(store.shown_path(thread.id)).read_bytes()
        with pytest.raises(LogClosed):
            await thread.append(NameChanged(at_ms=6, name="lost"))
        assert thread.state.name is None
        assert Path(store.shown_path(thread.id)).read_bytes() == before
        await store.delete(thread.id)
        assert await listed(store) == []


async def test_a_thread_that_is_deleted_while_the_index_is_made_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(NameChanged(at_ms=6, name="named"))
        await store.unload(thread)
    for file in (tmp_path / "index").iterdir():
        file.unlink()

    def check_and_remove(path: Path) -> LogCheck:
        check = check_log(path)
        path.unlink()
        return check

    monkeypatch.setattr("app_server.threads.files.index.rebuild.check_log", check_and_remove)
    async with open_store(tmp_path) as store:
        assert await listed(store) == []
