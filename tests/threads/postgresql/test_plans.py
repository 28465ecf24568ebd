"""store in PostgreSQL: pages of lists and searches read few rows, whatever else is there."""

import re
from dataclasses import replace

import psycopg
import pytest

from app_server.threads.history.search import SearchQuery
from app_server.threads.rows import Within
from tests.support.postgresql import Cluster, name_of
from tests.support.threads.database import opened
from tests.support.threads.stores import QUERY

pytestmark = pytest.mark.postgresql

THREADS = 20_000
FEW = 200
"""Rows that a page of 25 may look at."""
# All of a folder, of a project and of a kind are archived; every other thread is not.
_FILL = f"""
INSERT INTO threads (
    tenant, id, created_at_ms, updated_at_ms, recency_at_ms, preview, archived, has_content,
    model, model_provider, cwd, source, source_kind, cli_version, project_id, attachments
)
SELECT (SELECT id FROM tenants), gen_random_uuid(), n, n, n, 'Task', n % 20 = 0, true, 'm', 'p',
    CASE WHEN n % 20 = 0 THEN '/old' ELSE '/new' END, '"cli"',
    CASE WHEN n % 20 = 0 THEN 'exec' ELSE 'cli' END, '1',
    CASE WHEN n % 20 = 0 THEN 'old' END, '[]'
FROM generate_series(1, {THREADS}) AS n;
INSERT INTO texts (tenant, thread_id, page, text, folded)
SELECT tenant, id, 0, said, said
FROM (SELECT tenant, id, 'build ' || repeat(id::text, 20) AS said FROM threads) AS made;
VACUUM ANALYZE threads; VACUUM ANALYZE texts
"""
_EXPLAINED = (
    "session_preload_libraries = 'auto_explain'",
    "auto_explain.log_min_duration = 0",
    "auto_explain.log_analyze = on",
    "auto_explain.log_timing = off",
)
_LOOKED_AT = re.compile(rb"(?:\(actual rows=|Rows Removed by Filter: )(\d+)")


@pytest.fixture
def explained_url(cluster: Cluster, database_url: str) -> str:
    """Fill the database with threads, and log what statements read of it."""
    name = name_of(database_url)
    with psycopg.connect(cluster.url(name, "postgres"), autocommit=True) as connection:
        for statement in _FILL.split(";"):
            connection.execute(statement.encode())
        for setting in _EXPLAINED:
            connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    return database_url


class _Log:
    def __init__(self, cluster: Cluster) -> None:
        self._path = cluster.folder / "log"
        self._seen = self._path.stat().st_size

    def most_rows(self) -> int:
        """Return the most rows that a step of a plan looked at since the last call."""
        text = self._path.read_bytes()[self._seen :]
        self._seen += len(text)
        rows = list(map(int, _LOOKED_AT.findall(text)))
        assert rows, "nothing was explained"
        return max(rows)


async def test_pages_of_few_matches_read_no_other_threads(
    cluster: Cluster, explained_url: str
) -> None:
    query = replace(QUERY, limit=25)
    async with opened(explained_url) as store:
        log = _Log(cluster)
        for narrowed in (
            query,
            replace(query, cwds=["/old"]),
            replace(query, source_kinds=["exec"]),
            replace(query, project=Within("old", ["old"])),
        ):
            page = await store.lists.page(narrowed)
            assert len(page.rows) == (25 if narrowed is query else 0)
            assert log.most_rows() <= FEW, narrowed


async def test_a_search_of_a_common_word_reads_until_its_page_is_full(
    cluster: Cluster, explained_url: str
) -> None:
    async with opened(explained_url) as store:
        log = _Log(cluster)
        page, _ = await store.history.search(SearchQuery(term="build", limit=25))
        assert len(page.found) == 25
        # Hits are counted up to the bound first; the walk itself is short.
        assert log.most_rows() <= 4_001
