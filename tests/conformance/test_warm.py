"""Commands that run in forks of one process that has imported everything."""

import ast
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.processes import START_S

PLAY = """
import os, subprocess, sys
from tests.conformance.warm import warm_command

def play(arguments):
    is_known = os.getpid() == main or "MAIN" in os.environ
    print(is_known, arguments, os.environ["ONLY"], input(), flush=True)
    print("said", file=sys.stderr)
    BODY

main = os.getpid()
os.environ["MAIN"] = ""
with warm_command(play, seconds=SECONDS) as command:
    for _ in range(2):
        done = subprocess.run(command + " 'a b' ''", shell=True, env={"ONLY": "ä=\\n"}, input="in",
                              capture_output=True, text=True)
        print([done.returncode, done.stdout, done.stderr.splitlines()[:1]])
    if FAILS:
        raise KeyError
"""


def run(
    body: str, *, seconds: int = int(START_S), fails: bool = False
) -> tuple[int, list[list[object]]]:
    program = PLAY.replace("BODY", body).replace("SECONDS", str(seconds))
    done = subprocess.run(
        [sys.executable, "-c", program.replace("FAILS", str(fails))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * START_S,
        check=False,
    )
    return done.returncode, [ast.literal_eval(line) for line in done.stdout.splitlines()]


SAID = "False ['a b', ''] ä=\n in\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return 0", 0),
        ("return 7", 7),
        ("sys.exit(3)", 3),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), 9)", 137),
    ],
)
def test_a_warm_command_has_its_own_streams_and_ends_as_its_function(
    body: str, status: int
) -> None:
    assert run(body) == (0, [[status, SAID, ["said"]]] * 2)


def test_a_warm_command_that_hangs_is_ended() -> None:
    status, ended = run("import signal; signal.pause()", seconds=1)

    assert (status, [command[0] for command in ended]) == (0, [142, 142])


def test_what_runs_warm_commands_ends_with_what_failed_beside_it() -> None:
    assert run("return 0", fails=True) == (1, [[0, SAID, ["said"]]] * 2)


def test_a_process_with_threads_runs_no_warm_commands() -> None:
    program = (
        "import threading\n"
        "from tests.conformance.warm import warm_command\n"
        "waits = threading.Event()\n"
        "threading.Thread(target=waits.wait).start()\n"
        "try:\n"
        "    with warm_command(len, seconds=1): pass\n"
        "except RuntimeError as exc: print(exc)\n"
        "waits.set()\n"
    )

    said = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)

    assert said == "a process with threads cannot be forked\n"
