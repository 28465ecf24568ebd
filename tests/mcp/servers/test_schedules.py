"""mcp: calls of many threads at once through one shared process, in random schedules."""

import json
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.host.environments import Environments
from app_server.mcp.catalog.config import McpSettings, ServerConfig, StdioTransport
from app_server.mcp.elicitation import ServerQuestion
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.requests import call_tool
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.naming import RawName
from protocol.model import JsonObject
from tests.support.harness import WAIT_S, claim

PEER = Path(__file__).with_name("shuffling_peer.py")


@dataclass(frozen=True)
class Call:
    """One call of a schedule, and when it is answered beside others."""

    thread: int
    rank: int
    asks: bool
    is_cancelled: bool
    progress: int


@dataclass
class Thread:
    """One thread: its servers, and everything that came to it."""

    number: int
    answers: dict[int, Any] = field(default_factory=dict)
    progress: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    came: anyio.Event = field(default_factory=anyio.Event)

    async def elicit(self, question: ServerQuestion) -> JsonObject:
        """Answer with the thread's number, and the turn that the question has."""
        self.asked.append(int(question.params["message"]))
        await anyio.lowlevel.checkpoint()
        return {
            "action": "accept",
            "content": {"thread": self.number, "turn": question.turn_id},
        }

    async def call(self, servers: ServerSet, number: int, arguments: Any, *, cancel: bool) -> None:
        """Make one call, and wait for all its progress; with `cancel` the first piece ends it."""
        pieces: list[int] = []

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            assert message is not None
            pieces.append(int(message))
            self.progress.append(int(message))
            self.came.set()
            self.came = anyio.Event()
            if cancel:
                scope.cancel()

        self.answers[number] = "cancelled"
        with anyio.CancelScope() as scope:
            result = await call_tool(
                servers, RawName("raw", "act"), arguments, {}, on_progress, turn_of(number)
            )
            self.answers[number] = json.loads(result["content"][0]["text"])
            while len(pieces) < arguments["progress"]:
                await self.came.wait()


def turn_of(number: int) -> str:
    """Return the turn of a call: each has one of its own."""
    return f"turn {number}"


async def run(schedule: list[Call], revision: str) -> list[Thread]:
    """Make all calls at once; returns what came to each thread."""
    threads = [Thread(number) for number in range(max(call.thread for call in schedule) + 1)]
    config = ServerConfig(
        "raw",
        StdioTransport(sys.executable, ("-I", "-S", str(PEER), revision)),
        share="home",
        protocol="2025" if revision == "2025-06-18" else revision,
    )
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            environments = Environments(tasks)
            pool = ServerPool(environments)
            tasks.start_soon(pool.run)
            await anyio.wait_all_tasks_blocked()
            sets = [
                ServerSet(McpSettings({"raw": config}), "/", pool, lambda *_: None, thread)
                for thread in threads
            ]
            for servers in sets:
                tasks.start_soon(servers.run)
            cancels = sum(call.is_cancelled for call in schedule)
            async with anyio.create_task_group() as calling:
                for number, call in enumerate(schedule):
                    arguments = {
                        "n": number,
                        "calls": len(schedule),
                        "cancels": cancels,
                        "rank": call.rank,
                        "asks": call.asks,
                        "progress": call.progress,
                    }
                    thread, servers = threads[call.thread], sets[call.thread]
                    calling.start_soon(
                        partial(thread.call, servers, number, arguments, cancel=call.is_cancelled)
                    )
            assert len({servers.server("raw").pid for servers in sets}) == 1
            for servers in sets:
                servers.stop()
            await pool.aclose()
            await environments.aclose()
    return threads


def check(schedule: list[Call], revision: str, threads: list[Thread]) -> None:
    """Compare everything that came to each thread with what its own calls lead to."""
    for thread in threads:
        own = {n: call for n, call in enumerate(schedule) if call.thread == thread.number}
        # On stdio a question names no call in a session: it may be refused instead.
        refused = {
            number
            for number, answer in thread.answers.items()
            if revision == "2025-06-18" and answer == {"n": number, "said": "refused"}
        }
        asking = [n for n, call in own.items() if call.asks and not call.is_cancelled]
        turns = {n: turn_of(n) for n in asking}
        if revision == "2025-06-18":
            # It names no call, but the thread is known.
            for number in set(asking) - refused:
                turns[number] = thread.answers[number]["said"]["content"]["turn"]
            assert set(turns.values()) <= set(map(turn_of, own))
        expected: dict[int, Any] = {n: {"n": n, "said": None} for n in own}
        for number in asking:
            content = {"thread": thread.number, "turn": turns[number]}
            expected[number] = {"n": number, "said": {"action": "accept", "content": content}}
        expected |= {n: {"n": n, "said": "refused"} for n in asking if n in refused}
        expected |= {n: "cancelled" for n, call in own.items() if call.is_cancelled}
        assert thread.answers == expected
        assert sorted(thread.asked) == [n for n in asking if n not in refused]
        pieces = [n for n, call in own.items() for _ in range(call.progress)]
        assert sorted(thread.progress) == pieces
        if len(threads) == 1:
            assert refused == set()


def call_of(thread: int, rank: int, asks: bool, is_cancelled: bool, progress: int) -> Call:
    """Make a call; one that is cancelled is so at its only piece of progress."""
    return Call(thread, rank, asks, is_cancelled, 1 if is_cancelled else progress)


CALLS = st.builds(
    call_of,
    st.integers(0, 5),
    st.integers(0, 30),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
    st.integers(0, 3),
)


@claim("mcp:shared")
@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
@given(schedule=st.lists(CALLS, min_size=1, max_size=16))
@settings(max_examples=15, deadline=None)
async def test_what_belongs_to_a_call_comes_to_the_thread_that_made_it(
    revision: str, schedule: list[Call]
) -> None:
    check(schedule, revision, await run(schedule, revision))


@pytest.mark.slow
@claim("mcp:shared")
@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("seed", range(3))
async def test_what_belongs_to_one_of_a_thousand_calls_comes_to_its_thread(
    revision: str, seed: int
) -> None:
    random = Random(seed)
    schedule = [
        call_of(
            number % 50,
            random.randrange(1000),
            # At most 16 questions of a server are open for one thread.
            number % 4 == 0,
            random.random() < 0.25,
            random.randrange(4),
        )
        for number in range(1000)
    ]
    random.shuffle(schedule)
    check(schedule, revision, await run(schedule, revision))
