"""Breaks servers of a database at random, and looks each time whether anything was lost.

python -m tests.long.database_faults [--rounds 200] [--seed N]

In each round three servers have one database, and clients run turns on any of them; faults of
`tests/support/fleet/faults.py` come one after the other. Then what the clients were told is
compared with the logs. The exit status is 1 if anything is lost, doubled or out of place.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.support.fleet.checker import faults_of
from tests.support.fleet.faults import inject
from tests.support.fleet.load import load_on
from tests.support.fleet.nodes import fleet_of
from tests.support.postgresql import Cluster, name_of, prepare, running_cluster

CLIENTS = 6
FAULTS = 3
"""Of one round."""


async def run_round(cluster: Cluster, random: Random) -> tuple[list[str], list[str]]:
    """Run one round; the faults that were injected, and what is wrong."""
    injected = []
    with cluster.database() as url, tempfile.TemporaryDirectory() as folder:
        async with fleet_of(3, cluster, url, Path(folder)) as fleet:
            async with load_on(fleet, CLIENTS) as told:
                for _ in range(FAULTS):
                    await told.more_turns(CLIENTS)
                    injected.append(await inject(fleet, random))
                await told.more_turns(2 * CLIENTS)
            return injected, faults_of(cluster.url(name_of(url), "postgres"), told)


def main() -> int:
    """Run the rounds; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200, help="(default: 200)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    bad = 0
    with running_cluster(fsync=True) as cluster:
        prepare(cluster)
        for number in range(options.rounds):
            random = Random(f"{options.seed}.{number}")
            injected, found = asyncio.run(run_round(cluster, random))
            bad += bool(found)
            print(f"round {number}: {'; '.join(injected)}: {found or 'clean'}", flush=True)
    print(f"{options.rounds} rounds, {bad} with faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
