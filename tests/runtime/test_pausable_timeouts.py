"""Deadlines that do not count while they are held."""

import anyio

from app_server.runtime.pausable_timeouts import PausableTimeouts


async def test_a_deadline_stands_still_while_it_is_held() -> None:
    now = 100.0
    timeouts = PausableTimeouts(lambda: now)
    with timeouts.move_on_after(10.0) as before:
        assert before.deadline == 110.0
        now = 104.0
        timeouts.pause()
        timeouts.pause()
        with timeouts.move_on_after(5.0) as meanwhile:
            assert before.deadline == meanwhile.deadline == float("inf")
            now = 200.0
            timeouts.resume()
            assert before.deadline == float("inf")
            timeouts.resume()
            assert (before.deadline, meanwhile.deadline) == (206.0, 205.0)


async def test_a_deadline_that_has_passed_ends_the_wait() -> None:
    timeouts = PausableTimeouts()
    with timeouts.move_on_after(0) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
