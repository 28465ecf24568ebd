"""What doctor says of the ledger of signals."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from app_server.threads.checks import Check
from app_server.threads.files.ledger import Ledger
from app_server.threads.files.repair import SIGNALS_LOST
from app_server.threads.opening.checks import store_checks
from tests.support.harness import claim
from tests.support.receiver.stages import entry
from tests.support.receiver.wakes import stored_timer

WAKES_FOUND = ["2 open wakes", "1 lost wake of the last 30 days, of which threads were told"]
OVERDUE = "start a server: what is overdue comes then; if one runs, see its log"


@claim("doctor:signals")
def test_a_damaged_ledger_and_one_that_was_set_aside_are_named(tmp_path: Path) -> None:
    path = tmp_path / "signals" / "ledger.sqlite3"
    assert store_checks(tmp_path).signals() == Check(
        "signals", message="there is no ledger of signals yet"
    )
    kept = Ledger(path)
    kept.put([entry("s1")])
    kept.close()
    assert store_checks(tmp_path).signals() == Check("signals", message="the ledger of signals")
    path.write_bytes(path.read_bytes()[:5000])
    found = store_checks(tmp_path).signals()
    assert (found.status, found.details[0].split(":")[0]) == ("error", f"{path} cannot be used")
    Ledger(path).close()
    found = store_checks(tmp_path).signals()
    aside = f"{path}.damaged is a damaged ledger that was set aside"
    assert (found.status, found.details, found.todo) == ("warning", [aside], SIGNALS_LOST)
    # What to do about several is said once.
    (tmp_path / "signals" / "ledger.sqlite3.damaged-2").touch()
    path.write_bytes(path.read_bytes()[:5000])
    found = store_checks(tmp_path).signals()
    assert len(found.details) == 3
    assert found.todo == (
        f"{SIGNALS_LOST}; "
        "nothing if it is damaged: a server sets it aside and keeps what can be read"
    )


@claim("doctor:signals")
@pytest.mark.parametrize("late_s", [0, 301])
def test_wakes_are_counted_and_one_that_is_overdue_is_named(tmp_path: Path, late_s: int) -> None:
    kept = Ledger(tmp_path / "signals" / "ledger.sqlite3")
    at_ms = time.time_ns() // 1_000_000 - late_s * 1000
    kept.wakes.add(stored_timer("due", at_ms))
    kept.wakes.add(stored_timer("later", at_ms + 3_600_000))
    kept.wakes.add(replace(stored_timer("gone", None), state="lost"))
    kept.wakes.add(replace(stored_timer("over", None), state="delivered"))
    kept.close()
    about, counts = "the ledger of signals", WAKES_FOUND
    if not late_s:
        assert store_checks(tmp_path).signals() == Check("signals", "ok", about, details=counts)
    else:
        assert store_checks(tmp_path).signals() == Check(
            "signals", "warning", about, OVERDUE, [*counts, "a wake is overdue for 5 minutes"]
        )
