"""The real executable: demos, and the client of the README."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.harness import (
    claim,
    environment_without,
)
from tests.support.paths import ROOT
from tests.support.processes import EXECUTABLE, START_S, run_cli

pytestmark = pytest.mark.process


@claim(*("process:demo", "process:demo-unattended"), *("apps:demo", "signals:demo", "tools:demo"))
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "checks"),
    [
        ([], 15),
        (["--apps"], 12),
        (["--signals"], 10),
        (["--tools"], 17),
        (["--unattended"], 15),
    ],
)
def test_demo_checks_every_step(tmp_path: Path, words: list[str], checks: int) -> None:
    result = run_cli("demo", *words, TMPDIR=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert result.stdout.endswith(f"All {checks} checks hold.\n")
    assert "\033" not in result.stdout
    assert not list(tmp_path.iterdir())


def test_one_demo_is_shown_at_a_time() -> None:
    result = run_cli("demo", "--tools", "--apps")
    assert result.returncode == 2
    assert (
        "demo shows one thing at a time: --apps or --fleet or --signals or --tools or --unattended"
        in result.stderr
    )


def test_the_client_of_the_readme_works(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(code.splitlines()) <= 20
    script = textwrap.dedent(
        """
        import re, subprocess, sys
        server = subprocess.Popen(
            [sys.argv[1], "--home", sys.argv[2], "--listen", "ws://127.0.0.1:0"],
            stderr=subprocess.PIPE, text=True,
        )
        url = re.search(r"ws://\\S+", server.stderr.readline())[0]
        code = open(sys.argv[3]).read()
        assert "ws://127.0.0.1:4500" in code
        exec(compile(code.replace("ws://127.0.0.1:4500", url), "README", "exec"), {})
        server.terminate()
        server.communicate()
        """
    )
    (tmp_path / "code.py").write_text(code)
    result = subprocess.run(
        [
            *(sys.executable, "-c", script),
            *(str(EXECUTABLE), str(tmp_path / "home"), str(tmp_path / "code.py")),
        ],
        env=environment_without("OPENAI_API_KEY"),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "You said: Hello there." in result.stdout
