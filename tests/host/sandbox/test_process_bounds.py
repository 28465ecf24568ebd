"""How many processes a command may have, where neither limits of resources nor cgroups hold."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.host.sandbox.linux import process_limits
from app_server.host.sandbox.linux.process_limits import bound_of_pids, limit_in_words
from app_server.host.sandbox.linux.sandbox import (
    PRIVATE_FOLDER_BYTES,
    PROGRAM,
    SHARED_MEMORY_BYTES,
    Bubblewrap,
)
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.permissions.sandbox.policy import EffectivePolicy
from tests.support.harness import claim
from tests.support.host.sandboxes import PYTHON, run_confined, working_sandbox

PID_MAX = Path("/proc/sys/kernel/pid_max")
HAS_BOUNDS = tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 14)

FORKS = """
import os, signal
children = []
try:
    while len(children) < 1000:
        child = os.fork()
        if child == 0: signal.pause()
        children.append(child)
except OSError as exc: print(exc.strerror)
try: open("/proc/sys/kernel/pid_max", "w")
except OSError as exc: print(exc.strerror)
print(len(children) < 400)
for child in children: os.kill(child, signal.SIGKILL)
"""


@claim("sandbox:bomb")
@pytest.mark.skipif(not HAS_BOUNDS, reason="since Linux 6.14 PID namespaces have a bound")
async def test_the_numbers_of_processes_are_bounded(tmp_path: Path) -> None:
    before = PID_MAX.read_text()
    found = working_sandbox().sandbox()
    assert isinstance(found, Bubblewrap)
    sandbox = Bubblewrap(found.program)
    sandbox.limit, sandbox.pid_max = (), 400
    ended = await run_confined(
        (*PYTHON, FORKS),
        tmp_path,
        EffectivePolicy(writable=()),
        wrapper=MachineSandbox(sandbox),
    )
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "Resource temporarily unavailable",
        "Read-only file system",
        "True",
    ]
    assert PID_MAX.read_text() == before


FILLS = """
import os
for folder in ("/dev/shm", os.sys.argv[1]):
    room = os.statvfs(folder)
    print(room.f_blocks * room.f_frsize)
    # Room for what is too much is refused at once, without a byte that is written.
    with open(f"{folder}/x", "w") as file:
        try: os.posix_fallocate(file.fileno(), 0, 1 << 31)
        except OSError as exc: print(exc.strerror)
"""


async def test_memory_that_looks_like_a_disk_is_bounded(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    sandbox_policy = EffectivePolicy(writable=(), scratch=(str(own),))
    ended = await run_confined((*PYTHON, FILLS, str(own)), tmp_path, sandbox_policy)
    full = "No space left on device"
    assert (ended.code, ended.err) == (0, "")
    shared, private = SHARED_MEMORY_BYTES, PRIVATE_FOLDER_BYTES
    assert ended.out.splitlines() == [str(shared), full, str(private), full]
    assert list(own.iterdir()) == []


@pytest.mark.parametrize(
    ("kernel", "program", "group", "bound", "words"),
    [
        ((6, 14), (), None, 2348, "pid_max of their PID namespace"),
        ((6, 13), (), None, None, None),
        ((6, 14), ("prlimit",), None, None, "RLIMIT_NPROC"),
        (
            (6, 14),
            (),
            "/sys/fs/cgroup/a/app-server.1.0/cgroup.procs",
            None,
            "the cgroup /sys/fs/cgroup/a",
        ),
    ],
)
def test_when_they_are(
    monkeypatch: pytest.MonkeyPatch,
    kernel: tuple[int, int],
    program: tuple[str, ...],
    group: str | None,
    bound: int | None,
    words: str | None,
) -> None:
    monkeypatch.setattr(process_limits, "_kernel", lambda: kernel)
    monkeypatch.setattr(process_limits, "limiting_program", lambda: program)
    monkeypatch.setattr(process_limits, "_entrance_of_a_group", lambda: group)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert (bound_of_pids(), limit_in_words()) == (bound, words)
    monkeypatch.setattr(os, "cpu_count", lambda: 1024)
    assert bound_of_pids() == (None if bound is None else 8492)


def test_the_bound_of_a_machine_is_left_as_it_was(tmp_path: Path) -> None:
    # A file stands for a kernel that has one bound for all: who writes inside changes it outside.
    file = tmp_path / "pid_max"
    file.write_text("32768")
    script = f"""
import runpy
inside = runpy.run_path({str(PROGRAM)!r}, run_name="inside")
try: inside["bound_processes"]("400", {str(file)!r})
except OSError as exc: print(exc.strerror)
"""
    ended = subprocess.run(
        (sys.executable, "-c", script), check=True, capture_output=True, text=True
    )
    assert ended.stdout == "its processes cannot be bounded\n"
    assert file.read_text() == "32768"
