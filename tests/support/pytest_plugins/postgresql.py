"""Tests with the marker `postgresql` have a database of their own, made when it is asked for.

psycopg and the cluster are needed by these alone.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.postgresql import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator["Cluster"]:
    """Run a PostgreSQL for the tests of this process."""
    from tests.support.postgresql import prepare, running_cluster

    with running_cluster() as running:
        prepare(running)
        yield running


@pytest.fixture
def database_url(cluster: "Cluster") -> Iterator[str]:
    """Return the URL of a database that has the tables, and nothing in them."""
    with cluster.database() as url:
        yield url


@pytest.fixture
def empty_database_url(cluster: "Cluster") -> Iterator[str]:
    """Return the URL of a database without any tables."""
    with cluster.database("empty") as url:
        yield url


@pytest.fixture(scope="session")
def synced_cluster() -> Iterator["Cluster"]:
    """Run a PostgreSQL that loses nothing when it is crashed; tests stop and start it."""
    from tests.support.postgresql import prepare, running_cluster

    with running_cluster(fsync=True) as running:
        prepare(running)
        yield running


@pytest.fixture
def synced_url(synced_cluster: "Cluster") -> Iterator[str]:
    """Return the URL of a database there that has the tables, and nothing in them."""
    with synced_cluster.database() as url:
        try:
            yield url
        finally:
            if not synced_cluster.is_running:
                # A test that has stopped it failed before it started it again.
                synced_cluster.start()
