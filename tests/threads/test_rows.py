"""Rows of threads: what an append changes of one is known before it is written."""

from copy import deepcopy
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.threads.log.state import ThreadState, begin
from app_server.threads.rows import ThreadRow, row_after
from protocol.log.rollout import Record
from tests.support.threads.stores import created, records

FOLLOWING = ("updated_at_ms", "recency_at_ms", "preview", "has_content")
"""What may follow an append later."""


def without_times(row: ThreadRow) -> ThreadRow:
    return replace(row, updated_at_ms=0, recency_at_ms=0, preview="", has_content=False)


@settings(max_examples=300)
@given(st.lists(records, max_size=6), st.lists(records, min_size=1, max_size=3))
def test_a_row_is_known_before_the_records_that_change_it_are_applied(
    before: list[Record], added: list[Record]
) -> None:
    state = begin(created())
    for record in before:
        state.apply(record)
    kept: ThreadState = deepcopy(state)
    after = row_after(state, added)
    assert state == kept
    for record in added:
        state.apply(record)
    expected = without_times(ThreadRow.of(state))
    assert without_times(ThreadRow.of(kept) if after is None else after) == expected
