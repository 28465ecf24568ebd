"""The tables of claims, and the tests that prove them."""

import importlib
import re
from itertools import groupby

from tests.support.harness import CLAIMS
from tests.support.paths import ROOT


def test_every_claim_has_a_test_and_every_marked_test_a_claim() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    table = (ROOT / "docs" / "wire.md").read_text()
    documented = re.findall(r"^\| `([a-z-]+:[a-z0-9-]+)` \|", table, re.MULTILINE)
    assert sorted(documented) == sorted(CLAIMS)


def test_the_claims_of_an_area_stand_in_one_table() -> None:
    page = (ROOT / "docs" / "wire.md").read_text()
    rows = re.findall(r"^\| (?:`([a-z-]+):[a-z0-9-]+`|(Claim)) \|", page, re.MULTILINE)
    runs = [area for area, _ in groupby(area or None for area, _ in rows) if area]
    assert [area for area in runs if runs.count(area) > 1] == []
