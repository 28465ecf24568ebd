"""A process that dies at any step of a write leaves each file as it was or as it should be."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from app_server.patch.failpoints import KILL_AT, Step
from app_server.patch.write import TEMPORARY_SUFFIX
from tests.patch.folders import apply, content, patch_of
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
REACHED = {
    "opened": (0, 1, 3),
    "written": (0, 1, 3),
    "checked": (0, 1, 2, 3),
    "replaced": (0, 1, 3),
    "deleted": (2, 3),
}
"""Which changes go through a step."""

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
@pytest.mark.parametrize(
    ("step", "number"), [(step, number) for step in get_args(Step) for number in REACHED[step]]
)
def test_each_file_is_old_or_new(tmp_path: Path, step: str, number: int) -> None:
    write(tmp_path)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), PATCH],
        env={**os.environ, KILL_AT: f"{step}:{number}"},
        check=False,
        timeout=120,
    )
    assert child.returncode == -signal.SIGKILL
    found = kept(tmp_path)
    for name in {*BEFORE, *AFTER}:
        assert found.get(name) in (BEFORE.get(name), AFTER.get(name)), name
    # Of a file that moves there is always a whole one.
    assert "from.txt" in found or "to.txt" in found
    if step in ("opened", "written", "checked"):
        assert found == BEFORE


def test_without_a_failpoint_all_of_it_is_written(tmp_path: Path) -> None:
    write(tmp_path)
    apply(tmp_path, PATCH)
    assert content(tmp_path) == AFTER
