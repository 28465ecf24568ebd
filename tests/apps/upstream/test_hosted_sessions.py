"""Apps: sessions with a hosted endpoint over HTTP."""

from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.shared.exceptions import MCPError
from pydantic import SecretStr
from starlette.responses import Response

from app_server.apps.upstream.hosted_session import (
    ElicitationBridge,
    open_session,
)
from app_server.apps.upstream.sessions import UpstreamPool
from app_server.clients.demo.hosted.endpoint import Call, text_result
from app_server.mcp_wire.errors import PeerError
from protocol.model import JsonObject
from tests.support.apps.hosted import connector, serve_hosted
from tests.support.apps.hosted_stage import Client, Stage, answering, done, stage
from tests.support.harness import WAIT_S, claim


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
