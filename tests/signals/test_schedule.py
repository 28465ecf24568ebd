"""signals: when the signals of which thread are worked on."""

import asyncio

import anyio

from app_server.signals.thread_delivery import RETRY_S, Schedule
from tests.support.harness import WAIT_S


async def test_threads_are_due_at_their_time_once_and_the_earlier_time_counts() -> None:
    now_s = [100.0]
    schedule = Schedule(lambda: now_s[0])
    schedule.add("later", 200.0)
    schedule.add("at once", 200.0)
    schedule.add("at once")
    schedule.add("at once", 300.0)
    schedule.add_after("over", -5.0)
    with anyio.fail_after(WAIT_S):
        assert await schedule.due() == {"at once", "over"}
        now_s[0] = 200.0
        assert await schedule.due() == {"later"}


async def test_who_waits_gets_a_thread_that_becomes_due() -> None:
    schedule = Schedule(lambda: 100.0)
    schedule.add("later", 100.0 + 10 * WAIT_S)
    waiting = asyncio.create_task(schedule.due())
    await asyncio.sleep(0)
    schedule.add("new")
    with anyio.fail_after(WAIT_S):
        assert await waiting == {"new"}


async def test_a_time_that_comes_ends_the_wait() -> None:
    schedule = Schedule()
    schedule.add_after("soon", 0.01)
    with anyio.fail_after(WAIT_S):
        assert await schedule.due() == {"soon"}


def test_tries_come_less_and_less_often_until_one_succeeds() -> None:
    schedule = Schedule(lambda: 0.0)
    delays = [schedule.add_retry("t") for _ in range(len(RETRY_S) + 1)]
    assert delays == [*RETRY_S, RETRY_S[-1]]
    assert schedule.add_retry("other") == RETRY_S[0]
    schedule.note_success("t")
    schedule.note_success("t")
    assert schedule.add_retry("t") == RETRY_S[0]
