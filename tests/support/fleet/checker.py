"""Compares what clients were told with the logs in the database."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

import psycopg

from protocol.log.rollout import (
    InputQueued,
    ItemCompleted,
    Record,
    TurnCompleted,
    TurnStarted,
    parse_record,
)
from protocol.turns.items import UserMessageThreadItem
from tests.support.fleet.load import Told

_TEXT = re.compile(r"client \d+ input \d+\.")


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
                said.update(_TEXT.findall(item.model_dump_json()))
            case InputQueued(message=message) if message is not None:
                said.update(_TEXT.findall(message.model_dump_json()))
    found = [f"{text!r} is there {count} times" for text, count in said.items() if count != 1]
    found += [f"{text!r} is lost" for text in told.accepted[thread_id] if not said[text]]
    found += [f"{text!r} was never sent" for text in said if text not in told.tried[thread_id]]
    order = [text for text in said if text in told.accepted[thread_id]]
    if order != told.accepted[thread_id][: len(order)] and not any("lost" in one for one in found):
        found.append("what was said is in another order than it was acknowledged")
    return found
