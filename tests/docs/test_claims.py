"""The table of claims, and the tests that prove them."""

import importlib
import re

from tests.support.harness import CLAIMS
from tests.support.paths import ROOT


def test_every_claim_has_a_test_and_every_marked_test_a_claim() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    table = (ROOT / "docs" / "wire.md").read_text()
    documented = re.findall(r"^\| `([a-z-]+:[a-z0-9-]+)` \|", table, re.MULTILINE)
    assert sorted(documented) == sorted(CLAIMS)
