"""Threads with MCP servers that come and go leave nothing; at length: `tests/long/soak.py`."""

from pathlib import Path

import pytest

from tests.long.soak import soak
from tests.support.harness import claim


@claim("mcp:soak")
@pytest.mark.slow
async def test_threads_that_were_closed_leave_no_process_descriptor_or_task(
    tmp_path: Path,
) -> None:
    before, after = await soak(tmp_path, 30, 3)
    assert after == before
    # One child is the watchdog over the others.
    assert (after.children, after.threads) == (1, 0)
