"""signals: what becomes of a delivery, over a real ledger and threads of the test. No server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from app_server.config.values import Config
from app_server.signals import service as services
from app_server.signals.entries import Effects, Entries
from app_server.signals.notifications import SignalPorts
from app_server.signals.recipients import NoRecipient
from app_server.signals.service import (
    NotRecallable,
    Outcome,
    SignalConflict,
    Signals,
    SignalUnknown,
    TooManyWaiting,
    pause_after,
)
from app_server.threads.failures import Holder, ThreadBusy, ThreadNotFound
from app_server.threads.files.ledger import Ledger
from app_server.threads.ledger import LedgerFailed
from app_server.threads.log.state import ThreadState, begin
from app_server.turns.slot import SessionClosed
from protocol.log.rollout import (
    HistoryAppended,
    Settings,
    SignalMark,
    SignalRecalled,
    TurnCompleted,
    TurnStarted,
)
from protocol.model import JsonObject
from protocol.signals.delivery import MAX_WAITING_SIGNALS, SignalDeliverParams
from tests.support.harness import WAIT_S
from tests.support.receiver.stages import entry
from tests.support.threads.stores import created, raw

NOW_MS = 1_700_000_000_000


@dataclass
class Clock:
    """A clock that the test sets."""

    now: int = NOW_MS
    ids: int = 0

    def now_ms(self) -> int:
        return self.now

    def new_id(self) -> str:
        self.ids += 1
        return f"item {self.ids}"


class Session:
    """A loaded thread, whose log has what its inbox takes."""

    def __init__(self, thread_id: str, *, began: bool = True, tools: tuple[str, ...] = ()) -> None:
        state = begin(created(thread_id=thread_id))
        self.log = SimpleNamespace(id=thread_id, state=state)
        self.slot = SimpleNamespace(closed=False, active_turn_id=None)
        self.inbox = self
        self.clients = SimpleNamespace(
            began=began,
            status=lambda status: self.said.append(status),
            begin=lambda: self.said.append("begin"),
        )
        self.status = "idle"
        raws = [SimpleNamespace(raw=SimpleNamespace(tool=name)) for name in tools]
        self.servers = SimpleNamespace(
            live=lambda: SimpleNamespace(tools=lambda: SimpleNamespace(tools=raws))
        )
        self.said: list[str] = []
        self.received: list[Any] = []
        self.refusals: list[Exception] = []
        self.can_withdraw = True
        self.on_receive: Callable[[], Awaitable[None]] | None = None

    async def receive(self, messages: list[Any]) -> Any:
        if self.on_receive is not None:
            await self.on_receive()
        if self.refusals:
            raise self.refusals.pop()
        for message in messages:
            self.received.append(message)
            self.append(message.mark)
        return SimpleNamespace(run_soon=lambda: self.said.append("turn"))

    def append(self, *marks: SignalMark) -> None:
        items = [raw(mark.id) for mark in marks]
        self.log.state.apply(HistoryAppended(at_ms=1, items=items, signals=list(marks)))

    def let_a_model_see_all(self) -> None:
        """Put a turn into the log that has seen what came before."""
        self.log.state.apply(TurnStarted(at_ms=1, turn_id="1"))
        self.log.state.apply(HistoryAppended(at_ms=1, items=[{"role": "assistant"}]))

    async def withdraw(self, source: str, signal_id: str) -> bool:
        return self.can_withdraw


@dataclass
class Threads:
    """The threads of a home: sessions, the disk, and what loads them."""

    loaded: dict[str, Session] = field(default_factory=dict)
    stored: dict[str, Any] = field(default_factory=dict)
    """Its state, or what reading or loading it raises."""
    archived: set[str] = field(default_factory=set)
    loads: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    changes: list[tuple[str, Any]] = field(default_factory=list)
    gate: anyio.Event | None = None
    keeps: bool = True
    """Whether a thread that was loaded stays so."""
    began: bool = True
    log_followers: list[Any] = field(default_factory=list)
    held: dict[str, Holder] = field(default_factory=dict)
    """What other servers hold."""

    @property
    def loading(self) -> "Threads":
        return self

    @property
    def lists(self) -> "Threads":
        return SimpleNamespace(find=self.find_row)  # type: ignore[return-value]

    def find(self, thread_id: str) -> Session | None:
        return self.loaded.get(thread_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(self.loaded.values())

    async def find_row(self, thread_id: str) -> Any:
        if thread_id not in self.stored:
            raise ThreadNotFound(thread_id)
        return SimpleNamespace(archived=False)

    async def read(self, thread_id: str) -> ThreadState:
        self.reads.append(thread_id)
        if self.gate is not None:
            await self.gate.wait()
        found = self.stored[thread_id]
        if isinstance(found, Exception):
            raise found
        return cast(ThreadState, found)

    @asynccontextmanager
    async def locked(self, thread_id: str) -> AsyncIterator[Any]:
        self.loads.append(thread_id)
        if self.gate is not None:
            await self.gate.wait()
        found = self.stored[thread_id]
        if isinstance(found, list) and found:
            raise found.pop(0)
        if isinstance(found, Exception):
            raise found
        state = begin(created(thread_id=thread_id))
        state.archived = thread_id in self.archived
        yield SimpleNamespace(session=None, state=state)

    async def load(self, found: Any, config: Config, settings: Settings) -> Session:
        assert (config, settings) == (Config({}), found.state.settings)
        made = Session(found.state.id, began=self.began)
        if self.keeps:
            self.loaded[found.state.id] = made
        return made

    async def change(self, thread_id: str, records: Any) -> None:
        self.changes.append((thread_id, records(None)))

    async def require_free(self, thread_id: str) -> None:
        if thread_id in self.held:
            raise ThreadBusy(self.held[thread_id])


class Home:
    """A ledger, its threads and the service; it is the notifier and the configuration too."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.ledger = Ledger(folder / "ledger.sqlite3")
        self.threads = Threads()
        self.clock = Clock()
        self.announced: list[tuple[str, str]] = []
        self.heard = anyio.Event()
        threads = cast(Any, self.threads)
        ports = SignalPorts(
            store=threads,
            sessions=threads,
            clock=cast(Any, self.clock),
            notifier=cast(Any, self),
            configuration=cast(Any, self),
            peers=self,
        )
        self.handed: list[tuple[Holder, str, Any]] = []
        self.peer: Callable[[str, Any], JsonObject | None] = lambda method, params: None
        """Answers for another server."""
        self.signals = Signals(self.ledger, ports, **settings)

    async def call(
        self, thread_id: str, holder: Holder, method: str, params: Any
    ) -> JsonObject | None:
        self.handed.append((holder, method, params))
        return self.peer(method, params)

    def announce(self, receipt: Any) -> None:
        self.announced.append((receipt.signal_id, receipt.stage))
        self.heard.set()

    async def read(self) -> Config:
        return Config({})

    async def until(self, *announced: tuple[str, str]) -> None:
        """Wait until these were announced, after all others."""
        with anyio.fail_after(WAIT_S):
            while self.announced[-len(announced) :] != list(announced):
                self.heard = anyio.Event()
                await self.heard.wait()

    def session(self, thread_id: str = "t", **more: Any) -> Session:
        made = self.threads.loaded[thread_id] = Session(thread_id, **more)
        return made

    async def deliver(self, name: str = "s1", thread_id: str = "t", **more: Any) -> Outcome:
        return await self.signals.deliver(params(name, thread_id, **more))


def params(name: str = "s1", thread_id: str = "t", **more: Any) -> SignalDeliverParams:
    names = {"id": name, "source": "router", "type": "Question", "sender": "ann", "summary": "s"}
    return SignalDeliverParams.model_validate(
        {
            "signal": {**names, **more.pop("signal", {})},
            "target": {"threadId": thread_id},
            "mode": "passive",
            **more,
        }
    )


@pytest.fixture
async def home(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Home]:
    """Make a home; a test gives settings of its `Signals` as `settings(…)`."""
    made = Home(tmp_path, **getattr(request, "param", {}))
    yield made
    made.ledger.close()


def settings(**given: Any) -> pytest.MarkDecorator:
    """Give settings to the `Signals` of the home."""
    return pytest.mark.parametrize("home", [given], ids=[""], indirect=True)


@asynccontextmanager
async def running(home: Home) -> AsyncIterator[None]:
    """Run the service, from a start on what its ledger has."""
    await home.signals.load()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(home.signals.run)
        yield
        tasks.cancel_scope.cancel()


def stored(home: Home) -> list[tuple[str, str, str | None]]:
    """Return name, stage and error of all signals, the oldest first."""
    entries = home.ledger.page(None, None, None, 1000).entries
    return [(one.id, one.stage, one.error_code) for one in reversed(entries)]


# Deliveries.


async def test_nothing_is_served_before_what_died_with_a_process_is_true_again(home: Home) -> None:
    home.ledger.put([entry("old", thread_id="o", stage="accepted")])
    home.threads.gate = anyio.Event()
    home.threads.stored["o"] = begin(created(thread_id="o"))
    home.session()
    ended: list[str] = []

    async def call(name: str, work: Callable[[], Awaitable[Any]]) -> None:
        await work()
        ended.append(name)

    async with running(home), anyio.create_task_group() as calls:
        calls.start_soon(call, "deliver", home.deliver)
        calls.start_soon(call, "read", lambda: home.signals.read("router", "old"))
        calls.start_soon(call, "list", lambda: home.signals.list_page(None, None, None, 5))
        calls.start_soon(call, "recall", lambda: home.signals.recall("router", "old"))
        await anyio.wait_all_tasks_blocked()
        assert (ended, stored(home)) == ([], [("old", "accepted", None)])
        home.threads.gate.set()
    assert sorted(ended) == ["deliver", "list", "read", "recall"]


async def test_a_loaded_thread_takes_a_signal_before_the_answer_and_goes_on_after_it(
    home: Home,
) -> None:
    session = home.session()
    async with running(home):
        outcome = await home.deliver()
        assert (outcome.entry.stage, outcome.entry.item_id) == ("inHistory", "item 1")
        (message,) = session.received
        assert message.mark == SignalMark(source="router", id="s1", item_id="item 1")
        assert (message.sender, message.wakes, message.steers) == ("ann", False, False)
        # What follows the answer.
        assert (home.announced, session.said) == ([], [])
        home.signals.follow_up(outcome)
        assert home.announced == [("s1", "accepted"), ("s1", "inHistory")]
        assert session.said == ["turn"]
        assert (await home.signals.read("router", "s1")).stage == "inHistory"


async def test_a_signal_said_again_changes_nothing_and_another_one_is_refused(home: Home) -> None:
    session = home.session()
    async with running(home):
        first = await home.deliver()
        again = await home.deliver()
        assert (replace(again.entry, number=None), again.effects) == (
            replace(first.entry, number=None),
            Effects(),
        )
        with pytest.raises(SignalConflict):
            await home.deliver(signal={"summary": "other"})
        assert len(session.received) == 1


async def test_a_stored_thread_is_loaded_after_the_answer_and_takes_what_waits(home: Home) -> None:
    home.threads.stored["t"] = None
    home.threads.began = False
    async with running(home):
        outcome = await home.deliver()
        await home.deliver("s2")
        assert outcome.entry.stage == "accepted"
        await anyio.wait_all_tasks_blocked()
        assert home.threads.loads == []
        home.signals.follow_up(outcome)
        await home.until(("s1", "inHistory"), ("s2", "inHistory"))
        session = home.threads.loaded["t"]
        assert [message.mark.id for message in session.received] == ["s1", "s2"]
        # It is said that it is loaded; a turn begins last.
        assert (home.threads.loads, session.said) == (["t"], ["idle", "begin", "turn"])


async def test_a_thread_that_others_have_announced_is_not_announced_again(home: Home) -> None:
    home.threads.stored["t"] = None
    async with running(home):
        home.signals.follow_up(await home.deliver())
        await home.until(("s1", "inHistory"))
        assert home.threads.loaded["t"].said == ["turn"]


async def test_a_thread_that_is_being_closed_is_loaded_again(home: Home) -> None:
    home.session().slot.closed = True
    home.threads.stored["t"] = None
    async with running(home):
        outcome = await home.deliver()
        assert outcome.entry.stage == "accepted"
        home.signals.follow_up(outcome)
        await home.until(("s1", "inHistory"))
        assert home.threads.loads == ["t"]


@pytest.mark.parametrize(
    ("tools", "asked", "is_named"),
    [
        (("read", "more"), "more", True),
        (("read",), "more", False),
        (("read",), None, False),
        ((), "more", False),
        (None, "more", False),
    ],
)
async def test_a_tool_is_named_where_the_thread_is_loaded_and_has_it(
    home: Home, tools: tuple[str, ...] | None, asked: str | None, is_named: bool
) -> None:
    if tools is None:
        home.threads.stored["t"] = None
    else:
        session = home.session(tools=tools)
        session.refusals.append(SessionClosed())
    async with running(home):
        outcome = await home.deliver(payload_tool=asked)
        assert outcome.entry.stage == "accepted"
        assert ("Call more with" in outcome.entry.item) is is_named


async def test_as_many_signals_wait_as_may_and_no_more(home: Home) -> None:
    home.threads.stored["t"] = None
    async with running(home):
        for number in range(MAX_WAITING_SIGNALS):
            await home.deliver(f"{number}")
        with pytest.raises(TooManyWaiting):
            await home.deliver("more")
        assert home.signals.unseen() == [MAX_WAITING_SIGNALS]
        assert len(stored(home)) == MAX_WAITING_SIGNALS
        # Of another thread as many.
        home.threads.stored["u"] = None
        assert (await home.deliver("other", "u")).entry.stage == "accepted"
        assert home.signals.unseen() == [MAX_WAITING_SIGNALS, 1]


async def test_what_a_model_has_seen_meanwhile_leaves_room(home: Home) -> None:
    session = home.session()
    async with running(home):
        for number in range(MAX_WAITING_SIGNALS):
            home.signals.follow_up(await home.deliver(f"{number}"))
        home.announced.clear()
        session.let_a_model_see_all()
        outcome = await home.deliver("more")
        assert outcome.entry.stage == "inHistory"
        # What the log says is said before.
        assert home.announced == [(f"{number}", "seen") for number in range(MAX_WAITING_SIGNALS)]
        assert home.signals.unseen() == [1]


async def test_turns_that_a_source_began_within_the_minute_are_counted(home: Home) -> None:
    ages_ms = [*range(7), 59_999, 60_000]
    home.ledger.put(
        [
            entry(f"{age_ms}", turn_id=f"{age_ms}", woken_at_ms=NOW_MS - age_ms, at_ms=NOW_MS)
            for age_ms in ages_ms
        ]
    )
    home.threads.stored["t"] = None
    async with running(home):
        assert (await home.deliver("one", mode="wake")).entry.error_code == "wakeLimit"
        home.clock.now += 1
        assert (await home.deliver("two", mode="wake")).entry.error_code is None


async def test_a_thread_takes_nothing_twice_while_it_is_loaded(home: Home) -> None:
    home.threads.stored["t"] = None
    home.threads.gate = anyio.Event()
    async with running(home):
        home.signals.follow_up(await home.deliver())
        await anyio.wait_all_tasks_blocked()
        # It is there for others, and not yet for signals.
        session = home.session()
        outcome = await home.deliver("s2")
        assert (outcome.entry.stage, session.received) == ("accepted", [])
        home.signals.follow_up(outcome)
        await anyio.wait_all_tasks_blocked()
        assert home.threads.loads == ["t"]
        home.threads.gate.set()
        await home.until(("s1", "inHistory"), ("s2", "inHistory"))
        assert home.threads.loads == ["t"]
        # Later ones are taken as in any loaded thread.
        assert (await home.deliver("s3")).entry.stage == "inHistory"


async def test_what_was_accepted_is_answered_also_where_the_ledger_has_lost_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(entries: Entries, key: tuple[str, str]) -> None:
        return None

    home.threads.stored["t"] = None
    async with running(home):
        monkeypatch.setattr(Entries, "find", find)
        outcome = await home.deliver()
        assert (outcome.entry.id, outcome.entry.stage) == ("s1", "accepted")


# Failures.


@pytest.mark.parametrize("failure", [OSError("no room"), SessionClosed(), RuntimeError("a bug")])
@settings(retry_s=(0.0,))
async def test_a_failure_that_passes_lets_signals_wait(home: Home, failure: Exception) -> None:
    session = home.session()
    session.refusals.append(failure)
    async with running(home):
        outcome = await home.deliver()
        assert outcome.entry.stage == "accepted"
        home.signals.follow_up(outcome)
        # Without another call.
        await home.until(("s1", "inHistory"))


@pytest.mark.parametrize("failure", [OSError("no room"), RuntimeError("a bug")])
@settings(retry_s=(0.0,))
async def test_a_load_that_fails_is_tried_again(home: Home, failure: Exception) -> None:
    home.threads.stored["t"] = [failure]
    async with running(home):
        home.signals.follow_up(await home.deliver())
        await home.until(("s1", "inHistory"))
        assert home.threads.loads == ["t", "t"]


@settings(retry_s=(0.0, 1000.0))
async def test_a_thread_that_is_gone_again_is_tried_later(home: Home) -> None:
    home.threads.stored["t"] = None
    home.threads.keeps = False
    async with running(home):
        home.signals.follow_up(await home.deliver())
        with anyio.fail_after(WAIT_S):
            while len(home.threads.loads) < 2:
                await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        # The second wait is the longer one.
        assert (home.threads.loads, stored(home)) == (["t", "t"], [("s1", "accepted", None)])


@settings(retry_s=(0.0, 1000.0))
async def test_a_thread_that_took_signals_begins_with_the_shortest_wait_again(home: Home) -> None:
    session = home.session()
    async with running(home):
        for name in ("s1", "s2", "s3"):
            session.refusals.append(OSError("no room"))
            home.signals.follow_up(await home.deliver(name))
            await home.until((name, "inHistory"))


async def test_a_thread_that_can_never_be_had_ends_its_signals(home: Home) -> None:
    home.threads.stored["t"] = None
    home.threads.archived.add("t")
    async with running(home):
        home.signals.follow_up(await home.deliver())
        await home.until(("s1", "failed"))
        assert stored(home) == [("s1", "failed", "threadArchived")]
        found = await home.signals.read("router", "s1")
        assert found.error_message == "thread t is archived"
        # What comes later is tried anew.
        home.threads.archived.clear()
        home.signals.follow_up(await home.deliver("s2"))
        await home.until(("s2", "inHistory"))


async def test_a_signal_without_a_possible_recipient_is_refused(home: Home) -> None:
    async with running(home):
        with pytest.raises(NoRecipient):
            await home.deliver()
        assert stored(home) == []


async def test_a_turn_begins_though_its_sender_has_gone_while_it_was_accepted(home: Home) -> None:
    session = home.session()
    async with running(home):

        async def leave() -> None:
            # As a connection ends its requests: no scope holds that off.
            assert delivery.cancel()

        session.on_receive = leave
        delivery = asyncio.create_task(home.deliver())
        with pytest.raises(asyncio.CancelledError):
            await delivery
        assert session.said == ["turn"]
        home.signals.log_grew(session.log.state)
        await home.until(("s1", "inHistory"))


async def test_a_thread_that_is_loaded_meanwhile_takes_nothing_that_its_log_has(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.threads.stored["t"] = begin(created(thread_id="t"))

    async def require_free(thread_id: str) -> None:
        if home.ledger.find("router", "s2") is not None and not home.threads.loaded:
            # Another server has taken the first one, and let the thread go.
            home.session().append(SignalMark(source="router", id="s1", item_id="item 1"))

    monkeypatch.setattr(home.threads, "require_free", require_free)
    async with running(home):
        await home.deliver("s1")
        await home.deliver("s2")
        assert [message.mark.id for message in home.threads.loaded["t"].received] == ["s2"]
        assert stored(home) == [("s1", "inHistory", None), ("s2", "inHistory", None)]


async def test_a_signal_ends_while_it_waits(home: Home) -> None:
    home.threads.stored["t"] = None
    home.threads.gate = anyio.Event()
    async with running(home):
        await home.deliver(signal={"ttlSeconds": 1})
        home.clock.now += 990
        # Work on the thread plans what is left: 10 ms.
        outcome = await home.deliver("s2")
        home.clock.now += 10
        await home.until(("s1", "expired"))
        assert [one for one in stored(home) if one[0] == "s1"] == [("s1", "expired", None)]
        home.signals.follow_up(outcome)


# Recall.


async def test_an_unknown_signal_is_neither_recalled_nor_read(home: Home) -> None:
    async with running(home):
        with pytest.raises(SignalUnknown):
            await home.signals.read("router", "s1")
        with pytest.raises(SignalUnknown):
            await home.signals.recall("router", "s1")


async def test_a_signal_that_waits_is_recalled_once(home: Home) -> None:
    home.threads.stored["t"] = None
    async with running(home):
        await home.deliver()
        outcome = await home.signals.recall("router", "s1")
        assert (outcome.entry.stage, home.announced) == ("recalled", [])
        home.signals.follow_up(outcome)
        assert home.announced == [("s1", "recalled")]
        again = await home.signals.recall("router", "s1")
        assert (again.entry.stage, again.effects) == ("recalled", Effects())
        assert home.threads.changes == []
        assert stored(home) == [("s1", "recalled", None)]


@pytest.mark.parametrize("can_withdraw", [True, False])
async def test_a_signal_in_a_loaded_thread_is_recalled_if_it_gives_it_back(
    home: Home, can_withdraw: bool
) -> None:
    session = home.session()
    session.can_withdraw = can_withdraw
    async with running(home):
        await home.deliver()
        if can_withdraw:
            assert (await home.signals.recall("router", "s1")).entry.stage == "recalled"
        else:
            with pytest.raises(NotRecallable) as refused:
                await home.signals.recall("router", "s1")
            assert refused.value.stage == "inHistory"
        assert [stage for _, stage, _ in stored(home)] == [
            "recalled" if can_withdraw else "inHistory"
        ]
        assert home.threads.changes == []


async def test_who_recalls_at_the_same_time_is_answered_that_it_is_recalled(home: Home) -> None:
    session = home.session()
    asked, go_on = 0, anyio.Event()
    stages: list[str] = []

    async def withdraw(source: str, signal_id: str) -> bool:
        nonlocal asked
        asked += 1
        await go_on.wait()
        return True

    async def recall() -> None:
        stages.append((await home.signals.recall("router", "s1")).entry.stage)

    session.withdraw = withdraw  # type: ignore[method-assign]
    async with running(home):
        await home.deliver()
        async with anyio.create_task_group() as calls:
            calls.start_soon(recall)
            calls.start_soon(recall)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
    assert (stages, asked) == (["recalled", "recalled"], 1)


@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_signal_in_a_thread_that_is_not_loaded_is_recalled_in_its_log(
    home: Home, is_closed: bool
) -> None:
    session = home.session()
    async with running(home):
        await home.deliver()
        session.slot.closed = is_closed
        if not is_closed:
            home.threads.loaded.clear()
        assert (await home.signals.recall("router", "s1")).entry.stage == "recalled"
        record = SignalRecalled(at_ms=NOW_MS, source="router", id="s1")
        assert home.threads.changes == [("t", [record])]


async def test_a_signal_that_a_model_has_seen_meanwhile_is_not_recalled(home: Home) -> None:
    session = home.session()
    async with running(home):
        await home.deliver()
        session.let_a_model_see_all()
        with pytest.raises(NotRecallable) as refused:
            await home.signals.recall("router", "s1")
        assert refused.value.stage == "seen"
        session.log.state.apply(TurnCompleted(at_ms=2, turn_id="1", status="completed"))
        with pytest.raises(NotRecallable) as refused:
            await home.signals.recall("router", "s1")
        assert refused.value.stage == "answered"


# What follows the log, and the start.


async def test_receipts_follow_the_log_of_threads_that_have_signals(home: Home) -> None:
    session, other = home.session(), home.session("u")
    async with running(home):
        home.signals.follow_up(await home.deliver())
        session.let_a_model_see_all()
        await anyio.wait_all_tasks_blocked()
        assert stored(home) == [("s1", "inHistory", None)]
        home.signals.log_grew(other.log.state)
        await anyio.wait_all_tasks_blocked()
        assert stored(home) == [("s1", "inHistory", None)]
        home.signals.log_grew(session.log.state)
        await home.until(("s1", "seen"))


async def test_threads_without_signals_are_not_worked_on(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[str] = []

    async def work_on(signals: Signals, thread_id: str) -> None:
        worked.append(thread_id)

    monkeypatch.setattr(Signals, "_work_on", work_on)
    session, other = home.session(), home.session("u")
    async with running(home):
        await home.deliver()
        home.signals.log_grew(other.log.state)
        home.signals.log_grew(session.log.state)
        await anyio.wait_all_tasks_blocked()
        assert worked == ["t"]


async def test_entries_of_a_process_that_died_are_what_the_logs_say(home: Home) -> None:
    interrupted = Session("i")
    interrupted.log.state.apply(TurnStarted(at_ms=1, turn_id="1"))
    interrupted.append(SignalMark(source="router", id="i", item_id="logged"))
    interrupted.log.state.apply(HistoryAppended(at_ms=1, items=[{"role": "assistant"}]))
    loaded = home.session("l")
    loaded.append(SignalMark(source="router", id="l", item_id="logged"))
    home.threads.stored = {
        "i": interrupted.log.state,
        "g": ThreadNotFound("g"),
        "b": RuntimeError("a bug"),
        "h": RuntimeError("a bug"),
    }
    home.ledger.put(
        [
            entry("i", thread_id="i", stage="inHistory"),
            entry("g", thread_id="g", stage="accepted"),
            entry("l", thread_id="l", stage="accepted"),
            entry("b", thread_id="b", stage="accepted"),
            entry("h", thread_id="h", stage="inHistory"),
        ]
    )
    home.threads.gate = None
    async with running(home):
        await home.signals.read("router", "i")
        assert stored(home) == [
            ("i", "seen", "turnInterrupted"),
            ("g", "failed", "threadNotFound"),
            ("l", "inHistory", None),
            ("b", "accepted", None),
            ("h", "inHistory", None),
        ]
        assert sorted(home.threads.reads) == ["b", "g", "h", "i"]
        # Only one has still to take something.
        await anyio.wait_all_tasks_blocked()
        assert home.threads.loads == ["b"]
    # Nobody listens yet.
    assert home.announced == []


async def test_old_signals_are_forgotten_at_the_start_and_not_before_an_hour_has_passed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    first = anyio.Event()

    def forget(ledger: Ledger, now_ms: int) -> int:
        asked.append(now_ms)
        anyio.from_thread.run_sync(first.set)
        return 0

    assert services.FORGET_EVERY_S == 3600
    monkeypatch.setattr(Ledger, "forget_old", forget)
    async with running(home):
        with anyio.fail_after(WAIT_S):
            await first.wait()
        # A worker thread, and a turn of the loop for each further try that there were.
        for _ in range(3):
            await anyio.to_thread.run_sync(list)
        assert asked == [NOW_MS]


@settings(forget_every_s=0.0)
async def test_old_signals_are_forgotten_with_each_hour_also_after_a_failure(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    enough = anyio.Event()

    def forget(ledger: Ledger, now_ms: int) -> int:
        asked.append(now_ms)
        if len(asked) == 3:
            anyio.from_thread.run_sync(enough.set)
        raise LedgerFailed("no disk")

    monkeypatch.setattr(Ledger, "forget_old", forget)
    async with running(home):
        with anyio.fail_after(WAIT_S):
            await enough.wait()
    assert asked[:3] == [NOW_MS] * 3


def test_looks_at_other_servers_are_never_far_apart() -> None:
    # A short one, one at very many threads, and one that waited for a database that was away.
    assert [pause_after(look_s) for look_s in (0.001, 0.1, 30.0)] == [0.5, 2.0, 5.0]
