"""Kills a server in 200 moments around the end of a process that wakes its thread.

python -m pytest tests/long/wake_kills.py -p no:cacheprovider
"""

from pathlib import Path

import pytest

from tests.support.receiver.wake_kills import wake_over_kill

ROUNDS = 200
STEP_S = 0.001


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_one_turn_each_or_lost(tmp_path: Path, number: int) -> None:
    print(await wake_over_kill(tmp_path, number * STEP_S))
