"""Checks run side by side: one that hangs or fails takes nothing from the others."""

import errno
import threading
from pathlib import Path

import anyio

from app_server.cli.checks.catalogue import CheckSpec, run_checks
from app_server.cli.checks.machine import Machine
from app_server.threads.checks import Check


async def test_checks_run_at_the_same_time_and_keep_their_order(tmp_path: Path) -> None:
    met = threading.Barrier(2, timeout=30)

    def meet(machine: Machine) -> Check:
        met.wait()
        return Check("first")

    def meet_too(machine: Machine) -> list[Check]:
        met.wait()
        return [Check("second"), Check("third")]

    specs = [CheckSpec(name="a", blocking=meet), CheckSpec(name="b", blocking=meet_too)]
    checks = await run_checks(specs, Machine(home=tmp_path))
    assert [check.name for check in checks] == ["first", "second", "third"]


async def test_a_check_that_hangs_or_fails_is_an_error_of_its_own(tmp_path: Path) -> None:
    ended = threading.Event()

    def hang(machine: Machine) -> Check:
        assert ended.wait(60)
        return Check("late")

    async def hang_too(machine: Machine) -> Check:
        await anyio.sleep_forever()
        raise AssertionError

    def fail(machine: Machine) -> Check:
        raise RuntimeError("something secret")

    def stumble(machine: Machine) -> Check:
        raise PermissionError(errno.EACCES, "Permission denied", "/a/folder")

    specs = [
        CheckSpec(name="shut", blocking=stumble),
        CheckSpec(name="stuck", blocking=hang, bound_s=0.01, when_overdue="pull the plug"),
        CheckSpec(name="waits", waiting=hang_too, bound_s=0.01),
        CheckSpec(name="broken", blocking=fail),
        CheckSpec(name="well", blocking=lambda machine: Check("well")),
    ]
    checks = await run_checks(specs, Machine(home=tmp_path))
    ended.set()
    assert [(check.name, check.status, check.details, check.todo) for check in checks] == [
        ("shut", "error", ["/a/folder: Permission denied"], "let this user look at it"),
        ("stuck", "error", ["it did not end within 0.01 s"], "pull the plug"),
        (
            "waits",
            "error",
            ["it did not end within 0.01 s"],
            "look at what it waits for, and run doctor again",
        ),
        (
            "broken",
            "error",
            ["the check itself failed: RuntimeError"],
            "report this, with the output of app-server doctor --json",
        ),
        ("well", "ok", [], None),
    ]
