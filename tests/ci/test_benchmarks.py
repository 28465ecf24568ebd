"""Programs that measure say what they do."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.receiver.processes import START_S

pytestmark = pytest.mark.process


@pytest.mark.parametrize("program", ["tests.bench.processor.callbacks", "tests.bench.server"])
def test_a_benchmark_has_a_help(program: str) -> None:
    command = [sys.executable, "-m", program, "--help"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
