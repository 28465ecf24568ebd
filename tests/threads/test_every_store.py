"""What every store answers, whatever it keeps threads in: asked through the doors alone."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app_server.config.store_url import StoreUrl
from app_server.threads.budgets import STEP, TOKENS, BudgetClaim, ClaimRefused, Unknown
from app_server.threads.failures import (
    InvalidThreadId,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
    TurnNotFound,
)
from app_server.threads.history.outlining import STEP_BYTES
from app_server.threads.history.pages import (
    HistoryQuery,
    HistoryReader,
    items_page,
    turns_page,
)
from app_server.threads.history.search import Found, SearchQuery, occurrences_page
from app_server.threads.ledger import Entry
from app_server.threads.log.live import LiveThread, LogClosed
from app_server.threads.log.reading import ForkPoint
from app_server.threads.log.state import ThreadState
from app_server.threads.nodes import NodeSettings
from app_server.threads.opening.stores import Stores, open_stores
from app_server.threads.organization import PINNED
from app_server.threads.outbox import (
    CLAIM_MS,
    EXPIRE_MS,
    EXPIRED,
    KEEP_DEAD_MS,
    MAX_WAITING,
    Claim,
    Claimed,
    OutboxEntry,
)
from app_server.threads.rows import ThreadQuery
from app_server.threads.servers import FoundServer, ServerEntry
from app_server.threads.store import ThreadStore
from app_server.threads.usage import (
    Usage,
    UsageGroup,
    UsageQuery,
    UsageSums,
    sum_of_turns,
)
from app_server.threads.wakes import (
    KEEP_MS,
    MAX_FILES_OF_HOME,
    MAX_OF_THREAD,
    TooManyWakes,
)
from protocol.cursors import InvalidCursor
from protocol.log.filing import SectionPut
from protocol.log.metadata import SectionChanged
from protocol.log.rollout import (
    HistoryAppended,
    ItemCompleted,
    NameChanged,
    Record,
    TurnCompleted,
    TurnsReverted,
    TurnStarted,
    UsageRecorded,
)
from protocol.threads.thread import ThreadSection
from protocol.turns.items import ThreadItem
from protocol.turns.turn import TokenUsageBreakdown
from tests.support.harness import claim
from tests.support.receiver.stages import entry
from tests.support.receiver.wakes import stored_timer
from tests.support.threads.stores import CLOCK, QUERY, created, raw, user_message

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Stores]]
"""Opens the same store again with each call, as another server would."""


@pytest.fixture(params=["files", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    url = None
    if request.param == "postgresql":
        url = StoreUrl.parse(request.getfixturevalue("database_url"))
    return partial(opened_in, tmp_path, url, count(1))


@asynccontextmanager
async def opened_in(
    home: Path, url: StoreUrl | None, servers: Iterator[int]
) -> AsyncIterator[Stores]:
    stores = await open_stores(home, url, NodeSettings(address=f"ws://127.0.0.1:{next(servers)}"))
    await stores.threads.open()
    running = asyncio.create_task(stores.threads.run())
    try:
        yield stores
    finally:
        await stores.threads.aclose()
        running.cancel()
        await asyncio.wait({running})


def turn(turn_id: str, text: str, at_ms: int = 5) -> list[Record]:
    """Return the records of a turn in which a user said something."""
    said = user_message(text, at_ms, f"item {turn_id}")
    return [
        TurnStarted(at_ms=at_ms, turn_id=turn_id),
        HistoryAppended(at_ms=at_ms, items=[raw(text)]),
        ItemCompleted(at_ms=at_ms, turn_id=turn_id, item=said),
        TurnCompleted(at_ms=at_ms, turn_id=turn_id, status="completed"),
    ]


def id_of(item: ThreadItem) -> str:
    return str(getattr(item, "id", ""))


async def stored(threads: ThreadStore, *texts: str) -> str:
    """Store a thread in which a user said something in one turn each, and return its id."""
    thread = await threads.create(created())
    for number, text in enumerate(texts):
        await thread.append(*turn(f"{number}", text, 5 + number))
    await threads.unload(thread)
    return thread.id


def _broken(state: ThreadState) -> list[Record]:
    raise KeyError(state.id)


def texts_of(thread: LiveThread) -> list[str]:
    return [item["content"][0]["text"] for item in thread.state.history]


async def test_what_was_appended_is_loaded_read_and_listed_by_the_next_server(
    opened: Opener,
) -> None:
    async with opened() as stores:
        thread = await stores.threads.create(created())
        await thread.append(*turn("a", "hello"), NameChanged(at_ms=6, name="named"))
        kept, row = thread.state, (await stores.threads.lists.page(QUERY)).rows
        await stores.threads.unload(thread)
        with pytest.raises(LogClosed):
            await thread.append(NameChanged(at_ms=7, name="late"))
    async with opened() as stores:
        again = await stores.threads.load(kept.id)
        assert (texts_of(again), again.state.name, again.state.preview) == (
            ["hello"],
            "named",
            "hello",
        )
        assert again.state.updated_at_ms == kept.updated_at_ms
        assert (await stores.threads.lists.page(QUERY)).rows == row
        assert await stores.threads.lists.find(kept.id) == row[0]
        read = await stores.threads.read(kept.id)
        assert (read.name, read.history, await stores.threads.exists(kept.id)) == (
            "named",
            [],
            True,
        )
        await stores.threads.unload(again)


async def test_threads_that_are_none_or_are_there_are_refused(opened: Opener) -> None:
    async with opened() as stores:
        threads, missing = stores.threads, CLOCK.new_id()
        for doing in (
            threads.load,
            threads.read,
            threads.delete,
            threads.lists.find,
            partial(threads.change, decide=lambda _: []),
            partial(threads.history.ask, question=lambda reader: reader.turn("a")),
            partial(threads.fork, point=ForkPoint(), created=created()),
        ):
            with pytest.raises(ThreadNotFound):
                await doing(missing)
        with pytest.raises(InvalidThreadId):
            await threads.load("../x")
        thread_id = await stored(threads, "hello")
        with pytest.raises(ThreadExists):
            await threads.create(created(thread_id=thread_id, request_digest="other"))
        assert [row.id for row in (await threads.lists.page(QUERY)).rows] == [thread_id]


async def test_one_server_writes_a_thread_and_others_read_it(opened: Opener) -> None:
    async with opened() as one, opened() as other:
        thread = await one.threads.create(created())
        await thread.append(*turn("a", "hello"))
        for doing in (
            other.threads.load,
            other.threads.delete,
            other.threads.require_free,
            partial(other.threads.change, decide=lambda _: []),
        ):
            with pytest.raises(ThreadBusy) as caught:
                await doing(thread.id)
            assert caught.value.holder.address == "ws://127.0.0.1:1"
        await one.threads.require_free(thread.id)
        assert (await other.threads.read(thread.id)).preview == "hello"
        outline = await other.threads.history.ask(thread.id, lambda reader: reader.turn("a"))
        assert outline is not None
        assert outline.status == "completed"
        await one.threads.unload(thread)
        taken = await other.threads.load(thread.id)
        assert texts_of(taken) == ["hello"]
        await other.threads.unload(taken)


async def test_a_change_sees_the_state_and_is_there_for_all(opened: Opener) -> None:
    async with opened() as stores:
        thread_id = await stored(stores.threads, "hello")
        state, added = await stores.threads.change(
            thread_id, lambda state: [NameChanged(at_ms=9, name=f"about {state.preview}")]
        )
        assert (state.name, added) == (
            "about hello",
            [NameChanged(at_ms=9, name="about hello")],
        )
        assert (await stores.threads.lists.find(thread_id)).name == "about hello"
        with pytest.raises(KeyError):
            await stores.threads.change(thread_id, _broken)
        assert (await stores.threads.read(thread_id)).name == "about hello"


async def test_a_log_of_several_steps_has_all_its_turns_and_is_copied_in_bounded_memory(
    opened: Opener,
) -> None:
    large = "x" * (1 << 20)
    count = 2 * STEP_BYTES // len(large) + 3
    said = [f"apples {number} {large}" for number in range(count)]

    def words_of(reader: HistoryReader) -> list[str]:
        found, _ = occurrences_page(reader, "apples", count + 1, None)
        return [" ".join(one.excerpt.text.split()[:2]) for one in found]

    def turns_of(reader: HistoryReader) -> list[tuple[str, int]]:
        return [(turn.id, len(turn)) for turn in reader.walk(None, ascending=True)]

    async with opened() as stores:
        thread = await stores.threads.create(created())
        for number, text in enumerate(said):
            # What the model sees is in memory as a whole: here it is nothing.
            begin, _, *others = turn(f"{number}", text)
            await thread.append(begin, *others, sync=False)
        await stores.threads.unload(thread)
        thread_id, ask = thread.id, stores.threads.history.ask
        assert await ask(thread_id, turns_of) == [(f"{number}", 1) for number in range(count)]
        thread = await stores.threads.load(thread_id)
        await thread.append(TurnsReverted(at_ms=99, before_turn_id=f"{count - 2}"))
        await stores.threads.unload(thread)
        left = range(count - 2)
        assert await ask(thread_id, turns_of) == [(f"{number}", 1) for number in left]
        assert await ask(thread_id, words_of) == [f"apples {number}" for number in left]
        tracemalloc.start()
        try:
            fork = await stores.threads.fork(thread_id, ForkPoint(), created())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 * len(large)
        assert await ask(fork.id, turns_of) == [(f"{number}", 1) for number in left]
        await stores.threads.unload(fork)


async def test_pages_of_turns_and_items_go_on_where_they_ended(opened: Opener) -> None:
    async with opened() as stores:
        thread_id = await stored(stores.threads, "one", "two", "three")
        cursor, seen = None, []
        for _ in range(2):
            query = HistoryQuery(thread_id, 2, cursor)
            page = await stores.threads.history.ask(
                thread_id, partial(turns_page, query=query, view="full")
            )
            seen += [(each.outline.id, [id_of(item) for item in each.items]) for each in page.turns]
            cursor = page.next_cursor
        assert (seen, cursor) == (
            [("2", ["item 2"]), ("1", ["item 1"]), ("0", ["item 0"])],
            None,
        )
        first = HistoryQuery(thread_id, 9, ascending=True)
        items = await stores.threads.history.ask(
            thread_id, lambda reader: items_page(reader, first, None)
        )
        assert [id_of(each.item) for each in items.items] == ["item 0", "item 1", "item 2"]


async def test_a_revert_drops_turns_for_memory_pages_and_searches(opened: Opener) -> None:
    async with opened() as stores:
        thread = await stores.threads.create(created())
        await thread.append(*turn("a", "apples"), *turn("b", "pears"))
        await thread.revert(TurnsReverted(at_ms=9, before_turn_id="b"))
        assert texts_of(thread) == ["apples"]
        assert await stores.threads.history.ask(thread.id, lambda reader: reader.turn("b")) is None
        found, _ = await stores.threads.history.search(SearchQuery("pears", 9))
        assert found.found == []
        await stores.threads.unload(thread)
        again = await stores.threads.load(thread.id)
        assert texts_of(again) == ["apples"]
        await stores.threads.unload(again)


@pytest.mark.parametrize(
    ("point", "left"),
    [
        (ForkPoint(), ["one", "two"]),
        (ForkPoint(last_turn_id="0"), ["one"]),
        (ForkPoint(before_turn_id="0"), []),
    ],
)
async def test_a_fork_has_the_turns_of_its_source(
    opened: Opener, point: ForkPoint, left: list[str]
) -> None:
    async with opened() as stores:
        source = await stored(stores.threads, "one", "two")
        fork = await stores.threads.fork(source, point, created(forked_from_id=source))
        assert texts_of(fork) == left
        await fork.append(*turn("mine", "more", 20))
        await stores.threads.unload(fork)
        again = await stores.threads.load(fork.id)
        assert texts_of(again) == [*left, "more"]
        await stores.threads.unload(again)
        assert (await stores.threads.read(source)).preview == "one"
        with pytest.raises(TurnNotFound):
            await stores.threads.fork(source, ForkPoint(last_turn_id="none"), created())


async def test_a_fork_of_a_thread_that_is_written_ends_where_it_was(opened: Opener) -> None:
    async with opened() as stores:
        thread = await stores.threads.create(created())
        await thread.append(*turn("a", "before"))
        end = await thread.log_end()
        await thread.append(*turn("b", "after"))
        fork = await stores.threads.fork(thread.id, ForkPoint(end=end), created())
        assert texts_of(fork) == ["before"]
        await stores.threads.unload(fork)
        await stores.threads.unload(thread)


async def test_searches_find_texts_in_order_and_their_places(opened: Opener) -> None:
    async with opened() as stores:
        first = await stored(stores.threads, "Green apples", "pears")
        second = await stored(stores.threads, "more APPLES")
        page, rows = await stores.threads.history.search(
            SearchQuery("apples", 9, sort_key="updated_at_ms", ascending=True)
        )
        assert page.found == [Found(first, "Green apples"), Found(second, "more APPLES")]
        assert rows.keys() == {first, second}
        found, cursor = await stores.threads.history.ask(
            first, lambda reader: occurrences_page(reader, "apples", 9, None)
        )
        assert ([each.item_id for each in found], cursor) == (["item 0"], None)


async def test_what_is_deleted_is_nowhere(opened: Opener) -> None:
    async with opened() as stores:
        thread_id, kept = await stored(stores.threads, "pears"), await stored(stores.threads, "?")
        await stores.threads.delete(thread_id)
        assert not await stores.threads.exists(thread_id)
        assert [row.id for row in (await stores.threads.lists.page(QUERY)).rows] == [kept]
        page, rows = await stores.threads.history.search(SearchQuery("pears", 9))
        assert (page.found, rows) == ([], {})


async def test_an_ephemeral_thread_is_in_memory_alone(opened: Opener) -> None:
    async with opened() as stores:
        thread = await stores.threads.create(created(ephemeral=True))
        await thread.append(*turn("a", "hello"))
        assert texts_of(thread) == ["hello"]
        assert not await stores.threads.exists(thread.id)
        assert (await stores.threads.lists.page(QUERY)).rows == []
        await stores.threads.unload(thread)


async def test_projects_and_sections_are_those_of_all_servers(opened: Opener) -> None:
    section = ThreadSection(id="s", name="Later")
    async with opened() as one, opened() as other:
        await one.threads.organization.change(lambda _: [SectionPut(at_ms=1, section=section)])
        state = await other.threads.organization.refresh()
        assert state.sections == {PINNED.id: PINNED, "s": section}
        thread_id = await stored(one.threads, "hello")
        rank = await one.threads.organization.rank_in_section("s", thread_id, None)
        placed = SectionChanged(at_ms=3, section_id="s", rank=rank)
        await one.threads.change(thread_id, lambda _: [placed])
        row = await one.threads.lists.find(thread_id)
        assert (row.section_id, row.section_rank) == ("s", rank)
        second = await stored(one.threads, "second")
        before = await one.threads.organization.rank_in_section("s", second, thread_id)
        assert before < rank


async def test_lists_go_on_where_they_ended(opened: Opener) -> None:
    async with opened() as stores:
        ids = [await stored(stores.threads, f"text {number}") for number in range(5)]
        query: ThreadQuery = replace(QUERY, limit=2)
        seen = []
        while True:
            page = await stores.threads.lists.page(query)
            seen += [row.id for row in page.rows]
            if page.next_cursor is None:
                break
            query = replace(query, cursor=page.next_cursor)
        assert sorted(seen) == sorted(ids)
        assert len(seen) == 5


async def test_the_ledger_is_that_of_all_servers(opened: Opener) -> None:
    async with opened() as one, opened() as other:
        assert not await one.signals.exists()
        ledger = await one.signals.open()
        assert await other.signals.exists()
        theirs = await other.signals.open()
        version = theirs.version()
        accepted = entry("a", stage="accepted", thread_id="t")
        assert ledger.put([accepted]) == []
        assert theirs.version() != version
        assert [unnumbered(each) for each in theirs.open_entries("t")] == [accepted]
        seen = replace(accepted, stage="seen")
        assert theirs.put([seen]) == []
        ahead = ledger.put([replace(accepted, stage="inHistory")])
        assert [unnumbered(each) for each in ahead] == [seen]
        assert (ledger.stages(), ledger.open_entries("other")) == ({"seen": 1}, [])
        theirs.close()
        ledger.close()


@claim("wakes:store")
async def test_wakes_are_those_of_all_servers_and_one_moves_each(opened: Opener) -> None:
    async with opened() as one, opened() as other:
        ledger, theirs = await one.signals.open(), await other.signals.open()
        once = stored_timer("a", at_ms=1000)
        every = stored_timer("b", at_ms=61_000, every_ms=60_000)
        waiting = replace(stored_timer("c", at_ms=None), kind="process", seen="make")
        for wake in (once, every, waiting):
            ledger.wakes.add(wake)
        assert [wake.id for wake in theirs.wakes.open_of(["t", "other"])] == ["a", "b", "c"]
        assert theirs.wakes.open_of(["other"]) == theirs.wakes.open_of([]) == []
        look = theirs.wakes.look(1000, 10)
        assert [numbered.id for numbered in look.due] == ["a"]
        assert (look.next_ms, [wake.id for wake in look.waiting]) == (61_000, ["c"])
        fired = replace(once, state="fired", fires=1, text="it is time", look_at_ms=2000)
        known = ledger.version()
        assert theirs.wakes.move(once, fired)
        assert ledger.version() != known
        assert not ledger.wakes.move(once, fired)
        found = ledger.wakes.find("a")
        assert found is not None
        assert replace(found, number=None) == fired
        assert ledger.wakes.find("z") is None
        ledger.wakes.clock_set_back(500)
        assert [wake.id for wake in ledger.wakes.look(500, 10).due] == ["a"]
        assert ledger.wakes.look(500, 10).next_ms == 60_500
        first = theirs.wakes.page("t", None, None, 2)
        assert [wake.id for wake in first.wakes] == ["c", "b"]
        rest = theirs.wakes.page("t", None, first.next_cursor, 2)
        assert ([wake.id for wake in rest.wakes], rest.next_cursor) == (["a"], None)
        assert [wake.id for wake in theirs.wakes.page(None, "fired", None, 2).wakes] == ["a"]
        with pytest.raises(InvalidCursor):
            theirs.wakes.page(None, None, "x", 1)
        assert theirs.wakes.move(fired, replace(fired, state="delivered", text=""))
        assert [wake.id for wake in ledger.wakes.open_of(["t"])] == ["b", "c"]
        assert ledger.wakes.forget_old(KEEP_MS) == 0
        assert ledger.wakes.forget_old(KEEP_MS + 1001) == 1
        for number in range(MAX_FILES_OF_HOME):
            ledger.wakes.add(
                replace(stored_timer(f"f{number}", None), kind="file", thread_id=f"{number}")
            )
        with pytest.raises(TooManyWakes, match="on files of a home"):
            ledger.wakes.add(replace(stored_timer("g", None), kind="file"))
        for number in range(MAX_OF_THREAD - 2):
            ledger.wakes.add(stored_timer(f"t{number}", 1))
        with pytest.raises(TooManyWakes, match="of a thread"):
            theirs.wakes.add(stored_timer("u", 1))
        threads = sorted(["t", *map(str, range(MAX_FILES_OF_HOME))])
        first_of_them = theirs.wakes.threads_with_open("", 100)
        assert first_of_them == threads[:100]
        assert theirs.wakes.threads_with_open(first_of_them[-1], 1000) == threads[100:]
        theirs.close()
        ledger.close()


def unnumbered(found: Entry) -> Entry:
    return replace(found, number=None)


def waiting(name: str, thread_id: str = "t", **changes: Any) -> OutboxEntry:
    made = OutboxEntry(
        target="hook",
        id=name,
        label="webhook h",
        thread_id=thread_id,
        event="turnCompleted",
        subject=name,
        body="{}",
        run="one",
        created_at_ms=1_000,
    )
    return replace(made, **changes)


def claim_at(now_ms: int, run: str = "one", limit: int = 10) -> Claim:
    return Claim(run=run, targets=["hook"], now_ms=now_ms, limit=limit)


def ids_of(entries: Sequence[OutboxEntry]) -> list[str]:
    return [entry.id for entry in entries]


async def test_the_outbox_gives_the_first_of_each_thread_to_one_server(opened: Opener) -> None:
    async with opened() as one, opened() as other:
        assert not await one.notifications.exists()
        mine = await one.notifications.open()
        a, b, c = waiting("a"), waiting("b"), waiting("c", "u")
        assert mine.put([a, b, c, replace(a, body="again")], "one", 1_000) == 0
        assert await other.notifications.exists()
        theirs = await other.notifications.open()
        assert theirs.runs() == {"one": 1_000}
        # Who has put them sends them, unless it does not for a while.
        assert theirs.advance([], claim_at(2_000, "two")) == Claimed([], 1_000 + CLAIM_MS)
        claimed = mine.advance([], claim_at(2_000))
        assert [replace(entry, number=None) for entry in claimed.entries] == [a, c]
        assert claimed.next_at_ms is None
        failed = replace(claimed.entries[0], attempts=1, next_at_ms=9_000, error="answered 500")
        done = replace(claimed.entries[1], state="delivered", ended_at_ms=2_500, attempts=1)
        assert mine.advance([failed, done], claim_at(3_000)) == Claimed([], 9_000)
        (again,) = theirs.advance([], claim_at(9_000, "two")).entries
        assert again == failed
        assert mine.advance([], claim_at(9_000)) == Claimed([], 9_000 + CLAIM_MS)
        over = replace(again, state="delivered", ended_at_ms=9_500)
        assert theirs.advance([over], claim_at(9_500, "two")) == Claimed([], 1_000 + CLAIM_MS)
        assert mine.counts() == {"waiting": 1, "delivered": 2}
        page = mine.page("delivered", None, 1)
        assert [(entry.id, entry.body) for entry in page.entries] == [("c", "")]
        assert ids_of(mine.page("delivered", page.next_cursor, 1).entries) == ["a"]
        # A server that ends lets go of what it has claimed.
        assert ids_of(mine.advance([], claim_at(9_500)).entries) == ["b"]
        assert theirs.advance([], claim_at(9_600, "two")) == Claimed([], 9_500 + CLAIM_MS)
        mine.end_run("one")
        assert ids_of(theirs.advance([], claim_at(9_600, "two")).entries) == ["b"]
        theirs.close()
        mine.close()


async def test_the_outbox_keeps_questions_until_they_are_resolved(opened: Opener) -> None:
    async with opened() as stores:
        outbox = await stores.notifications.open()
        question = waiting("q", event="approvalRequested", subject="1", is_open=True)
        outbox.put([question], "one", 5)
        assert [replace(each, number=None) for each in outbox.open_questions()] == [question]
        outbox.put([waiting("r", event="resolved", subject="1")], "one", 6)
        assert outbox.open_questions() == []
        assert outbox.runs() == {"one": 6}
        outbox.put([], "one", 3)
        assert outbox.runs() == {"one": 6}
        outbox.end_run("one")
        assert outbox.runs() == {}
        outbox.close()


async def test_the_outbox_of_a_disabled_target_takes_nothing(opened: Opener) -> None:
    async with opened() as stores:
        outbox = await stores.notifications.open()
        outbox.put([waiting("a"), waiting("b", target="other")], "one", 5)
        outbox.disable("hook", 7, "answered 410")
        assert (outbox.disabled(), outbox.counts()) == (
            {"hook": "answered 410"},
            {"waiting": 1, "dead": 1},
        )
        outbox.put([waiting("c")], "one", 8)
        outbox.enable("hook")
        outbox.put([waiting("d")], "one", 9)
        assert outbox.disabled() == {}
        (dead,) = outbox.page("dead", None, 10).entries
        assert (dead.id, dead.error, dead.ended_at_ms) == ("a", "answered 410", 7)
        assert ids_of(outbox.page("waiting", None, 10).entries) == ["d", "b"]
        outbox.close()


async def test_the_outbox_is_bounded(opened: Opener) -> None:
    async with opened() as stores:
        outbox = await stores.notifications.open()
        entries = [waiting(str(number), str(number)) for number in range(MAX_WAITING + 2)]
        assert outbox.put(entries, "one", 5) == 2
        assert outbox.put([waiting("late")], "one", 5) == 1
        assert outbox.counts() == {"waiting": MAX_WAITING}
        late_ms = 1_000 + EXPIRE_MS
        assert outbox.forget_old(late_ms) == 0
        assert outbox.counts() == {"waiting": MAX_WAITING}
        assert outbox.forget_old(late_ms + 1) == 0
        assert outbox.counts() == {"dead": MAX_WAITING}
        (dead,) = outbox.page("dead", None, 1).entries
        assert (dead.error, dead.ended_at_ms) == (EXPIRED, late_ms + 1)
        assert outbox.forget_old(late_ms + 2 + KEEP_DEAD_MS) == MAX_WAITING
        assert outbox.counts() == {}
        outbox.close()


async def test_servers_that_run_are_listed(opened: Opener) -> None:
    mine = ServerEntry(1, "0.1.0", 5, ["ws://127.0.0.1:1"])
    async with opened() as one, opened() as other:
        with one.servers.announced(mine):
            assert other.servers.all() == [FoundServer(mine, is_running=True)]
        assert other.servers.all() == []


async def test_a_log_is_exported_as_it_is(opened: Opener) -> None:
    async with opened() as stores:
        thread_id = await stored(stores.threads, "hello")
        lines = await stores.threads.exported(thread_id, 1 << 20)
        assert lines is not None
        assert [line.split(b'"type":"')[1].split(b'"')[0] for line in lines.splitlines()] == [
            b"threadCreated",
            b"turnStarted",
            b"historyAppended",
            b"itemCompleted",
            b"turnCompleted",
        ]
        assert await stores.threads.exported(thread_id, len(lines) - 1) is None
        with pytest.raises(ThreadNotFound):
            await stores.threads.exported(CLOCK.new_id(), 1 << 20)


def used(number: int, turn_id: str, **changes: str) -> UsageRecorded:
    """Make the record of a request with tokens that no other number has."""
    usage = TokenUsageBreakdown(
        total_tokens=11 * number,
        input_tokens=10 * number,
        cached_input_tokens=number,
        output_tokens=number,
        reasoning_output_tokens=0,
    )
    values: dict[str, Any] = {"origin": "user", "model": "m", "model_provider": "p", "cwd": "/w"}
    return UsageRecorded(
        at_ms=CLOCK.now_ms(),
        turn_id=turn_id,
        request_id=str(number),
        usage=usage,
        model_ms=number,
        **{**values, **changes},
    )


def usage(*numbers: int) -> Usage:
    total = sum(numbers)
    return Usage(
        requests=len(numbers),
        input_tokens=10 * total,
        cached_input_tokens=total,
        output_tokens=total,
        model_ms=total,
    )


async def test_usage_is_that_of_the_rows_and_of_a_log(opened: Opener) -> None:
    async with opened() as stores:
        store = stores.threads
        first, second = [await store.create(created()) for _ in range(2)]
        await first.append(TurnStarted(at_ms=1, turn_id="t1"), used(1, "t1"), used(2, "t1"))
        await first.append(used(3, "t1", origin="review", cwd="/other"), sync=False)
        await first.append(TurnCompleted(at_ms=2, turn_id="t1", status="completed"))
        await first.append(TurnStarted(at_ms=3, turn_id="t2"), used(4, "t2"))
        await first.append(TurnCompleted(at_ms=4, turn_id="t2", status="completed"))
        await second.append(used(5, "t3", model="n"))
        await first.revert(TurnsReverted(at_ms=5, before_turn_id="t2"))
        fork = await store.fork(first.id, ForkPoint(), created())
        await fork.append(used(6, "t4"))
        m, n = ("p", "m"), ("p", "n")

        async def by(group: UsageGroup, thread_id: str | None = None) -> UsageSums:
            return await store.lists.usage(UsageQuery(group, thread_id))

        assert await by("thread") == {
            first.id: {m: usage(1, 2, 3, 4)},
            second.id: {n: usage(5)},
            fork.id: {m: usage(6)},
        }
        assert await by("folder") == {
            "/w": {m: usage(1, 2, 4, 6), n: usage(5)},
            "/other": {m: usage(3)},
        }
        assert await by("origin", first.id) == {
            "user": {m: usage(1, 2, 4)},
            "review": {m: usage(3)},
        }
        assert await by("model") == {"m": {m: usage(1, 2, 3, 4, 6)}, "n": {n: usage(5)}}
        query = UsageQuery("turn", first.id)
        assert sum_of_turns(await store.history.usage(first.id), query) == {
            "t1": {m: usage(1, 2, 3)},
            "t2": {m: usage(4)},
        }
        with pytest.raises(ThreadNotFound):
            await store.history.usage(CLOCK.new_id())
        for thread in (first, second, fork):
            await store.unload(thread)
        await store.delete(second.id)
        assert await by("model") == {"m": {m: usage(1, 2, 3, 4, 6)}}
    async with opened() as stores:
        sums = await stores.threads.lists.usage(UsageQuery("model"))
        assert sums == {"m": {("p", "m"): usage(1, 2, 3, 4, 6)}}


async def test_what_is_reserved_of_a_budget_is_counted_until_it_is_settled(opened: Opener) -> None:
    home, day = (
        BudgetClaim("home", None, TOKENS, 10_000, 100, 1),
        BudgetClaim("day", "2026-11-28", "USD", 0, 0, 1),
    )
    day = replace(day, limit=5_000 * STEP, fixed=STEP // 2, per_token=STEP)
    async with opened() as one, opened() as other:
        assert await one.budgets.reserve("a", [home, day], 4_000) == Unknown([home, day])
        await one.budgets.seed([(home, 1_000), (day, 0)])
        await other.budgets.seed([(home, 500)])
        assert await one.budgets.reserve("a", [home, day], 4_000) == 4_000
        # The other server sees what is reserved: 5,100 tokens, and a little over 4,000 of money.
        assert await other.budgets.reserve("b", [home, day], 4_000) == 998
        refused = await other.budgets.reserve("c", [home, day], 4_000)
        assert refused == ClaimRefused(day, 5_000 * STEP)
        assert (
            await other.budgets.reserve("c", [home], 4_000) == 10_000 - 1_000 - 4_100 - 1_098 - 100
        )
        changes = await one.budgets.settle("a", [(home, 50), (day, 3 * STEP + 1)])
        assert changes == [(1_000, 1_050), (0, 4)]
        changes = await other.budgets.settle("b", [(home, 7), (day, 0)])
        assert changes == [(1_050, 1_057), (4, 4)]
        assert await other.budgets.reserve("d", [home], 4_000) == 4_000
        assert await one.budgets.reserve("e", [home], 4_000) == 10_000 - 4_859 - 4_100 - 100
        assert await other.budgets.reserve("f", [home], 4_000) == ClaimRefused(home, 10_000)


async def test_servers_that_reserve_at_once_never_pass_a_budget(opened: Opener) -> None:
    claim = BudgetClaim("home", None, TOKENS, 20_000, 500, 1)
    async with opened() as one, opened() as other:
        await one.budgets.seed([(claim, 0)])
        granted = await asyncio.gather(
            *(
                stores.budgets.reserve(f"{name}{number}", [claim], 1_000)
                for number in range(10)
                for name, stores in (("a", one), ("b", other))
            )
        )
        sizes = [each for each in granted if isinstance(each, int)]
        assert sizes == [1_000] * 13
        refused = [each for each in granted if not isinstance(each, int)]
        assert refused == [ClaimRefused(claim, 13 * 1_500)] * 7
