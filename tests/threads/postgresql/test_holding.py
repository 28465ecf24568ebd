"""Threads that a server takes and gives back, where something comes in between."""

from uuid import UUID

import anyio
import pytest

from app_server.threads.failures import OwnershipLost, StoreUnavailable, ThreadNotFound
from app_server.threads.log.live import LiveThread
from app_server.threads.postgresql.store import LEFT, PostgresStore
from protocol.log.rollout import NameChanged, TurnStarted
from tests.support.harness import WAIT_S
from tests.support.threads.database import asked, opened
from tests.support.threads.queue import entry
from tests.support.threads.stores import created

pytestmark = pytest.mark.postgresql

OTHER = UUID(int=7)
REFUSED = "RAISE EXCEPTION 'a fault'"
TAKEN = f"""UPDATE threads SET owner = '{OTHER}', epoch = epoch + 1, name = 'of the other'
WHERE id = NEW.id"""
"""As by a server that comes right behind."""


def on_update(url: str, when: str, does: str) -> None:
    """Have the database do something with each update of a thread that fits."""
    asked(url, "DROP TRIGGER IF EXISTS planted ON threads")
    asked(
        url,
        "CREATE OR REPLACE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {does}; RETURN NULL; END $$",
    )
    asked(
        url,
        "CREATE TRIGGER planted AFTER UPDATE ON threads FOR EACH ROW "
        f"WHEN (pg_trigger_depth() = 0 AND {when}) EXECUTE FUNCTION planted()",
    )


def nothing_more(url: str) -> None:
    asked(url, "DROP TRIGGER planted ON threads")


def owner_of(url: str, thread: LiveThread) -> UUID | None:
    (row,) = asked(url, "SELECT owner FROM threads WHERE id = %s", UUID(thread.id))
    return row[0] if row[0] is None else UUID(str(row[0]))


async def left_in(store: PostgresStore, url: str) -> LiveThread:
    """Begin a thread with queued input whose server has died since."""
    thread = await store.create(created())
    await thread.append(entry(1))
    await store.unload(thread)
    asked(url, "UPDATE threads SET owner = %s WHERE id = %s", OTHER, UUID(thread.id))
    assert await store.nodes.left_behind() == [thread.id]
    return thread


async def test_work_of_a_dead_server_that_cannot_be_loaded_is_left_to_others(
    database_url: str,
) -> None:
    async with opened(database_url) as store:
        thread = await left_in(store, database_url)
        on_update(database_url, "OLD.owner = NEW.owner", REFUSED)
        with pytest.raises(StoreUnavailable):
            await store.load(thread.id)
        assert await store.nodes.left_behind() == [thread.id]
        nothing_more(database_url)
        # Loaded, but not gone on with, as where an MCP server that it needs does not start.
        for _ in range(2):
            await store.unload(await store.load(thread.id))
            assert owner_of(database_url, thread) == LEFT


async def test_input_that_was_queued_for_a_thread_at_rest_waits_until_somebody_asks(
    database_url: str,
) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        await store.unload(thread)
        await store.change(thread.id, lambda _: [entry(1)])
        assert owner_of(database_url, thread) is None
        assert await store.nodes.left_behind() == []


async def test_an_end_of_a_turn_that_was_not_written_is_left_to_others(database_url: str) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        await thread.append(TurnStarted(at_ms=5, turn_id="t"))
        await store.unload(thread)
        assert await store.nodes.left_behind() == [thread.id]


async def test_who_is_cancelled_gives_a_thread_back(database_url: str) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.unload(thread)
        assert owner_of(database_url, thread) is None


async def test_a_thread_that_cannot_be_given_back_is_given_back_later(database_url: str) -> None:
    async with opened(database_url) as store:
        thread, again = await store.create(created()), await store.create(created())
        at_work = await left_in(store, database_url)
        taken = await store.load(at_work.id)
        await thread.append(NameChanged(at_ms=7, name="the last"))
        on_update(database_url, "OLD.owner IS DISTINCT FROM NEW.owner", REFUSED)
        for one in (thread, again, taken):
            await store.unload(one)
            assert owner_of(database_url, one) == store.nodes.id
        nothing_more(database_url)
        # One that is loaded again meanwhile stays here.
        again = await store.load(again.id)
        with anyio.fail_after(WAIT_S):
            while owner_of(database_url, taken) != LEFT or owner_of(database_url, thread):
                await anyio.sleep(0.05)
        await again.append(NameChanged(at_ms=8, name="mine"))
        assert (await store.lists.find(thread.id)).name == "the last"
        await store.unload(again)


async def test_a_thread_that_was_taken_while_it_is_loaded_or_deleted_is_the_others(
    database_url: str,
) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        await store.unload(thread)
        on_update(database_url, "OLD.owner IS NULL AND NEW.owner IS NOT NULL", TAKEN)
        for take in (store.load, store.delete):
            asked(database_url, "UPDATE threads SET owner = NULL")
            with pytest.raises(OwnershipLost):
                await take(thread.id)
            row = await store.lists.find(thread.id)
            assert (row.name, owner_of(database_url, thread)) == ("of the other", OTHER)
        nothing_more(database_url)
        assert (await store.read(thread.id)).id == thread.id


async def test_a_thread_that_cannot_be_deleted_is_anybodys(database_url: str) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        await store.unload(thread)
        asked(
            database_url,
            "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {REFUSED}; END $$",
        )
        asked(
            database_url,
            "CREATE TRIGGER planted BEFORE DELETE ON threads "
            "FOR EACH ROW EXECUTE FUNCTION refused()",
        )
        with pytest.raises(StoreUnavailable):
            await store.delete(thread.id)
        assert owner_of(database_url, thread) is None
        nothing_more(database_url)
        await store.delete(thread.id)
        with pytest.raises(ThreadNotFound):
            await store.read(thread.id)
