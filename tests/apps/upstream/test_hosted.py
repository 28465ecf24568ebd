"""Apps: sessions with a hosted endpoint over HTTP."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR
from pydantic import SecretStr
from pydantic_core import to_json
from starlette.responses import JSONResponse, Response, StreamingResponse

from app_server.apps.inventory.fetch import FetchFailed, fetch_tools
from app_server.apps.upstream import hosted_session
from app_server.apps.upstream.endpoint import UpstreamTarget
from app_server.apps.upstream.hosted_session import (
    MAX_RESPONSE_BYTES,
    ElicitationBridge,
    open_session,
)
from app_server.apps.upstream.places import PoolLimits
from app_server.apps.upstream.sessions import UpstreamPool
from app_server.clients.demo.hosted.survey import QUESTIONS
from app_server.clients.demo.hosted.tool import Call, HostedConnector, text_result
from app_server.mcp_wire.errors import PeerError
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION
from tests.support.apps.hosted import Hosted, connector, serve_hosted
from tests.support.harness import WAIT_S, claim

ANSWER: JsonObject = {"action": "accept", "content": {"colour": None}, "_meta": {"by": ["hand"]}}


@dataclass
class Client:
    """A client of a local session; answers when it is let go."""

    asked: list[JsonObject] = field(default_factory=list)
    is_asked: anyio.Event = field(default_factory=anyio.Event)
    let_go: anyio.Event = field(default_factory=anyio.Event)

    async def elicit(self, params: JsonObject) -> JsonObject:
        self.asked.append(params)
        self.is_asked.set()
        await self.let_go.wait()
        return ANSWER


def answering() -> Client:
    client = Client()
    client.let_go.set()
    return client


@dataclass
class Stage:
    """A pool in front of a hosted endpoint."""

    hosted: Hosted
    pool: UpstreamPool

    async def call(self, tool: str, key: str = "key", client: Client | None = None) -> JsonObject:
        async with self.pool.session_of(key, client or answering()) as session:
            return await session.request("tools/call", {"name": tool, "arguments": {}})


@asynccontextmanager
async def stage(
    connectors: Sequence[HostedConnector] | None = None,
    *,
    elicitation: bool = True,
    limits: PoolLimits | None = None,
) -> AsyncIterator[Stage]:
    with anyio.fail_after(4 * WAIT_S):
        async with serve_hosted(connectors) as hosted, anyio.create_task_group() as tasks:
            pool = UpstreamPool(hosted.target(elicitation=elicitation), limits)
            await tasks.start(lambda task_status: pool.run(task_status=task_status))
            yield Stage(hosted, pool)
            pool.shut_down()
    assert (pool.counters.open, pool.counters.waiting) == (0, 0)


async def done(call: Call) -> JsonObject:
    return text_result("done")


# What requests carry.


@claim("apps:t-02")
async def test_every_request_carries_the_account_and_the_product() -> None:
    async with serve_hosted() as hosted:
        await fetch_tools(hosted.target(account_id="demo-account", sku="codex"))
    token = hosted.endpoint.token.get_secret_value()
    names = hosted.script.names()
    assert {"initialize", "notifications/initialized", "tools/list"} < set(names)
    assert names[-1] == "DELETE /backend-api/ps/mcp"
    carried = [
        {
            name: arrival.headers.get(name)
            for name in ("authorization", "chatgpt-account-id", "x-openai-product-sku")
        }
        for _, arrival in hosted.script.arrivals
    ]
    expected = {
        "authorization": f"Bearer {token}",
        "chatgpt-account-id": "demo-account",
        "x-openai-product-sku": "codex",
    }
    assert carried == [expected] * len(names)


async def test_the_token_is_in_no_log_and_in_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with stage() as on:
        token = on.hosted.endpoint.token.get_secret_value()
        await on.pool.fetch_tools()
        await on.call("calendar_list_events")
        on.hosted.script.answers["tools/call"] = [Response(status_code=500)]
        with pytest.raises(PeerError) as caught:
            await on.call("calendar_list_events")
        gone = on.hosted.target()
    with pytest.raises(FetchFailed) as failed:
        await fetch_tools(gone)
    assert str(failed.value) == "the list of tools cannot be had: HTTP status 503"
    assert caplog.text
    said = f"{caplog.text} {caught.value!r} {failed.value!r} {on.pool.counters}"
    assert token not in said


@claim("apps:t-03")
@pytest.mark.parametrize("elicitation", [True, False])
async def test_the_handshake_declares_elicitation_only_if_the_feature_is_on(
    elicitation: bool,
) -> None:
    bridge = ElicitationBridge()
    async with (
        serve_hosted() as hosted,
        open_session(hosted.target(elicitation=elicitation), bridge),
    ):
        pass
    (hello,) = hosted.script.messages("initialize")
    asked: JsonObject = {"elicitation": {"form": {}, "url": {}}} if elicitation else {}
    assert hello["params"] == {
        "protocolVersion": "2025-06-18",
        "capabilities": {**asked, "extensions": {"openai/form": {}}},
        "clientInfo": {"name": "codex-apps", "title": "Codex Apps", "version": PROTOCOL_VERSION},
    }


@claim("apps:t-03")
async def test_without_the_feature_questions_are_refused_but_for_the_form_of_chatgpt() -> None:
    async def ask(call: Call) -> JsonObject:
        with pytest.raises(MCPError) as caught:
            await call.caller.ask(*QUESTIONS["form"])
        assert caught.value.error.code == METHOD_NOT_FOUND
        return text_result("answered", await call.caller.ask(*QUESTIONS["openai/form"]))

    async with stage([connector(("ask", ask))], elicitation=False) as on:
        result = await on.call("test_ask")
    assert result["structuredContent"] == ANSWER


async def test_a_ping_is_answered_and_what_makes_no_sense_is_refused() -> None:
    refusals: list[tuple[int, str]] = []

    async def ask(call: Call) -> JsonObject:
        for method, params in (
            ("elicitation/create", {"mode": "by pigeon"}),
            ("sampling/createMessage", {}),
        ):
            with pytest.raises(MCPError) as caught:
                await call.caller.ask(method, params)
            refusals.append((caught.value.code, caught.value.message))
        return text_result("pinged", await call.caller.ask("ping", {}))

    async with stage([connector(("ask", ask))]) as on:
        result = await on.call("test_ask")
    assert result["structuredContent"] == {}
    assert refusals == [
        (INVALID_PARAMS, "unknown mode of elicitation"),
        (METHOD_NOT_FOUND, "Method not found: sampling/createMessage"),
    ]


async def test_a_header_that_http_does_not_know_opens_no_session_and_is_not_repeated() -> None:
    headers = {"Authorization": SecretStr("Bearer sécret")}
    target = UpstreamTarget("http://127.0.0.1:9/ps/mcp", headers)
    with pytest.raises(PeerError) as caught:
        async with open_session(target, ElicitationBridge()):
            raise AssertionError("it was opened")
    assert caught.value.code == INTERNAL_ERROR
    assert "cret" not in caught.value.message


# The list.


async def test_the_list_of_all_pages_is_fetched_as_it_was_listed() -> None:
    async with serve_hosted() as hosted:
        hosted.endpoint.mcp.page = 3
        tools = await fetch_tools(hosted.target())
    assert tools == [tool.definition for tool in hosted.endpoint.tools()]
    assert [message.get("params") for message in hosted.script.messages("tools/list")] == [
        None,
        {"cursor": "3"},
        {"cursor": "6"},
    ]


@pytest.mark.parametrize(
    ("method", "answer", "reason"),
    [
        ("initialize", Response(status_code=401), "HTTP status 401"),
        ("tools/list", Response(status_code=503), "HTTP status 503"),
        ("tools/list", Response(b"{garbage", media_type="application/json"), "error -32700"),
        ("tools/list", Response(b"garbage"), "error -32600"),
        (
            "tools/list",
            JSONResponse({"jsonrpc": "2.0", "id": 2, "error": {"code": -1, "message": "secret"}}),
            "error -1",
        ),
    ],
    ids=["unauthorized", "unwell", "garbage", "no-type", "error"],
)
async def test_a_list_that_cannot_be_had_is_a_failure_without_the_words_of_the_endpoint(
    method: str, answer: Response, reason: str
) -> None:
    async with serve_hosted() as hosted:
        hosted.script.answers[method] = [answer]
        with pytest.raises(FetchFailed) as caught:
            await fetch_tools(hosted.target())
    assert str(caught.value) == f"the list of tools cannot be had: {reason}"


async def test_nobody_can_be_asked_while_the_list_is_fetched() -> None:
    bridge = ElicitationBridge()
    async with stage() as on, open_session(on.hosted.target(elicitation=True), bridge) as session:
        name = "survey_ask_by_form"
        result = await session.request("tools/call", {"name": name, "arguments": {}})
    assert result["structuredContent"] == {"answer": {"action": "cancel"}}


# Bounds.


def test_a_response_may_have_sixteen_mebibytes() -> None:
    assert MAX_RESPONSE_BYTES == 16 * 1024 * 1024


@claim("apps:t-10")
@pytest.mark.parametrize("above", [0, 1], ids=["at-the-limit", "above"])
async def test_a_response_of_the_limit_is_read_and_one_byte_more_fails_its_request_alone(
    above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 4096
    monkeypatch.setattr(hosted_session, "MAX_RESPONSE_BYTES", limit)
    answer = {"jsonrpc": "2.0", "id": 2, "result": {"text": ""}}
    text = "x" * (limit - len(to_json(answer)) + above)
    body = to_json({**answer, "result": {"text": text}})
    assert len(body) == limit + above
    async with stage([connector(("look", done))]) as on:
        on.hosted.script.answers["tools/call"] = [
            Response(body, media_type="application/json"),
        ]
        if above:
            with pytest.raises(PeerError) as caught:
                await on.call("test_look")
            assert caught.value.code == PARSE_ERROR
            assert "larger than 4096 bytes" in caught.value.message
        else:
            assert await on.call("test_look") == {"text": text}
        assert await on.call("test_look") == text_result("done")
        assert on.pool.counters.opened == 1


@claim("apps:t-10")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_response_without_end_is_cut_off(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_session, "MAX_RESPONSE_BYTES", 100_000)
    left = anyio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b": nothing\n\n" * 100
                await anyio.lowlevel.checkpoint()
        finally:
            left.set()

    async with stage([connector(("look", done))]) as on:
        on.hosted.script.answers["tools/call"] = [StreamingResponse(endless(), media_type=kind)]
        with pytest.raises(PeerError):
            await on.call("test_look")
        await left.wait()
        assert await on.call("test_look") == text_result("done")


async def test_an_endpoint_that_does_not_shake_hands_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert hosted_session.INTRODUCTION_S == 30
    monkeypatch.setattr(hosted_session, "INTRODUCTION_S", 0.05)
    async with stage() as on:
        on.hosted.script.holds["initialize"] = anyio.Event()
        with pytest.raises(PeerError) as caught:
            await on.call("calendar_list_events")
        on.hosted.script.holds.pop("initialize").set()
        monkeypatch.undo()
        assert caught.value.message == "timed out awaiting initialize after 0.05s"
        assert not (await on.call("calendar_list_events"))["isError"]


# Questions.


@claim("apps:t-31")
@pytest.mark.parametrize("mode", QUESTIONS)
async def test_questions_and_answers_of_each_mode_pass_unchanged(mode: str) -> None:
    method, params = QUESTIONS[mode]
    params = {**params, "_meta": {"kept": {"as": "it is"}}}

    async def ask(call: Call) -> JsonObject:
        return text_result("answered", await call.caller.ask(method, params))

    client = answering()
    async with stage([connector(("ask", ask))]) as on:
        result = await on.call("test_ask", client=client)
    assert result["structuredContent"] == ANSWER
    assert client.asked == [{**params, "mode": mode} if mode == "openai/form" else params]


@claim("apps:t-31")
async def test_a_question_is_asked_of_the_client_whose_call_it_belongs_to() -> None:
    clients = {key: answering() for key in "abc"}
    async with stage() as on, anyio.create_task_group() as tasks:
        for key, client in clients.items():
            tasks.start_soon(on.call, "survey_ask_by_form", key, client)
    assert [len(client.asked) for client in clients.values()] == [1, 1, 1]


@claim("apps:b5")
async def test_a_question_that_nobody_answers_holds_up_no_other_call() -> None:
    thinking = Client()
    async with stage() as on, anyio.create_task_group() as tasks:
        tasks.start_soon(on.call, "survey_ask_by_form", "slow", thinking)
        await thinking.is_asked.wait()
        for number in range(5):
            result = await on.call("calendar_list_events", f"key {number}")
            assert not result["isError"]
        thinking.let_go.set()


@claim("apps:t-31", "apps:t-35")
async def test_a_call_that_is_given_up_cancels_its_question_and_itself_and_keeps_the_session() -> (
    None
):
    heard: list[JsonObject] = []
    ended = anyio.Event()

    async def ask(call: Call) -> JsonObject:
        try:
            heard.append(await call.caller.ask(*QUESTIONS["form"]))
            await anyio.sleep_forever()
        finally:
            ended.set()
        return text_result("never")

    client = Client()
    async with stage([connector(("ask", ask), ("look", done))]) as on:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(on.call, "test_ask", "key", client)
            await client.is_asked.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()
        assert await on.call("test_look") == text_result("done")
        assert on.pool.counters.opened == 1
    (cancelled,) = on.hosted.script.messages("notifications/cancelled")
    asked = on.hosted.script.messages("tools/call")[0]
    assert cancelled["params"]["requestId"] == asked["id"]
    assert heard in ([], [{"action": "cancel"}])


# Sessions.


@claim("apps:b5")
async def test_forty_clients_at_once_open_at_most_thirty_two_sessions_and_are_all_served() -> None:
    now, most = 0, 0
    all_here = anyio.Event()

    async def meet(call: Call) -> JsonObject:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 32:
            all_here.set()
        await all_here.wait()
        now -= 1
        return text_result("met")

    results: list[JsonObject] = []

    async with stage([connector(("meet", meet))]) as on:

        async def call(key: str) -> None:
            results.append(await on.call("test_meet", key))

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(call, f"key {number}")
        counters = on.pool.counters
        assert results == [text_result("met")] * 40
        assert (most, counters.peak, counters.opened, counters.refused) == (32, 32, 40, 0)
        for number in range(40):
            await on.pool.close(f"key {number}")
        assert counters.open == 0
        assert counters.closed == {"reclaimed": 8, "ended": 32}
    assert on.hosted.script.names().count("DELETE /backend-api/ps/mcp") == 40


async def test_a_session_that_the_endpoint_has_ended_fails_one_call_and_is_opened_again() -> None:
    async with stage([connector(("look", done))]) as on:
        assert await on.call("test_look") == text_result("done")
        on.hosted.script.answers["tools/call"] = [Response(status_code=404)]
        with pytest.raises(PeerError, match="the server has ended the session"):
            await on.call("test_look")
        assert await on.call("test_look") == text_result("done")
        assert on.pool.counters.closed == {"broken": 1}
    assert len(on.hosted.script.messages("tools/call")) == 3


async def test_errors_of_the_endpoint_pass_with_code_and_data() -> None:
    async def refuse(call: Call) -> JsonObject:
        raise MCPError(-32042, "not today", {"until": [None, 1]})

    async with stage([connector(("refuse", refuse))]) as on:
        with pytest.raises(PeerError) as caught:
            await on.call("test_refuse")
        error = caught.value
        assert (error.code, error.message, error.data) == (
            -32042,
            "not today",
            {"until": [None, 1]},
        )
        with pytest.raises(PeerError):
            await on.call("test_refuse")
        assert on.pool.counters.opened == 1


async def test_results_pass_as_they_are() -> None:
    result: JsonObject = {
        "content": [{"type": "unheard of", "deep": [None, {"a": None}]}],
        "structuredContent": {"a": None},
        "more": 1,
        "_meta": {"any": {"thing": None}},
    }

    async def answer(call: Call) -> JsonObject:
        return result

    async with stage([connector(("look", answer))]) as on:
        assert await on.call("test_look") == result


async def test_progress_of_a_call_is_forwarded() -> None:
    told: list[Any] = []

    async def walk(call: Call) -> JsonObject:
        await call.caller.report(1, 2, "half way")
        return text_result("there")

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with (
        stage([connector(("walk", walk))]) as on,
        on.pool.session_of("key", answering()) as session,
    ):
        params = {"name": "test_walk", "arguments": {}, "_meta": {"kept": 1}}
        await session.request("tools/call", params, on_progress=note)
        await anyio.wait_all_tasks_blocked()
    assert told == [(1.0, 2.0, "half way")]


async def test_the_end_of_a_key_ends_its_call_at_once() -> None:
    started = anyio.Event()

    async def hang(call: Call) -> JsonObject:
        started.set()
        await anyio.sleep_forever()
        return text_result("never")

    async with stage([connector(("hang", hang))]) as on, anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(PeerError, match="Transport closed"):
                await on.call("test_hang")

        tasks.start_soon(call)
        await started.wait()
        await on.pool.close("key")


async def test_shutting_down_ends_calls_and_sessions() -> None:
    thinking = Client()
    with anyio.fail_after(WAIT_S):
        async with serve_hosted() as hosted, anyio.create_task_group() as tasks:
            pool = UpstreamPool(hosted.target(elicitation=True))
            await tasks.start(lambda task_status: pool.run(task_status=task_status))

            async def call() -> None:
                with pytest.raises(PeerError, match="Transport closed"):
                    await Stage(hosted, pool).call("survey_ask_by_form", client=thinking)

            tasks.start_soon(call)
            await thinking.is_asked.wait()
            pool.shut_down()
    assert pool.counters.closed == {"shutdown": 1}
    assert hosted.script.names()[-1] == "DELETE /backend-api/ps/mcp"


async def test_a_fetch_is_counted() -> None:
    async with stage() as on:
        assert len(await on.pool.fetch_tools()) == 7
        assert on.pool.counters.fetches == 1
        assert on.pool.counters.opened == 0


async def test_a_wrong_token_opens_no_session() -> None:
    async with serve_hosted() as hosted:
        target = replace(hosted.target(), headers={"Authorization": SecretStr("Bearer wrong")})
        with pytest.raises(PeerError) as caught:
            async with open_session(target, ElicitationBridge()):
                raise AssertionError("it was opened")
    assert caught.value.data == {"status": 401}


async def test_what_goes_wrong_inside_a_session_passes_as_it_is() -> None:
    async with serve_hosted() as hosted:
        with pytest.raises(KeyError, match="mine"):
            async with open_session(hosted.target(), ElicitationBridge()):
                raise KeyError("mine")
    assert hosted.script.names()[-1] == "DELETE /backend-api/ps/mcp"
