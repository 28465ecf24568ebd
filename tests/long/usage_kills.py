"""Kills a server in 50 random moments of turns whose model reports exact usage.

python -m pytest tests/long/usage_kills.py -s -p no:cacheprovider
"""

import random
from pathlib import Path

from tests.support.turn_tools.usage_kills import ledger_over_kills

ROUNDS = 50
LONGEST_S = 0.6


async def test_the_ledger_has_what_was_read(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chosen = random.Random(seed)
    delays_s = [chosen.uniform(0, LONGEST_S) for _ in range(ROUNDS)]
    print(f"seed {seed}")
    responses, last = await ledger_over_kills(tmp_path, delays_s)
    print(f"{ROUNDS} rounds, {responses} responses; the last of a round was recorded {last} times")
