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
