"""Compares what clients were told with the logs in the database."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

import psycopg

from protocol.log.rollout import (
    ApprovalDecided,
    HistoryAppended,
    InputQueued,
    ItemCompleted,
    Record,
    TurnCompleted,
    TurnStarted,
    parse_record,
)
from protocol.turns.items import UserMessageThreadItem
from tests.support.fleet.load import RANKS, SOURCE, TEXT, Told, call_id

SHELL_MS = 2000
"""For a shell to start, on a busy machine, after the node has looked whether it may begin one."""


class _Row(NamedTuple):
    position: int
    epoch: int
    body: bytes


def faults_of(administrator: str, told: Told) -> list[str]:
    """Return a sentence for each thing that is lost, doubled or out of place."""
    found = list(told.wrong)
    ends: dict[str, str] = {}
    with psycopg.connect(administrator, autocommit=True) as connection:
        for thread_id in told.tried:
            rows = connection.execute(
                "SELECT position, epoch, body FROM records WHERE thread_id = %s ORDER BY position",
                (UUID(thread_id),),
            ).fetchall()
            log = [_Row(*row) for row in rows]
            found += [f"thread {thread_id}: {text}" for text in _faults_of_log(log)]
            records = _records(log)
            ends |= {
                record.turn_id: record.status
                for record in records
                if isinstance(record, TurnCompleted)
            }
            found += [f"thread {thread_id}: {text}" for text in _faults_of_turns(records)]
            found += [f"thread {thread_id}: {text}" for text in _texts(records, thread_id, told)]
            ledger = connection.execute(
                "SELECT id, stage FROM signals WHERE thread_id = %s AND source = %s",
                (thread_id, SOURCE),
            ).fetchall()
            found += [
                f"thread {thread_id}: {text}"
                for text in _signals(records, dict(ledger), thread_id, told)
            ]
            found += [f"thread {thread_id}: {text}" for text in _calls(log, thread_id, told)]
    for turn_id, status in told.ended.items():
        # An end that could not be written is known to its server alone: who takes over has another.
        if ends.get(turn_id) not in (status, "interrupted"):
            found.append(f"turn {turn_id} ended as {status}, and in the log as {ends.get(turn_id)}")
    return found


def _faults_of_log(log: Sequence[_Row]) -> list[str]:
    found = []
    if not log or log[0].position != 0:
        found.append("its log has no beginning")
    for one, following in pairwise(log):
        if one.position + len(one.body) != following.position:
            found.append(f"a gap or an overlap at {following.position}")
        if one.epoch > following.epoch:
            found.append(f"a record of epoch {following.epoch} behind one of {one.epoch}")
    return found


def _records(log: Sequence[_Row]) -> list[Record]:
    lines = b"".join(row.body for row in log).splitlines(keepends=True)
    return [record for record in map(parse_record, lines) if record is not None]


def _faults_of_turns(records: Sequence[Record]) -> list[str]:
    begun = Counter(one.turn_id for one in records if isinstance(one, TurnStarted))
    over = Counter(one.turn_id for one in records if isinstance(one, TurnCompleted))
    found = [f"turn {one} began {count} times" for one, count in begun.items() if count != 1]
    found += [f"turn {one} has {over[one]} ends" for one in begun if over[one] != 1]
    return found


def _texts(records: Sequence[Record], thread_id: str, told: Told) -> list[str]:
    """Compare what was said with what was acknowledged, and with what was sent."""
    said: Counter[str] = Counter()
    for record in records:
        match record:
            case ItemCompleted(item=UserMessageThreadItem() as item):
                said.update(TEXT.findall(item.model_dump_json()))
            case InputQueued(message=message) if message is not None:
                said.update(TEXT.findall(message.model_dump_json()))
    found = [f"{text!r} is there {count} times" for text, count in said.items() if count != 1]
    found += [f"{text!r} is lost" for text in told.accepted[thread_id] if not said[text]]
    found += [f"{text!r} was never sent" for text in said if text not in told.tried[thread_id]]
    order = [text for text in said if text in told.accepted[thread_id]]
    if order != told.accepted[thread_id][: len(order)] and not any("lost" in one for one in found):
        found.append("what was said is in another order than it was acknowledged")
    return found


def _signals(
    records: Sequence[Record], ledger: Mapping[str, str], thread_id: str, told: Told
) -> list[str]:
    """Compare signals in the log with what was acknowledged, and what was told of them."""
    reached: dict[str, str] = {}
    found = []
    for record in records:
        marks = []
        match record:
            case HistoryAppended(signals=signals) if signals is not None:
                marks = signals
            case InputQueued(signal=mark) if mark is not None:
                marks = [mark]
            case TurnCompleted(status="completed"):
                reached = dict.fromkeys(reached, "answered")
        found += [f"{one.id!r} is there twice" for one in marks if one.id in reached]
        reached |= {one.id: "seen" for one in marks}
    found += [f"{one!r} was never sent" for one in reached if one not in told.sent[thread_id]]
    for signal_id in told.sent[thread_id]:
        stage = told.stages.get(signal_id)
        if stage is None:
            continue
        kept = ledger.get(signal_id)
        if kept not in RANKS or RANKS[kept] < RANKS[stage]:
            found.append(f"{signal_id!r} was told to be {stage}, and is {kept}")
        elif RANKS[kept] > RANKS[reached.get(signal_id, "accepted")]:
            found.append(f"{signal_id!r} is {kept}, and in the log {reached.get(signal_id)}")
    return found


def _calls(log: Sequence[_Row], thread_id: str, told: Told) -> list[str]:
    """Compare commands that ran with what was called and allowed, by whom, and until when."""
    found = []
    for record in _records(log):
        match record:
            case ApprovalDecided(decision="accept", subject=subject):
                allowed = TEXT.findall(subject)
                found += [f"nobody allowed {one!r}" for one in allowed if one not in told.granted]
    ran = [] if told.ran is None or not told.ran.exists() else told.ran.read_text().splitlines()
    begun: dict[str, int] = {}
    for line in ran:
        text, _, time_ms = line.rpartition(" ")
        if text in told.tried[thread_id]:
            if text in begun:
                found.append(f"the command of {text!r} ran twice")
            begun[text] = int(time_ms)
    for text, at_ms in begun.items():
        if text not in told.granted:
            found.append(f"the command of {text!r} ran, and nobody has allowed it")
        name = f'"{call_id(text)}"'.encode()
        of = [number for number, row in enumerate(log) if name in row.body]
        if not of:
            found.append(f"the command of {text!r} ran, and its call is not in the log")
            continue
        later = [row for row in log[of[0] :] if row.epoch > log[of[0]].epoch]
        until_ms = min((one.at_ms for one in _records(later)), default=at_ms)
        if at_ms > until_ms + SHELL_MS:
            late_ms = at_ms - until_ms
            found.append(f"the command of {text!r} ran {late_ms} ms after its owner was replaced")
    return found
