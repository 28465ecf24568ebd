"""The clusters of tests: none is left behind by a process that was killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.host.programs import wait_until_gone
from tests.support.postgresql import remove_left_behind

pytestmark = [pytest.mark.postgresql, pytest.mark.process]

RUNS = """
from tests.support.postgresql import running_cluster
with running_cluster() as cluster:
    print(cluster.folder, flush=True)
    input()
"""


async def test_the_next_run_removes_what_a_killed_one_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory() as place:
        # The user of clusters comes through it, as through /tmp.
        Path(place).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", place)
        with subprocess.Popen(
            [sys.executable, "-c", RUNS],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": place},
        ) as killed:  # fmt: skip
            assert killed.stdout is not None
            folder = Path(killed.stdout.readline().strip())
            server = int((folder / "data" / "postmaster.pid").read_text().split("\n")[0])
            remove_left_behind()
            # Its process lives.
            assert (folder / "data").is_dir()
            killed.kill()
        remove_left_behind()
        assert not folder.exists()
        await wait_until_gone(server)
