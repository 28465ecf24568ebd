"""The launcher, with an agent that notes how it was started."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.receiver.processes import (
    EXECUTABLE,
    START_S,
    clean_environment,
)

CODER = EXECUTABLE.with_name("coder")


def environment(tmp_path: Path, do: str = "exit 0", **more: str) -> dict[str, str]:
    """Return the variables of a launcher with an agent that does something."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    codex = folder / "codex"
    program = "tests.support.clients.fake_codex"
    codex.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m {program} \"$@\"\n")
    codex.chmod(0o755)
    given = tmp_path / "given.json"
    return clean_environment(
        APP_SERVER_HOME=str(tmp_path / "home"),
        FAKE_CODEX=f"{given} {do}",
        PATH=f"{folder}:{os.environ['PATH']}",
        PYTHONPATH=str(ROOT),
        **more,
    )


def run_coder(
    variables: dict[str, str], *words: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the launcher to its end."""
    return subprocess.run(
        [str(CODER), *words],
        env=variables,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=4 * START_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def read_given(tmp_path: Path) -> Any:
    """Return what the agent was given."""
    return json.loads((tmp_path / "given.json").read_text())
