"""Servers of one database under load, and faults: nothing is lost or doubled.

`python -m tests.long.database_faults` does many more by chance.
"""

from pathlib import Path
from random import Random

import pytest

from tests.support.fleet.checker import faults_of
from tests.support.fleet.faults import FAULTS, LONGEST_S, SHORT_S, inject, promote
from tests.support.fleet.load import load_on
from tests.support.fleet.nodes import fleet_of
from tests.support.postgresql import ROLE, TEMPLATE, Cluster, name_of, prepare, running_cluster

pytestmark = [pytest.mark.postgresql, pytest.mark.process]

CLIENTS = 4
AT_ONCE = ("sessions ended", "replaced")
"""Faults that last for no time of the tests' choice."""


@pytest.mark.parametrize("fault", FAULTS)
async def test_nothing_is_lost_or_doubled_by(
    fault: str, synced_cluster: Cluster, synced_url: str, tmp_path: Path
) -> None:
    async with fleet_of(2, synced_cluster, synced_url, tmp_path) as fleet:
        async with load_on(fleet, CLIENTS) as told:
            for seconds in (SHORT_S,) if fault in AT_ONCE else (SHORT_S, LONGEST_S):
                await told.more_turns(2 * CLIENTS)
                await FAULTS[fault](fleet, fleet.nodes[0], seconds)
                await told.more_turns(2 * CLIENTS)
        assert faults_of(synced_cluster.url(name_of(synced_url), "postgres"), told) == []


async def test_nothing_is_lost_or_doubled_by_the_promotion_of_a_standby(tmp_path: Path) -> None:
    with running_cluster(fsync=True) as primary:
        prepare(primary)
        primary.administer(f"CREATE DATABASE kept TEMPLATE {TEMPLATE} OWNER {ROLE}")
        with primary.synchronous_standby() as standby:
            url = primary.url("kept")
            async with fleet_of(2, primary, url, tmp_path, standby=standby) as fleet:
                async with load_on(fleet, CLIENTS) as told:
                    await told.more_turns(2 * CLIENTS)
                    await promote(fleet, standby)
                    await told.more_turns(2 * CLIENTS)
                assert faults_of(standby.url("kept", "postgres"), told) == []


@pytest.mark.parametrize("seed", range(5))
async def test_nothing_is_lost_or_doubled_by_faults_in_a_row(
    seed: int, synced_cluster: Cluster, synced_url: str, tmp_path: Path
) -> None:
    random = Random(seed)
    injected = []
    async with fleet_of(3, synced_cluster, synced_url, tmp_path) as fleet:
        async with load_on(fleet, CLIENTS) as told:
            for _ in range(2):
                await told.more_turns(CLIENTS)
                injected.append(await inject(fleet, random))
            await told.more_turns(2 * CLIENTS)
        found = faults_of(synced_cluster.url(name_of(synced_url), "postgres"), told)
        assert found == [], injected
