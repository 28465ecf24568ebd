"""thread/queue/*: threads that are not loaded, restarts, disks that refuse."""

from pathlib import Path

import anyio
import pytest

from app_server.threads.files.store import FileStore
from app_server.threads.log.live import LiveThread
from protocol.log.rollout import (
    InputQueued,
    Record,
    SubmissionQueued,
)
from tests.support.harness import REQUIREMENTS, WireError, claim, serve
from tests.support.model import Gate, ScriptedModel
from tests.support.threads.queue import Queue, busy, text


@claim("queue:not-loaded")
async def test_a_thread_that_is_not_loaded_keeps_its_queue_until_it_is_resumed(
    tmp_path: Path,
) -> None:
    async with ScriptedModel().serve() as model:
        async with serve(tmp_path, model=model) as served, served.client() as client:
            queue = Queue(client, await client.start_thread())
            await client.turn(queue.thread_id, "one")
        async with serve(tmp_path, model=model) as served, served.client() as client:
            queue = Queue(client, queue.thread_id)
            two = await queue.add("two")
            await queue.add("three")
            await queue.call("update", queuedSubmissionId=two, input=text("TWO"))
            assert await queue.words() == ["TWO", "three"]
            assert await queue.refusal("start") == (
                -32600,
                "resume the thread before starting a queued message",
                {"code": "threadNotLoaded", "threadId": queue.thread_id},
            )
            assert (await client.call("thread/loaded/list", {}))["data"] == []
        async with serve(tmp_path, model=model) as served, served.client() as client:
            queue = Queue(client, queue.thread_id)
            assert await queue.words() == ["TWO", "three"]
            await client.call("thread/resume", {"threadId": queue.thread_id})
            assert [(await queue.turn())["status"] for _ in range(2)] == ["completed"] * 2
            assert await queue.messages() == [["one"], ["TWO"], ["three"]]


@claim("queue:pause")
async def test_a_pause_outlives_a_restart(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        async with serve(tmp_path, model=model) as served, served.client() as client:
            queue, gate, turn_id = await busy(served, client)
            await queue.add("two")
            await client.call("turn/interrupt", {"threadId": queue.thread_id, "turnId": turn_id})
            await queue.turn()
            gate.opened.set()
        async with serve(tmp_path, model=model) as served, served.client() as client:
            queue = Queue(client, queue.thread_id)
            await client.call("thread/resume", {"threadId": queue.thread_id})
            await client.wait_for("thread/queue/changed")
            await queue.add("three")
            await queue.call("start")
            for _ in range(2):
                await queue.turn()
            assert await queue.messages() == [["one"], ["two"], ["three"]]


@claim("queue:pause")
async def test_a_compaction_does_not_end_a_pause_and_an_interrupted_one_begins_one(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue = Queue(client, await client.start_thread())
        await client.turn(queue.thread_id, "one")
        gate = Gate()
        served.model.scripts.append([gate])
        await client.call("thread/compact/start", {"threadId": queue.thread_id})
        await gate.wait_until_reached()
        await client.call("turn/interrupt", {"threadId": queue.thread_id, "turnId": ""})
        await queue.turn()
        gate.opened.set()
        await queue.add("two")
        await client.call("thread/compact/start", {"threadId": queue.thread_id})
        assert (await queue.turn())["status"] == "completed"
        assert await queue.words() == ["two"]
        await queue.call("start")
        await queue.turn()
        assert await queue.messages() == [["one"], [], [], ["two"]]


async def test_a_server_that_stops_begins_nothing_and_keeps_what_waits(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        await queue.add("two")
        served.app.stop()
        gate.opened.set()
        assert (await queue.turn())["status"] == "completed"
        with pytest.raises(anyio.EndOfStream):
            await client.wait_for("turn/started")
    state = await FileStore(tmp_path).read(queue.thread_id)
    assert [e.client_user_message_id for e in state.queue.entries] == ["two"]
    assert [turn.status for turn in state.turns] == ["completed"]
    assert not state.queue.paused


async def test_a_disk_that_refuses_leaves_an_entry_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        append = LiveThread.append
        full = True

        async def refuse(self: LiveThread, *records: Record, sync: bool = True) -> None:
            if full and any(
                isinstance(record, SubmissionQueued | InputQueued) for record in records
            ):
                raise OSError(28, "No space left on device")
            await append(self, *records, sync=sync)

        await queue.add("two")
        monkeypatch.setattr(LiveThread, "append", refuse)
        refused = await queue.refusal("add", input=text("three"), clientUserMessageId="three")
        assert (refused[0], refused[2]["code"]) == (-32603, "storageFailed")
        gate.opened.set()
        await queue.turn()
        assert (await queue.refusal("start"))[2]["code"] == "storageFailed"
        assert await queue.words() == ["two"]
        full = False
        await queue.add("three")
        for _ in range(2):
            await queue.turn()
        assert await queue.messages() == [["one"], ["two"], ["three"]]


async def test_demands_that_cannot_be_read_hold_the_queue_and_a_warning_says_so(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue = Queue(client, await client.start_thread())
        (tmp_path / REQUIREMENTS).write_text("= nonsense")
        await queue.add("waits")
        warning = await client.wait_for("warning")
        assert warning["params"]["message"].startswith("queued input waits, as nothing may start: ")
        assert (await queue.refusal("start"))[2]["code"] == "configInvalid"
        (tmp_path / REQUIREMENTS).write_text('allowed_sandbox_modes = ["read-only"]')
        await queue.call("start")
        assert (await queue.turn())["status"] == "completed"
        assert await queue.messages() == [["waits"]]


async def test_a_queue_that_changes_while_its_thread_is_put_away_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        queue, gate, _ = await busy(served, client)
        second = Queue(other, queue.thread_id)
        await client.request("thread/archive", {"threadId": queue.thread_id})
        outcomes: list[str] = []
        for number in range(5):
            try:
                await second.add(str(number))
            except WireError as error:
                outcomes.append(error.data["code"])
            else:
                outcomes.append("queued")
        gate.opened.set()
        await client.wait_for("thread/archived")
        assert set(outcomes) <= {"queued", "threadArchived"}
        await client.call("thread/unarchive", {"threadId": queue.thread_id})
        await client.call("thread/resume", {"threadId": queue.thread_id})
        for _ in range(outcomes.count("queued")):
            await queue.turn()
        queued = [[str(n)] for n, outcome in enumerate(outcomes) if outcome == "queued"]
        assert await queue.messages() == [["one"], *queued]
