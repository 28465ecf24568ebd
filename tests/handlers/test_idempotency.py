"""Requests that are sent again after a lost answer: one thread, one turn, the same answer."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.threads.files.store import FileStore
from app_server.threads.log.state import KEPT, AcceptedInputs, digest_of
from protocol.log.rollout import InputAccepted
from protocol.threads.start import ThreadStartParams
from tests.support.harness import WireClient, claim, serve, write_config
from tests.support.model import Gate, ScriptedModel, says
from tests.support.processes import running

V7 = "01a1fd86-88e5-72f6-a58f-08e8092d1073"
V4 = "8a1c7f0e-3c7b-4a57-9d1e-0a7c5d3f2b11"
LATE = "ffffffff-ffff-7fff-bfff-ffffffffffff"


def ids_of(lines: str) -> list[str]:
    return [json.loads(line)["type"] for line in lines.splitlines()]


async def loaded(client: WireClient) -> list[str]:
    answer = await client.call("thread/loaded/list", {})
    return sorted(answer["data"])


@claim("again:thread")
@pytest.mark.parametrize("thread_id", [V7, V4, LATE, str(uuid.UUID(int=0))])
async def test_a_thread_has_the_id_that_its_client_chose(tmp_path: Path, thread_id: str) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert await client.start_thread(threadId=thread_id) == thread_id
        turn = await client.turn(thread_id, "hello")
        assert turn["status"] == "completed"
    async with serve(tmp_path) as served, served.client() as client:
        answer = await client.call("thread/resume", {"threadId": thread_id})
        assert answer["thread"]["preview"] == "hello"


@claim("again:thread")
async def test_the_same_start_again_gives_the_same_thread(tmp_path: Path) -> None:
    body = {"threadId": V7, "model": "m", "config": {"model_context_window": 5, "x": {"b": 1}}}
    async with serve(tmp_path) as served, served.client() as first:
        before = await first.call("thread/start", body)
        await first.wait_for("thread/started")
        async with served.client() as second:
            again = await second.call("thread/start", {**body, "ephemeral": None})
            assert again["thread"] == before["thread"]
            assert again["model"] == "m"
            started = await second.wait_for("thread/started")
            assert started["params"]["thread"]["id"] == V7
            # It listens.
            await first.call("turn/start", {"threadId": V7, "input": []})
            await second.wait_for("turn/completed")
        await first.wait_for("turn/completed")
        assert await loaded(first) == [V7]
        heard = await first.call("thread/start", body)
        assert heard["thread"]["id"] == V7
    # And after a restart.
    async with serve(tmp_path) as served, served.client() as client:
        again = await client.call("thread/start", body)
        assert (again["thread"]["id"], again["model"]) == (V7, "m")
        await client.wait_for("thread/started")
        log = next((tmp_path / "threads").rglob("*.jsonl")).read_text()
        assert ids_of(log).count("threadCreated") == 1


@claim("again:thread-taken")
@pytest.mark.parametrize("is_loaded", [True, False])
@pytest.mark.parametrize("body", [{"model": "other"}, {"ephemeral": True}])
async def test_another_start_under_the_same_id_is_refused(
    tmp_path: Path, is_loaded: bool, body: Any
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        await client.start_thread(threadId=V7)
        await client.turn(V7, "hello")
        chosen = await client.start_thread()
        if is_loaded:
            await refused(client, {"threadId": V7, **body})
            await refused(client, {"threadId": chosen})
    if not is_loaded:
        async with serve(tmp_path) as served, served.client() as client:
            await refused(client, {"threadId": V7, **body})
            await refused(client, {"threadId": chosen})
            assert await loaded(client) == []


async def refused(client: WireClient, body: Any) -> None:
    error = await client.refusal("thread/start", body)
    assert (error.code, error.data) == (
        -32600,
        {"code": "threadIdTaken", "threadId": body["threadId"]},
    )


@claim("again:thread-id")
@pytest.mark.parametrize(
    "thread_id", ["", "x", V7.upper(), V7.replace("-", ""), f"{{{V7}}}", "../" + V7, V7 + "\n"]
)
async def test_an_id_that_is_no_uuid_is_refused(tmp_path: Path, thread_id: str) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        error = await client.refusal("thread/start", {"threadId": thread_id})
        assert (error.code, error.data["field"]) == (-32602, "threadId")
        assert await loaded(client) == []


async def test_a_thread_that_was_archived_since_is_not_started_again(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        await client.start_thread(threadId=V7)
        await client.turn(V7, "hello")
        await client.call("thread/archive", {"threadId": V7})
        error = await client.refusal("thread/start", {"threadId": V7})
        assert error.data["code"] == "threadArchived"


@claim("again:at-once")
async def test_of_two_starts_at_once_one_has_an_effect(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        requests = [await each.request("thread/start", {"threadId": V7}) for each in (client,) * 5]
        elsewhere = await other.request("thread/start", {"threadId": V7})
        answers = [await client.answer(request) for request in requests]
        answers.append(await other.answer(elsewhere))
        assert [answer["result"]["thread"]["id"] for answer in answers] == [V7] * 6
        await client.turn(V7, "hello")
        log = next((tmp_path / "threads").rglob("*.jsonl")).read_text()
        assert ids_of(log).count("threadCreated") == 1


async def test_a_log_that_was_torn_before_its_first_line_is_begun_anew(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    path = Path(store.shown_path(V7))
    path.parent.mkdir(parents=True)
    path.write_text('{"type":"threadCre')
    async with serve(tmp_path) as served, served.client() as client:
        await client.start_thread(threadId=V7)
        await client.turn(V7, "hello")
    assert ids_of(path.read_text())[0] == "threadCreated"


def hello(**more: Any) -> dict[str, Any]:
    text = [{"type": "text", "text": "hello"}]
    return {"threadId": V7, "clientUserMessageId": "m1", "input": text, **more}


@claim("again:turn")
async def test_the_same_input_again_gives_the_turn_that_took_it(tmp_path: Path) -> None:
    gate = Gate()
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts.append([gate, *says("done")])
        await client.start_thread(threadId=V7)
        first = await client.call("turn/start", hello())
        await gate.wait_until_reached()
        meta = {"mcpMetaByServer": {"s": {"k": "v"}}, "responsesapiClientMetadata": {"try": "2"}}
        again = await client.call("turn/start", hello(**meta))
        assert again == first
        # What joins a running turn is named too.
        joining = hello(clientUserMessageId="m2")
        assert await client.call("turn/start", joining) == first
        assert await client.call("turn/start", joining) == first
        gate.opened.set()
        await client.wait_for("turn/completed")
        ended = {"turn": {**first["turn"], "status": "completed"}}
        assert await client.call("turn/start", hello()) == ended
        assert await client.call("turn/start", joining) == ended
        said = [text for role, text in served.model.inputs() if role == "user"]
        assert said == ["hello", "hello"]
        assert len(served.model.requests) == 2
    async with serve(tmp_path) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": V7})
        assert await client.call("turn/start", hello()) == ended
        assert served.model.requests == []


@claim("again:turn-taken")
async def test_another_input_under_the_same_name_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        await client.start_thread(threadId=V7)
        first = await client.call("turn/start", hello())
        await client.wait_for("turn/completed")
        others: list[dict[str, Any]] = [{"input": []}, {"model": "other"}]
        for other in others:
            error = await client.refusal("turn/start", hello(**other))
            assert (error.code, error.data) == (
                -32600,
                {
                    "code": "clientUserMessageIdTaken",
                    "threadId": V7,
                    "clientUserMessageId": "m1",
                    "turnId": first["turn"]["id"],
                },
            )
        # Names belong to their thread.
        thread_id = await client.start_thread()
        other_turn = await client.call("turn/start", {**hello(), "threadId": thread_id})
        assert other_turn["turn"]["id"] != first["turn"]["id"]


WAYS = ("turn/start", "turn/steer", "thread/queue/add")


def by(way: str, turn_id: str, text: str = "hello") -> dict[str, Any]:
    params = hello(input=[{"type": "text", "text": text}])
    return {**params, "expectedTurnId": turn_id} if way == "turn/steer" else params


def taken_by(**facts: str) -> dict[str, Any]:
    known = {"code": "clientUserMessageIdTaken", "threadId": V7, "clientUserMessageId": "m1"}
    return {**known, **facts}


@claim("again:steer", "again:turn-taken")
@pytest.mark.parametrize("way", WAYS)
async def test_an_input_is_accepted_once_whichever_way_it_comes(tmp_path: Path, way: str) -> None:
    gate = Gate()
    served_model = ScriptedModel()
    served_model.choose = lambda body: (
        says("done") if "hello" in str(body["input"]) else [*says("part")[:3], gate]
    )
    async with serve(tmp_path, model=served_model) as served, served.client() as client:
        await client.start_thread(threadId=V7)
        running_turn = await client.call(
            "turn/start", {"threadId": V7, "input": [{"type": "text", "text": "go"}]}
        )
        turn_id = running_turn["turn"]["id"]
        await gate.wait_until_reached()
        first = await client.call(way, by(way, turn_id))
        queued = way == "thread/queue/add"
        facts = {"queuedSubmissionId": first["queuedSubmission"]["id"]} if queued else {}
        holder = facts or {"turnId": turn_id}
        for other in WAYS:
            error = await client.refusal(other, by(other, turn_id, "other"))
            assert (error.code, error.data) == (-32600, taken_by(**holder))
        for _ in range(2):
            again = await client.call(way, by(way, turn_id))
            assert again == first or again["turn"]["id"] == first["turn"]["id"]
        if queued:
            for other in WAYS[:2]:
                error = await client.refusal(other, by(other, turn_id))
                assert error.data == taken_by(**holder)
            gate.opened.set()
            await client.wait_for("turn/completed", lambda p: p["turn"]["id"] == turn_id)
        ended = await client.wait_for("turn/completed")
        gate.opened.set()
        taker = ended["params"]["turn"]["id"]
        assert (taker == turn_id) is not queued
    async with serve(tmp_path, model=served_model) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": V7})
        before = len(served_model.requests)
        start = await client.call("turn/start", by("turn/start", ""))
        assert (start["turn"]["id"], start["turn"]["status"]) == (taker, "completed")
        assert await client.call("turn/steer", by("turn/steer", "any")) == {"turnId": taker}
        add = by("thread/queue/add", "")
        if queued:
            assert await client.call("thread/queue/add", add) == first
        else:
            error = await client.refusal("thread/queue/add", add)
            assert error.data == taken_by(turnId=taker)
        for other in WAYS:
            error = await client.refusal(other, by(other, turn_id, "other"))
            assert error.data["code"] == "clientUserMessageIdTaken"
        read = await client.call("thread/read", {"threadId": V7, "includeTurns": True})
        said = [
            item["content"][0]["text"]
            for turn in read["thread"]["turns"]
            for item in turn["items"]
            if item["type"] == "userMessage"
        ]
        assert said == ["go", "hello"]
        assert len(served_model.requests) == before


@claim("again:at-once")
async def test_of_the_same_input_at_once_from_several_clients_one_has_an_effect(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as one, served.client() as two:
        await one.start_thread(threadId=V7)
        requests = [(each, await each.request("turn/start", hello())) for each in (one, two) * 3]
        answers = [await each.answer(request) for each, request in requests]
        assert len({answer["result"]["turn"]["id"] for answer in answers}) == 1
        await one.wait_for("turn/completed")
        assert len(served.model.requests) == 1


@claim("again:kill")
@pytest.mark.process
async def test_after_kill_9_what_is_sent_again_has_no_other_effect(tmp_path: Path) -> None:
    gate = Gate()
    async with ScriptedModel().serve() as model:
        model.scripts.append([*says("before")[:3], gate])
        write_config(tmp_path, model.url)
        async with running(tmp_path) as server, server.client() as client:
            await client.call("thread/start", {"threadId": V7})
            first = await client.call("turn/start", hello())
            await gate.wait_until_reached()
        async with serve(tmp_path, model=model) as served, served.client() as client:
            again = await client.call("thread/start", {"threadId": V7})
            assert again["thread"]["preview"] == "hello"
            turn = await client.call("turn/start", hello())
            assert turn == {"turn": {**first["turn"], "status": "interrupted"}}
            await refused(client, {"threadId": V7, "model": "other"})
            error = await client.refusal("turn/start", hello(input=[]))
            assert error.data["code"] == "clientUserMessageIdTaken"
        gate.opened.set()
        assert len(model.requests) == 1


def accepted(number: int) -> InputAccepted:
    return InputAccepted(at_ms=1, client_id=str(number), digest="d", turn_id="t")


def test_the_oldest_names_are_forgotten() -> None:
    inputs = AcceptedInputs()
    for number in range(KEPT + 1):
        inputs.note(accepted(number))
    assert inputs.find("0") is None
    assert inputs.find(None) is None
    assert inputs.find(str(KEPT)) is not None


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=4))
def test_the_order_of_members_is_nothing_and_their_values_are_all(config: dict[str, Any]) -> None:
    turned = dict(reversed(config.items()))
    one, two = (ThreadStartParams(config=each) for each in (config, turned))
    assert digest_of(one) == digest_of(two)
    assert digest_of(one) != digest_of(ThreadStartParams(config={**config, "more": 1}))
    assert digest_of(one) == digest_of(two.model_copy(update={"model": "m"}), without={"model"})
