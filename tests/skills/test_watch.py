"""Skills are watched, and no longer than the server runs."""

import time
from pathlib import Path

import anyio
import pytest

from app_server.skills.watch import SkillWatch
from tests.support.harness import WAIT_S


async def test_watching_ends_when_the_server_stops_and_not_seconds_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After this long, a thread that watches looks by itself whether it is still wanted: 5 s.
    monkeypatch.setattr("watchfiles.main._calc_async_timeout", lambda _: int(2 * WAIT_S * 1000))
    (tmp_path / "there").mkdir()
    noticed = anyio.Event()
    async with anyio.create_task_group() as tasks:
        SkillWatch(tasks, noticed.set).follow([tmp_path / "there", tmp_path / "coming"])
        with anyio.fail_after(WAIT_S):
            while not noticed.is_set():
                (tmp_path / "there/SKILL.md").write_text(str(time.monotonic()))
                await anyio.sleep(0.01)
        stopped = time.monotonic()
        tasks.cancel_scope.cancel()
    assert time.monotonic() - stopped < WAIT_S
