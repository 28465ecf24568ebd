"""Warnings that somebody else causes are counted."""

import asyncio
import logging

import anyio
import pytest

from app_server.runtime.counted_warnings import warn_counted
from tests.support.harness import WAIT_S

logger = logging.getLogger("app_server.test")


async def test_a_repeated_warning_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[tuple[float, object, tuple[object, ...]]] = []

    def call_later(delay: float, callback: object, *arguments: object, context: object) -> None:
        later.append((delay, callback, arguments))

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)

    def a_minute_goes_by() -> None:
        ((delay, callback, arguments),) = later
        assert (delay, callable(callback)) == (60.0, True)
        later.clear()
        callback(*arguments)  # type: ignore[operator]

    for number in range(10_000):
        warn_counted(logger, "refused user %d", number)
    warn_counted(logger, "something else")
    assert caplog.messages == ["refused user 0", "something else"]
    later.pop()
    a_minute_goes_by()
    told = "refused user 9999; 9999 times in 60 s"
    assert caplog.messages[2:] == [told]
    # Nothing came meanwhile: the next one is a line again.
    a_minute_goes_by()
    assert later == []
    warn_counted(logger, "refused user %d", 7)
    assert caplog.messages[3:] == ["refused user 7"]


async def test_counted_warnings_are_logged_without_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_counted(logger, "cut off", again_s=0.01)
    warn_counted(logger, "cut off", again_s=0.01)
    with anyio.fail_after(WAIT_S):
        while len(caplog.messages) < 2:
            await anyio.sleep(0.01)
    assert caplog.messages == ["cut off", "cut off; 1 times in 0 s"]
