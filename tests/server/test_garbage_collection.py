"""When the garbage collector looks at everything."""

import gc
import subprocess
import sys
from collections.abc import Iterator, Mapping

import anyio
import pytest

from app_server.server.core import (
    DUE,
    NEVER,
    OVERDUE,
    collect_when_idle,
    is_due,
    start_collecting,
)
from tests.support.harness import WAIT_S


class Whole:
    """Counts the collections of everything."""

    def __init__(self) -> None:
        self.count = 0
        self.one_more = anyio.Event()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            self.count += 1
            self.one_more.set()


@pytest.fixture
def whole() -> Iterator[Whole]:
    before = gc.get_threshold()
    start_collecting()
    counter = Whole()
    gc.callbacks.append(counter)
    yield counter
    gc.callbacks.remove(counter)
    gc.set_threshold(*before)
    gc.unfreeze()


def look_often(looks: int) -> None:
    """Let the collector look at the middle generation so often."""
    for _ in range(looks):
        gc.collect(1)


def test_many_objects_that_stay_set_off_no_collection_of_everything(whole: Whole) -> None:
    kept = [[number] for number in range(200_000)]
    assert (whole.count, gc.get_threshold()[2], len(kept)) == (0, NEVER, 200_000)


async def test_everything_is_collected_in_time_and_not_before(whole: Whole) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect_when_idle, 0.001)
        with anyio.fail_after(WAIT_S):
            look_often(OVERDUE)
            await whole.one_more.wait()
        tasks.cancel_scope.cancel()
    assert (whole.count, gc.get_count()[2]) == (1, 0)


@pytest.mark.parametrize(
    ("looks", "is_idle", "expected"),
    [
        (DUE - 1, True, False),
        (DUE, True, True),
        (DUE, False, False),
        (OVERDUE - 1, False, False),
        (OVERDUE, False, True),
    ],
)
def test_work_puts_it_off_but_not_for_ever(looks: int, is_idle: bool, expected: bool) -> None:
    assert is_due(looks, is_idle=is_idle) is expected


STARTS = """
import gc
import subprocess
import sys
from app_server.server.app import _open_core

kept = gc.get_freeze_count()
_open_core()
once = gc.get_freeze_count()
more = [[] for _ in range(100)]
_open_core()
print(once - kept > 10_000, gc.get_freeze_count() - once, gc.isenabled())
"""


@pytest.mark.process
def test_what_is_imported_to_serve_is_never_looked_at() -> None:
    # A process of its own: this one has imported it already.
    ended = subprocess.run(
        [sys.executable, "-c", STARTS], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "True 0 True\n"
