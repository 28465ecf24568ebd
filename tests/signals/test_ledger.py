"""signals: what a signal becomes, the ledger that keeps it, and who is notified. No server."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from app_server.rpc.hub import Hub
from app_server.runtime.clock import Clock
from app_server.signals.entries import Effects, Entries, OpenEntries
from app_server.signals.notifications import SignalNotifier
from app_server.signals.recipients import NoRecipient, Recipient
from app_server.signals.service import digest_of, new_entry
from app_server.threads.files.ledger import Ledger
from app_server.threads.ledger import MAX_OVER, Entry, LedgerFailed
from app_server.threads.log.state import ThreadState, begin
from protocol.cursors import InvalidCursor, render_cursor
from protocol.log.rollout import (
    HistoryAppended,
    InputQueued,
    SignalMark,
    TurnCompleted,
    TurnStarted,
)
from protocol.signals.delivery import SignalDeliverParams, SignalError, SignalReceipt, SignalStage
from tests.support.harness import WAIT_S
from tests.support.threads.stores import created, raw

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000


def entry(name: str = "a", **changes: Any) -> Entry:
    made = Entry(
        source="s",
        id=name,
        digest="d",
        thread_id="t",
        sender="me",
        item="{}",
        wakes=True,
        steers=False,
        stage="accepted",
        recipient_state="idle",
        at_ms=NOW_MS,
        item_id=f"item {name}",
    )
    return replace(made, **changes)


# Acceptance.


def params(mode: str = "wake", **members: Any) -> SignalDeliverParams:
    signal = {"source": "s", "id": "a", "type": "ci", "sender": "me", "summary": "done"}
    return SignalDeliverParams.model_validate(
        {
            "signal": {**signal, **members.pop("signal", {})},
            "target": {"threadId": "t"},
            "mode": mode,
            **members,
        }
    )


def accept(given: SignalDeliverParams, wakes_before: int = 0, *, has_tool: bool = False) -> Entry:
    recipient = Recipient("t", "active")
    return new_entry(given, recipient, "item", NOW_MS, wakes_before, thread_has_tool=has_tool)


def test_a_signal_becomes_an_entry() -> None:
    made = accept(params())
    assert replace(made, item="", digest="") == Entry(
        source="s",
        id="a",
        digest="",
        thread_id="t",
        sender="me",
        item="",
        wakes=True,
        steers=made.steers,
        stage="accepted",
        recipient_state="active",
        at_ms=NOW_MS,
        item_id="item",
    )
    assert "done" in made.item
    assert made.digest == digest_of(params())
    assert accept(params(onBusy="steer")).steers
    assert not accept(params(onBusy="queue")).steers


@pytest.mark.parametrize(
    ("mode", "before", "wakes", "error"),
    [
        ("wake", 7, True, None),
        ("wake", 8, False, "wakeLimit"),
        ("passive", 7, False, None),
        ("passive", 8, False, None),
    ],
)
def test_a_source_wakes_a_thread_eight_times_in_the_window(
    mode: str, before: int, wakes: bool, error: str | None
) -> None:
    made = accept(params(mode), before)
    assert (made.wakes, made.error_code) == (wakes, error)
    if error is not None:
        text = "delivered as passive: a source may wake a thread 8 times a minute"
        assert made.error_message == text
    else:
        assert made.error_message is None


@pytest.mark.parametrize(
    ("members", "stage", "ends_ms"),
    [
        ({}, "accepted", None),
        ({"createdAt": NOW_S - 100}, "accepted", None),
        ({"ttlSeconds": 10}, "accepted", NOW_MS + 10_000),
        ({"ttlSeconds": 11, "createdAt": NOW_S - 10}, "accepted", NOW_MS + 1000),
        ({"ttlSeconds": 10, "createdAt": NOW_S - 10}, "expired", NOW_MS),
        ({"ttlSeconds": 9, "createdAt": NOW_S - 10}, "expired", NOW_MS - 1000),
    ],
)
def test_a_signal_lives_from_when_it_was_made(
    members: dict[str, int], stage: str, ends_ms: int | None
) -> None:
    made = accept(params(signal=members))
    assert (made.stage, made.expires_at_ms, made.item == "") == (
        *(stage, ends_ms, stage == "expired"),
    )


def test_the_tool_of_a_payload_is_named_where_the_thread_has_it() -> None:
    given = params(payloadTool="read_payload")
    assert "read_payload" in accept(given, has_tool=True).item
    assert "read_payload" not in accept(given).item
    # Sent again by a receiver that knows its tool by now, it is the same signal.
    assert digest_of(given) == digest_of(params())
    assert digest_of(params("passive")) != digest_of(params())


# Receipts.


@pytest.mark.parametrize(
    ("stage", "shows_item", "is_open"),
    [
        ("accepted", False, True),
        ("inHistory", True, True),
        ("seen", True, True),
        ("answered", True, False),
        ("expired", False, False),
        ("recalled", False, False),
        ("failed", False, False),
    ],
)
def test_a_receipt_shows_how_far_a_signal_has_come(
    stage: Any, shows_item: bool, is_open: bool
) -> None:
    made = entry(stage=stage, turn_id="turn", woken_at_ms=5, at_ms=NOW_MS + 999)
    assert (made.key, made.is_open) == (("s", "a"), is_open)
    assert made.receipt() == SignalReceipt(
        signal_id="a",
        source="s",
        thread_id="t",
        stage=stage,
        item_id="item a" if shows_item else None,
        turn_id="turn",
        woken=True,
        recipient_state="idle",
        at=NOW_S,
        error=None,
    )


def test_a_receipt_has_the_error_with_its_text() -> None:
    assert not entry().receipt().woken
    found = [
        entry(error_code="code", error_message=text).receipt().error for text in ("text", None)
    ]
    assert found == [SignalError(code="code", message=each) for each in ("text", "")]


# The ledger.


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(tmp_path / "made" / "ledger.sqlite3")
    yield opened
    opened.close()


def stored(ledger: Ledger) -> list[Entry]:
    page = ledger.page(None, None, None, 100)
    return [replace(each, number=None) for each in reversed(page.entries)]


def test_what_was_put_is_found_and_replaced(ledger: Ledger) -> None:
    full = entry(
        "full",
        expires_at_ms=1,
        turn_id="turn",
        woken_at_ms=2,
        error_code="c",
        error_message="m",
        wakes=False,
        steers=True,
    )
    ledger.put([entry("a"), full])
    assert stored(ledger) == [entry("a"), full]
    changed = entry("a", stage="seen", item="", thread_id="other")
    ledger.put([changed])
    assert stored(ledger) == [changed, full]
    found = ledger.find("s", "full")
    assert found is not None
    assert replace(found, number=None) == full
    assert (ledger.find("s", "none"), ledger.find("none", "a")) == (None, None)
    assert ledger.stages() == {"accepted": 1, "seen": 1}


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ("accepted", "accepted", False),
        ("accepted", "inHistory", True),
        ("accepted", "expired", True),
        ("inHistory", "accepted", False),
        ("inHistory", "inHistory", True),
        ("inHistory", "recalled", True),
        ("inHistory", "failed", True),
        ("seen", "inHistory", False),
        ("seen", "answered", True),
        ("answered", "seen", False),
        ("answered", "failed", False),
        ("expired", "accepted", False),
        ("expired", "recalled", False),
        ("expired", "inHistory", True),
    ],
)
def test_no_server_moves_a_row_back(
    ledger: Ledger, before: SignalStage, after: SignalStage, moves: bool
) -> None:
    first, then = entry("a", stage=before), entry("a", stage=after, at_ms=2)
    assert ledger.put([first]) == []
    ahead = ledger.put([entry("b"), then])
    assert [replace(one, number=None) for one in ahead] == ([] if moves else [first])
    assert stored(ledger) == [then if moves else first, entry("b")]


def test_writes_of_another_server_are_noticed(ledger: Ledger, tmp_path: Path) -> None:
    version = ledger.version()
    ledger.put([entry("a")])
    assert ledger.version() == version
    other = Ledger(tmp_path / "made" / "ledger.sqlite3")
    other.put([entry("b")])
    other.close()
    assert ledger.version() != version


def test_open_entries_are_read_back_in_their_order(ledger: Ledger) -> None:
    stages = ["accepted", "answered", "seen", "expired", "inHistory", "recalled", "failed"]
    ledger.put([entry(stage, stage=stage) for stage in stages])
    assert [each.id for each in ledger.open_entries()] == ["accepted", "seen", "inHistory"]


@pytest.mark.parametrize(
    ("stages", "synchronous"),
    [(["inHistory", "seen", "answered"], 1), (["accepted"], 2), (["seen", "expired"], 2)],
)
def test_what_no_log_has_is_on_the_disk_when_it_was_put(
    ledger: Ledger, stages: list[Any], synchronous: int
) -> None:
    ledger.put([entry(stage, stage=stage) for stage in stages])
    # https://sqlite.org/pragma.html#pragma_synchronous: 1 is NORMAL, 2 is FULL.
    with ledger.transaction() as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (synchronous,)


def test_pages_are_newest_first_and_end(ledger: Ledger) -> None:
    ledger.put([entry(str(number)) for number in range(4)])
    ledger.put([entry("other", thread_id="u", stage="seen"), entry("seen", stage="seen")])

    def ids(thread_id: str | None, stage: Any, limit: int) -> list[list[str]]:
        pages, cursor = [], None
        while True:
            page = ledger.page(thread_id, stage, cursor, limit)
            pages.append([each.id for each in page.entries])
            cursor = page.next_cursor
            if cursor is None:
                return pages

    assert ids(None, None, 6) == [["seen", "other", "3", "2", "1", "0"]]
    assert ids(None, None, 5) == [["seen", "other", "3", "2", "1"], ["0"]]
    assert ids("t", None, 2) == [["seen", "3"], ["2", "1"], ["0"]]
    assert ids("t", "accepted", 4) == [["3", "2", "1", "0"]]
    assert ids(None, "seen", 1) == [["seen"], ["other"]]
    assert ids("u", "accepted", 1) == [[]]


def test_a_cursor_that_is_none_of_ours_is_refused(ledger: Ledger) -> None:
    ledger.put([entry("a")])
    top = (1 << 63) - 1
    assert len(ledger.page(None, None, render_cursor("signals", top), 1).entries) == 1
    assert ledger.page(None, None, render_cursor("signals", -top), 1).entries == []
    cursors = [
        *("", "zz", render_cursor("other", 1), render_cursor("signals", "1")),
        *(render_cursor("signals", number) for number in (1 << 63, -(1 << 63))),
    ]
    for cursor in cursors:
        with pytest.raises(InvalidCursor):
            ledger.page(None, None, cursor, 1)


def test_turns_that_a_source_began_are_counted_once_each(ledger: Ledger) -> None:
    ledger.put(
        [
            entry("a", woken_at_ms=10, turn_id="1"),
            entry("b", woken_at_ms=11, turn_id="1"),
            entry("c", woken_at_ms=12, turn_id="2"),
            entry("d", woken_at_ms=13),
            entry("e"),
            entry("f", woken_at_ms=14, turn_id="3", thread_id="u"),
            entry("g", woken_at_ms=14, turn_id="4", source="other"),
        ]
    )
    counts = [ledger.turns_woken_since("t", "s", at_ms, 13) for at_ms in (0, 9, 10, 11, 12, 13)]
    assert counts == [3, 3, 3, 2, 1, 0]
    assert [ledger.turns_woken_since("t", "s", 0, now_ms) for now_ms in (9, 10, 12)] == [0, 1, 2]


def test_what_has_been_over_for_30_days_is_forgotten(ledger: Ledger) -> None:
    month_ms = 30 * 24 * 3600 * 1000
    ledger.put(
        [
            entry("open", at_ms=0),
            entry("old", stage="answered", at_ms=NOW_MS - month_ms - 1),
            entry("kept", stage="answered", at_ms=NOW_MS - month_ms),
        ]
    )
    assert ledger.forget_old(NOW_MS) == 1
    assert [each.id for each in stored(ledger)] == ["open", "kept"]
    assert ledger.forget_old(NOW_MS) == 0


def test_of_those_that_are_over_the_newest_are_kept(tmp_path: Path) -> None:
    assert MAX_OVER == 200_000
    ledger = Ledger(tmp_path / "ledger.sqlite3", max_over=2)
    ledger.put([entry("open"), *(entry(name, stage="expired") for name in "abc")])
    assert ledger.forget_old(NOW_MS) == 1
    assert [each.id for each in stored(ledger)] == ["open", "b", "c"]
    ledger.close()


def test_a_ledger_of_another_version_is_refused_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    ledger = Ledger(path)
    ledger.put([entry("a")])
    ledger.close()
    with pytest.raises(LedgerFailed):
        ledger.put([entry("b")])
    again = Ledger(path)
    assert stored(again) == [entry("a")]
    again.close()
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    database.execute("PRAGMA user_version = 2")
    database.close()
    before = os.listdir("/dev/fd")
    with pytest.raises(LedgerFailed, match=r"^the ledger of signals has version 2$"):
        Ledger(path)
    assert os.listdir("/dev/fd") == before


def test_the_folder_of_a_ledger_is_its_users_alone(tmp_path: Path) -> None:
    Ledger(tmp_path / "made" / "signals" / "ledger.sqlite3").close()
    assert (tmp_path / "made" / "signals").stat().st_mode & 0o777 == 0o700


# In memory.


def test_open_entries_are_known_until_they_are_over() -> None:
    entries = OpenEntries()
    a, b, other = entry("a"), entry("b", stage="seen"), entry("c", thread_id="u")
    for each in (a, b, other):
        entries.put(each)
    assert (entries.of("t"), entries.waiting("t"), entries.unseen("t")) == ([a, b], [a], 1)
    assert (entries.threads(), entries.has("t"), entries.has("none")) == (["t", "u"], True, False)
    assert (entries.find(("s", "b")), entries.find(("s", "none"))) == (b, None)
    in_history = entry("a", stage="inHistory")
    entries.put(in_history)
    assert (entries.of("t"), entries.waiting("t"), entries.unseen("t")) == ([in_history, b], [], 1)
    entries.put(entry("a", stage="answered"))
    entries.put(entry("none", stage="answered"))
    assert (entries.of("t"), entries.find(("s", "a")), entries.unseen("t")) == ([b], None, 0)
    entries.put(entry("b", stage="failed"))
    assert (entries.of("t"), entries.threads(), entries.has("t")) == ([], ["u"], False)


# Entries follow the log.


@dataclass
class Time:
    """A clock that the test sets."""

    now: int = NOW_MS

    def now_ms(self) -> int:
        return self.now


@dataclass
class Book:
    """Entries, with what was announced of them."""

    ledger: Ledger
    clock: Time = field(default_factory=Time)
    announced: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entries = Entries(self.ledger, cast(Clock, self.clock))

    async def put(self, *entries: Entry) -> None:
        effects = Effects()
        await self.entries.write(list(entries), effects)
        assert stages(effects) == [(one.id, one.stage) for one in entries]

    async def follow(self, state: ThreadState) -> list[Entry]:
        effects = Effects()
        await self.entries.follow(state, effects)
        self.announced += stages(effects)
        return stored(self.ledger)


def stages(effects: Effects) -> list[tuple[str, str]]:
    """Return id and stage of the receipts that are to be sent."""
    return [(receipt.signal_id, receipt.stage) for receipt in effects.receipts]


def thread() -> ThreadState:
    return begin(created(thread_id="t"))


def heard(name: str, *, woke: bool = False) -> HistoryAppended:
    mark = SignalMark(source="s", id=name, item_id=f"logged {name}", woke=woke)
    return HistoryAppended(at_ms=1, items=[raw(name)], signals=[mark])


async def test_an_entry_goes_where_the_log_has_its_signal(ledger: Ledger) -> None:
    book, state = Book(ledger), thread()
    await book.put(entry("a"), entry("b"))
    book.clock.now += 1000
    state.apply(TurnStarted(at_ms=1, turn_id="1"))
    assert await book.follow(state) == [entry("a"), entry("b")]
    assert book.announced == []
    state.apply(heard("a", woke=True))
    in_history = entry(
        "a",
        stage="inHistory",
        item="",
        item_id="logged a",
        turn_id="1",
        woken_at_ms=NOW_MS + 1000,
        at_ms=NOW_MS + 1000,
    )
    assert await book.follow(state) == [in_history, entry("b")]
    assert book.announced == [("a", "inHistory")]
    # The time of a stage is that of its beginning.
    book.clock.now += 1000
    assert await book.follow(state) == [in_history, entry("b")]
    assert book.announced == [("a", "inHistory")]
    state.apply(TurnCompleted(at_ms=2, turn_id="1", status="failed"))
    text = "the turn that had the signal did not complete"
    failed = replace(in_history, error_code="turnFailed", error_message=text)
    assert await book.follow(state) == [failed, entry("b")]
    state.apply(TurnStarted(at_ms=3, turn_id="2"))
    state.apply(HistoryAppended(at_ms=4, items=[{"role": "assistant"}]))
    seen = replace(in_history, stage="seen", turn_id="2", at_ms=NOW_MS + 2000)
    assert await book.follow(state) == [seen, entry("b")]
    mark = SignalMark(source="s", id="b", item_id="logged b")
    state.apply(InputQueued(at_ms=5, input_id="i", items=[raw("b")], signal=mark))
    state.apply(TurnCompleted(at_ms=6, turn_id="2", status="completed"))
    queued = entry("b", stage="inHistory", item="", item_id="logged b", at_ms=NOW_MS + 2000)
    assert await book.follow(state) == [replace(seen, stage="answered"), queued]
    assert book.announced[2:] == [("a", "seen"), ("a", "answered"), ("b", "inHistory")]
    assert [each.id for each in book.entries.open.of("t")] == ["b"]
    limited = entry("c", error_code="wakeLimit", error_message="m")
    book.announced.clear()
    await book.put(limited)
    state.apply(heard("c"))
    found = (await book.follow(state))[2]
    assert (found.stage, found.error_code, found.error_message) == ("inHistory", "wakeLimit", "m")


async def test_what_waits_too_long_is_over(ledger: Ledger) -> None:
    book, effects = Book(ledger), Effects()
    await book.put(
        entry("now", expires_at_ms=NOW_MS),
        entry("next", expires_at_ms=NOW_MS + 5),
        entry("later", expires_at_ms=NOW_MS + 9),
        entry("never"),
        entry("logged", stage="inHistory", expires_at_ms=NOW_MS - 5),
    )
    book.clock.now = NOW_MS + 1
    assert await book.entries.expire("t", effects) == NOW_MS + 5
    assert stages(effects) == [("now", "expired")]
    assert stored(ledger)[0] == entry(
        "now", stage="expired", item="", expires_at_ms=NOW_MS, at_ms=NOW_MS + 1
    )
    book.clock.now = NOW_MS + 9
    assert await book.entries.expire("t", effects) is None
    assert [each.id for each in book.entries.open.of("t")] == ["never", "logged"]
    assert await book.entries.expire("none", effects) is None


async def test_entries_end_where_a_thread_cannot_be_had_or_a_sender_takes_one_back(
    ledger: Ledger,
) -> None:
    book, effects = Book(ledger), Effects()
    await book.put(entry("a"), entry("b", stage="seen"), entry("c", thread_id="u"))
    recalled = await book.entries.recall(entry("c", thread_id="u"), effects)
    assert recalled == entry("c", thread_id="u", stage="recalled", item="")
    await book.entries.fail("t", "code", "text", effects)
    failed = {"stage": "failed", "item": "", "error_code": "code", "error_message": "text"}
    assert stored(ledger) == [entry("a", **failed), entry("b", **failed), recalled]
    assert stages(effects) == [("c", "recalled"), ("a", "failed"), ("b", "failed")]
    assert book.entries.open.threads() == []
    found = await book.entries.find(("s", "c"))
    assert found is not None
    assert replace(found, number=None) == recalled


async def test_open_entries_are_taken_in_after_a_start(ledger: Ledger) -> None:
    await Book(ledger).put(entry("a"), entry("b", stage="answered"))
    book = Book(ledger)
    await book.entries.load()
    assert [each.id for each in book.entries.open.of("t")] == ["a"]


# Notifications.


@dataclass
class Connections:
    """A hub that writes down what it sends."""

    subscribed: set[tuple[int, str]] = field(default_factory=set)
    sent: list[Any] = field(default_factory=list)

    def emit(self, thread_id: str, event: Any) -> None:
        self.sent.append((thread_id, event.receipt.stage))

    def notify(self, connection_id: int, event: Any) -> None:
        self.sent.append((connection_id, event.receipt.stage))

    def is_subscribed(self, connection_id: int, thread_id: str) -> bool:
        return (connection_id, thread_id) in self.subscribed


def test_receipts_go_to_the_thread_and_to_who_delivered_last_until_the_signal_is_over() -> None:
    hub = Connections()
    notifier = SignalNotifier(cast(Hub, hub))
    first, seen, over = (entry(stage=stage).receipt() for stage in ("accepted", "seen", "answered"))
    notifier.announce(first)
    notifier.came_from(first, cast(Any, 1))
    notifier.came_from(first, cast(Any, 2))
    notifier.announce(seen)
    notifier.announce(over)
    notifier.announce(over)
    # Of one that is over there is nothing to come.
    notifier.came_from(over, cast(Any, 3))
    notifier.announce(over)
    assert hub.sent == [
        *(("t", "accepted"), ("t", "seen"), (2, "seen"), ("t", "answered"), (2, "answered")),
        *(("t", "answered"), ("t", "answered")),
    ]
    # Who listens to the thread has it from there.
    hub.sent.clear()
    hub.subscribed.add((1, "t"))
    notifier.came_from(first, cast(Any, 1))
    notifier.announce(seen)
    assert hub.sent == [("t", "seen")]


def test_a_refused_signal_has_the_reason_in_its_error() -> None:
    refusal = NoRecipient("code", "archived", "text")
    assert (str(refusal), refusal.code, refusal.state) == ("text", "code", "archived")


# Writes that come together.


@dataclass
class Disk:
    """A ledger that takes what it is given when the test lets it, after some refusals."""

    refusals: int = 0
    taken: list[list[str]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def put(self, entries: list[Entry]) -> None:
        assert self.go_on.wait(WAIT_S)
        names = [each.id for each in entries]
        self.taken.append(names)
        if self.refusals:
            self.refusals -= 1
            raise LedgerFailed(f"no room for {''.join(names)}")


async def written(disk: Disk, *groups: str) -> list[str | None]:
    """Write entries at the same time; return what each call raised."""
    entries = Entries(cast(Ledger, disk), cast(Clock, Time()))
    failures: list[str | None] = [None] * len(groups)

    async def write(number: int, names: str) -> None:
        effects = Effects()
        try:
            await entries.write([entry(name) for name in names], effects)
        except LedgerFailed as exc:
            failures[number] = str(exc)
        # Nothing is known, or said, of what was not written.
        is_written = failures[number] is None
        assert [entries.open.find(("s", name)) is not None for name in names] == [
            is_written for _ in names
        ]
        assert len(effects.receipts) == (len(names) if is_written else 0)

    async with anyio.create_task_group() as tasks:
        for number, names in enumerate(groups):
            tasks.start_soon(write, number, names)
        await anyio.wait_all_tasks_blocked()
        disk.go_on.set()
    return failures


async def test_entries_that_come_together_are_one_write() -> None:
    disk = Disk()
    assert await written(disk, "a", "bc", "d") == [None] * 3
    assert disk.taken == [["a", "b", "c", "d"]]


async def test_a_write_that_is_refused_is_tried_again_for_those_behind_it() -> None:
    disk = Disk(refusals=1)
    assert await written(disk, "a", "b", "c") == ["no room for abc", None, None]
    assert disk.taken == [["a", "b", "c"], ["b", "c"]]
    disk = Disk(refusals=3)
    failures = ["no room for abc", "no room for bc", "no room for c"]
    assert await written(disk, "a", "b", "c") == failures


async def test_nothing_to_write_is_no_write() -> None:
    disk = Disk()
    assert await written(disk, "") == [None]
    assert disk.taken == []
