"""What is imported late: on one thread, once, and again after a failure."""

import asyncio
import importlib
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from app_server.runtime.loader import (
    Importer,
    Lazy,
    LoadFailed,
    load,
    load_from_worker,
    load_module,
)
from tests.support.harness import claim

WAIT_S = 60.0
ROUNDS = 100
SLOWLY = "import threading, time\nTHREAD = threading.get_ident()\ntime.sleep(0.001)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder whose modules are forgotten at the end."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / f"{name.replace('.', '/')}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    importlib.invalidate_caches()


@claim("loading:one-importer")
async def test_packages_that_import_each_other_are_loaded_at_once_a_hundred_times(
    folder: Path,
) -> None:
    # Two worker threads that import these find each other waiting every time.
    for number in range(ROUNDS):
        ann, bob = f"ann{number}", f"bob{number}"
        for own, other in ((ann, bob), (bob, ann)):
            write(folder, f"{own}.__init__", f"{SLOWLY}import {other}.part\n")
            text = f"{SLOWLY}from {other} import __name__ as other\nimport {other}.more\n"
            write(folder, f"{own}.part", text)
            write(folder, f"{own}.more", f"import {other}.part\n")
        with anyio.fail_after(WAIT_S):
            found = await asyncio.gather(
                load_module(f"{ann}.part"),
                asyncio.to_thread(load_from_worker, partial(import_module, f"{bob}.part")),
            )
        assert [module.__name__ for module in found] == [f"{ann}.part", f"{bob}.part"]
        (thread,) = {module.THREAD for module in found}
        assert thread == await load(threading.get_ident)


async def test_a_module_that_fails_is_tried_again(folder: Path) -> None:
    for text, said in (
        ("raise RuntimeError('not now')", "RuntimeError: not now"),
        ("raise SystemExit(1)", "SystemExit: 1"),
        ("def", "SyntaxError"),
    ):
        write(folder, "fragile", text)
        with pytest.raises(LoadFailed, match=said) as caught:
            await load_module("fragile")
        assert caught.value.__cause__ is not None
    write(folder, "fragile", "VALUE = 'x' * 5")
    assert (await load_module("fragile")).VALUE == "xxxxx"
    with pytest.raises(LoadFailed, match="ModuleNotFoundError"):
        await asyncio.to_thread(load_from_worker, partial(import_module, "no_such"))


async def test_requests_to_the_importer_are_bounded_and_skipped_when_cancelled() -> None:
    importer = Importer(max_waiting=2)
    there = {thread.name for thread in threading.enumerate()}
    began, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def hold() -> None:
        began.set()
        assert go_on.wait(WAIT_S)

    held = importer.request(hold)
    assert await asyncio.to_thread(began.wait, WAIT_S)
    waiting: list[Future[None]] = [
        importer.request(lambda number=number: done.append(number))  # type: ignore[misc]
        for number in range(2)
    ]
    with pytest.raises(LoadFailed, match="too much is being loaded at once"):
        importer.request(hold)
    assert waiting[0].cancel()
    go_on.set()
    await asyncio.wrap_future(waiting[1])
    assert (held.result(), done) == (None, [1])
    importer.end()
    assert "importer" not in {thread.name for thread in threading.enumerate()} - there


@pytest.mark.parametrize("failure", [OSError(24, "Too many open files"), ImportError("none")])
def test_the_importer_begins_also_where_its_own_first_import_fails(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def refuse(name: str) -> ModuleType:
        raise failure

    importer = Importer()
    monkeypatch.setattr(importlib, "import_module", refuse)
    try:
        assert importer.request(lambda: "done").result(WAIT_S) == "done"
    finally:
        importer.end()


async def test_a_worker_does_not_wait_for_ever() -> None:
    go_on = threading.Event()
    try:
        with pytest.raises(LoadFailed, match=r"not imported within 0\.01 s"):
            work = partial(load_from_worker, lambda: go_on.wait(WAIT_S), import_s=0.01)
            await asyncio.to_thread(work)
    finally:
        go_on.set()


async def test_the_importer_may_ask_itself() -> None:
    assert await load(lambda: load_from_worker(threading.get_ident)) == await load(
        threading.get_ident
    )


class Making:
    """Makes numbers when it is let; fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.begun = 0
        self.may_end = anyio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        await self.may_end.wait()
        if self.begun <= self.failures:
            raise OSError(f"failure {self.begun}")
        return self.begun


async def wait_until_begun(making: Making) -> None:
    while making.begun == 0:
        await anyio.lowlevel.checkpoint()


@claim("loading:lazy")
async def test_a_lazy_value_is_made_once_though_a_waiter_is_cancelled() -> None:
    making = Making()
    lazy = Lazy("a number", making)
    assert (lazy.value, making.begun) == (None, 0)
    first, *others = [asyncio.create_task(lazy.get()) for _ in range(3)]
    await wait_until_begun(making)
    first.cancel()
    making.may_end.set()
    with anyio.fail_after(WAIT_S):
        assert await asyncio.gather(*others) == [1, 1]
    assert (await asyncio.gather(first, return_exceptions=True))[0].__class__ is (
        asyncio.CancelledError
    )
    assert (await lazy.get(), lazy.value, making.begun) == (1, 1, 1)


async def test_a_failure_is_for_those_who_waited_and_logged_and_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    making = Making(failures=1)
    lazy = Lazy("a number", making)
    asked = [asyncio.create_task(lazy.get()) for _ in range(2)]
    making.may_end.set()
    with anyio.fail_after(WAIT_S):
        found = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(failure) for failure in found] == ["failure 1", "failure 1"]
    assert (await lazy.get(), making.begun) == (2, 2)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["a number cannot be loaded: failure 1"]


async def test_a_failure_without_a_waiter_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    making = Making(failures=1)
    lazy = Lazy("a number", making)
    asked = asyncio.create_task(lazy.get())
    await wait_until_begun(making)
    asked.cancel()
    making.may_end.set()
    await lazy.close()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["a number cannot be loaded: failure 1"]


async def test_a_failed_load_is_retried_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    class Timeout:
        def __init__(self, wait_s: float) -> None:
            waits.append(wait_s)

        async def __aenter__(self) -> None:
            raise TimeoutError

        async def __aexit__(self, *_: object) -> None: ...

    making = Making(failures=9)
    making.may_end.set()
    lazy = Lazy("a number", making)
    monkeypatch.setattr(asyncio, "timeout", Timeout)
    assert await lazy.get_at_last() == 10
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_a_waiter_gets_the_result_of_the_running_attempt() -> None:
    making = Making(failures=1)
    making.may_end.set()
    lazy = Lazy("a number", making)
    waiting = asyncio.create_task(lazy.get_at_last())
    await wait_until_begun(making)
    with pytest.raises(OSError, match="failure 1"):
        await lazy.get()
    with anyio.fail_after(WAIT_S):
        assert sum(await asyncio.gather(waiting, lazy.get())) == 4


async def test_closing_waits_for_what_is_being_made_and_makes_nothing_more() -> None:
    making = Making()
    lazy = Lazy("a number", making)
    asked = asyncio.create_task(lazy.get())
    await wait_until_begun(making)
    closing = asyncio.create_task(lazy.close())
    making.may_end.set()
    assert [await closing, await asked] == [1, 1]
    never = Lazy("a number", making)
    assert await never.close() is None
    for ask in (never.get, never.get_at_last):
        with pytest.raises(LoadFailed, match="a number: this is closed"):
            await ask()
    assert making.begun == 1


def typed(lazy: Lazy[ModuleType]) -> Callable[[], Awaitable[ModuleType]]:
    """Show mypy that a Lazy gives what it was made for."""
    return lazy.get
