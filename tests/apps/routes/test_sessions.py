"""Sessions of clients with a local server: order of calls, cancellation, new credentials."""

import asyncio
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from app_server.apps.routes.backing import RouteBounds
from app_server.mcp_wire.errors import PeerError
from protocol.model import JsonObject
from tests.support.apps.peer import (
    Exchange,
    FakePool,
    Guard,
    Hold,
    LocalClient,
    done,
    listed,
    serve_tools,
)
from tests.support.harness import WAIT_S, claim

OUTDATED = (-32603, "the credentials for apps are out of date", None)
DONE = {"content": [{"type": "text", "text": "done"}]}


async def test_one_session_makes_one_call_at_a_time_in_order_and_others_do_not_wait() -> None:
    hold = Hold()
    async with (
        serve_tools([listed("look")], FakePool(hold)) as served,
        served.client() as one,
        served.client() as other,
        anyio.create_task_group() as tasks,
    ):

        async def call(client: LocalClient, name: str) -> None:
            await client.call("look", {"name": name})

        def begun() -> list[str]:
            return [exchange.params["arguments"]["name"] for exchange in served.pool.exchanges]

        tasks.start_soon(call, one, "first")
        await hold.wait_until_reached()
        tasks.start_soon(call, one, "second")
        served.pool.answer = done
        await call(other, "other")
        assert begun() == ["first", "other"]
        hold.let_go.set()
    assert begun() == ["first", "other", "second"]
    assert len({exchange.key for exchange in served.pool.exchanges}) == 2


async def test_calls_that_wait_are_bounded() -> None:
    hold, bounds = Hold(), RouteBounds(waiting_calls=1)
    async with (
        serve_tools([listed("look")], FakePool(hold), bounds=bounds) as served,
        served.client() as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(client.call, "look")
        await hold.wait_until_reached()
        refused = asyncio.Event()
        refusals = []

        async def call() -> None:
            try:
                await client.call("look")
            except MCPError as exc:
                refusals.append((exc.code, exc.message))
                refused.set()

        for _ in range(2):
            tasks.start_soon(call)
        with anyio.fail_after(WAIT_S):
            await refused.wait()
        hold.let_go.set()
    assert refusals == [(-32603, "more than 1 calls wait")]


@claim("apps:t-35")
async def test_a_cancelled_call_is_cancelled_upstream_and_the_session_goes_on() -> None:
    hold = Hold()
    async with serve_tools([listed("look")], FakePool(hold)) as served, served.client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call, "look")
            await hold.wait_until_reached()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(WAIT_S):
            await hold.cancelled.wait()
        served.pool.answer = done
        assert await client.call("look") == DONE
    assert len({exchange.key for exchange in served.pool.exchanges}) == 1


@claim("apps:t-35")
async def test_a_call_that_is_cancelled_while_it_waits_never_goes_upstream() -> None:
    hold = Hold()
    async with (
        serve_tools([listed("look")], FakePool(hold)) as served,
        served.client() as client,
    ):
        first = asyncio.create_task(client.call("look", {"n": 1}))
        await hold.wait_until_reached()
        served.pool.answer = done
        await client.listens()
        before = served.guard.asked
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(client.call, "look", {"n": 2})
            await served.guard.changes.until(lambda: served.guard.asked >= before + 2)
            waiting.cancel_scope.cancel()
        # What is said in one session arrives in order.
        await client.request("ping")
        hold.let_go.set()
        with anyio.fail_after(WAIT_S):
            assert await first == DONE
        assert await client.call("look", {"n": 3}) == DONE
    assert [exchange.params["arguments"]["n"] for exchange in served.pool.exchanges] == [1, 3]


async def test_the_end_of_a_session_ends_what_it_opened_upstream() -> None:
    async with serve_tools([listed("look"), listed("find", "drive")]) as served:
        async with served.client() as client:
            await client.call("look")
            await client.call("look")
            assert (len(served.pool.sessions), served.pool.closed) == (1, [])
        async with served.client("codex_apps__drive") as client:
            await client.request("tools/list")
            await client.call("find")
            assert len(served.pool.sessions) == 1
        await served.pool.changes.until(lambda: not served.pool.sessions)
    assert len(served.pool.closed) == 2


class Steps:
    """Changes the credentials at one step of a call."""

    def __init__(self, guard: Guard, at: int) -> None:
        self.guard = guard
        self.at = at
        self.seen = 0

    def holds(self) -> bool:
        self.seen += 1
        return self.seen < self.at

    async def settle(self) -> None:
        pass


@claim("apps:r4")
@pytest.mark.parametrize("steps", [2, 3, 4, 5])
async def test_a_change_of_credentials_stops_a_call_before_each_step(steps: int) -> None:
    """At HTTP, behind it, in the session's turn, with the upstream session, before forwarding."""
    async with serve_tools([listed("look")]) as served, served.client() as client:
        await client.listens()
        stepping = Steps(served.guard, steps)
        held = served.guard.holds
        served.guard.holds = stepping.holds  # type: ignore[method-assign]
        refusal = await client.refusal("tools/call", {"name": "look"})
        assert (refusal, served.pool.exchanges) == (OUTDATED, [])
        assert len(served.pool.sessions) == (1 if steps > 3 else 0)
        stepping.at = 6
        stepping.seen = 0
        assert await client.call("look") == DONE
        served.guard.holds = held  # type: ignore[method-assign]


@claim("apps:r4")
async def test_a_call_that_was_forwarded_finishes_after_a_change_of_credentials() -> None:
    hold = Hold()
    async with (
        serve_tools([listed("look")], FakePool(hold)) as served,
        served.client() as client,
    ):
        call = asyncio.create_task(client.call("look"))
        await hold.wait_until_reached()
        served.guard.held = False
        hold.let_go.set()
        with anyio.fail_after(WAIT_S):
            assert await call == DONE
        served.guard.held = True


async def test_progress_reaches_the_client_that_asked_for_it() -> None:
    async def answer(exchange: Exchange) -> JsonObject:
        assert exchange.report is not None
        await exchange.report(1, 2, "half")
        await exchange.report(2, None, None)
        # It travels on another stream than the answer, which nothing keeps from being faster.
        await both.wait()
        return {}

    heard: list[Any] = []
    both = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        if len(heard) == 2:
            both.set()

    async with serve_tools([listed("look")], FakePool(answer)) as served, served.client() as client:
        await client.listens()
        await client.request("tools/call", {"name": "look"}, on_progress=on_progress)
    assert heard == [(1, 2, "half"), (2, None, None)]


async def test_no_upstream_session_is_an_error_of_the_call_alone() -> None:
    pool = FakePool()

    async def refuse() -> None:
        raise PeerError(-32603, "no session is free")

    pool.on_open = refuse
    async with serve_tools([listed("look")], pool) as served, served.client() as client:
        assert await client.refusal("tools/call", {"name": "look"}) == (
            -32603,
            "no session is free",
            None,
        )
        pool.on_open = None
        assert await client.call("look") == DONE
