"""Checks of `app-server doctor`: how one is run within its time, and the table of all of them.

A check that blocks has a thread of its own, which is not waited for beyond its bound: a folder of a
network that does not answer holds up neither the others nor the end of the program.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import anyio

from app_server.cli.checks.home import check_config, check_modes, check_store
from app_server.cli.checks.machine import (
    Machine,
    check_clock,
    check_disk,
    check_keyring,
    check_limits,
    check_ports,
    check_sandbox,
)
from app_server.cli.checks.services import MCP_S, check_mcp_servers, check_model
from app_server.host.sandbox.probe import PROBE_S
from app_server.threads.checks import Check
from app_server.threads.opening.checks import store_checks

logger = logging.getLogger(__name__)

BOUND_S = 20.0

Findings: TypeAlias = Check | Sequence[Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """One row of the table of checks."""

    name: str
    blocking: Callable[[Machine], Findings] | None = None
    waiting: Callable[[Machine], Awaitable[Findings]] | None = None
    """One of both: a function that blocks, or one that waits on the event loop."""
    bound_s: float = BOUND_S
    when_overdue: str = "look at what it waits for, and run doctor again"
    """Advice when it does not end in time."""


async def run_checks(specs: Sequence[CheckSpec], machine: Machine) -> list[Check]:
    """Run all checks at the same time; the results are in the order of the table."""
    results: list[Sequence[Check]] = [() for _ in specs]

    async def run(position: int, spec: CheckSpec) -> None:
        found = await _run_one(spec, machine)
        results[position] = [found] if isinstance(found, Check) else found

    async with anyio.create_task_group() as tasks:
        for position, spec in enumerate(specs):
            tasks.start_soon(run, position, spec)
    return [check for result in results for check in result]


async def _run_one(spec: CheckSpec, machine: Machine) -> Findings:
    try:
        with anyio.fail_after(spec.bound_s):
            if spec.waiting is not None:
                return await spec.waiting(machine)
            assert spec.blocking is not None, f"{spec.name} has no function"
            return await _in_own_thread(partial(spec.blocking, machine))
    except TimeoutError:
        overdue = Check(spec.name, todo=spec.when_overdue)
        overdue.add("error", f"it did not end within {spec.bound_s:g} s")
        return overdue
    except Exception as exc:
        # The others are wanted all the more.
        failed = Check(spec.name)
        if isinstance(exc, OSError) and exc.filename is not None:
            failed.add("error", f"{exc.filename}: {exc.strerror}")
            failed.todo = "let this user look at it"
        else:
            logger.exception("check %s failed", spec.name)
            failed.add("error", f"the check itself failed: {type(exc).__name__}")
            failed.todo = "report this, with the output of app-server doctor --json"
        return failed


async def _in_own_thread(work: Callable[[], Findings]) -> Findings:
    future: Future[Findings] = Future()
    # Whoever waits may give up; the result then comes to nobody.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as exc:  # noqa: BLE001
            future.set_exception(exc)

    threading.Thread(target=run, name="check", daemon=True).start()
    return await asyncio.wrap_future(future)


THREADS_S = 3600.0
"""For reading every log of a home, at some hundred MiB a second."""

CHECKS: Sequence[CheckSpec] = (
    CheckSpec(
        name="threads",
        blocking=lambda machine: store_checks(machine.home).threads(machine.progress),
        bound_s=THREADS_S,
    ),
    CheckSpec(
        name="database",
        waiting=check_store,
        when_overdue="the database does not answer: look at it, and at the network",
    ),
    CheckSpec(name="filing", blocking=lambda machine: store_checks(machine.home).filing()),
    CheckSpec(name="signals", blocking=lambda machine: store_checks(machine.home).signals()),
    CheckSpec(
        name="notifications",
        blocking=lambda machine: store_checks(machine.home).notifications(),
    ),
    CheckSpec(
        name="disk",
        blocking=check_disk,
        when_overdue="the disk does not answer: look at the mount that the home is on",
    ),
    CheckSpec(name="modes", blocking=check_modes),
    CheckSpec(name="config", blocking=check_config),
    CheckSpec(
        name="keyring",
        blocking=check_keyring,
        when_overdue="unlock the keyring of the desktop session, or keep credentials in files: "
        'cli_auth_credentials_store = "file", mcp_oauth_credentials_store = "file"',
    ),
    CheckSpec(
        name="model",
        waiting=check_model,
        when_overdue="the model provider does not answer: look at the network and the proxy",
    ),
    CheckSpec(
        name="mcp",
        waiting=check_mcp_servers,
        bound_s=MCP_S,
        when_overdue="some MCP server neither starts nor fails: run its command by hand",
    ),
    CheckSpec(name="sandbox", blocking=check_sandbox, bound_s=PROBE_S + 5),
    CheckSpec(name="ports", blocking=check_ports),
    CheckSpec(name="clock", blocking=check_clock),
    CheckSpec(name="limits", blocking=check_limits),
)
"""`threads` gives six: home, logs, locks, index, history, codex."""
