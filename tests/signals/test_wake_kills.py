"""A server that dies around what wakes a thread: it is woken once, or told what is lost."""

from pathlib import Path

import pytest

from tests.support.harness import claim
from tests.support.receiver.wake_kills import STEPS, Step, timer_over_step, wake_over_kill


@claim("wakes:lost")
@pytest.mark.parametrize("delay_ms", [0, 25, 60, 200])
async def test_a_server_that_is_killed_tells_its_thread_once(tmp_path: Path, delay_ms: int) -> None:
    assert await wake_over_kill(tmp_path, delay_ms / 1000) in ("delivered", "lost")


@claim("wakes:restart")
@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join(step))
async def test_a_server_that_is_killed_at_a_step_of_a_timer_has_one_turn_of_it(
    tmp_path: Path, step: Step
) -> None:
    await timer_over_step(tmp_path, step)
