"""A server that dies around the end of a process: its thread is woken once, or told it is lost."""

from pathlib import Path

import pytest

from tests.support.harness import claim
from tests.support.receiver.wake_kills import wake_over_kill


@claim("wakes:lost")
@pytest.mark.parametrize("delay_ms", [0, 25, 60, 200])
async def test_a_server_that_is_killed_tells_its_thread_once(tmp_path: Path, delay_ms: int) -> None:
    assert await wake_over_kill(tmp_path, delay_ms / 1000) in ("delivered", "lost")
