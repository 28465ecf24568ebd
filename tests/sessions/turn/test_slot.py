"""sessions.turn.slot: who may begin, change or end a turn, and when nobody may any more."""

import anyio
import pytest

from app_server.turns.slot import NoActiveTurn, SessionClosed, SessionUnloading, TurnSlot


async def test_whoever_reserves_the_slot_keeps_all_others_out() -> None:
    slot, order = TurnSlot(), list[str]()

    async def change() -> None:
        async with slot.changing():
            order.append("changed")

    async def begin() -> None:
        async with slot.reserve():
            order.append("begun")

    async with anyio.create_task_group() as tasks, slot.reserve():
        tasks.start_soon(change)
        tasks.start_soon(begin)
        await anyio.wait_all_tasks_blocked()
        order.append("reserved")
    assert order == ["reserved", "changed", "begun"]


async def test_a_slot_that_drains_begins_no_turn_but_takes_input() -> None:
    slot = TurnSlot()
    slot.draining = True
    with pytest.raises(SessionClosed):
        async with slot.reserve():
            raise AssertionError("reserved")
    async with slot.reserve(while_draining=True), anyio.create_task_group():
        pass
    async with slot.changing():
        pass


async def test_a_closed_slot_takes_nothing_and_says_why() -> None:
    slot = TurnSlot()
    slot.closed = True
    for enter in (slot.changing, slot.reserve, slot.emptied):
        with pytest.raises(SessionUnloading):
            async with enter():
                raise AssertionError("entered")
    slot.draining = True
    with pytest.raises(SessionClosed) as caught:
        async with slot.changing():
            raise AssertionError("entered")
    assert type(caught.value) is SessionClosed
    with pytest.raises(NoActiveTurn):
        slot.interrupt("")
