"""store in PostgreSQL: appends in groups, lost connections, and threads that others take over."""

import asyncio
from itertools import pairwise
from typing import Any
from uuid import UUID

import anyio.lowlevel
import psycopg
import pytest

from app_server.threads.failures import StoreUnavailable
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import begin
from app_server.threads.nodes import ALONE
from app_server.threads.postgresql.database import AsyncConnection, Database, OneConnection
from app_server.threads.postgresql.nodes import PostgresNodes
from app_server.threads.postgresql.records import (
    ANSWER_S,
    MAX_BYTES,
    MAX_ROWS,
    Appenders,
    DatabaseLog,
    DatabaseWriter,
    GroupAppender,
)
from app_server.threads.postgresql.signals.ledger import PostgresSignals
from app_server.threads.postgresql.store import PostgresStore
from protocol.log.rollout import HistoryAppended, NameChanged, SignalMark, render_record
from tests.support.harness import WAIT_S
from tests.support.postgresql import Cluster, name_of
from tests.support.receiver.stages import entry
from tests.support.threads.database import asked, opened
from tests.support.threads.stores import created, raw

pytestmark = pytest.mark.postgresql

OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"


def named(number: int) -> NameChanged:
    return NameChanged(at_ms=number, name=f"name {number}")


def check_positions(url: str, thread_id: str) -> None:
    """Look whether the rows of a log follow each other without a gap."""
    rows = asked(
        url,
        "SELECT position, octet_length(body) FROM records WHERE thread_id = %s ORDER BY position",
        UUID(thread_id),
    )
    assert rows[0][0] == 0
    assert all(one[0] + one[1] == next_one[0] for one, next_one in pairwise(rows))


async def test_what_many_threads_append_at_once_is_all_there_in_order(database_url: str) -> None:
    count, each = MAX_ROWS + 20, 3
    async with opened(database_url) as store:
        threads = [await store.create(created()) for _ in range(count)]

        async def write(thread: LiveThread) -> None:
            for number in range(each):
                await thread.append(named(number), sync=number % 2 == 0)

        await asyncio.gather(*map(write, threads))
        for thread in threads:
            await store.unload(thread)
        names = {(await store.read(thread.id)).name for thread in threads}
        assert names == {f"name {each - 1}"}
        for thread in threads[:5]:
            check_positions(database_url, thread.id)


async def test_an_append_whose_connection_is_lost_is_sent_again_and_there_once(
    database_url: str, cluster: Cluster
) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        for number in range(10):
            cluster.administer(OTHERS, database_url.split("/")[3].split("?")[0])
            await thread.append(named(number))
        assert thread.state.name == "name 9"
        await store.unload(thread)
        check_positions(database_url, thread.id)
        lines = await store.exported(thread.id, 1 << 20)
        assert lines is not None
        assert lines.count(b'"nameChanged"') == 10
        again = await store.load(thread.id)
        assert again.state.name == "name 9"
        await store.unload(again)


async def test_appends_go_on_while_connections_are_ended_under_them(
    database_url: str, cluster: Cluster
) -> None:
    name = database_url.split("/")[3].split("?")[0]
    written, each = 0, 20
    async with opened(database_url) as store:
        threads = [await store.create(created()) for _ in range(8)]
        progress = asyncio.Event()
        over = asyncio.Event()

        async def end_connections() -> None:
            # Once for each three appends that were acknowledged: however slow the machine is, a
            # connection lasts until something was written over it.
            ended = 0
            while not over.is_set():
                await progress.wait()
                progress.clear()
                if written // 3 > ended:
                    ended = written // 3
                    await asyncio.to_thread(cluster.administer, OTHERS, name)

        async def write(thread: LiveThread) -> None:
            nonlocal written
            for number in range(each):
                await thread.append(named(number))
                written += 1
                progress.set()

        ending = asyncio.create_task(end_connections())
        try:
            await asyncio.gather(*map(write, threads))
        finally:
            over.set()
            progress.set()
            await ending
        for thread in threads:
            check_positions(database_url, thread.id)
            lines = b"".join(
                row[0]
                for row in asked(
                    database_url,
                    "SELECT body FROM records WHERE thread_id = %s ORDER BY position",
                    UUID(thread.id),
                )
            )
            assert lines.count(b'"nameChanged"') == each


class _Faulty(Database):
    """A database whose connections fail as nothing that is known of does."""

    async def connect_async(self, *, synced: bool = True) -> AsyncConnection:
        await anyio.lowlevel.checkpoint()
        raise RuntimeError("a fault")


async def test_an_append_beside_one_that_met_a_fault_is_not_acknowledged(
    database_url: str,
) -> None:
    database = _Faulty(database_url)
    nodes = PostgresNodes(database, ALONE)
    nodes.is_held, nodes.held_until = True, float("inf")
    appenders = Appenders(
        GroupAppender(database, nodes, synced=True), GroupAppender(database, nodes, synced=False)
    )

    async def write(number: int) -> None:
        log = DatabaseLog(database, UUID(int=number))
        writer = DatabaseWriter(log, 1, 0, appenders, nodes)
        await writer.append([named(number)], begin(created()), sync=True)

    # While the first is sent the others come together into the next statement.
    ends = await asyncio.gather(*map(write, range(3)), return_exceptions=True)
    assert [type(end) for end in ends] == [RuntimeError, RuntimeError, StoreUnavailable]


async def test_an_append_after_the_store_was_closed_opens_no_connection(database_url: str) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        await thread.append(named(1))
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        await thread.append(named(2))
    name = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'app-server'"
    async with asyncio.timeout(WAIT_S):
        # PostgreSQL's processes end a moment after their connections.
        while asked(database_url, f"{name} AND datname = current_database()") != [(0,)]:
            await asyncio.sleep(0.02)


class _Slow(Database):
    """A database whose connections are made when a test lets them, and are kept."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.is_asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.made: list[AsyncConnection] = []

    async def connect_async(self, *, synced: bool = True) -> AsyncConnection:
        self.is_asked.set()
        await self.may_go_on.wait()
        self.made.append(await super().connect_async(synced=synced))
        return self.made[-1]


async def test_connection_that_comes_after_the_store_was_closed_is_closed(
    database_url: str,
) -> None:
    database = _Slow(database_url)
    nodes = PostgresNodes(database, ALONE)
    nodes.is_held, nodes.held_until = True, float("inf")
    appender = GroupAppender(database, nodes, synced=True)
    log = DatabaseLog(database, UUID(int=1))
    writer = DatabaseWriter(log, 1, 0, Appenders(appender, appender), nodes)
    async with asyncio.timeout(WAIT_S):
        append = asyncio.create_task(writer.append([named(1)], begin(created()), sync=True))
        await database.is_asked.wait()
        await appender.aclose()
        database.may_go_on.set()
        (end,) = await asyncio.gather(append, return_exceptions=True)
    assert isinstance(end, StoreUnavailable)
    assert [connection.closed for connection in database.made] == [True]


async def test_an_append_whose_caller_was_cancelled_holds_up_no_other(database_url: str) -> None:
    async with opened(database_url) as store:
        threads = [await store.create(created()) for _ in range(4)]

        def locked() -> psycopg.Connection[Any]:
            connection = psycopg.connect(database_url)
            connection.execute("LOCK TABLE records IN EXCLUSIVE MODE")
            return connection

        lock = await asyncio.to_thread(locked)
        writes = [asyncio.create_task(thread.append(named(1))) for thread in threads]
        await until_waiting(database_url)
        writes[1].cancel()
        await asyncio.wait({writes[1]})
        await asyncio.to_thread(lock.close)
        async with asyncio.timeout(WAIT_S):
            ends = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(end) for end in ends] == [type(None), asyncio.CancelledError] + [
            type(None)
        ] * 2
        await asyncio.wait_for(threads[0].append(named(2)), WAIT_S)
        for thread in (threads[0], *threads[2:]):
            await store.unload(thread)


async def test_a_cancel_before_an_append_is_sent_holds_up_no_other(database_url: str) -> None:
    async with opened(database_url) as store:

        async def together() -> list[LiveThread]:
            threads = [await store.create(created()) for _ in range(3)]
            # From now on whoever comes first waits for the others.
            await asyncio.gather(*(thread.append(named(1)) for thread in threads))
            await asyncio.gather(*(thread.append(named(2)) for thread in threads))
            return threads

        for turns_of_loop in range(3):
            first, *others = await together()
            cancelled = asyncio.create_task(first.append(named(3)))
            writes = [asyncio.create_task(thread.append(named(3))) for thread in others]
            for _ in range(turns_of_loop):
                await anyio.lowlevel.checkpoint()
            cancelled.cancel()
            await asyncio.wait_for(asyncio.gather(*writes), WAIT_S)
            await asyncio.wait({cancelled})
            assert cancelled.cancelled()
            assert [thread.state.name for thread in others] == ["name 3"] * 2


async def test_threads_that_append_again_and_again_share_each_statement(database_url: str) -> None:
    count, each = 20, 10
    async with opened(database_url) as store:
        threads = [await store.create(created()) for _ in range(count)]

        async def write(thread: LiveThread) -> None:
            for number in range(each):
                await thread.append(HistoryAppended(at_ms=number, items=[raw("said")]))

        await asyncio.gather(*map(write, threads))
        statements = "SELECT count(DISTINCT xmin::text) FROM records WHERE body LIKE %s"
        ((found,),) = asked(database_url, statements, b'%"said"%')
        # The first who came did not know of the others.
        assert found == each + 1
        for thread in threads:
            await store.unload(thread)


async def test_large_appends_share_statements_up_to_their_bound(database_url: str) -> None:
    each, count = 64 << 10, MAX_ROWS
    # On a busy machine the largest takes longer than a usual lease, which bounds it.
    async with opened(database_url, lease_s=600) as store:
        threads = [await store.create(created()) for _ in range(count)]
        large = HistoryAppended(at_ms=1, items=[raw("said " + "x" * each)])
        # As much as a message of 64 MiB can become, and more than a statement has otherwise.
        largest = HistoryAppended(at_ms=1, items=[raw("said " + "x" * (65 << 20))])
        await asyncio.gather(
            threads[0].append(largest), *(thread.append(large) for thread in threads[1:])
        )
        sizes = asked(
            database_url,
            "SELECT count(*), sum(octet_length(body)) FROM records "
            "WHERE octet_length(body) > %s GROUP BY xmin::text",
            each,
        )
        assert sum(rows for rows, _ in sizes) == count
        assert [rows for rows, size in sizes if size > MAX_BYTES] == [1]
        assert len(sizes) < count / 16
        length = sum(size for _, size in sizes)
        assert length > (65 << 20) + (count - 1) * each
        with psycopg.connect(database_url, autocommit=True) as reader:
            log = DatabaseLog(OneConnection(reader), UUID(threads[0].id))
            with log.open() as file:
                assert file.read().endswith(render_record(largest))
        for thread in threads:
            await store.unload(thread)


async def test_a_large_append_to_a_slow_disk_has_longer_than_others(
    database_url: str, cluster: Cluster
) -> None:
    slow_s = ANSWER_S + 1
    async with opened(database_url) as store:
        thread = await store.create(created())
        where = name_of(database_url)
        cluster.administer(
            "CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM pg_sleep({slow_s}); RETURN NEW; END $$",
            where,
        )
        cluster.administer(
            "CREATE TRIGGER be_slow BEFORE INSERT ON records FOR EACH ROW "
            "EXECUTE FUNCTION be_slow()",
            where,
        )
        large = HistoryAppended(at_ms=1, items=[raw("x" * MAX_BYTES)])
        await thread.append(large)
        cluster.administer("DROP TRIGGER be_slow ON records", where)
        # Over the connection that it was sent once over.
        assert thread.state.history[-1] == raw("x" * MAX_BYTES)
        await store.unload(thread)
        again = await store.load(thread.id)
        assert again.state.history == thread.state.history
        await store.unload(again)


async def until_waiting(url: str) -> None:
    """Wait until an append waits for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with asyncio.timeout(WAIT_S):
        while not await asyncio.to_thread(asked, url, waiting):
            await asyncio.sleep(0.02)


async def test_an_owner_that_was_replaced_writes_nothing_more(database_url: str) -> None:
    async with opened(database_url) as old, opened(database_url) as new:
        thread = await old.create(created())
        other = await old.create(created())
        await thread.append(named(1))
        # The lock of a server is lost with its session, also while it lives.
        asked(database_url, "UPDATE threads SET owner = NULL WHERE id = %s RETURNING 1", thread.id)
        taken = await new.load(thread.id)
        refused, written = await asyncio.gather(
            thread.append(named(2)), other.append(named(3)), return_exceptions=True
        )
        assert isinstance(refused, StoreUnavailable)
        assert (refused.reason, refused.retriable, written) == ("ownerLost", True, None)
        assert (thread.state.name, other.state.name) == ("name 1", "name 3")
        await taken.append(named(4))
        check_positions(database_url, thread.id)
        await old.unload(thread)
        assert (await old.lists.find(thread.id)).name == "name 4"
        await new.unload(taken)
        await old.unload(other)
        assert (await new.read(thread.id)).name == "name 4"


async def test_a_record_at_a_place_that_is_taken_is_refused(database_url: str) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        asked(
            database_url,
            "INSERT INTO records (thread_id, position, epoch, body) "
            "SELECT thread_id, position + octet_length(body), 0, 'late' FROM records "
            "WHERE thread_id = %s RETURNING 1",
            UUID(thread.id),
        )
        with pytest.raises(StoreUnavailable) as caught:
            await thread.append(named(1))
        assert caught.value.reason == "ownerLost"
        assert thread.state.name is None
        await store.unload(thread)


async def test_an_append_that_is_there_already_was_written(database_url: str) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        # As by a statement whose answer was lost, and which was refused when it was sent again.
        asked(
            database_url,
            "INSERT INTO records (thread_id, position, epoch, body) "
            "SELECT thread_id, position + octet_length(body), epoch, %s FROM records "
            "WHERE thread_id = %s RETURNING 1",
            render_record(named(1)),
            UUID(thread.id),
        )
        await thread.append(named(1))
        await thread.append(named(2))
        assert thread.state.name == "name 2"
        await store.unload(thread)
        check_positions(database_url, thread.id)


async def test_threads_of_a_dead_server_are_taken_with_their_rows(database_url: str) -> None:
    async with opened(database_url) as old:
        thread, idle = await old.create(created()), await old.create(created())
        # In memory alone, as when a server dies before rows are written.
        await thread.append(HistoryAppended(at_ms=5, items=[raw("hello")]))
        asked(
            database_url,
            "UPDATE threads SET owner = %s WHERE id = ANY(%s) RETURNING 1",
            UUID(int=7),
            [UUID(thread.id), UUID(idle.id)],
        )
        async with opened(database_url) as new:
            # Lists do not have it yet, so it does not wait until somebody asks for it.
            assert not (await new.lists.find(thread.id)).has_content
            assert list(await new.nodes.left_behind()) == [thread.id]
            taken = await new.load(thread.id)
            assert taken.state.history == [raw("hello")]
            assert (await new.lists.find(thread.id)).has_content
            assert await new.nodes.left_behind() == []
            await new.unload(taken)


async def test_an_append_moves_its_signals_in_the_ledger(database_url: str) -> None:
    database = Database(database_url)
    store = PostgresStore(database)
    await store.open()
    try:
        thread = await store.create(created())
        ledger = await PostgresSignals(database).open()
        accepted = entry("a", stage="accepted", thread_id=thread.id)
        ledger.put([accepted])
        version = ledger.version()
        mark = SignalMark(source=accepted.source, id=accepted.id, item_id="item-a", woke=False)
        await thread.append(HistoryAppended(at_ms=5, items=[raw("red")], signals=[mark]))
        moved = ledger.find(*accepted.key)
        assert moved is not None
        assert (moved.stage, moved.item, moved.item_id) == ("inHistory", "", "item-a")
        assert ledger.version() != version
        await store.unload(thread)
    finally:
        await store.aclose()


@pytest.mark.parametrize("sync", [True, False])
async def test_what_was_not_synced_when_postgresql_crashed_is_written_again(
    database_url: str, cluster: Cluster, sync: bool
) -> None:
    async with opened(database_url) as store:
        thread = await store.create(created())
        for number in range(3):
            await thread.append(named(number), sync=False)
        # What a crash leaves of them.
        asked(
            database_url,
            "DELETE FROM records WHERE thread_id = %s AND position > 0 RETURNING 1",
            UUID(thread.id),
        )
        cluster.end_sessions(name_of(database_url))
        await thread.append(named(3), sync=sync)
        check_positions(database_url, thread.id)
        await store.unload(thread)
        lines = await store.exported(thread.id, 1 << 20)
        assert lines is not None
        assert [line.count(b'"name":"name ') for line in lines.splitlines()[1:]] == [1] * 4
        assert (await store.lists.find(thread.id)).name == "name 3"
