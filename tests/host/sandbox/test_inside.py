"""The program that starts bubblewrap, with another one in the place of bubblewrap."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.host.sandbox.linux.sandbox import NOT_WANTED, PROGRAM
from tests.support.harness import WAIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")

STAND_IN = """#!/bin/sh
echo '{}}' >/proc/self/fd/$2
cat /proc/self/fd/$4
echo started
"""
"""Says nothing that makes sense, and waits for the word to start, or for the end of its giver."""


def test_what_cannot_be_prepared_is_not_started_though_nobody_reads_why(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text(STAND_IN)
    program.chmod(0o700)
    argv = (sys.executable, "-I", "-S", str(PROGRAM))
    heard, said = os.pipe()
    os.close(heard)
    try:
        done = subprocess.run(
            [*argv, NOT_WANTED, NOT_WANTED, "4000", "--", str(program)],
            stdout=subprocess.PIPE,
            stderr=said,
            timeout=WAIT_S,
            check=False,
        )
    finally:
        os.close(said)
    assert (done.returncode, done.stdout) == (-9, b"")
