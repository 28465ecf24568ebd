"""mcp: connections on loopback that are kept for the next request, by a clock of the test's."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from app_server.mcp_wire.http.loopback import IdleConnections, LoopbackConnection


@dataclass
class Timer:
    """A call at a time."""

    at: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Loop:
    """An event loop whose time is that of the test."""

    now: float = 100.0
    timers: list[Timer] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[..., None], *arguments: Any) -> Timer:
        self.timers.append(Timer(at, lambda: call(*arguments)))
        return self.timers[-1]

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        return self.call_at(self.now + delay_s, call, *arguments)

    def run_until(self, now: float) -> None:
        """Make the calls whose time has come."""
        self.now = now
        due = [timer for timer in self.timers if timer.at <= now and not timer.cancelled]
        self.timers = [timer for timer in self.timers if timer.at > now]
        for timer in due:
            timer.call()


@dataclass(eq=False)
class Connection:
    """A connection that may be stale."""

    is_stale: bool = False
    idle_since: float = 0.0
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return loop


def put(idle: IdleConnections, *connections: Connection) -> None:
    for connection in connections:
        idle.put(cast(LoopbackConnection, connection))


@pytest.mark.usefixtures("loop")
def test_the_connection_that_was_used_last_is_taken_first_and_stale_ones_are_closed() -> None:
    idle = IdleConnections()
    first, second, stale = Connection(), Connection(), Connection(is_stale=True)
    put(idle, first, second, stale)
    taken: list[object] = [idle.take(), idle.take(), idle.take()]
    assert taken == [second, first, None]
    assert [each.closed for each in (first, second, stale)] == [False, False, True]


@pytest.mark.usefixtures("loop")
def test_above_32_the_one_that_was_used_longest_ago_is_closed() -> None:
    idle = IdleConnections()
    connections = [Connection() for _ in range(33)]
    put(idle, *connections[:32])
    assert not any(each.closed for each in connections)
    put(idle, connections[32])
    assert [each.closed for each in connections] == [True] + [False] * 32


def test_each_connection_is_closed_when_it_was_not_used_for_30_seconds(loop: Loop) -> None:
    idle = IdleConnections()
    first, second, third = Connection(), Connection(), Connection()
    put(idle, first)
    loop.now = 110.0
    put(idle, second, third)
    # One clock is enough for all.
    assert [timer.at for timer in loop.timers] == [130.0]
    loop.run_until(129.9)
    assert not first.closed
    loop.run_until(130.0)
    assert [each.closed for each in (first, second, third)] == [True, False, False]
    assert [timer.at for timer in loop.timers] == [140.0]
    loop.run_until(140.0)
    assert [each.closed for each in (second, third)] == [True, True]
    assert loop.timers == []
    # It is looked after again.
    put(idle, Connection())
    assert [timer.at for timer in loop.timers] == [170.0]


def test_after_the_end_none_is_kept(loop: Loop) -> None:
    idle = IdleConnections()
    before, after = Connection(), Connection()
    put(idle, before)
    idle.close()
    put(idle, after)
    assert [each.closed for each in (before, after)] == [True, True]
    assert idle.take() is None
    assert all(timer.cancelled for timer in loop.timers)
