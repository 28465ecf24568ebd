"""Apps: who gets a session with the endpoint, for how long, and what is counted. No network."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVarTuple

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from app_server.apps.upstream.endpoint import UpstreamTarget, upstream_target
from app_server.apps.upstream.hosted_session import ElicitationBridge
from app_server.apps.upstream.sessions import Places, PoolCounters, PoolLimits, UpstreamPool
from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.model import JsonObject
from tests.support.harness import WAIT_S, claim

Arguments = TypeVarTuple("Arguments")

TARGET = upstream_target("http://127.0.0.1:1", SecretStr("token"))


@dataclass
class Nobody:
    """A client that is never asked."""

    async def elicit(self, params: JsonObject) -> JsonObject:
        raise AssertionError("nobody was to be asked")


@dataclass
class PlayedSession:
    """A session whose requests are answered when they are let go."""

    number: int
    endpoint: "PlayedEndpoint"
    is_broken: bool = False

    async def request(
        self, method: str, params: JsonObject, *, on_progress: object = None
    ) -> JsonObject:
        await self.endpoint.let_go.wait()
        return {"session": self.number}


@dataclass
class PlayedEndpoint:
    """Opens sessions; each stays until the pool leaves it."""

    let_go: anyio.Event = field(default_factory=anyio.Event)
    may_open: anyio.Event = field(default_factory=anyio.Event)
    may_close: anyio.Event = field(default_factory=anyio.Event)
    sessions: list[PlayedSession] = field(default_factory=list)
    live: set[int] = field(default_factory=set)
    failures: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_open.set()
        self.may_close.set()

    @asynccontextmanager
    async def open(
        self, target: UpstreamTarget, bridge: ElicitationBridge
    ) -> AsyncIterator[PlayedSession]:
        assert target is TARGET
        await self.may_open.wait()
        if self.failures:
            raise self.failures.pop(0)
        session = PlayedSession(len(self.sessions) + 1, self)
        self.sessions.append(session)
        self.live.add(session.number)
        try:
            yield session
            await self.may_close.wait()
        finally:
            self.live.discard(session.number)


@dataclass
class PlayedTimer:
    """Something that happens when the clock gets there."""

    due: float
    callback: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class PlayedTimers:
    """A clock that stands still until it is told otherwise."""

    now: float = 0.0
    timers: list[PlayedTimer] = field(default_factory=list)

    def call_later(
        self, delay: float, callback: Callable[[*Arguments], object], /, *args: *Arguments
    ) -> PlayedTimer:
        timer = PlayedTimer(self.now + delay, partial(callback, *args))
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.due <= self.now]
        self.timers = [timer for timer in self.timers if timer.due > self.now]
        for timer in due:
            if not timer.is_cancelled:
                timer.callback()

    def pending(self) -> int:
        return sum(not timer.is_cancelled for timer in self.timers)


@dataclass
class Stage:
    """A pool in front of a played endpoint."""

    endpoint: PlayedEndpoint
    timers: PlayedTimers
    pool: UpstreamPool

    async def call(self, key: str) -> int:
        async with self.pool.session_of(key, Nobody()) as session:
            number: int = (await session.request("look", {}))["session"]
            return number

    async def settle(self) -> None:
        await turns_of_the_loop()


@asynccontextmanager
async def stage(sessions: int = 32) -> AsyncIterator[Stage]:
    endpoint, timers = PlayedEndpoint(), PlayedTimers()
    limits = PoolLimits(sessions=sessions)
    pool = UpstreamPool(TARGET, limits, open_session=endpoint.open, timers=timers)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda task_status: pool.run(task_status=task_status))
            yield Stage(endpoint, timers, pool)
            tasks.cancel_scope.cancel()
    assert not endpoint.live
    assert (pool.counters.open, pool.counters.waiting, timers.pending()) == (0, 0, 0)
    assert pool.counters.closed.total() >= pool.counters.opened


async def test_a_key_keeps_its_session() -> None:
    async with stage() as on:
        on.endpoint.let_go.set()
        assert [await on.call(key) for key in ("a", "b", "a", "b")] == [1, 2, 1, 2]
        assert on.pool.counters.opened == 2


@claim("apps:b5")
async def test_forty_keys_at_once_get_thirty_two_places_and_are_all_served() -> None:
    async with stage() as on:
        answers: list[int] = []

        async def call(key: str) -> None:
            answers.append(await on.call(key))

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(call, f"key {number}")
            await on.settle()
            assert (on.pool.counters.open, on.pool.counters.waiting) == (32, 8)
            on.endpoint.let_go.set()
        assert sorted(answers) == list(range(1, 41))
        counters = on.pool.counters
        assert (counters.peak, counters.opened, counters.refused) == (32, 40, 0)
        assert counters.closed == {"reclaimed": 8}


@claim("apps:b5")
async def test_places_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    async with stage(sessions=1) as on:
        served: list[str] = []

        async def call(key: str) -> None:
            async with on.pool.session_of(key, Nobody()) as session:
                await session.request("look", {})
                served.append(key)

        async with anyio.create_task_group() as tasks:
            for key in "abcd":
                tasks.start_soon(call, key)
                await on.settle()
            on.endpoint.let_go.set()
        assert served == ["a", "b", "c", "d"]


@claim("apps:b5")
async def test_a_call_that_waits_in_vain_is_refused_after_thirty_seconds() -> None:
    async with stage(sessions=1) as on, anyio.create_task_group() as tasks:
        tasks.start_soon(on.call, "a")
        await on.settle()

        async def wait_in_vain() -> None:
            with pytest.raises(PeerError) as caught:
                await on.call("b")
            assert caught.value.code == INTERNAL_ERROR
            assert caught.value.message == "no session with the apps became free within 30 s"

        tasks.start_soon(wait_in_vain)
        await on.settle()
        on.timers.advance(29.9)
        await on.settle()
        assert (on.pool.counters.waiting, on.pool.counters.refused) == (1, 0)
        on.timers.advance(0.2)
        await on.settle()
        assert (on.pool.counters.waiting, on.pool.counters.refused) == (0, 1)
        on.endpoint.let_go.set()


@claim("apps:b5")
async def test_a_call_that_gives_up_waiting_leaves_its_place_to_the_next() -> None:
    async with stage(sessions=1) as on, anyio.create_task_group() as tasks:
        tasks.start_soon(on.call, "a")
        await on.settle()
        gives_up = anyio.CancelScope()

        async def call() -> None:
            with gives_up:
                await on.call("b")

        tasks.start_soon(call)
        await on.settle()
        tasks.start_soon(on.call, "c")
        await on.settle()
        assert on.pool.counters.waiting == 2
        gives_up.cancel()
        await on.settle()
        assert on.pool.counters.waiting == 1
        on.endpoint.let_go.set()
        await on.settle()
        assert on.pool.counters.opened == 2


async def test_a_place_given_at_the_moment_in_which_its_call_is_cancelled_is_free_again() -> None:
    counters = PoolCounters()
    places = Places(PoolLimits(sessions=1), counters, PlayedTimers())
    await places.take()
    async with asyncio.TaskGroup() as tasks:
        waits = tasks.create_task(places.take())
        await turns_of_the_loop()
        places.give_back()
        assert (counters.open, counters.waiting) == (1, 1)
        waits.cancel()
    assert (counters.open, counters.waiting) == (0, 0)


@claim("apps:b5")
async def test_a_session_without_a_call_is_closed_after_five_minutes_and_opened_again() -> None:
    async with stage() as on:
        on.endpoint.let_go.set()
        assert await on.call("a") == 1
        on.timers.advance(299)
        await on.settle()
        assert on.endpoint.live == {1}
        assert await on.call("a") == 1
        on.timers.advance(299)
        await on.settle()
        assert on.endpoint.live == {1}
        on.timers.advance(1)
        await on.settle()
        assert (on.endpoint.live, on.pool.counters.open) == (set(), 0)
        assert await on.call("a") == 2
        assert on.pool.counters.closed == {"idle": 1}


@claim("apps:b5")
async def test_a_session_with_a_call_is_neither_idle_nor_taken_away() -> None:
    async with stage(sessions=1) as on, anyio.create_task_group() as tasks:
        tasks.start_soon(on.call, "a")
        await on.settle()
        on.timers.advance(1000)
        tasks.start_soon(on.call, "b")
        await on.settle()
        assert (on.endpoint.live, on.pool.counters.waiting) == ({1}, 1)
        on.endpoint.let_go.set()


@claim("apps:b5")
async def test_of_the_sessions_without_a_call_the_one_idle_longest_makes_room() -> None:
    async with stage(sessions=2) as on:
        on.endpoint.let_go.set()
        await on.call("a")
        await on.call("b")
        await on.call("a")
        assert await on.call("c") == 3
        assert on.endpoint.live == {1, 3}


async def test_the_end_of_a_key_ends_its_session_at_once() -> None:
    async with stage() as on:
        on.endpoint.let_go.set()
        await on.call("a")
        await on.pool.close("a")
        await on.pool.close("nobody")
        assert (on.endpoint.live, on.pool.counters.open) == (set(), 0)
        assert on.pool.counters.closed == {"ended": 1}
        assert await on.call("a") == 2


async def test_a_key_that_ends_while_its_session_is_opened_has_none() -> None:
    async with stage() as on, anyio.create_task_group() as tasks:
        on.endpoint.may_open = anyio.Event()

        async def call() -> None:
            with pytest.raises(PeerError, match="the session with the apps was closed"):
                await on.call("a")

        tasks.start_soon(call)
        await on.settle()
        await on.pool.close("a")
        assert (on.endpoint.sessions, on.pool.counters.open) == ([], 0)


async def test_a_call_that_is_cancelled_while_its_session_is_opened_frees_the_place() -> None:
    async with stage(sessions=1) as on:
        on.endpoint.may_open = anyio.Event()
        with anyio.move_on_after(0):
            await on.call("a")
        await on.settle()
        assert on.pool.counters.open == 0
        on.endpoint.may_open.set()
        on.endpoint.let_go.set()
        assert await on.call("a") == 1


async def test_what_cannot_be_opened_is_tried_again_by_the_next_call() -> None:
    async with stage() as on:
        on.endpoint.let_go.set()
        on.endpoint.failures.append(PeerError(-32000, "the endpoint is away"))
        with pytest.raises(PeerError, match="the endpoint is away"):
            await on.call("a")
        assert await on.call("a") == 1
        assert on.pool.counters.closed == {"failed": 1}


async def test_an_opening_that_fails_for_no_good_reason_fails_its_call_alone() -> None:
    async with stage() as on:
        on.endpoint.let_go.set()
        on.endpoint.failures.append(ZeroDivisionError("secret"))
        with pytest.raises(PeerError) as caught:
            await on.call("a")
        assert "secret" not in str(caught.value)
        assert await on.call("b") == 1


async def test_a_session_that_broke_is_not_used_again() -> None:
    async with stage() as on:
        on.endpoint.let_go.set()
        async with on.pool.session_of("a", Nobody()):
            on.endpoint.sessions[0].is_broken = True
        assert await on.call("a") == 2
        assert on.pool.counters.closed == {"broken": 1}


async def test_a_session_that_is_being_closed_keeps_its_place_until_it_is() -> None:
    async with stage(sessions=1) as on, anyio.create_task_group() as tasks:
        on.endpoint.let_go.set()
        await on.call("a")
        on.endpoint.may_close = anyio.Event()
        tasks.start_soon(on.call, "b")
        await on.settle()
        assert (on.endpoint.live, on.pool.counters.waiting) == ({1}, 1)
        on.endpoint.may_close.set()
        await on.settle()
        assert on.endpoint.live == {2}


async def test_shutting_down_ends_every_session_and_every_wait() -> None:
    endpoint, timers = PlayedEndpoint(), PlayedTimers()
    pool = UpstreamPool(TARGET, PoolLimits(sessions=1), open_session=endpoint.open, timers=timers)
    on = Stage(endpoint, timers, pool)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda task_status: pool.run(task_status=task_status))
            held, leave = anyio.Event(), anyio.Event()

            async def hold() -> None:
                async with pool.session_of("a", Nobody()):
                    held.set()
                    await leave.wait()

            async def wait() -> None:
                with pytest.raises(PeerError, match="the connection to the apps is closed"):
                    await on.call("b")

            tasks.start_soon(hold)
            await held.wait()
            tasks.start_soon(wait)
            await on.settle()
            pool.shut_down()
            await on.settle()
            assert (endpoint.live, pool.counters.open, pool.counters.waiting) == (set(), 0, 0)
            leave.set()
    with pytest.raises(PeerError, match="the connection to the apps is closed"):
        await on.call("c")
    assert pool.counters.closed == {"shutdown": 1}
    assert timers.pending() == 0


# Any order of events.

KEYS = "abcde"
PLACES = 3

Step = tuple[str, str]


@dataclass
class Calls:
    """Calls of a few keys, at most one a key, that end when they are told."""

    on: Stage
    tasks: asyncio.TaskGroup
    running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    serving: dict[str, anyio.Event] = field(default_factory=dict)
    """Keys that have a session now."""

    def take(self, step: Step) -> None:
        what, key = step
        running = self.running.get(key)
        if what == "call" and (running is None or running.done()):
            self.running[key] = self.tasks.create_task(self._call(key))
        elif what == "finish" and key in self.serving:
            self.serving[key].set()
        elif what == "give up" and running is not None:
            running.cancel()
        elif what == "leave":
            if running is not None:
                running.cancel()
            self.tasks.create_task(self.on.pool.close(key))
        elif what == "break" and self.on.endpoint.sessions:
            self.on.endpoint.sessions[-1].is_broken = True
        elif what == "wait":
            self.on.timers.advance(29)

    async def _call(self, key: str) -> None:
        try:
            async with self.on.pool.session_of(key, Nobody()):
                self.serving[key] = anyio.Event()
                try:
                    await self.serving[key].wait()
                finally:
                    del self.serving[key]
        except PeerError:
            pass

    def check(self) -> None:
        counters = self.on.pool.counters
        calls = {key for key, task in self.running.items() if not task.done()}
        assert counters.open == len(self.on.endpoint.live) <= PLACES
        assert counters.waiting == len(calls - set(self.serving))
        if counters.waiting:
            assert len(self.serving) == PLACES


STEPS = st.tuples(
    st.sampled_from(["call", "call", "finish", "give up", "leave", "break", "wait"]),
    st.sampled_from(KEYS),
)


@claim("apps:b5")
@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_places_are_neither_lost_nor_given_twice(steps: list[Step]) -> None:
    async def run() -> None:
        async with stage(sessions=PLACES) as on, asyncio.TaskGroup() as tasks:
            calls = Calls(on, tasks)
            for step in steps:
                calls.take(step)
                await turns_of_the_loop()
                calls.check()
            for task in calls.running.values():
                task.cancel()

    asyncio.run(run())


async def turns_of_the_loop() -> None:
    for _ in range(30):
        await asyncio.sleep(0)
