"""Skills are watched, and no longer than the server runs."""

import asyncio
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from watchfiles._rust_notify import RustNotify

from app_server.extensions.skills.catalog import SkillWatch
from tests.support.changes import Changes
from tests.support.harness import WAIT_S


async def test_watching_ends_when_the_server_stops_and_not_seconds_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, watching, changes = asyncio.get_running_loop(), list[Path](), Changes()

    class Watcher:
        """A watcher that says when its thread begins."""

        def __init__(self, paths: list[Any], *options: Any) -> None:
            self._paths = [Path(path) for path in paths]
            self._watcher = RustNotify(paths, *options)

        def __enter__(self) -> "Watcher":
            self._watcher.__enter__()
            return self

        def __exit__(self, *exc: object) -> None:
            self._watcher.__exit__(*exc)

        def watch(self, *options: Any) -> Any:
            watching.extend(self._paths)
            loop.call_soon_threadsafe(changes.note)
            return self._watcher.watch(*options)

    monkeypatch.setattr("watchfiles.main.RustNotify", Watcher)
    # After this long, a thread that watches looks by itself whether it is still wanted: 5 s.
    monkeypatch.setattr("watchfiles.main._calc_async_timeout", lambda _: int(2 * WAIT_S * 1000))
    there = tmp_path / "there"
    there.mkdir()
    async with anyio.create_task_group() as tasks:
        SkillWatch(tasks, lambda: None).follow([there, tmp_path / "coming"])
        await changes.until(lambda: {*watching} == {there, tmp_path})
        stopped = time.monotonic()
        tasks.cancel_scope.cancel()
    assert time.monotonic() - stopped < WAIT_S
