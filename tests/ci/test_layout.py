"""The folders of the tests, and what holds for all of them."""

import re
from pathlib import Path

import hypothesis

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
