"""What a local server asks its client for the endpoint."""

import asyncio
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from app_server.apps.routes.backing import OpenStreams, RouteBounds
from protocol.model import JsonObject
from tests.support.apps.asker import FORM, URL, Asker
from tests.support.apps.peer import (
    VERSION,
    Exchange,
    FakePool,
    listed,
    serve_tools,
)
from tests.support.harness import WAIT_S, claim
from tests.support.http_peer import NO_CERTIFICATES

OPENAI: JsonObject = {"extensions": {"openai/form": {}}}
ALL: JsonObject = {"elicitation": {"form": {}, "url": {}}, "extensions": {"openai/form": {}}}
CLIENT_INFO = {"name": "t", "version": "1"}
CANCEL = {"action": "cancel"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "x": None}}}


def asks(params: JsonObject) -> Any:
    """Ask the client, and answer with what it said."""

    async def answer(exchange: Exchange) -> JsonObject:
        return {"said": await exchange.peer.elicit(params)}

    return answer


QUESTIONS: list[tuple[JsonObject, str]] = [
    ({"message": "?", "requestedSchema": SCHEMA, "_meta": {"a": None}}, "elicitation/create"),
    ({"mode": "form", "message": "?", "requestedSchema": SCHEMA}, "elicitation/create"),
    (
        {"mode": "url", "message": "?", "url": "https://a.example", "elicitationId": "e", "x": 1},
        "elicitation/create",
    ),
    ({"mode": "openai/form", "message": "?", "requestedSchema": {"x": 1}}, "openai/form"),
]


@claim("apps:t-31")
@pytest.mark.parametrize("server", ["codex_apps__cal", "codex_apps"])
async def test_questions_and_answers_pass_unchanged(server: str) -> None:
    answer = {"action": "accept", "content": {"a": None, "b": [1]}, "_meta": {"c": 1}}
    user = Asker(*[answer] * len(QUESTIONS))
    async with (
        serve_tools([listed("look")]) as served,
        served.client(server, capabilities=ALL, asked=user) as client,
    ):
        for params, _ in QUESTIONS:
            served.pool.answer = asks(params)
            if server == "codex_apps":
                said = await client.request("resources/read", {"uri": "a://b"})
            else:
                said = await client.call("look")
            assert said == {"said": answer}
    expected = [
        (method, {k: v for k, v in params.items() if v != "openai/form"})
        for params, method in QUESTIONS
    ]
    assert user.asked == expected


@claim("apps:t-32")
@pytest.mark.parametrize(
    ("capabilities", "modes"),
    [
        ({}, []),
        (FORM, ["form"]),
        ({"elicitation": {}}, ["form"]),
        (URL, ["url"]),
        (OPENAI, ["openai/form"]),
        (ALL, ["form", "url", "openai/form"]),
    ],
)
async def test_a_client_is_asked_only_in_the_modes_that_it_declared(
    capabilities: JsonObject, modes: list[str]
) -> None:
    user = Asker(*[{"action": "decline"}] * 3)
    async with (
        serve_tools([listed("look")]) as served,
        served.client(capabilities=capabilities, asked=user) as client,
    ):
        said = {}
        for mode in ("form", "url", "openai/form", "of tomorrow"):
            served.pool.answer = asks({"mode": mode, "message": "?"})
            said[mode] = (await client.call("look"))["said"]["action"]
    assert [mode for mode, action in said.items() if action == "decline"] == modes
    assert len(user.asked) == len(modes)


@claim("apps:t-31")
async def test_a_question_goes_to_the_session_whose_call_it_belongs_to() -> None:
    users = [Asker({"action": "accept", "content": {"n": n}}) for n in range(3)]
    async with serve_tools([listed("look"), listed("find", "drive")]) as served:
        served.pool.answer = asks({"message": "?"})
        async with (
            served.client(capabilities=FORM, asked=users[0]) as first,
            served.client(capabilities=FORM, asked=users[1]) as second,
            served.client("codex_apps__drive", capabilities=FORM, asked=users[2]) as third,
        ):
            assert (await second.call("look"))["said"]["content"] == {"n": 1}
            assert (await third.call("find"))["said"]["content"] == {"n": 2}
            assert (await first.call("look"))["said"]["content"] == {"n": 0}
    assert [len(user.asked) for user in users] == [1, 1, 1]


@claim("apps:t-31")
async def test_a_client_that_does_not_listen_cancels_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user, bounds = Asker(), RouteBounds(delivery_s=0)
    async with (
        serve_tools([listed("look")], FakePool(asks({"message": "?"})), bounds=bounds) as served,
        served.client(capabilities=FORM, asked=user) as client,
    ):
        await client.listens()
        streams = OpenStreams.wait_for
        never = asyncio.Event()

        async def deaf(self: Any, session_id: str) -> None:
            await never.wait()

        monkeypatch.setattr(OpenStreams, "wait_for", deaf)
        assert await client.call("look") == {"said": CANCEL}
        monkeypatch.setattr(OpenStreams, "wait_for", streams)
    assert user.asked == []


async def test_a_question_waits_for_the_stream_of_its_own_session() -> None:
    streams = OpenStreams()
    heard = []

    async def wait() -> None:
        await streams.wait_for("mine")
        heard.append("mine")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        streams.opened("another")
        await anyio.wait_all_tasks_blocked()
        assert heard == []
        streams.opened("mine")
        with anyio.fail_after(WAIT_S):
            await anyio.wait_all_tasks_blocked()
        assert heard == ["mine"]
        await streams.wait_for("another")
        streams.closed("another")
        with anyio.move_on_after(0) as waiting:
            await streams.wait_for("another")
        assert waiting.cancelled_caught


async def test_a_client_whose_stream_has_ended_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()
    note = OpenStreams.closed

    def closed(self: OpenStreams, session_id: str) -> None:
        note(self, session_id)
        ended.set()

    monkeypatch.setattr(OpenStreams, "closed", closed)
    hello = {"protocolVersion": VERSION, "capabilities": FORM, "clientInfo": CLIENT_INFO}
    pool, bounds = FakePool(asks({"message": "?"})), RouteBounds(delivery_s=0)
    async with serve_tools([listed("look")], pool, bounds=bounds) as served:
        url = served.generation.url("codex_apps__cal")
        bearer = served.generation.bearer("codex_apps__cal").get_secret_value()
        headers = {
            "authorization": f"Bearer {bearer}",
            "accept": "application/json, text/event-stream",
        }
        async with httpx2.AsyncClient(
            verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False, headers=headers
        ) as http:

            async def request(method: str, params: JsonObject) -> httpx2.Response:
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                return await http.post(url, json=message)

            opened = await request("initialize", hello)
            http.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            async with http.stream("GET", url) as stream:
                assert stream.status_code == 200
            with anyio.fail_after(WAIT_S):
                await ended.wait()
                answer = await request("tools/call", {"name": "look"})
    assert answer.json()["result"] == {"said": CANCEL}


async def test_a_second_stream_of_a_session_is_refused_and_the_first_goes_on() -> None:
    user = Asker({"action": "decline"})
    async with (
        serve_tools([listed("look")], FakePool(asks({"message": "?"}))) as served,
        served.client(capabilities=FORM, asked=user) as client,
        httpx2.AsyncClient(verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False) as http,
    ):
        await client.listens()
        bearer = served.generation.bearer("codex_apps__cal").get_secret_value()
        second = await http.get(
            served.generation.url("codex_apps__cal"),
            headers={
                "authorization": f"Bearer {bearer}",
                "accept": "text/event-stream",
                "mcp-session-id": client.session_id,
            },
        )
        assert second.status_code == 409
        assert await client.call("look") == {"said": {"action": "decline"}}


async def test_an_error_of_the_client_cancels() -> None:
    async def breaks(method: str, params: JsonObject) -> JsonObject:
        raise MCPError(-32000, "broken")

    async with (
        serve_tools([listed("look")], FakePool(asks({"message": "?"}))) as served,
        served.client(capabilities=FORM, asked=breaks) as client,
    ):
        assert await client.call("look") == {"said": CANCEL}


@claim("apps:t-31")
async def test_without_a_call_nobody_is_asked() -> None:
    user = Asker()
    async with (
        serve_tools([listed("look")]) as served,
        served.client(capabilities=FORM, asked=user) as client,
    ):
        await client.call("look")
        [exchange] = served.pool.exchanges
        assert await exchange.peer.elicit({"message": "?"}) == CANCEL
    assert user.asked == []


@claim("apps:t-31")
async def test_the_end_of_a_call_cancels_what_it_asked() -> None:
    withdrawn = asyncio.Event()
    reached = asyncio.Event()

    async def thinks(method: str, params: JsonObject) -> JsonObject:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            withdrawn.set()
            raise
        raise AssertionError

    async with anyio.create_task_group() as upstream:
        said = []

        async def ask(exchange: Exchange) -> None:
            said.append(await exchange.peer.elicit({"message": "?"}))

        async def answer(exchange: Exchange) -> JsonObject:
            # As a real endpoint's question: outside of the request that it belongs to.
            upstream.start_soon(ask, exchange)
            await reached.wait()
            return {"content": []}

        async with (
            serve_tools([listed("look")], FakePool(answer)) as served,
            served.client(capabilities=FORM, asked=thinks) as client,
        ):
            assert await client.call("look") == {"content": []}
            with anyio.fail_after(WAIT_S):
                await withdrawn.wait()
    assert said == [CANCEL]


async def test_open_questions_are_bounded() -> None:
    reached, let_go = asyncio.Event(), asyncio.Event()

    async def thinks(method: str, params: JsonObject) -> JsonObject:
        reached.set()
        await let_go.wait()
        return {"action": "accept"}

    async def answer(exchange: Exchange) -> JsonObject:
        said = []

        async def ask() -> None:
            said.append((await exchange.peer.elicit({"message": "?"}))["action"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await reached.wait()
            await ask()
            let_go.set()
        return {"said": said}

    async with (
        serve_tools(
            [listed("look")], FakePool(answer), bounds=RouteBounds(open_questions=1)
        ) as served,
        served.client(capabilities=FORM, asked=thinks) as client,
    ):
        assert await client.call("look") == {"said": ["cancel", "accept"]}
