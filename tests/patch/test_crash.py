"""A process that dies at any step of a write leaves each file as it was or as it should be."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.patch.write import TEMPORARY_SUFFIX
from tests.patch.folders import apply, content, patch_of
from tests.support.dying import dying
from tests.support.harness import claim

PATCH = patch_of(
    "*** Add File: new/add.txt",
    "+added",
    "*** Update File: edit.txt",
    "@@",
    "-one",
    "+two",
    "*** Delete File: gone.txt",
    "*** Update File: from.txt",
    "*** Move to: to.txt",
    "@@",
    "-one",
    "+two",
)
BEFORE = {"edit.txt": b"one\n" * 1000, "gone.txt": b"gone\n", "from.txt": b"one\nrest\n"}
AFTER = {
    "edit.txt": b"two\n" + b"one\n" * 999,
    "new/add.txt": b"added\n",
    "to.txt": b"two\nrest\n",
}
STEPS = 8
"""Three new files are begun, two take their places, one is deleted, one moves in two steps."""

CHILD = """
import sys
from pathlib import Path
from tests.patch.folders import apply
apply(Path(sys.argv[1]), sys.argv[2])
"""


def write(folder: Path) -> None:
    for name, text in BEFORE.items():
        (folder / name).write_bytes(text)


def kept(folder: Path) -> dict[str, bytes]:
    return {
        name: text for name, text in content(folder).items() if not name.endswith(TEMPORARY_SUFFIX)
    }


@claim("patch:crash")
@pytest.mark.process
@pytest.mark.parametrize("step", range(STEPS))
def test_each_file_is_old_or_new(tmp_path: Path, step: int) -> None:
    write(tmp_path)
    assert child(tmp_path, step) == -signal.SIGKILL
    found = kept(tmp_path)
    for name in {*BEFORE, *AFTER}:
        assert found.get(name) in (BEFORE.get(name), AFTER.get(name)), name
    # Of a file that moves there is always a whole one.
    assert "from.txt" in found or "to.txt" in found
    if step < 4:
        # All new files are begun before the first one takes its place.
        assert found == BEFORE
    else:
        assert found != BEFORE


@pytest.mark.process
def test_there_are_no_further_steps(tmp_path: Path) -> None:
    write(tmp_path)
    assert child(tmp_path, STEPS) == 0
    assert content(tmp_path) == AFTER


def child(folder: Path, step: int) -> int:
    """Apply the patch in a process that dies before a step; gives its exit status."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), PATCH],
        env={**os.environ, **dying(step)},
        check=False,
        timeout=120,
    )
    return done.returncode


def test_all_of_it_is_written(tmp_path: Path) -> None:
    write(tmp_path)
    apply(tmp_path, PATCH)
    assert content(tmp_path) == AFTER
