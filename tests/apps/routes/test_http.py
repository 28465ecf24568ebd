"""The loopback port of a generation: who comes in."""

import asyncio
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from app_server.apps.routes import http
from app_server.apps.routes.backing import RouteBounds
from app_server.apps.routes.generation import Generation
from app_server.apps.routes.http import serve_when_wanted
from app_server.runtime.http import loopback_server
from app_server.runtime.http.listening import HOST
from app_server.runtime.loader import LoadFailed
from protocol.model import JsonObject
from tests.support.apps.peer import Exchange, FakePool, listed, serve_tools
from tests.support.harness import WAIT_S, claim
from tests.support.http_peer import NO_CERTIFICATES

TOOLS = [listed("look"), listed("find", "drive")]
CAL, DRIVE, RESOURCES = "codex_apps__cal", "codex_apps__drive", "codex_apps"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
ACCEPT = {"accept": "application/json, text/event-stream"}


def authorized(generation: Generation, server: str = CAL, **more: str) -> dict[str, str]:
    bearer = generation.bearer(server).get_secret_value()
    return {**ACCEPT, "authorization": f"Bearer {bearer}", **more}


async def status(url: str, headers: Any, method: str = "POST") -> tuple[int, bytes]:
    async with httpx2.AsyncClient(
        verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False
    ) as client:
        answer = await client.request(method, url, headers=headers, json=HELLO)
    return answer.status_code, b"" if answer.status_code < 300 else answer.content


@claim("apps:t-23")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_only_the_bearer_of_a_route_opens_it(method: str) -> None:
    async with serve_tools(TOOLS) as served, serve_tools(TOOLS) as other:
        generation = served.generation
        url, right = generation.url(CAL), authorized(generation)
        bearer = right["authorization"]
        cases: list[tuple[str, Any, int]] = [
            ("no bearer", ACCEPT, 401),
            ("another route's", authorized(generation, DRIVE), 401),
            ("that of the resources", authorized(generation, RESOURCES), 401),
            ("another generation's", authorized(other.generation), 401),
            ("cut short", {**right, "authorization": bearer[:-1]}, 401),
            ("another case", {**right, "authorization": bearer.replace("Bearer", "bearer")}, 401),
            ("twice", [*right.items(), ("authorization", bearer)], 401),
            ("not ASCII", {**right, "authorization": "Bearer é".encode()}, 401),
            ("from a browser", {**right, "origin": "http://127.0.0.1"}, 403),
            ("from a browser, no bearer", {**ACCEPT, "origin": "null"}, 403),
        ]
        for case, headers, expected in cases:
            assert await status(url, headers, method) == (expected, b""), case
        for path in ("/", "/mcp", "/mcp/", "/mcp/codex_apps__mail", "/mcp/codex_apps/x"):
            elsewhere = f"http://127.0.0.1:{generation.port}{path}"
            assert await status(elsewhere, right, method) == (404, b""), path
    assert served.pool.exchanges == []


@claim("apps:t-24")
async def test_a_wrong_host_is_refused() -> None:
    async with serve_tools(TOOLS) as served:
        generation = served.generation
        for host in (f"localhost:{generation.port}", "127.0.0.1", "127.0.0.1:1", "evil.example"):
            headers = authorized(generation, host=host)
            assert await status(generation.url(CAL), headers) == (403, b""), host
        assert await status(generation.url(CAL), authorized(generation)) == (200, b"")


@claim("apps:t-25")
async def test_each_route_of_each_generation_has_256_random_bits_that_nobody_sees(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve_tools(TOOLS) as one, serve_tools(TOOLS) as other:
        bearers = {
            served.generation.bearer(server).get_secret_value()
            for served in (one, other)
            for server in (CAL, DRIVE, RESOURCES)
        }
        assert len(bearers) == 6
        assert {len(bearer) for bearer in bearers} == {43}
        async with one.client() as client:
            await client.call("look")
        await status(one.generation.url(CAL), ACCEPT)
        shown = [repr(one.generation), repr(vars(one.generation)), repr(one.generation.owner)]
    said = "\n".join([*shown, *(record.getMessage() for record in caplog.records)])
    assert [bearer for bearer in bearers if bearer in said] == []


@claim("apps:t-26")
async def test_after_a_change_of_credentials_nothing_gets_in() -> None:
    async with serve_tools(TOOLS) as served:
        async with served.client() as client:
            await client.call("look")
            served.guard.held = False
            for method in ("POST", "GET", "DELETE"):
                headers = authorized(served.generation)
                assert await status(served.generation.url(CAL), headers, method) == (401, b"")
            served.guard.held = True
        assert len(served.pool.exchanges) == 1


async def test_nobody_gets_into_a_generation_that_ends() -> None:
    reached, let_go = asyncio.Event(), asyncio.Event()

    async def lingers(exchange: Exchange) -> JsonObject:
        reached.set()
        with anyio.CancelScope(shield=True):
            await let_go.wait()
        return {}

    async with (
        serve_tools(TOOLS, FakePool(lingers)) as served,
        served.client() as client,
        anyio.create_task_group() as tasks,
    ):
        generation = served.generation
        tasks.start_soon(client.call, "look")
        with anyio.fail_after(WAIT_S):
            await reached.wait()
        lease = generation.lease()
        lease.release()
        await anyio.wait_all_tasks_blocked()
        assert await status(generation.url(CAL), authorized(generation)) == (503, b"")
        let_go.set()


async def test_sessions_and_bodies_are_bounded() -> None:
    bounds = RouteBounds(sessions=1, request_bytes=1000)
    async with serve_tools(TOOLS, bounds=bounds) as served, served.client():
        url, headers = served.generation.url(CAL), authorized(served.generation)
        assert (await status(url, headers))[0] == 503
        async with httpx2.AsyncClient(
            verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False
        ) as client:
            large = await client.post(url, headers=headers, content=b" " * 1001)
        assert large.status_code == 413


async def test_the_official_client_lists_and_calls() -> None:
    async with serve_tools([listed("look", title="Cal_Look")]) as served:
        http_client = httpx2.AsyncClient(
            verify=NO_CERTIFICATES,
            headers=authorized(served.generation),
            timeout=WAIT_S,
            trust_env=False,
        )
        async with (
            http_client,
            Client(
                streamable_http_client(served.generation.url(CAL), http_client=http_client),
                mode="legacy",
            ) as client,
        ):
            tools = await client.list_tools()
            assert [(tool.name, tool.title) for tool in tools.tools] == [("look", "Look")]
            result = await client.call_tool("look", {"a": 1})
            assert [block.model_dump() for block in result.content] == [
                {"type": "text", "text": "done", "annotations": None, "meta": None}
            ]


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def answer_of(port: int) -> tuple[int, bytes]:
    async with httpx2.AsyncClient(
        verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False
    ) as client:
        answer = await client.get(f"http://{HOST}:{port}/")
    return answer.status_code, answer.content


async def test_a_web_server_is_loaded_for_the_first_connection_and_again_where_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[ModuleType] = []
    failures = [LoadFailed("now")]

    async def load_late(import_it: Callable[[], ModuleType]) -> ModuleType:
        if failures:
            raise failures.pop()
        loaded.append(import_it())
        return loaded[-1]

    monkeypatch.setattr(http, "load", load_late)
    monkeypatch.setattr(http, "RETRY_FIRST_S", 0)
    async with serve_when_wanted(hello) as port, serve_when_wanted(hello) as unused:
        assert (port != unused, loaded, len(failures)) == (True, [], 1)
        assert [await answer_of(port), await answer_of(port)] == [(200, b"hello")] * 2
        assert (loaded, failures) == ([loopback_server], [])
    for closed in (port, unused):
        with pytest.raises(httpx2.ConnectError):
            await answer_of(closed)
