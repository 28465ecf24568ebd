"""Starts with everything to load at once; the long form is `python -m tests.starts`."""

from pathlib import Path

import pytest

from tests.harness import claim
from tests.starts import all_cores_busy, run_many


@claim("loading:starts")
@pytest.mark.process
async def test_apps_and_mcp_servers_are_there_after_every_start(tmp_path: Path) -> None:
    with all_cores_busy():
        assert await run_many(tmp_path, starts=30, at_once=6) == []
