"""Whether the machine's clock can be right: times order threads, and decide about certificates."""

import heapq
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from app_server.cli.checks.machine import Machine
from app_server.threads.repair import Check

EARLIEST = datetime(2026, 6, 1, tzinfo=UTC)
"""Before this version was written."""
LATEST = datetime(2056, 1, 1, tzinfo=UTC)
TOLERATED_S = 120.0
"""By which a file may be from the future: other machines may write to a shared disk."""
NEWEST_DAYS = 2
"""Of the folders with threads, those that are looked at."""
MAX_FILES = 10_000
ADVICE = "set the clock, and have it kept right (timedatectl set-ntp true)"


def check_clock(machine: Machine) -> Check:
    """Compare the clock with when this version was written, and with the newest files."""
    now_s = machine.now_s()
    now = datetime.fromtimestamp(now_s, UTC)
    check = Check("clock", message=f"{now:%Y-%m-%d %H:%M:%S} UTC")
    if not EARLIEST <= now <= LATEST:
        check.add("error", f"it says {now:%Y}, which cannot be: certificates and tokens will fail")
        check.advise(ADVICE)
    newest = max(_times(machine.home), default=None)
    if newest is not None and newest[0] > now_s + TOLERATED_S:
        ahead_s = newest[0] - now_s
        check.add(
            "warning", f"{newest[1]} was written {_span(ahead_s)} from now: the clock was set back"
        )
        check.advise(ADVICE)
        check.advise("until then new threads may sort before older ones")
    return check


def _times(home: Path) -> Iterator[tuple[float, str]]:
    days = heapq.nlargest(NEWEST_DAYS, (home / "threads").glob("[0-9]*/[0-9]*/[0-9]*"))
    seen = 0
    for folder in (home, home / "index", *days):
        with suppress(OSError):
            for path in folder.iterdir():
                if (seen := seen + 1) > MAX_FILES:
                    return
                with suppress(OSError):
                    yield path.stat().st_mtime, str(path)


def _span(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"
