"""Each module is compiled once for all processes of a run. Loaded before others.

Compiling is half of what collecting the tests costs, as pytest rewrites their assertions, and a
third of what the start of a server costs. Images of containers set PYTHONDONTWRITEBYTECODE: then
every process of a run would compile whatever it imports. Here the bytecode goes to `__pycache__`,
as it does without the variable.
Source: https://docs.python.org/3/using/cmdline.html#envvar-PYTHONDONTWRITEBYTECODE
"""

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parents[3]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each process of a whole run begin with files of its own, and find the others compiled."""
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    number = int(worker["workerid"].removeprefix("gw"))
    paths = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    first = len(paths) * number // int(worker["workercount"])
    for path in paths[first:] + paths[:first]:
        # What cannot be imported is told by the collection.
        with suppress(Exception):
            importlib.import_module(".".join(path.with_suffix("").parts))
