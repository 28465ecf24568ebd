"""The scripts in .ci: where what they need cannot be had, and the same checks before a commit."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.processes import START_S

# Makes a virtual environment whose pip finds nothing.
PYTHON_WITHOUT_INDEX = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho no such package >&2\\nexit 1\\n' >"$3/bin/pip"
chmod +x "$3/bin/pip"
"""


@pytest.mark.parametrize("script", ["clients", "conformance"])
def test_a_check_without_its_tools_fails(tmp_path: Path, script: str) -> None:
    python = tmp_path / "python3"
    python.write_text(PYTHON_WITHOUT_INDEX)
    python.chmod(0o755)

    result = subprocess.run(
        [ROOT / ".ci" / script],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )

    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.splitlines()[0] == "no such package"
    assert result.stderr.endswith(": PyPI or npm did not give the tools\n")


def test_pages_without_a_browser_fail() -> None:
    result = subprocess.run(
        [ROOT / ".ci" / "inspector"],
        env={**os.environ, "CHROMIUM": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("pages were not tested: there is no Chromium")


def test_the_checks_before_a_commit_are_those_of_the_run() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()

    loop = re.search(r"for check in (.*?); do", run, re.DOTALL)
    assert loop is not None
    checks = re.findall(r'"([^"]+)"', loop[1])

    assert len(checks) > 1
    assert re.findall(r"entry: \.venv/bin/(.+)", hooks) == checks


def test_coverage_has_a_floor_for_each_room_that_it_measures() -> None:
    script = (ROOT / ".ci" / "coverage").read_text()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]

    floors = re.findall(r"^(\w+) (\d+)$", script, re.MULTILINE)

    assert settings["patch"] == ["subprocess"]
    assert settings["source_pkgs"] == [f"app_server.{package}" for package, _ in floors]
    assert all(f" tests/{package}" in script and int(floor) >= 85 for package, floor in floors)
