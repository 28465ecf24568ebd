"""The folders of the tests, and what holds for all of them."""

import re
from pathlib import Path

import hypothesis

from tests.support.pytest_plugins.patience import WAITS

TESTS = Path(__file__).parents[1]
IMPORT = re.compile(
    r"^\s*(?:from|import) tests(?:\.\w+)*\.test_|^\s*from tests(?:\.\w+)* import test_", re.M
)


def test_nothing_is_imported_from_a_module_of_tests() -> None:
    sources = {str(path.relative_to(TESTS)): path.read_text() for path in TESTS.rglob("*.py")}

    for line in ("from tests.package.test_it import helper", "from tests.a.package import test_it"):
        assert IMPORT.search(line)
    assert [name for name, source in sources.items() if IMPORT.search(source)] == []


def test_no_example_has_a_deadline() -> None:
    assert hypothesis.settings().deadline is None


def test_every_wait_that_is_raised_for_tests_is_there() -> None:
    missing = [
        f"{module}.{name}"
        for module, names in WAITS.items()
        for name in names
        if not re.search(rf"^{name}\b.*=", read_module(module), re.M)
    ]
    assert missing == []


def read_module(name: str) -> str:
    """Read the source of a module of the server; nothing where there is none."""
    path = TESTS.parent / f"{name.replace('.', '/')}.py"
    return path.read_text() if path.exists() else ""
