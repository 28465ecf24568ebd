"""thread/queue/*: order, changes, pauses, repeated requests, bounds, stored threads."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.threads.log.live import LiveThread
from app_server.threads.log.state.queue import (
    MAX_ENTRIES,
    MAX_ENTRY_BYTES,
    MAX_QUEUE_BYTES,
    MAX_REMEMBERED,
    QueueRefusal,
    QueueState,
    adding,
    changing,
    removing,
    reordering,
    size_of,
)
from app_server.threads.log.state.thread import replay
from app_server.threads.store import ThreadStore
from protocol.items import TextUserInput, UserMessageThreadItem
from protocol.rollout import (
    InputQueued,
    InputTaken,
    Record,
    SubmissionQueued,
    SubmissionTaken,
    parse_record,
)
from tests.support.harness import (
    REQUIREMENTS,
    Gate,
    Refusal,
    ScriptedModel,
    Served,
    WireClient,
    WireError,
    claim,
    methods_of,
    says,
    serve,
)


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


class Queue:
    """The queue of one thread, over one client."""

    def __init__(self, client: WireClient, thread_id: str) -> None:
        self.client = client
        self.thread_id = thread_id

    async def call(self, verb: str, **params: Any) -> Any:
        return await self.client.call(
            f"thread/queue/{verb}", {"threadId": self.thread_id, **params}
        )

    async def refusal(self, verb: str, **params: Any) -> tuple[int, str, Any]:
        error = await self.client.refusal(
            f"thread/queue/{verb}", {"threadId": self.thread_id, **params}
        )
        return error.code, error.message, error.data

    async def add(self, words: str, client_id: str | None = None, **params: Any) -> str:
        answer = await self.call(
            "add",
            input=text(words),
            clientUserMessageId=words if client_id is None else client_id,
            **params,
        )
        submission_id: str = answer["queuedSubmission"]["id"]
        return submission_id

    async def words(self) -> list[str]:
        page = await self.call("list", limit=100)
        return [entry["input"][0]["text"] for entry in page["data"]]

    async def turn(self) -> dict[str, Any]:
        """Wait for the end of a turn and return it."""
        end = await self.client.wait_for("turn/completed")
        turn: dict[str, Any] = end["params"]["turn"]
        return turn

    async def messages(self) -> list[list[str]]:
        """Return what the user said, turn by turn."""
        thread = await self.client.call(
            "thread/read", {"threadId": self.thread_id, "includeTurns": True}
        )
        return [
            [item["content"][0]["text"] for item in turn["items"] if item["type"] == "userMessage"]
            for turn in thread["thread"]["turns"]
        ]


async def busy(served: Served, client: WireClient) -> tuple[Queue, Gate, str]:
    """Start a thread with a turn that stands at a gate."""
    queue = Queue(client, await client.start_thread())
    gate = Gate()
    script = says("first")
    served.model.scripts.append([*script[:2], gate, *script[2:]])
    answer = await client.call("turn/start", {"threadId": queue.thread_id, "input": text("one")})
    await gate.wait_until_reached()
    return queue, gate, answer["turn"]["id"]


@claim("queue:order", "queue:events")
async def test_queued_inputs_become_a_turn_each_in_their_order(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        assert await queue.call("list") == {"data": [], "nextCursor": None}
        answer = await queue.call("add", input=text("two"), clientUserMessageId="c2")
        first = answer["queuedSubmission"]
        assert first == {
            "id": first["id"],
            "input": [{"type": "text", "text": "two", "text_elements": []}],
            "clientUserMessageId": "c2",
            "responsesapiClientMetadata": None,
        }
        await queue.add("three", responsesapiClientMetadata={"trace": "t3"})
        assert await queue.words() == ["two", "three"]
        gate.opened.set()
        await queue.turn()
        told = await client.until("turn/completed")
        assert methods_of(told) == [
            "thread/queue/changed",
            "thread/status/changed",
            "turn/started",
            "item/started",
            "item/completed",
            "item/started",
            "item/agentMessage/delta",
            "item/completed",
            "thread/tokenUsage/updated",
            "thread/readState/changed",
            "thread/status/changed",
            "turn/completed",
        ]
        assert told[0]["params"] == {"threadId": queue.thread_id}
        assert told[4]["params"]["item"]["clientId"] == "c2"
        assert (await queue.turn())["status"] == "completed"
        assert await queue.messages() == [["one"], ["two"], ["three"]]
        assert await queue.words() == []
        sent = [request.get("client_metadata") for request in served.model.requests]
        assert sent == [None, None, {"trace": "t3"}]


@claim("queue:wakes")
async def test_input_for_an_idle_thread_starts_a_turn_at_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue = Queue(client, await client.start_thread())
        await client.request(
            "thread/queue/add",
            {"threadId": queue.thread_id, "input": text("go"), "clientUserMessageId": "c"},
        )
        told = methods_of(await client.until("turn/completed"))
        assert told[:4] == [
            "answer",
            "thread/queue/changed",
            "thread/queue/changed",
            "thread/status/changed",
        ]
        assert await queue.messages() == [["go"]]


@claim("queue:changes")
async def test_waiting_inputs_are_changed_removed_and_put_into_another_order(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        a = await queue.add("a", responsesapiClientMetadata={"k": "v"})
        b, c = await queue.add("b"), await queue.add("c")
        changed = await queue.call("update", queuedSubmissionId=a, input=text("A"))
        assert changed["queuedSubmission"] == {
            "id": a,
            "input": [{"type": "text", "text": "A", "text_elements": []}],
            "clientUserMessageId": "a",
            "responsesapiClientMetadata": {"k": "v"},
        }
        assert await queue.call("reorder", queuedSubmissionIds=[c, a, b]) == {}
        assert await queue.words() == ["c", "A", "b"]
        assert await queue.call("delete", queuedSubmissionId=b) == {"deleted": True}
        assert await queue.call("delete", queuedSubmissionId=b) == {"deleted": False}
        incomplete = (
            -32600,
            "queue reorder must include every queued submission exactly once",
            {"code": "queueOrderIncomplete", "threadId": queue.thread_id},
        )
        for order in ([c], [c, c], [c, a, a], [c, a, "x"], []):
            assert await queue.refusal("reorder", queuedSubmissionIds=order) == incomplete
        gate.opened.set()
        for _ in range(3):
            await queue.turn()
        assert await queue.messages() == [["one"], ["c"], ["A"]]


@claim("queue:taken")
async def test_what_has_become_a_turn_can_no_longer_be_changed(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue = Queue(client, await client.start_thread())
        gate = Gate()
        served.model.scripts.append([gate, *says("ok")])
        taken = await queue.add("go")
        await gate.wait_until_reached()
        missing = (
            -32600,
            f"queued submission not found: {taken}",
            {
                "code": "queuedSubmissionNotFound",
                "threadId": queue.thread_id,
                "queuedSubmissionId": taken,
            },
        )
        assert await queue.refusal("update", queuedSubmissionId=taken, input=text("x")) == missing
        assert await queue.refusal("start", queuedSubmissionId=taken) == missing
        assert await queue.call("delete", queuedSubmissionId=taken) == {"deleted": False}
        gate.opened.set()
        await queue.turn()
        assert await queue.messages() == [["go"]]


@claim("queue:pause")
async def test_an_interrupt_pauses_the_queue_until_a_turn_is_started(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, turn_id = await busy(served, client)
        await queue.add("two")
        await client.call("turn/interrupt", {"threadId": queue.thread_id, "turnId": turn_id})
        assert (await queue.turn())["status"] == "interrupted"
        gate.opened.set()
        await queue.add("three")
        assert await queue.words() == ["two", "three"]
        await client.call("turn/start", {"threadId": queue.thread_id, "input": text("direct")})
        for _ in range(3):
            assert (await queue.turn())["status"] == "completed"
        assert await queue.messages() == [["one"], ["direct"], ["two"], ["three"]]


@claim("queue:start")
async def test_a_paused_queue_is_started_with_the_entry_that_is_named(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, turn_id = await busy(served, client)
        await queue.add("two")
        chosen = await queue.add("three")
        active = "thread already has an active or pending turn"
        assert (await queue.refusal("start"))[1] == active
        assert (await queue.refusal("start", queuedSubmissionId=chosen))[1] == active
        await client.call("turn/interrupt", {"threadId": queue.thread_id, "turnId": turn_id})
        await queue.turn()
        gate.opened.set()
        started = (await queue.call("start", queuedSubmissionId=chosen))["turn"]
        assert started["status"] == "inProgress"
        first, second = await queue.turn(), await queue.turn()
        assert (first["id"], second["status"]) == (started["id"], "completed")
        assert await queue.messages() == [["one"], ["three"], ["two"]]
        assert await queue.refusal("start") == (
            -32600,
            "queue is empty",
            {"code": "queueEmpty", "threadId": queue.thread_id},
        )


@claim("queue:failure")
async def test_a_failed_turn_does_not_hold_up_the_next(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        served.model.scripts.append(Refusal(400))
        await queue.add("fails")
        await queue.add("works")
        gate.opened.set()
        ends = [(await queue.turn())["status"] for _ in range(3)]
        assert ends == ["completed", "failed", "completed"]
        assert await queue.messages() == [["one"], ["fails"], ["works"]]


@claim("queue:repeated")
async def test_an_input_that_is_sent_twice_becomes_one_turn(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        first = await queue.add("two", "same")
        assert await queue.add("two", "same") == first
        used = await queue.refusal("add", input=text("other"), clientUserMessageId="same")
        assert used == (
            -32600,
            "clientUserMessageId was used with another input: same",
            {
                "code": "clientUserMessageIdUsed",
                "threadId": queue.thread_id,
                "clientUserMessageId": "same",
            },
        )
        # No id is no identity.
        assert await queue.add("x", "") != await queue.add("x", "")
        gate.opened.set()
        for _ in range(4):
            await queue.turn()
        assert await queue.add("two", "same") == first
        assert (await queue.refusal("add", input=text("o"), clientUserMessageId="same"))[:2] == (
            used[:2]
        )
        assert await queue.messages() == [["one"], ["two"], ["x"], ["x"]]
        assert await queue.words() == []


@claim("queue:pages")
async def test_the_queue_is_paged_by_place(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        for number in range(27):
            await queue.add(str(number))
        page = await queue.call("list")
        assert (len(page["data"]), page["nextCursor"]) == (25, "25")
        rest = await queue.call("list", cursor="25")
        assert [e["input"][0]["text"] for e in rest["data"]] == ["25", "26"]
        assert rest["nextCursor"] is None
        assert len((await queue.call("list", limit=0))["data"]) == 1
        for cursor in ("bad", "-1", "²", "9" * 20):
            assert await queue.refusal("list", cursor=cursor) == (
                -32600,
                f"invalid queue pagination cursor: {cursor}",
                {"code": "invalidCursor", "cursor": cursor},
            )
        for entry in (await queue.call("list", limit=100))["data"]:
            await queue.call("delete", queuedSubmissionId=entry["id"])
        # Two of these do not fit into one answer.
        await queue.add("l" * 600_000, "l1")
        await queue.add("l" * 600_000, "l2")
        assert (await queue.call("list"))["nextCursor"] == "1"
        gate.opened.set()
        await queue.turn()


@claim("queue:bounds")
async def test_a_full_queue_and_an_input_that_is_too_large_are_refused_by_name(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, turn_id = await busy(served, client)
        for number in range(MAX_ENTRIES):
            await queue.add(str(number))
        assert await queue.refusal("add", input=text("x"), clientUserMessageId="x") == (
            -32600,
            "queue cannot contain more than 100 submissions",
            {"code": "queueFull", "threadId": queue.thread_id, "maxSubmissions": 100},
        )
        # What is there already is not refused.
        assert await queue.add("7") == await queue.add("7")
        empty = (
            -32600,
            "only user input can be added to the user-message queue",
            {"code": "emptySubmission"},
        )
        assert await queue.refusal("add", input=[], clientUserMessageId="x") == empty
        assert await queue.refusal("update", input=[], queuedSubmissionId="x") == empty
        first = (await queue.call("list", limit=1))["data"][0]["id"]
        large = text("l" * MAX_ENTRY_BYTES)
        assert await queue.refusal("update", input=large, queuedSubmissionId=first) == (
            -32600,
            f"a queued submission cannot have more than {MAX_ENTRY_BYTES} bytes",
            {
                "code": "queuedSubmissionTooLarge",
                "threadId": queue.thread_id,
                "maxBytes": MAX_ENTRY_BYTES,
            },
        )
        long = text("l" * 1_048_577)
        code, _, data = await queue.refusal("add", input=long, clientUserMessageId="x")
        assert (code, data["field"]) == (-32602, "input")
        await client.call("turn/interrupt", {"threadId": queue.thread_id, "turnId": turn_id})
        await queue.turn()
        gate.opened.set()
        assert len(await queue.words()) == MAX_ENTRIES


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
    state = await ThreadStore(tmp_path).read(queue.thread_id)
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


@claim("queue:where")
async def test_threads_without_a_queue_say_so(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for thread_id, told in (
            ("01a1fd64-23eb-7893-8e05-e123f87ca8fc", "threadNotFound"),
            ("zzz", "invalidThreadId"),
        ):
            queue = Queue(client, thread_id)
            refusals = [
                await queue.refusal("add", input=text("x"), clientUserMessageId="x"),
                await queue.refusal("list"),
                await queue.refusal("start"),
                await queue.refusal("delete", queuedSubmissionId="x"),
            ]
            assert [(code, data["code"]) for code, _, data in refusals] == [(-32600, told)] * 4
        ephemeral = Queue(client, await client.start_thread(ephemeral=True))
        refused = await ephemeral.refusal("add", input=text("x"), clientUserMessageId="x")
        assert refused[1:] == (
            f"ephemeral thread does not support queued submissions: {ephemeral.thread_id}",
            {"code": "ephemeralThread", "threadId": ephemeral.thread_id},
        )
        queue = Queue(client, await client.start_thread())
        await client.turn(queue.thread_id, "one")
        await client.call("thread/archive", {"threadId": queue.thread_id})
        for verb, params in (
            ("add", {"input": text("x"), "clientUserMessageId": "x"}),
            ("list", {}),
            ("start", {}),
        ):
            assert (await queue.refusal(verb, **params))[2]["code"] == "threadArchived"


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


@pytest.mark.slow
async def test_a_queue_of_many_clients_keeps_every_entry_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        queue = Queue(client, await client.start_thread())
        await other.call("thread/resume", {"threadId": queue.thread_id})
        second = Queue(other, queue.thread_id)
        for number in range(5):
            await queue.add(f"a{number}")
            await second.add(f"b{number}")
        ends = [(await queue.turn())["status"] for _ in range(10)]
        assert ends == ["completed"] * 10
        said = await queue.messages()
        assert sorted(said) == sorted([[f"{who}{n}"] for who in "ab" for n in range(5)])
        for who in "ab":
            assert [m for m in said if m[0].startswith(who)] == [[f"{who}{n}"] for n in range(5)]


# The state.


def entry(number: int, words: str = "x", client_id: str | None = None) -> SubmissionQueued:
    return SubmissionQueued(
        at_ms=number,
        submission_id=f"s{number}",
        client_user_message_id=f"c{number}" if client_id is None else client_id,
        input=[TextUserInput(type="text", text=words)],
    )


def taken(number: int) -> SubmissionTaken:
    return SubmissionTaken(at_ms=0, submission_id=f"s{number}")


def test_the_bytes_of_a_queue_are_bounded() -> None:
    queue = QueueState()
    size = MAX_ENTRY_BYTES - 1000
    number = 0
    with pytest.raises(QueueRefusal, match=f"more than {MAX_QUEUE_BYTES} bytes") as caught:
        for number in range(MAX_ENTRIES):
            records, _ = adding(entry(number, "l" * size))(queue)
            for record in records:
                queue.apply(record)
    assert (caught.value.word, number) == ("queueFull", MAX_QUEUE_BYTES // size)


def test_only_so_many_ids_of_clients_are_remembered() -> None:
    queue = QueueState()
    for number in range(MAX_REMEMBERED + 2):
        queue.apply(entry(number))
        queue.apply(taken(number))
    assert (len(queue.taken), queue.entries) == (MAX_REMEMBERED, [])
    assert adding(entry(0))(queue)[0] != ()
    assert adding(entry(2))(queue)[0] == ()


@given(st.lists(st.tuples(st.sampled_from("atdur"), st.integers(0, 5)), max_size=40))
def test_an_entry_is_in_the_queue_or_taken_or_removed_and_never_two_of_them(
    steps: list[tuple[str, int]],
) -> None:
    queue, model, gone = QueueState(), list[str](), set[str]()
    for verb, number in steps:
        name = f"s{number}"
        records: Any = ()
        match verb:
            case "a" if name not in model and name not in gone:
                records, _ = adding(entry(number))(queue)
                model.append(name)
            case "t" if name in model:
                records = [taken(number)]
                model.remove(name)
                gone.add(name)
            case "d":
                records, was_there = removing(0, name)(queue)
                assert was_there == (name in model)
                if was_there:
                    model.remove(name)
                    gone.add(name)
            case "u" if name in model:
                records, changed = changing(0, name, [], {"k": "v"})(queue)
                assert (changed.input, changed.client_user_message_id) == ([], f"c{number}")
            case "r":
                model.reverse()
                records, _ = reordering(0, list(model))(queue)
        for record in records:
            queue.apply(record)
        assert [e.submission_id for e in queue.entries] == model
        assert queue.sizes == {e.submission_id: size_of(e) for e in queue.entries}


async def test_what_waits_is_the_same_after_it_was_read_back(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, turn_id = await busy(served, client)
        kept = await queue.add("kept")
        await queue.call("reorder", queuedSubmissionIds=[await queue.add("first"), kept])
        await queue.call("update", queuedSubmissionId=kept, input=text("KEPT"))
        await client.call("turn/interrupt", {"threadId": queue.thread_id, "turnId": turn_id})
        await queue.turn()
        gate.opened.set()
        store = ThreadStore(tmp_path)
        state = await store.read(queue.thread_id)
        assert [e.input[0] for e in state.queue.entries] == [
            TextUserInput(type="text", text="first"),
            TextUserInput(type="text", text="KEPT"),
        ]
        assert state.queue.paused


@claim("queue:kill")
async def test_every_beginning_of_a_log_has_an_entry_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        queue, gate, _ = await busy(served, client)
        for words in ("two", "three"):
            await queue.add(words)
        gate.opened.set()
        for _ in range(3):
            await queue.turn()
        path = Path(ThreadStore(tmp_path).shown_path(queue.thread_id))
        lines = path.read_bytes().splitlines()
    records = [record for line in lines if (record := parse_record(line)) is not None]
    assert len(records) == len(lines)
    for length in range(1, len(records) + 1):
        state = replay(records[:length])
        state.give_up_open_turn(0)
        waiting = [e.client_user_message_id for e in state.queue.entries]
        said = [
            item.client_id
            for turn in state.turns
            for item in turn.items
            if isinstance(item, UserMessageThreadItem) and item.client_id is not None
        ]
        added = [
            record.client_user_message_id
            for record in records[:length]
            if isinstance(record, SubmissionQueued)
        ]
        assert said + waiting == added
    # What dropped the turns would not bring their input back.
    kept = [r for r in records if not isinstance(r, InputQueued | InputTaken)]
    state = replay(kept)
    assert (state.queue.entries, len(state.queue.taken)) == ([], 2)
