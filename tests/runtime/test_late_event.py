"""runtime: events that take their memory when somebody waits."""

import anyio

from app_server.runtime.late_event import LateEvent
from tests.support.harness import WAIT_S


async def test_setting_an_event_wakes_everybody_who_waits_and_nobody_waits_later() -> None:
    event = LateEvent()
    assert not event.is_set()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(event.wait)
            await anyio.wait_all_tasks_blocked()
            event.set()
        assert event.is_set()
        event.set()
        await event.wait()


async def test_waiting_for_an_event_that_was_set_can_be_cancelled() -> None:
    event = LateEvent()
    event.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await event.wait()
    assert scope.cancelled_caught
