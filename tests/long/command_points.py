"""Kills a server at every point of a turn with commands, and at times in between.

python -m pytest tests/long/command_points.py -p no:cacheprovider
"""

from pathlib import Path

import pytest

from tests.support.turn_tools.command_points import POINTS, cut_off_by_kill


@pytest.mark.parametrize("point", range(1, POINTS + 1))
async def test_a_server_that_is_killed_leaves_nothing(tmp_path: Path, point: int) -> None:
    await cut_off_by_kill(tmp_path, point)
