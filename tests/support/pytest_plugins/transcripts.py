"""What was said on the connections of a test that fails."""

from collections.abc import Generator
from typing import Any

import pytest

TRANSCRIPTS: list[list[str]] = []
"""A list of messages for each connection of the test that runs."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    """Add the transcripts to the report of a failing test."""
    report: Any = yield
    if report.when == "call" and report.failed:
        for number, lines in enumerate(TRANSCRIPTS, start=1):
            report.sections.append((f"connection {number}", "\n".join(lines)))
    if report.when == "teardown":
        TRANSCRIPTS.clear()
    return report
