"""Apps: what requests to a hosted endpoint carry, and its list."""

import logging

import pytest
from mcp.shared.exceptions import MCPError
from pydantic import SecretStr
from starlette.responses import JSONResponse, Response

from app_server.apps.inventory.fetch import FetchFailed, fetch_tools
from app_server.apps.upstream.endpoint import UpstreamTarget
from app_server.apps.upstream.hosted_session import (
    ElicitationBridge,
    open_session,
)
from app_server.clients.demo.hosted.endpoint import QUESTIONS, Call, text_result
from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION
from tests.support.apps.hosted import connector, serve_hosted
from tests.support.apps.hosted_stage import ANSWER, stage
from tests.support.harness import claim


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
