"""store in PostgreSQL: what the database refuses while clients work; each failure is named."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app_server.config.store_url import StoreUrl
from app_server.threads.postgresql import database
from tests.support.harness import WireClient, WireError, serve
from tests.support.postgresql import Cluster, name_of

pytestmark = pytest.mark.postgresql

_REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.thread_id = '{thread_id}' THEN
        RAISE EXCEPTION 'refused by a test' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def store(database_url: str) -> StoreUrl:
    return StoreUrl.parse(database_url)


@asynccontextmanager
async def two_threads(home: Path, store: StoreUrl) -> AsyncIterator[tuple[WireClient, str, str]]:
    async with serve(home, store=store) as served, served.client() as client:
        yield client, await client.start_thread(), await client.start_thread()


@contextmanager
def locked(url: str, table: str) -> Iterator[None]:
    """Keep everybody else from a table."""
    with psycopg.connect(url) as connection:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        yield


def name(thread_id: str, text: str) -> dict[str, Any]:
    return {"threadId": thread_id, "name": text}


def facts(refused: WireError) -> tuple[Any, ...]:
    data = refused.data
    return data["code"], data["reason"], data["retriable"], data.get("threadId")


@pytest.mark.parametrize(
    ("code", "reason", "is_retriable"),
    [
        ("40001", "databaseBusy", True),
        ("40P01", "databaseBusy", True),
        ("53100", "databaseFull", True),
        ("53200", "databaseBusy", True),
        ("53300", "tooManyConnections", True),
        ("25006", "databaseReadOnly", True),
        ("42501", "notPermitted", False),
        ("22003", "databaseError", False),
    ],
)
async def test_what_is_refused_of_one_thread_is_named_and_others_go_on(
    tmp_path: Path, store: StoreUrl, cluster: Cluster, code: str, reason: str, is_retriable: bool
) -> None:
    async with two_threads(tmp_path, store) as (client, refused_id, other):
        where = name_of(store.url)
        cluster.administer(_REFUSE.format(thread_id=refused_id, code=code), where)
        one, two = [
            await client.request("thread/name/set", name(thread_id, "first"))
            for thread_id in (refused_id, other)
        ]
        error = (await client.answer(one))["error"]
        assert facts(WireError(error)) == ("storageFailed", reason, is_retriable, refused_id)
        assert error["message"] == "the thread cannot be stored: refused by a test"
        assert (await client.answer(two))["result"] == {}
        # Nothing was unloaded, and the next try is free.
        loaded = await client.call("thread/loaded/list", {})
        assert sorted(loaded["data"]) == sorted([refused_id, other])
        cluster.administer("DROP TRIGGER refuse ON records", where)
        assert await client.call("thread/name/set", name(refused_id, "again")) == {}
        assert (await client.turn(refused_id, "hello"))["status"] == "completed"


async def test_a_database_that_takes_no_writes_is_named_and_used_again_later(
    tmp_path: Path, store: StoreUrl, cluster: Cluster
) -> None:
    where = name_of(store.url)
    async with two_threads(tmp_path, store) as (client, thread_id, _):
        for answer in ("on", "off"):
            cluster.administer(
                f"ALTER DATABASE {where} SET default_transaction_read_only = {answer}"
            )
            # What connects again is a session with this setting.
            cluster.end_sessions(where)
            if answer == "on":
                refused = await client.refusal("thread/name/set", name(thread_id, "first"))
                assert facts(refused)[:3] == ("storageFailed", "databaseReadOnly", True)
                assert (await client.call("thread/read", {"threadId": thread_id}))["thread"]
        assert await client.call("thread/name/set", name(thread_id, "second")) == {}


async def test_a_database_that_takes_no_more_connections_is_named_and_used_again_later(
    tmp_path: Path, store: StoreUrl, cluster: Cluster
) -> None:
    where = name_of(store.url)
    async with two_threads(tmp_path, store) as (client, thread_id, other):
        cluster.administer(f"ALTER DATABASE {where} CONNECTION LIMIT 0")
        # What connects again is one too many.
        cluster.end_sessions(where)
        refused = await client.refusal("thread/name/set", name(thread_id, "first"))
        assert facts(refused) == ("storageFailed", "tooManyConnections", True, thread_id)
        loaded = await client.call("thread/loaded/list", {})
        assert sorted(loaded["data"]) == sorted([thread_id, other])
        cluster.administer(f"ALTER DATABASE {where} CONNECTION LIMIT -1")
        assert await client.call("thread/name/set", name(thread_id, "second")) == {}
        assert (await client.turn(thread_id, "hello"))["status"] == "completed"


async def test_a_statement_that_takes_too_long_is_ended(
    tmp_path: Path, store: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "STATEMENT_S", 1)
    async with two_threads(tmp_path, store) as (client, thread_id, _):
        with locked(store.url, "records"):
            refused = await client.refusal("thread/name/set", name(thread_id, "first"))
            assert facts(refused) == ("storageFailed", "timedOut", True, thread_id)
        assert await client.call("thread/name/set", name(thread_id, "second")) == {}


async def test_who_gets_no_connection_of_the_pool_is_told_so(
    tmp_path: Path, store: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "POOL_WAIT_S", 1)
    monkeypatch.setattr(database, "MAX_CONNECTIONS", 1)
    async with two_threads(tmp_path, store) as (client, _, _):
        with locked(store.url, "threads"):
            ids = [await client.request("thread/list", {}) for _ in range(2)]
            first = await client.receive()
            assert facts(WireError(first["error"])) == ("storageFailed", "databaseBusy", True, None)
        (other,) = set(ids) - {first["id"]}
        assert (await client.answer(other))["result"]["data"] == []


async def test_a_turn_whose_end_is_refused_fails_and_the_thread_goes_on(
    tmp_path: Path, store: StoreUrl, cluster: Cluster
) -> None:
    where = name_of(store.url)
    async with serve(tmp_path, store=store) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await client.turn(thread_id, "one"))["status"] == "completed"
        cluster.administer(_REFUSE.format(thread_id=thread_id, code="53100"), where)
        refused = await client.refusal(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "two"}]}
        )
        assert facts(refused) == ("storageFailed", "databaseFull", True, thread_id)
        cluster.administer("DROP TRIGGER refuse ON records", where)
        assert (await client.turn(thread_id, "three"))["status"] == "completed"
