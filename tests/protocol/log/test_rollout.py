"""protocol.log: lines of a rollout are read as they were written."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.log.rollout import HistoryAppended, parse_record, render_record
from tests.support.wire.json_values import json_values


@given(st.lists(st.dictionaries(st.text(), json_values), max_size=3), st.integers(0, 2**50))
@settings(max_examples=40)  # Each is large, and takes 20 ms to make.
def test_a_rollout_line_survives_writing_and_reading(
    items: list[dict[str, Any]], at_ms: int
) -> None:
    record = HistoryAppended(at_ms=at_ms, items=items)
    line = render_record(record)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert parse_record(line) == record


def test_a_line_of_another_kind_is_no_record() -> None:
    assert parse_record(b'{"v":9,"atMs":1,"type":"somethingNew"}') is None
    assert parse_record(b"torn") is None
