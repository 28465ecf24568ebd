"""The scripts in .ci, where what they need cannot be had."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

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
        timeout=30,
        check=False,
    )

    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.splitlines()[0] == "no such package"
    assert result.stderr.endswith(": PyPI or npm did not give the tools\n")
