"""Deadlines that do not count while they are held."""

import anyio

from app_server.runtime.held_clocks import HeldClocks


async def test_a_deadline_counts_only_the_time_that_nobody_holds() -> None:
    now = 100.0
    clocks = HeldClocks(lambda: now)
    with clocks.move_on_after(10.0) as before:
        assert before.deadline == 110.0
        now = 104.0
        clocks.hold()
        clocks.hold()
        with clocks.move_on_after(5.0) as meanwhile:
            assert before.deadline == meanwhile.deadline == float("inf")
            now = 200.0
            clocks.release()
            assert before.deadline == float("inf")
            clocks.release()
            assert (before.deadline, meanwhile.deadline) == (206.0, 205.0)


async def test_a_deadline_that_has_passed_ends_the_wait() -> None:
    clocks = HeldClocks()
    with clocks.move_on_after(0) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
