"""The program that plants errors: which there are in a text, and that the tests meet them."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.planted.errors import errors_in, planted
from tests.planted.importing import ROOT

LIVED = (
    "app_server/runtime/http/bounded_body.py:21: comparison: "
    "len(body) > limit_bytes -> len(body) >= limit_bytes (by no test)"
)


def changes(source: str) -> list[str]:
    return [
        f"{error.kind}: {planted(source, number)[1]}"
        for number, error in enumerate(errors_in(ast.parse(source)))
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = a < b <= c", ["comparison: a < b <= c -> a <= b <= c",
                            "comparison: a < b <= c -> a < b < c"]),
        ("x = a in b", ["comparison: a in b -> a not in b"]),
        ("x = a is not b", ["comparison: a is not b -> a is b"]),
        ("if a == b: x()", ["comparison: a == b -> a != b", "statement: x() -> pass"]),
        ("if a < b: x = y", ["condition: a < b -> not a < b", "comparison: a < b -> a <= b"]),
        ("while not a: x = y", ["condition: not a -> a"]),
        ("x = a or b", ["condition: a or b -> not a or b", "condition: a or b -> a or not b"]),
        ("x = [y for y in z if y]", ["condition: y -> not y"]),
        ("x = y if z else w", ["condition: z -> not z"]),
        ("match a:\n case b if c: d()", ["condition: c -> not c", "statement: d() -> pass"]),
        ("LIMIT = 2 * 8", ["constant: 2 -> 3", "constant: 8 -> 9"]),
        ("def f(a=1): return b", ["constant: 1 -> 2"]),
        ("x.y = z\nx[0] += a", ["statement: x.y = z -> pass", "statement: x[0] += a -> pass",
                                "constant: 0 -> 1"]),
        ("def f():\n if a:\n  return\n raise B(1)", ["condition: a -> not a",
                                                   "statement: return -> pass",
                                                   "statement: raise B(1) -> pass"]),
        ("async def f():\n await g()\n for a in b:\n  continue", ["statement: await g() -> pass",
                                                               "statement: continue -> pass"]),
    ],
)  # fmt: skip
def test_each_kind_of_error_is_planted(source: str, found: list[str]) -> None:
    assert changes(source) == found


@pytest.mark.parametrize(
    "source",
    [
        '"""Words."""\nimport a\nx: int = b\nassert c < 1',
        "logger.debug('%d', 1)\nwarnings.warn('x')",
        "x = f'{1 + a}'",
        "def __repr__(self): return a[0]",
        "class A(Protocol):\n def f(self): x()",
        "if TYPE_CHECKING:\n x()",
        "WAIT_S = 1.0\nA_S, B_MS = 1, 2\nx = f(timeout_s=1)",
        "while True: x = y",
        "x = True",
        # Behind these nothing comes.
        "def f():\n try:\n  return a\n except B:\n  return None",
        "def f():\n with a:\n  return False",
    ],
)
def test_what_no_test_should_find_is_left_out(source: str) -> None:
    assert changes(source) == []


@pytest.mark.slow
@pytest.mark.process
def test_errors_of_a_room_are_met_by_its_tests(tmp_path: Path) -> None:
    """With real tests: both errors are caught, and one in a line that no test runs lives."""
    room, tests = "runtime/http/loopback_address", "tests/runtime/http/test_loopback_address.py"
    command = [sys.executable, "-m", "tests.planted", room, "--tests", tests]
    ran = run([*command, "--count", "2"])
    assert ran.returncode == 0, ran.stderr
    assert f"{room}: 2 of 2 errors caught (100.0 %), 0 of them as a test hung; seed 1" in ran.stdout
    again = tmp_path / "lived"
    again.write_text(LIVED)
    ran = run([*command[:3], "runtime/http/bounded_body", "--tests", tests, "--again", str(again)])
    assert ran.returncode == 1
    lines = [line for line in ran.stdout.splitlines() if "->" in line or "caught" in line]
    assert lines == [
        LIVED,
        "runtime/http/bounded_body: 0 of 1 errors caught (0.0 %), 0 of them as a test hung; seed 1",
    ]


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
