"""threads: where turns and items stand in a log, and what a copy or a revert takes of it."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app_server.threads.failures import TurnInProgress, TurnNotFound
from app_server.threads.files import writers
from app_server.threads.files.writers import FileLog, write_fork
from app_server.threads.log.live import LogEnd
from app_server.threads.log.outline import EndAfterTurn, ItemKind, ItemPlace, Outliner, item_kind
from app_server.threads.log.reading import (
    Dropped,
    ForkPoint,
    dropped_in,
    lines_in,
    ranges_to_copy,
    scan_lines,
)
from protocol.log.rollout import (
    HistoryAppended,
    InputQueued,
    InputTaken,
    ItemCompleted,
    NameChanged,
    Record,
    SignalRecalled,
    TurnCompleted,
    TurnsReverted,
    TurnStarted,
    render_record,
)
from protocol.turns.items import AgentMessageThreadItem
from tests.support.threads.stores import created, raw, user_message


def started(turn_id: str, at_ms: int = 2) -> TurnStarted:
    return TurnStarted(at_ms=at_ms, turn_id=turn_id)


def ended(turn_id: str, at_ms: int = 3) -> TurnCompleted:
    return TurnCompleted(at_ms=at_ms, turn_id=turn_id, status="completed", duration_ms=7)


def said(turn_id: str, text: str = "x") -> ItemCompleted:
    return ItemCompleted(at_ms=2, turn_id=turn_id, item=user_message(text))


CREATED = created()
NAME = NameChanged(at_ms=2, name="n")


def log_of(folder: Path, *records: Record, torn: bytes = b"") -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(b"".join(map(render_record, records)) + torn)
    return path


def copied(path: Path, point: ForkPoint) -> list[str]:
    """Return the records that a fork begins with, shortly."""
    ranges = ranges_to_copy(FileLog(path), point)
    # Ranges that touch are one.
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
    return [short(line.content) for line in lines_in(FileLog(path), ranges)]


def short(line: bytes) -> str:
    for turn in "abc":
        if b'"turnId":"%s"' % turn.encode() in line:
            return f"{line.split(b'type')[1][3:14].decode().strip(chr(34))} {turn}"
    return line.split(b'"type":"')[1].split(b'"')[0].decode()


def turn(turn_id: str) -> list[Record]:
    return [started(turn_id), said(turn_id), ended(turn_id)]


A = ["turnStarted a", "itemComplet a", "turnComplet a"]
B = [word.replace(" a", " b") for word in A]


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (ForkPoint(), [*A, *B, "signalRecalled"]),
        (ForkPoint(last_turn_id="a"), A),
        (ForkPoint(last_turn_id="b"), B and [*A, *B]),
        (ForkPoint(before_turn_id="a"), []),
        (ForkPoint(before_turn_id="b"), A),
        (ForkPoint(end=LogEnd(0)), []),
    ],
)
def test_a_copy_ends_with_or_before_a_turn(
    tmp_path: Path, point: ForkPoint, words: Sequence[str]
) -> None:
    recalled = SignalRecalled(at_ms=9, source="s", id="i")
    path = log_of(tmp_path, CREATED, *turn("a"), NAME, *turn("b"), recalled, torn=b"{")
    assert copied(path, point) == words


@pytest.mark.parametrize("point", [ForkPoint(last_turn_id="c"), ForkPoint(before_turn_id="c")])
def test_a_turn_that_is_not_there_is_not_copied_up_to(tmp_path: Path, point: ForkPoint) -> None:
    path = log_of(tmp_path, CREATED, *turn("a"))
    with pytest.raises(TurnNotFound, match=r"^c$"):
        ranges_to_copy(FileLog(path), point)
    # One that was dropped is not there any more.
    dropped = log_of(tmp_path, CREATED, *turn("c"), TurnsReverted(at_ms=4, before_turn_id="c"))
    with pytest.raises(TurnNotFound, match=r"^c$"):
        ranges_to_copy(FileLog(dropped), point)


def test_a_turn_that_runs_is_not_copied_whole(tmp_path: Path) -> None:
    path = log_of(tmp_path, CREATED, *turn("a"), started("b"), said("b"))
    end = path.stat().st_size
    with pytest.raises(TurnInProgress, match=r"^b$"):
        ranges_to_copy(FileLog(path), ForkPoint(last_turn_id="b", end=LogEnd(end)))
    # Nobody writes it: it was cut off.
    assert copied(path, ForkPoint(last_turn_id="b")) == [*A, *B[:2]]
    assert copied(path, ForkPoint(before_turn_id="b", end=LogEnd(end))) == A
    assert copied(path, ForkPoint(last_turn_id="a", end=LogEnd(end))) == A
    # One whose end is missing ends with the next.
    cut = log_of(tmp_path, CREATED, started("a"), said("a"), *turn("b"))
    assert copied(cut, ForkPoint(last_turn_id="a")) == A[:2]


def test_what_a_revert_dropped_is_not_copied(tmp_path: Path) -> None:
    revert = TurnsReverted(at_ms=4, before_turn_id="b")
    path = log_of(tmp_path, CREATED, *turn("a"), *turn("b"), revert, *turn("c"))
    words = [word.replace(" a", " c") for word in A]
    assert copied(path, ForkPoint()) == [*A, *words]
    assert copied(path, ForkPoint(before_turn_id="c")) == A


def test_a_fork_is_its_first_line_and_the_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"0123456789")
    monkeypatch.setattr(writers, "FORK_CHUNK", 3)
    target = tmp_path / "made" / "fork.jsonl"
    write_fork(source, [(0, 1), (2, 9)], CREATED, target)
    assert target.read_bytes() == render_record(CREATED) + b"0" + b"2345678"
    assert [path.name for path in target.parent.iterdir()] == ["fork.jsonl"]


# Reverts.


def test_a_revert_drops_the_turns_from_one_on(tmp_path: Path) -> None:
    records = [
        *(CREATED, *turn("a"), *turn("b"), TurnsReverted(at_ms=4, before_turn_id="b")),
        *(*turn("c"), TurnsReverted(at_ms=4, before_turn_id="none")),
    ]
    path = log_of(tmp_path, *records)
    places = [line.offset for line in scan_lines(FileLog(path))] + [path.stat().st_size]
    dropped = dropped_in(FileLog(path))
    assert dropped == Dropped([(places[4], places[7])])
    has = [dropped.has("itemCompleted", place) for place in places]
    assert has == [False] * 4 + [True] * 3 + [False] * 6
    assert not dropped.has("nameChanged", places[5])
    assert not Dropped().has("itemCompleted", places[5])
    # One more, as if it stood at the end: it takes in what was dropped before.
    assert dropped_in(FileLog(path), "c").ranges == [
        (places[4], places[7]),
        (places[8], places[12]),
    ]
    assert dropped_in(FileLog(path), "a").ranges == [(places[1], places[12])]
    assert dropped_in(FileLog(path), "b").ranges == [(places[4], places[7])]


@pytest.mark.parametrize("before", range(60, 90))
def test_a_revert_is_noticed_wherever_a_read_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(writers, "MENTION_CHUNK", before)
    path = log_of(tmp_path, CREATED, *turn("a"), TurnsReverted(at_ms=4, before_turn_id="a"))
    assert len(dropped_in(FileLog(path)).ranges) == 1
    assert dropped_in(FileLog(log_of(tmp_path, CREATED, *turn("a")))) == Dropped()


# Outlines.


def outline(path: Path) -> Outliner:
    outliner = Outliner()
    for line in scan_lines(FileLog(path)):
        outliner.feed(line)
    return outliner


def agent(text: str) -> ItemCompleted:
    item = AgentMessageThreadItem(id="m", text=text, started_at_ms=1, completed_at_ms=1)
    return ItemCompleted(at_ms=2, turn_id="a", item=item)


def test_an_outline_has_the_turns_and_the_places_of_their_items(tmp_path: Path) -> None:
    queued = InputQueued(at_ms=2, input_id="1", items=[raw("q")], message=user_message("q"))
    silent = InputQueued(at_ms=2, input_id="2", items=[raw("s")])
    records: list[Record] = [
        *(CREATED, said("a", "nobody's"), started("a"), said("a"), agent("m"), queued, silent),
        *(HistoryAppended(at_ms=2, items=[raw("x")]), InputTaken(at_ms=2), ended("b"), ended("a")),
        *(ended("a", 9), started("b", 4), queued, started("c", 5), queued, ended("c", 6)),
    ]
    path = log_of(tmp_path, *records)
    lines = list(scan_lines(FileLog(path)))

    def place(number: int, kind: ItemKind) -> ItemPlace:
        return ItemPlace(lines[number].offset, len(lines[number].content), kind)

    outliner = outline(path)
    shown: list[Any] = [
        (turn.number, turn.id, turn.started_at_ms, turn.status, turn.completed_at_ms)
        for turn in outliner.changed
    ]
    assert shown == [
        (0, "a", 2, "completed", 3),
        (1, "b", 4, "interrupted", 5),
        (2, "c", 5, "completed", 6),
    ]
    assert [turn.duration_ms for turn in outliner.changed] == [7, None, 7]
    items = [
        [place(3, ItemKind.USER), place(4, ItemKind.AGENT), place(5, ItemKind.QUEUED_USER)],
        [place(13, ItemKind.QUEUED_USER)],
        [place(15, ItemKind.QUEUED_USER)],
    ]
    assert [list(turn.places()) for turn in outliner.changed] == items
    assert [len(turn) for turn in outliner.changed] == [3, 1, 1]
    assert outliner.added == [place for turn in items for place in turn]
    assert (outliner.started, outliner.waiting) == (3, [])
    assert outliner.find("b") is outliner.changed[1]
    assert outliner.find("none") is None
    outliner.changed.clear()
    assert outliner.find("c") is outliner.last
    assert outliner.find("b") is None
    outliner.skip(lines[2])
    outliner.skip(lines[3])
    assert outliner.started == 4


def test_queued_messages_become_items_where_they_are_taken(tmp_path: Path) -> None:
    queued = InputQueued(at_ms=2, input_id="1", items=[raw("q")], message=user_message("q"))
    taken: list[Record] = [started("a"), queued, InputTaken(at_ms=2), agent("m")]
    turn = outline(log_of(tmp_path, *taken)).last
    assert turn is not None
    assert [place.kind for place in turn.places()] == [ItemKind.QUEUED_USER, ItemKind.AGENT]


def test_a_turn_that_goes_on_is_noted_again(tmp_path: Path) -> None:
    lines = list(
        scan_lines(FileLog(log_of(tmp_path, started("a"), said("a"), ended("a"), started("b"))))
    )
    outliner = Outliner()
    noted = []
    for line in lines:
        outliner.feed(line)
        noted.append([turn.id for turn in outliner.changed])
        outliner.changed.clear()
    assert noted == [["a"], ["a"], ["a"], ["b"]]
    # A turn that the next one ends is different, too.
    outliner.feed(lines[0])
    assert [turn.id for turn in outliner.changed] == ["b", "a"]


def test_an_item_is_found_in_another_line_later(tmp_path: Path) -> None:
    outliner = outline(log_of(tmp_path, started("a"), said("a"), said("a")))
    assert outliner.last is not None
    first = outliner.last.place(0)
    outliner.last.replace(1, ItemPlace(1000, 5, ItemKind.OTHER))
    assert list(outliner.last.places()) == [first, ItemPlace(1000, 5, ItemKind.OTHER)]
    assert outliner.ended == []
    assert EndAfterTurn("t", "i", first).place == first


def test_the_kind_of_an_item_is_read_from_its_head_or_its_record() -> None:
    head = b'{"item":{"startedAtMs":1,"completedAtMs":2,"type":"%s"'
    for name, kind in (
        (b"userMessage", ItemKind.USER),
        (b"agentMessage", ItemKind.AGENT),
        (b"plan", ItemKind.OTHER),
    ):
        assert item_kind(head % name) == kind
    # Written in another way, by another version.
    assert item_kind(render_record(said("a")).replace(b'"item":{', b'"item": {')) == ItemKind.USER
    assert item_kind(render_record(agent("m")).replace(b'"item":{', b'"item": {')) == ItemKind.AGENT
    assert item_kind(render_record(NAME)) == ItemKind.OTHER
    assert item_kind(b"damaged") == ItemKind.OTHER
