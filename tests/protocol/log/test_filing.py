"""protocol.log: lines of projects and sections that this version cannot read."""

import pytest

from protocol.log.filing import (
    SectionDeleted,
    is_newer_filing,
    parse_filing_record,
)

DELETED = b'{"v":%d,"atMs":1,"type":"sectionDeleted","sectionId":"s"}\n'


@pytest.mark.parametrize(
    ("line", "newer"),
    [
        (DELETED % 2, True),
        (b'{"v":1,"atMs":1,"type":"somethingNew"}\n', True),
        (b'{"v":1,"atMs":1,"type":"sectionDeleted"}\n', False),
        (DELETED[:-5] + b"\n", False),
        (b"\0\0\0\n", False),
        (b"[]\n", False),
    ],
)
def test_lines_of_newer_versions_are_distinguished_from_damaged_ones(
    line: bytes, newer: bool
) -> None:
    assert parse_filing_record(line) is None
    assert is_newer_filing(line) is newer


def test_a_line_of_this_version_is_read() -> None:
    assert parse_filing_record(DELETED % 1) == SectionDeleted(at_ms=1, section_id="s")
