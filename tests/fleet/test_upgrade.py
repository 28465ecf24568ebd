"""Two versions side by side: a newer one with a step of the schema takes the place of an older one.

The newer one is this program with one more step, which adds a column, and another number.
"""

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psycopg
import pytest

from app_server import VERSION
from app_server.threads.postgresql.migrations import migrations
from tests.support.fleet.checker import faults_of
from tests.support.fleet.load import load_on
from tests.support.fleet.nodes import fleet_of
from tests.support.harness import WAIT_S
from tests.support.postgresql import Cluster, name_of
from tests.support.processes import run_cli

pytestmark = [pytest.mark.postgresql, pytest.mark.process]

CLIENTS = 4
LOOK_S = 0.1
KNOWN = migrations()[-1].version
NEWER = KNOWN + 1
NEWER_VERSION = "999.0.0"
STEP = f"{NEWER:04}_later.sql"
VERSIONS = "SELECT version FROM nodes WHERE NOT dead ORDER BY version"
TOO_NEW = (
    f"the tables of the database have version {NEWER}, and this server knows {KNOWN}; install "
    "the version that migrated them, or a newer one"
)


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Make the newer version; the folder to import it from."""
    folder = tmp_path / "newer"
    package = folder / "app_server"
    caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(str(files("app_server")), package, ignore=caches)
    step = package / "threads" / "postgresql" / "schema" / STEP
    step.write_text("ALTER TABLE threads ADD COLUMN later text;\n")
    (package / "__init__.py").write_text(f'"""A newer version."""\n\nVERSION = "{NEWER_VERSION}"\n')
    return folder


async def test_a_group_is_upgraded_under_load_node_by_node(
    cluster: Cluster, database_url: str, newer: Path, tmp_path: Path
) -> None:
    administered = cluster.url(name_of(database_url), "postgres")

    def versions() -> list[str]:
        with psycopg.connect(administered) as connection:
            return [row[0] for row in connection.execute(VERSIONS)]

    async def until_versions(*wanted: str) -> None:
        """Wait until nodes of these versions live: a server listens before it is one."""
        with anyio.fail_after(WAIT_S):
            while await anyio.to_thread.run_sync(versions) != list(wanted):
                await anyio.sleep(LOOK_S)

    def migrate() -> Any:
        return run_cli("store", "migrate", "--store", database_url, PYTHONPATH=str(newer))

    async with fleet_of(3, cluster, database_url, tmp_path / "fleet") as fleet:
        async with load_on(fleet, CLIENTS) as told:
            await told.more_turns(2 * CLIENTS)

            # The step is run while all servers are of the older version, and they go on.
            ended = await anyio.to_thread.run_sync(migrate)
            assert (ended.returncode, ended.stderr) == (0, "")
            await told.more_turns(2 * CLIENTS)

            alive = [VERSION] * len(fleet.nodes)
            for node in fleet.nodes:
                await node.stop()
                await node.start(newer)
                alive = [*alive[1:], NEWER_VERSION]
                await until_versions(*alive)
                # Nodes of both versions work side by side, and threads move between them.
                await told.more_turns(2 * CLIENTS)
        assert faults_of(administered, told) == []

    # There is no way back to the older version but with a backup.
    home = tmp_path / "fleet" / "node0"
    refused = run_cli(
        "--home", str(home), "--listen", "ws://127.0.0.1:0", APP_SERVER_STORE=database_url
    )
    assert refused.returncode == 1
    assert TOO_NEW in refused.stderr
