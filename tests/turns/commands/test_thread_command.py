"""commands: the item of a command, from its start to its end."""

from typing import Any, cast

import anyio
import pytest

from app_server.turns.commands import ThreadCommand
from protocol.turns.items import CommandExecutionThreadItem


class SlowRecorder:
    """Writes items once it may, and keeps their states."""

    def __init__(self) -> None:
        self.may_write = anyio.Event()
        self.written: list[tuple[str, int | None]] = []

    async def completed(self, item: CommandExecutionThreadItem) -> None:
        await self.may_write.wait()
        self.written.append((item.status, item.exit_code))


@pytest.mark.parametrize("declined", [False, True])
async def test_a_command_whose_turn_is_cut_off_while_its_end_is_written_completes(
    declined: bool,
) -> None:
    recorder = SlowRecorder()
    item = CommandExecutionThreadItem(
        id="i", command="true", cwd="/", source="agent", status="inProgress", command_actions=[]
    )
    run = ThreadCommand(item, "true", cast(Any, recorder), 1)
    cut_off = anyio.CancelScope()

    async def end() -> None:
        with cut_off:
            await (run.decline() if declined else run.complete(0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        await anyio.wait_all_tasks_blocked()
        cut_off.cancel()
        await anyio.wait_all_tasks_blocked()
        recorder.may_write.set()
    assert recorder.written == [("declined", None) if declined else ("completed", 0)]
    assert run.completed.is_set()
