"""Kills its process by SIGKILL at a step of the first request that a client has named.

Steps are counted from when the request is noted: before and behind each call of the ledger and
each append to a database, and before each change of the disk by way of `os`. See the package.
"""

import importlib
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

_steps = -1
"""Steps so far; -1 before the request is noted."""


def _step() -> None:
    global _steps
    if _steps < 0:
        return
    if _steps == int(os.environ["TESTS_DIE_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    _steps += 1


def _count(owner: Any, name: str, *, begins: bool = False) -> None:
    """Have a step before a function, and one behind it where no other follows."""
    function: Callable[..., Any] = getattr(owner, name)

    def counted(*arguments: Any, **more: Any) -> Any:
        global _steps
        if begins and _steps < 0:
            _steps = 0
        _step()
        result = function(*arguments, **more)
        if owner is not os:
            _step()
        return result

    setattr(owner, name, counted)


def _count_awaited(owner: Any, name: str) -> None:
    """Have a step before a coroutine function runs, and one behind it."""
    function: Callable[..., Coroutine[Any, Any, Any]] = getattr(owner, name)

    async def counted(*arguments: Any, **more: Any) -> Any:
        _step()
        result = await function(*arguments, **more)
        _step()
        return result

    setattr(owner, name, counted)


if "TESTS_DIE_AT" in os.environ:
    _records = importlib.import_module("app_server.threads.postgresql.records")
    _count_awaited(_records.GroupAppender, "append")
    for _module, _ledger in (
        ("app_server.threads.files.operations", "FileOperationLedger"),
        ("app_server.threads.postgresql.operations", "PostgresOperationLedger"),
    ):
        _owner = getattr(importlib.import_module(_module), _ledger)
        _count(_owner, "begin", begins=True)
        _count(_owner, "finish")
        _count(_owner, "forget")
    for _name in ("write", "fsync", "replace", "rename", "unlink", "mkdir"):
        _count(os, _name)
