"""What a client hears of threads that another node began, named, archived or deleted."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from app_server.fleet.news import ListNews
from app_server.threads.news import ThreadChange
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.news import PostgresNews
from app_server.threads.postgresql.store import PostgresStore
from app_server.threads.rows import ThreadPage, ThreadQuery
from protocol.log.rollout import NameChanged
from tests.support.harness import WAIT_S, WireClient
from tests.support.model import says
from tests.support.postgresql import Cluster, name_of
from tests.support.threads.nodes import running_nodes
from tests.support.threads.stores import created

pytestmark = pytest.mark.postgresql

FREE = "01a2203f-860d-7120-b637-669d9cbe38b5"
"""Id of no thread."""
DAY_S = 86_400
QUEUE = """
CREATE TABLE queue AS SELECT false AS is_full, false AS is_read;
CREATE FUNCTION public.pg_notify(channel text, payload text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        IF (SELECT is_full FROM queue) THEN RAISE program_limit_exceeded; END IF;
        PERFORM pg_catalog.pg_notify(channel, payload);
    END $$;
CREATE FUNCTION public.pg_notification_queue_usage() RETURNS void
    LANGUAGE sql SECURITY DEFINER AS $$ UPDATE queue SET is_full = false WHERE is_read $$;
"""
"""In the place of PostgreSQL's own queue, which is full after 8 GB, and stays so when all have read
it, until somebody asks for its length (`python -m tests.long.notify_queue` fills that one)."""
FULL = "UPDATE queue SET is_full = true"
IS_READ = "UPDATE queue SET is_read = true"
OF_LISTS = {
    "thread/started",
    "thread/name/updated",
    "thread/archived",
    "thread/unarchived",
    "thread/deleted",
}


async def next_news(client: WireClient) -> tuple[str, Any]:
    """Return the next event about lists, and whom it is about."""
    while True:
        message = await client.receive()
        if message.get("method") in OF_LISTS:
            params = message["params"]
            thread = params.get("thread") or {"id": params["threadId"]}
            return message["method"], params.get("threadName", thread["id"])


async def next_change(client: WireClient) -> tuple[str, Any]:
    """Return the next event about a thread that was begun before."""
    while (found := await next_news(client))[0] == "thread/started":
        pass
    return found


async def test_clients_of_all_nodes_hear_of_changes_of_lists(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        first, second = nodes.all
        async with first.client() as here, second.client() as there:
            thread_id = await here.start_thread()
            assert await next_news(there) == ("thread/started", thread_id)
            asked = {"threadId": thread_id}
            # Through the hop, for a client that does not follow the thread, and has no event by it.
            await there.call("thread/name/set", {**asked, "name": "a name"})
            assert await next_news(here) == ("thread/name/updated", "a name")
            assert await next_news(there) == ("thread/name/updated", "a name")
            await here.turn(thread_id, "hi")
            await here.call("thread/archive", asked)
            assert await next_news(there) == ("thread/archived", thread_id)
            await here.call("thread/unarchive", asked)
            assert await next_news(there) == ("thread/unarchived", thread_id)
            await here.call("thread/delete", asked)
            assert await next_news(there) == ("thread/deleted", thread_id)
            # Ephemeral ones are not told of.
            await here.start_thread(ephemeral=True)
            last = await here.start_thread()
            assert await next_news(there) == ("thread/started", last)


async def test_who_follows_a_thread_hears_each_change_once(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        first, second = nodes.all
        nodes.model.scripts = [says("one")]
        async with first.client() as here, second.client() as there, second.client() as other:
            thread_id = await here.start_thread()
            for client in (there, other):
                assert await next_news(client) == ("thread/started", thread_id)
            await there.call("thread/resume", {"threadId": thread_id})
            for name in ("one", "two"):
                await here.call("thread/name/set", {"threadId": thread_id, "name": name})
                for client in (there, other):
                    assert await next_news(client) == ("thread/name/updated", name)


async def test_who_follows_a_thread_hears_of_its_end_once(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        first, second = nodes.all
        nodes.model.scripts = [says("one"), says("two")]
        async with first.client() as here, second.client() as there, second.client() as other:
            for method, event in (("archive", "archived"), ("delete", "deleted")):
                thread_id = await here.start_thread()
                await here.turn(thread_id, "hi")
                await there.call("thread/resume", {"threadId": thread_id})
                asked = {"threadId": thread_id}
                await here.call(f"thread/{method}", asked)
                if method == "archive":
                    await here.call("thread/unarchive", asked)
                last = await here.start_thread()
                for client in (there, other):
                    heard = [await next_news(client)]
                    while heard[-1] != ("thread/started", last):
                        heard.append(await next_news(client))
                    assert heard.count((f"thread/{event}", thread_id)) == 1


async def test_clocks_of_other_nodes_do_not_say_what_is_new(
    tmp_path: Path, database_url: str
) -> None:
    tomorrow_ms = round((time.time() + DAY_S) * 1000)
    database = Database(database_url)
    await asyncio.to_thread(_age, database_url, tomorrow_ms)
    # As another node whose clock is wrong.
    store, news = PostgresStore(database), PostgresNews(database)
    await store.open()
    try:
        async with (
            running_nodes(tmp_path, database_url) as nodes,
            nodes.all[0].client() as here,
            nodes.all[1].client() as there,
        ):
            # From now on both listen.
            first = await here.start_thread()
            assert await next_news(there) == ("thread/started", first)
            begun, old = await store.create(created(1000)), await store.create(created(tomorrow_ms))
            await old.append(NameChanged(at_ms=tomorrow_ms, name="a name"))
            await news.publish([ThreadChange(begun.id, is_new=True), ThreadChange(old.id)])
            assert await next_news(there) == ("thread/started", begun.id)
            assert await next_news(there) == ("thread/name/updated", "a name")
            await store.unload(begun)
            await store.unload(old)
    finally:
        await store.aclose()


class Blocked:
    """News whose first round meets lists that do not answer."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.is_heard = False

    async def publish(self, changes: Sequence[ThreadChange]) -> None:
        raise AssertionError

    async def subscribe(self) -> AsyncGenerator[Sequence[ThreadChange]]:
        self.is_heard = True
        try:
            yield ()
        finally:
            # As a session takes to end.
            for _ in range(10):
                await asyncio.sleep(0)
            self.is_heard = False

    async def page(self, query: ThreadQuery) -> ThreadPage:
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_server_that_stops_while_it_looks_listens_no_more() -> None:
    blocked = Blocked()
    services: Any = SimpleNamespace(hub=SimpleNamespace(), store=SimpleNamespace(lists=blocked))
    news = ListNews(services, blocked, lambda _, __: set())

    async def is_heard_after() -> bool:
        try:
            await news.run()
        except asyncio.CancelledError:
            # At once: what closes a connection later may find its event loop gone.
            return blocked.is_heard
        raise AssertionError

    task = asyncio.ensure_future(is_heard_after())
    async with asyncio.timeout(WAIT_S):
        await blocked.is_asked.wait()
        assert blocked.is_heard
        task.cancel()
        assert await task is False


def _age(url: str, at_ms: int) -> None:
    """Have threads that begin at a time be used a day later."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION age() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"NEW.updated_at_ms = NEW.created_at_ms + {DAY_S * 1000}; RETURN NEW; END $$"
        )
        connection.execute(
            "CREATE TRIGGER age BEFORE INSERT OR UPDATE ON threads FOR EACH ROW "
            f"WHEN (NEW.created_at_ms = {at_ms}) EXECUTE FUNCTION age()"
        )


async def test_news_that_were_lost_are_found(tmp_path: Path, database_url: str) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        first, second = nodes.all
        nodes.model.scripts = [says("one")]
        async with first.client() as here, second.client() as there:
            thread_id = await here.start_thread()
            assert await next_news(there) == ("thread/started", thread_id)
            await here.turn(thread_id, "hi")
            await asyncio.to_thread(_cut_off_listeners, database_url)
            await here.call("thread/name/set", {"threadId": thread_id, "name": "lost"})
            await here.call("thread/archive", {"threadId": thread_id})
            heard = {await next_news(there), await next_news(there)}
            assert ("thread/archived", thread_id) in heard


async def test_clients_hear_once_also_while_the_queue_of_notifications_is_full(
    tmp_path: Path, database_url: str, cluster: Cluster
) -> None:
    where = name_of(database_url)
    cluster.administer(f"ALTER DATABASE {where} SET search_path = public, pg_catalog")
    cluster.administer(QUEUE, where)
    async with running_nodes(tmp_path, database_url) as nodes:
        first, second = nodes.all
        async with first.client() as here, second.client() as there:
            kept, named, deleted = [await here.start_thread() for _ in range(3)]
            for thread_id in (kept, named, deleted):
                await here.turn(thread_id, "hi")
            await here.call("thread/name/set", {"threadId": named, "name": "before"})
            before = ("thread/name/updated", "before")
            # By whatever way: it may not have listened yet.
            assert await next_change(there) == before
            cluster.administer(FULL, where)
            await here.call("thread/archive", {"threadId": kept})
            await here.call("thread/name/set", {"threadId": named, "name": "meanwhile"})
            await here.call("thread/delete", {"threadId": deleted})
            found = [("thread/archived", kept), ("thread/name/updated", "meanwhile")]
            assert sorted([await next_change(there), await next_change(there)]) == found
            cluster.administer(IS_READ, where)
            # A deletion is told, and not looked for.
            gone = ("thread/deleted", deleted)
            assert await next_change(there) == gone
            await here.call("thread/name/set", {"threadId": named, "name": "behind"})
            behind = ("thread/name/updated", "behind")
            assert await next_change(there) == behind
            heard = [await next_change(here) for _ in range(5)]
            assert heard == [before, *found, gone, behind]


@pytest.mark.parametrize("payload", ["", " ", "alone", "somebody no-id 7", "somebody {FREE}"])
async def test_payloads_of_other_roles_tell_clients_nothing(
    tmp_path: Path, database_url: str, cluster: Cluster, payload: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        first, second = nodes.all
        async with first.client() as here, second.client() as there:
            thread_id = await here.start_thread()
            assert await next_news(there) == ("thread/started", thread_id)
            channel = await asyncio.to_thread(_channel_of, database_url)
            notify = f"SELECT pg_notify('{channel}', '{payload.format(FREE=FREE.upper())}')"
            await asyncio.to_thread(cluster.administer, notify, name_of(database_url))
            # News come in their order.
            await here.call("thread/name/set", {"threadId": thread_id, "name": "behind"})
            assert await next_news(there) == ("thread/name/updated", "behind")


def _channel_of(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        (name,) = connection.execute(
            "SELECT 'app_server_threads_' || current_tenant()"
        ).fetchone() or ("",)
    return str(name)


def _cut_off_listeners(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
        )
