"""signals: whom a signal is for, and what is opened for signals. No server."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.abc
import pytest

from app_server.sessions.registry import Sessions
from app_server.signals.lazy import LazySignals
from app_server.signals.notifications import SignalPorts
from app_server.signals.recipients import NoRecipient, Recipient, Recipients
from app_server.signals.service import Signals
from app_server.threads.failures import ThreadNotFound
from app_server.threads.files.ledger import Ledger
from app_server.threads.files.signals import FileSignals
from app_server.threads.files.store import FileStore
from app_server.threads.ledger import Entry
from app_server.threads.rows import ThreadQuery, ThreadRow
from protocol.signals.delivery import (
    DirectorySignalTarget,
    NameSignalTarget,
    SignalTarget,
    ThreadSignalTarget,
)
from tests.support.threads.stores import row


@dataclass
class Lists:
    """Threads on the disk; a page has those of its name or folder, the newest first."""

    rows: list[ThreadRow] = field(default_factory=list)
    asked: list[ThreadQuery] = field(default_factory=list)

    async def find(self, thread_id: str) -> ThreadRow:
        for each in self.rows:
            if each.id == thread_id:
                return each
        raise ThreadNotFound(thread_id)

    async def page(self, query: ThreadQuery) -> Any:
        self.asked.append(query)
        return SimpleNamespace(rows=self.rows[: query.limit])


class Loaded:
    """Threads in memory: id, folder, when somebody did something, and the state of its slot."""

    def __init__(self, *threads: tuple[str, str, int, str]) -> None:
        self._sessions = {
            thread_id: SimpleNamespace(
                log=SimpleNamespace(
                    id=thread_id,
                    state=SimpleNamespace(settings=SimpleNamespace(cwd=cwd), recency_at_ms=at_ms),
                ),
                slot=SimpleNamespace(
                    closed=state == "closed", active_turn_id="t" if state == "active" else None
                ),
            )
            for thread_id, cwd, at_ms, state in threads
        }

    def find(self, thread_id: str) -> Any:
        return self._sessions.get(thread_id)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._sessions.values())


def recipients(lists: Lists, loaded: Loaded) -> Recipients:
    store = SimpleNamespace(lists=lists)
    return Recipients(cast(FileStore, store), cast(Sessions, loaded))


LOADED = Loaded(
    ("a", "/work", 5, "idle"),
    ("b", "/work", 9, "active"),
    ("c", "/work", 7, "idle"),
    ("d", "/closed", 1, "closed"),
)


def by_id(thread_id: str) -> SignalTarget:
    return ThreadSignalTarget.model_construct(thread_id=thread_id)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (by_id("a"), Recipient("a", "idle")),
        (by_id("b"), Recipient("b", "active")),
        # One that is being put away is found on the disk.
        (by_id("id0001"), Recipient("id0001", "notLoaded")),
        # Of the loaded threads in a folder the one in which somebody did something last.
        (DirectorySignalTarget(cwd="/work"), Recipient("b", "active")),
        (DirectorySignalTarget(cwd="/work/."), Recipient("b", "active")),
        (DirectorySignalTarget(cwd="/elsewhere"), Recipient("id0001", "notLoaded")),
    ],
)
async def test_a_thread_is_found_by_its_id_or_its_folder(
    target: SignalTarget, found: Recipient
) -> None:
    lists = Lists([row(1), row(2)])
    assert await recipients(lists, LOADED).find(target) == found


async def test_the_folder_of_a_thread_that_is_not_loaded_is_looked_up_newest_first() -> None:
    lists = Lists([row(1)])
    await recipients(lists, LOADED).find(DirectorySignalTarget(cwd="/else/where/"))
    assert lists.asked == [ThreadQuery(limit=1, sort_key="recency_at_ms", cwds=["/else/where"])]


async def test_a_name_is_for_one_thread() -> None:
    one = Lists([replace(row(1), id="b")])
    assert await recipients(one, LOADED).find(NameSignalTarget(name="n")) == Recipient(
        "b", "active"
    )
    assert one.asked == [ThreadQuery(limit=2, name="n")]


@pytest.mark.parametrize(
    ("lists", "target", "refusal"),
    [
        (Lists(), by_id("none"), ("threadNotFound", "unknown", "thread not found: none")),
        (Lists(), by_id("d"), ("threadNotFound", "unknown", "thread not found: d")),
        (
            Lists([row(1, archived=True)]),
            by_id("id0001"),
            ("threadArchived", "archived", "thread id0001 is archived; unarchive it first"),
        ),
        (
            Lists(),
            DirectorySignalTarget(cwd="/none"),
            (
                *("threadNotFound", "unknown"),
                "no thread works in /none: start one there, or choose another by its id or its "
                "name",
            ),
        ),
        (
            Lists(),
            NameSignalTarget(name="n"),
            ("threadNotFound", "unknown", "no thread has the name 'n'"),
        ),
        (
            Lists([row(1), row(2)]),
            NameSignalTarget(name="n"),
            (
                *("ambiguousTarget", "unknown"),
                "several threads have the name 'n'; give threadId",
            ),
        ),
    ],
)
async def test_a_signal_without_a_recipient_is_refused_with_the_reason(
    lists: Lists, target: SignalTarget, refusal: tuple[str, str, str]
) -> None:
    with pytest.raises(NoRecipient) as refused:
        await recipients(lists, LOADED).find(target)
    assert (refused.value.code, refused.value.state, str(refused.value)) == refusal


# What is opened.


@dataclass
class Tasks:
    """A task group that only writes down what was started."""

    started: list[str] = field(default_factory=list)

    def start_soon(self, work: Any, *arguments: Any) -> None:
        self.started.append(work.__name__)


def lazy_signals(home: Path, tasks: Tasks) -> LazySignals:
    sessions = SimpleNamespace(log_followers=[])
    ports = SimpleNamespace(
        store=None,
        sessions=sessions,
        clock=None,
        notifier=SimpleNamespace(followers=[]),
        configuration=None,
    )
    return LazySignals(
        FileSignals(home), cast(anyio.abc.TaskGroup, tasks), cast(SignalPorts, ports)
    )


async def test_a_home_without_signals_opens_nothing(tmp_path: Path) -> None:
    tasks = Tasks()
    signals = lazy_signals(tmp_path, tasks)
    await signals.resume()
    assert (await signals.stages(), signals.unseen()) == ({}, ())
    # Another server of the home may make one.
    assert tasks.started == ["_await_ledger"]
    await signals.aclose()
    assert os.listdir(tmp_path) == []


async def test_a_home_with_signals_goes_on_with_them_after_a_start(tmp_path: Path) -> None:
    before = os.listdir("/dev/fd")
    ledger = Ledger(tmp_path / "signals" / "ledger.sqlite3")
    ledger.put(
        [
            Entry(
                *("s", "a", "digest", "t", "me", "{}"),
                wakes=False,
                steers=False,
                stage="accepted",
                recipient_state="idle",
                at_ms=1,
                item_id="i",
            )
        ]
    )
    ledger.close()
    tasks = Tasks()
    signals = lazy_signals(tmp_path, tasks)
    await signals.resume()
    assert tasks.started == ["run", "run"]
    assert (await signals.stages(), signals.unseen()) == ({"accepted": 1}, [1])
    assert await signals.get() is await signals.get()
    assert tasks.started == ["run", "run"]
    await signals.aclose()
    assert os.listdir("/dev/fd") == before


async def test_a_ledger_is_closed_after_what_opens_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    begun, go_on = anyio.Event(), anyio.Event()
    close = Ledger.close

    async def load(signals: Any) -> None:
        begun.set()
        await go_on.wait()
        happened.append("loaded")

    def noted(ledger: Ledger) -> None:
        happened.append("closed")
        close(ledger)

    monkeypatch.setattr(Signals, "load", load)
    monkeypatch.setattr(Ledger, "close", noted)
    tasks = Tasks()
    signals = lazy_signals(tmp_path, tasks)
    async with anyio.create_task_group() as group:
        group.start_soon(signals.get)
        await begun.wait()
        group.start_soon(signals.aclose)
        await anyio.wait_all_tasks_blocked()
        assert happened == []
        go_on.set()
    assert happened == ["loaded", "closed"]
