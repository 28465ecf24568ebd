"""Figures of lists and searches over many threads of a database."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import psycopg

from app_server.threads.history.search import SearchQuery
from app_server.threads.organization import PINNED
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.store import PostgresStore
from app_server.threads.rows import ThreadQuery, Within
from tests.bench.scale.options import Options, durations
from tests.support.postgresql import name_of

ROUNDS = 100
# Row-level security would ask for each row: this is done as the administrator.
_FILL = """
INSERT INTO threads (
    tenant, id, created_at_ms, updated_at_ms, recency_at_ms, name, preview, archived, has_content,
    model, model_provider, cwd, source, source_kind, originator, cli_version, project_id,
    section_id, section_rank, attachments
)
SELECT (SELECT id FROM tenants LIMIT 1), gen_random_uuid(), n * 1000, n * 1000 + 7, n * 1000 + 5,
    CASE WHEN n %% 3 = 0 THEN 'Thread ' || md5(n::text) END,
    'Task ' || n || ': mend ' || md5((n * 7)::text) || ' of the build', n %% 10 = 0, true, 'm',
    (ARRAY['p', 'q'])[1 + n %% 2], '/project/' || n %% 500, '"vscode"',
    (ARRAY['vscode', 'cli', 'exec', 'appServer'])[1 + n %% 4], 'client ' || n %% 5, '1',
    CASE WHEN n %% 20 IN (0, 1) THEN 'project ' || n %% 400 END,
    CASE WHEN n %% 1000 = 0 THEN 'pinned' END, CASE WHEN n %% 1000 = 0 THEN 'a' || n END, '[]'
FROM generate_series(1, %(threads)s) AS n
"""
_FILL_TEXTS = """
INSERT INTO texts (tenant, thread_id, page, text, folded)
SELECT tenant, id, 0, said, said FROM (
    SELECT tenant, id, (
        SELECT string_agg((ARRAY['build', 'test', 'index', 'cursor', 'socket', 'deploy'])[
            1 + (created_at_ms / 1000 + word * 7) % 6] || ' ' || left(md5(id::text || word), 5),
            ' '
        )
        FROM generate_series(1, 40) AS word
    ) AS said FROM threads WHERE created_at_ms / 1000 % 10 = 5
) AS made
"""


async def measure_lists(options: Options) -> None:
    """List and search; the number of threads is that of --threads."""
    began = time.perf_counter()
    administrator = options.cluster.url(name_of(options.url), "postgres")
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute(_FILL, {"threads": options.threads})
        connection.execute(_FILL_TEXTS)
        connection.execute("VACUUM ANALYZE threads")
        connection.execute("VACUUM ANALYZE named")
        connection.execute("VACUUM ANALYZE texts")
        found = connection.execute("SELECT folded FROM texts LIMIT 1").fetchone()
    assert found is not None
    rare = found[0].split()[1]
    took_s = time.perf_counter() - began
    print(f"{options.threads} threads, {options.threads // 10} texts: made in {took_s:.0f} s")
    store = PostgresStore(Database(options.url))
    await store.open()
    try:
        await _list(store)
        for name, term in (("common word", "build"), ("rare word", rare), ("nothing", "zzzzzz")):
            query = SearchQuery(term=term, limit=25)
            await _measure(f"said: {name}", partial(store.history.search, query))
    finally:
        await store.aclose()


async def _list(store: PostgresStore) -> None:
    first = ThreadQuery(limit=25)
    page = await store.lists.page(replace(first, limit=100))
    known = [PINNED.id]
    for name, query in {
        "newest": first,
        "the next page": replace(first, cursor=page.next_cursor),
        "last changed": replace(first, sort_key="updated_at_ms"),
        "archived": replace(first, archived=True),
        "of a folder": replace(first, cwds=["/project/7"]),
        "of a folder, none": replace(first, cwds=["/project/of others"]),
        "of a kind, none": replace(first, source_kinds=["subAgent"]),
        "of two kinds": replace(first, source_kinds=["cli", "exec"]),
        "of a provider, ascending": replace(first, model_providers=["q"], ascending=True),
        "of a client": replace(first, originators=["client 3"]),
        "of a project": replace(first, project=Within("project 41", ["project 41"])),
        "of a project, archived": replace(first, project=Within("project 40", ["project 40"])),
        "pinned": replace(first, section=Within(PINNED.id, known), sort_key="section_rank"),
        "in no section": replace(first, section=Within(None, known)),
        "part of a preview, once": replace(first, search=page.rows[50].preview[5:20]),
        "part of previews, often": replace(first, search="mend a"),
        "part of nothing": replace(first, search="no such words"),
    }.items():
        await _measure(name, partial(store.lists.page, query))


async def _measure(name: str, ask: Callable[[], Awaitable[object]]) -> None:
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await ask()
        taken.append(time.perf_counter() - began)
    print(f"{name:26}{durations(taken)}", flush=True)
