"""Receipts of signals: recalled, out of time, failed, and lists of them."""

from pathlib import Path

from tests.support.harness import claim, serve
from tests.support.model import Gate, Refusal, ScriptedModel, says
from tests.support.receiver.signals import deliver
from tests.support.receiver.stages import stage, text_of, unload
from tests.support.turns import busy_thread

# Ends.


@claim("signals:recall")
async def test_a_recalled_signal_is_never_seen(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, "s1")
        await deliver(client, thread_id, "s2")
        params = {"source": "router", "id": "s1"}
        recalled = (await client.call("signal/recall", params))["receipt"]
        assert (recalled["stage"], recalled["itemId"]) == ("recalled", None)
        assert (await client.call("signal/recall", params))["receipt"] == recalled
        await client.turn(thread_id, "go")
        assert served.model.inputs() == [("developer", text_of("s2")), ("user", "go")]
        await stage(client, "s2", "answered")
        refusal = await client.refusal("signal/recall", {"source": "router", "id": "s2"})
        assert (refusal.code, refusal.data["code"]) == (-32600, "signalNotRecallable")


async def test_a_signal_that_a_model_is_reading_cannot_be_recalled(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.scripts = [[gate, *says("done")]]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, mode="wake")
        await gate.wait_until_reached()
        refusal = await client.refusal("signal/recall", {"source": "router", "id": "s1"})
        assert refusal.data["code"] == "signalNotRecallable"
        gate.opened.set()
        await stage(client, "s1", "answered")
        assert len(served.model.requests) == 1


async def test_a_waiting_signal_can_be_recalled(tmp_path: Path) -> None:
    async with busy_thread(tmp_path, *says("done")) as (served, client, thread_id, gate):
        await deliver(client, thread_id, "s1", "wake")
        await deliver(client, thread_id, "s2", "wake", onBusy="steer", signal={"sender": "bob"})
        for name in ("s1", "s2"):
            answer = await client.call("signal/recall", {"source": "router", "id": name})
            assert answer["receipt"]["stage"] == "recalled"
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 1


async def test_a_signal_of_a_thread_that_is_not_loaded_can_be_recalled(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id)
        await unload(served, thread_id)
        answer = await client.call("signal/recall", {"source": "router", "id": "s1"})
        assert answer["receipt"]["stage"] == "recalled"
        await client.call("thread/resume", {"threadId": thread_id})
        await client.turn(thread_id, "go")
        assert served.model.inputs() == [("user", "go")]


@claim("signals:recall")
async def test_a_signal_whose_time_is_over_is_not_delivered(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.scripts = [[gate, *says("done")]]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        old = {"createdAt": 1_000_000, "ttlSeconds": 60}
        assert (await deliver(client, thread_id, "s0", signal=old))["stage"] == "expired"
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        await gate.wait_until_reached()
        receipt = await deliver(client, thread_id, "s1", "wake", signal={"ttlSeconds": 1})
        assert receipt["stage"] == "accepted"
        assert (await stage(client, "s1", "expired"))["itemId"] is None
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 1


async def test_a_turn_that_fails_is_named_and_the_next_one_answers(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.scripts = [Refusal(400, {"error": {"message": "no"}})]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, mode="wake")
        event = await client.wait_for("signal/updated", lambda p: p["receipt"]["error"] is not None)
        receipt = event["params"]["receipt"]
        assert receipt["stage"] == "inHistory"
        assert receipt["error"]["code"] == "turnFailed"
        turn = await client.turn(thread_id, "again")
        answered = await stage(client, "s1", "answered")
        assert (answered["turnId"], answered["error"]) == (turn["id"], None)
        assert len(served.model.requests) == 2


# The ledger.


async def test_receipts_are_listed_newest_first_in_pages(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        other = await client.start_thread()
        for number in range(5):
            await deliver(client, thread_id, f"s{number}")
        await deliver(client, other, "o1")
        query = {"threadId": thread_id, "stage": "inHistory", "limit": 2}
        first = await client.call("signal/list", query)
        # What comes in between moves no page.
        await deliver(client, thread_id, "s5")
        second = await client.call("signal/list", {**query, "cursor": first["nextCursor"]})
        third = await client.call("signal/list", {**query, "cursor": second["nextCursor"]})
        ids = [[entry["signalId"] for entry in page["data"]] for page in (first, second, third)]
        assert ids == [["s4", "s3"], ["s2", "s1"], ["s0"]]
        assert third["nextCursor"] is None
        refusal = await client.refusal("signal/list", {"cursor": "bogus"})
        assert (refusal.code, refusal.message) == (-32600, "invalid cursor: bogus")
