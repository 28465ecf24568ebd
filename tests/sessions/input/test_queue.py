"""thread/queue/*: order, changes, pauses, repeated requests, bounds."""

from pathlib import Path

import pytest

from app_server.threads.log.state import (
    MAX_ENTRIES,
    MAX_ENTRY_BYTES,
)
from tests.support.harness import claim, methods_of, serve
from tests.support.model import Gate, Refusal, says
from tests.support.threads.queue import Queue, busy, text


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
            "clientUserMessageId same is taken by another input",
            {
                "code": "clientUserMessageIdTaken",
                "threadId": queue.thread_id,
                "clientUserMessageId": "same",
                "queuedSubmissionId": first,
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
