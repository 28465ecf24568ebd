"""mcp: questions of servers to the user (elicitation)."""

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from app_server.mcp.elicitation import MAX_OPEN_QUESTIONS, RunningCalls
from tests.support.harness import (
    claim,
    serve,
    stdio_server,
)
from tests.support.mcp_peers.calls import (
    answer_of,
    asking,
    outputs_of,
    raw_call,
    start_asking,
    with_peer,
)

FORM = {
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "title": "Person",
        "properties": {"name": {"type": "string", "title": "Name", "pattern": "."}},
        "required": ["name"],
    },
    "_meta": {"k": [None]},
}
EMPTY_FORM = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
LINK = {"mode": "url", "message": "Go", "url": "https://example.com/", "elicitationId": "e1"}


@claim("elicitation:asked", "elicitation:resolved", "elicitation:status")
async def test_what_a_server_asks_reaches_the_user_and_the_answer_the_server(
    tmp_path: Path,
) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        turn_id = await start_asking(served, client, thread_id, asking(FORM), raw_call("meta"))
        before = await client.until("mcpServer/elicitation/request")
        assert before[-2]["params"]["status"] == {
            "type": "active",
            "activeFlags": ["waitingOnApproval"],
        }
        question = before[-1]
        assert question["params"] == {
            "threadId": thread_id,
            "turnId": turn_id,
            "serverName": "raw",
            "mode": "form",
            "_meta": {"k": [None]},
            "message": "Who are you?",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string", "title": "Name"}},
                "required": ["name"],
            },
        }
        reply = {"action": "accept", "content": {"name": 5}, "_meta": {"m": 1}}
        await client.send({"id": question["id"], "result": reply})
        after = await client.until("turn/completed")
        resolved = [m["params"] for m in after if m["method"] == "serverRequest/resolved"]
        assert resolved == [{"threadId": thread_id, "requestId": question["id"]}]
        asked, meta = outputs_of(served)
        assert answer_of(asked) == {"result": reply}
        told = answer_of(meta)["x-codex-turn-metadata"]
        assert told["user_input_requested_during_turn"] is True


@claim("questions:unknown-method")
async def test_a_turn_ends_if_the_only_client_that_knows_a_question_is_lost(
    tmp_path: Path,
) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        async with served.client() as knowing:
            await knowing.call("thread/resume", {"threadId": thread_id})
            await start_asking(served, client, thread_id, asking(EMPTY_FORM))
            question = await client.wait_for("mcpServer/elicitation/request")
            error = {"code": -32601, "message": "what is that?"}
            await client.send({"id": question["id"], "error": error})
            await knowing.wait_for("mcpServer/elicitation/request")
        await client.wait_for("turn/completed")
        assert answer_of(outputs_of(served)[0]) == {"result": {"action": "decline"}}


@claim("elicitation:asked")
@pytest.mark.parametrize(
    ("reply", "answered"),
    [
        ({"result": {"action": "accept"}}, {"action": "accept"}),
        ({"result": {"action": "cancel", "content": None}}, {"action": "cancel"}),
        ({"result": {"action": "perhaps"}}, {"action": "decline"}),
        ({"error": {"code": 1, "message": "no"}}, {"action": "decline"}),
    ],
)
async def test_a_link_is_asked_about_and_nonsense_declines(
    tmp_path: Path, reply: Any, answered: Any
) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        turn_id = await start_asking(served, client, thread_id, asking(LINK))
        question = await client.wait_for("mcpServer/elicitation/request")
        here = {"threadId": thread_id, "turnId": turn_id, "serverName": "raw", "_meta": None}
        assert question["params"] == here | LINK
        await client.send({"id": question["id"], **reply})
        await client.wait_for("turn/completed")
        assert answer_of(outputs_of(served)[0]) == {"result": answered}


@claim("elicitation:policy")
@pytest.mark.parametrize(
    ("policy", "sandbox", "form", "answered"),
    [
        ("never", "read-only", EMPTY_FORM, {"action": "decline"}),
        ("never", "danger-full-access", EMPTY_FORM, {"action": "accept", "content": {}}),
        ("never", "danger-full-access", FORM, {"action": "decline"}),
        ("never", "danger-full-access", LINK, {"action": "decline"}),
        (
            {"granular": {"mcp_elicitations": False, "rules": True, "sandbox_approval": True}},
            "danger-full-access",
            EMPTY_FORM,
            {"action": "decline"},
        ),
    ],
)
async def test_policy_may_answer_for_the_user(
    tmp_path: Path, policy: Any, sandbox: str, form: Any, answered: Any
) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy=policy, sandbox=sandbox)
        await start_asking(served, client, thread_id, asking(form))
        told = await client.until("turn/completed")
        assert "mcpServer/elicitation/request" not in [m["method"] for m in told]
        assert answer_of(outputs_of(served)[0]) == {"result": answered}


@claim("elicitation:interrupt")
async def test_an_interrupt_withdraws_the_question(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    async with with_peer(tmp_path, "log", str(log)) as (served, client, thread_id):
        await start_asking(served, client, thread_id, asking(FORM))
        question = await client.wait_for("mcpServer/elicitation/request")
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": ""})
        told = [m["method"] for m in await client.until("serverRequest/resolved")]
        assert told.index("turn/completed") < told.index("serverRequest/resolved")
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        assert (await client.turn(thread_id, "go on"))["status"] == "completed"
        # A call is answered after all that was sent to the server before it.
        params = {"threadId": thread_id, "server": "raw", "tool": "meta"}
        await client.call("mcpServer/tool/call", params)
        heard = [json.loads(line) for line in log.read_text().splitlines()]
        assert [
            line["params"]["capabilities"] for line in heard if line.get("method") == "initialize"
        ] == [{"elicitation": {"form": {}, "url": {}}, "extensions": {"openai/form": {}}}]
        assert {"action": "cancel"} in [line.get("result") for line in heard]
        assert "notifications/cancelled" in [line.get("method") for line in heard]


@claim("elicitation:direct")
async def test_a_question_during_a_direct_call_belongs_to_no_turn(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (_, client, thread_id):
        arguments = {"method": "elicitation/create", "params": EMPTY_FORM}
        params = {"threadId": thread_id, "server": "raw", "tool": "request"}
        called = await client.request("mcpServer/tool/call", {**params, "arguments": arguments})
        question = await client.wait_for("mcpServer/elicitation/request")
        assert question["params"]["turnId"] is None
        await client.send({"id": question["id"], "result": {"action": "decline"}})
        result = (await client.answer(called))["result"]
        assert json.loads(result["content"][0]["text"]) == {"result": {"action": "decline"}}


@claim("elicitation:invalid")
async def test_questions_that_cannot_be_asked_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        broken = {"message": "m", "requestedSchema": {"type": "object", "properties": {"a": 1}}}
        await start_asking(
            served,
            client,
            thread_id,
            asking(broken),
            asking({**FORM, "message": 5}),
            asking({**FORM, "mode": "telepathy"}),
            asking({}, "sampling/createMessage"),
            asking({}, "ping"),
        )
        await client.wait_for("turn/completed")
        answers = [answer_of(output) for output in outputs_of(served)]
        assert [answer.get("error", {}).get("code") for answer in answers] == [
            -32602, -32602, -32602, -32601, None,
        ]  # fmt: skip
        assert answers[0]["error"]["message"].startswith("Invalid elicitation: properties.a")
        assert answers[1]["error"]["message"].startswith("Invalid elicitation: message")
        assert answers[2]["error"]["message"] == "Unsupported elicitation mode: telepathy"
        assert answers[4] == {"result": {}}


EXTENDED = {"message": "Say", "requestedSchema": {"any": ["thing"]}}


@claim("elicitation:extended-form")
@pytest.mark.parametrize(
    "extended",
    [asking({**EXTENDED, "mode": "openai/form"}), asking(EXTENDED, "openai/form")],
    ids=["mode", "method"],
)
async def test_an_extended_form_goes_to_clients_that_declared_it(
    tmp_path: Path, extended: Any
) -> None:
    config = stdio_server("raw")
    async with (
        serve(tmp_path, config=config) as served,
        served.client() as plain,
        served.client(extensions={"openai/form": {}}) as able,
    ):
        thread_id = await plain.start_thread()
        await start_asking(served, plain, thread_id, extended)
        await plain.wait_for("turn/completed")
        refusal = answer_of(outputs_of(served)[0])["error"]
        assert refusal["message"] == "Unsupported elicitation mode: openai/form"
        await able.call("thread/resume", {"threadId": thread_id})
        await start_asking(served, plain, thread_id, extended)
        question = await able.wait_for("mcpServer/elicitation/request")
        asked = question["params"]
        assert (asked["mode"], asked["message"]) == ("openai/form", "Say")
        assert asked["requestedSchema"] == {"any": ["thing"]}
        await able.send({"id": question["id"], "result": {"action": "accept", "content": [1]}})
        told = await plain.until("turn/completed")
        assert "mcpServer/elicitation/request" not in [m["method"] for m in told]
        assert answer_of(outputs_of(served)[-1]) == {"result": {"action": "accept", "content": [1]}}


@claim("mcp:timeout")
async def test_the_clock_of_a_call_stops_while_a_question_is_open() -> None:
    running = RunningCalls()
    with running.run("first", 1000) as first:
        assert (first.deadline < math.inf, running.newest_turn_id) == (True, "first")
        with running.question():
            assert first.deadline == math.inf
            with running.question(), running.run("second", 5) as second:
                assert (second.deadline, running.newest_turn_id) == (math.inf, "second")
            assert first.deadline == math.inf
        assert (first.deadline < math.inf, running.newest_turn_id) == (True, "first")
        with ExitStack() as stack:
            for _ in range(MAX_OPEN_QUESTIONS):
                assert running.may_ask
                stack.enter_context(running.question())
            assert not running.may_ask
    assert running.newest_turn_id is None
