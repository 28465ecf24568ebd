"""Server-sent events, from bytes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.runtime.http.event_stream import EventParser, EventTooLarge, SseEvent


def sse(text: str) -> list[SseEvent]:
    return EventParser(1000).feed(text.encode())


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("data: {}\n\n", [SseEvent(b"message", b"{}")]),
        ("event: x\ndata: 1\n\ndata:2\n\n", [SseEvent(b"x", b"1"), SseEvent(b"message", b"2")]),
        ("data: a\r\ndata: b\r\n\r\n", [SseEvent(b"message", b"a\nb")]),
        ("data: a\rdata:  b\r\r\n", [SseEvent(b"message", b"a\n b")]),
        (": comment\n\n\nid: 5\nretry: 1\nevent: x\n\n", []),
        ("\ufeffdata: a\n\n", [SseEvent(b"message", b"a")]),
        ("data\n\n", [SseEvent(b"message", b"")]),
        ("data: unfinished\n", []),
    ],
)
def test_event_streams_are_read_by_the_standard(text: str, events: list[SseEvent]) -> None:
    assert sse(text) == events


@pytest.mark.parametrize(
    ("text", "last_id", "retry_ms"),
    [
        ("data: a\n\n", b"", None),
        ("id: 5\nretry: 10\n\n", b"5", 10),
        ("id: 5\ndata: a\n\nid\ndata: b\n\n", b"", None),
        ("id: 5\n\nid: 6\n", b"5", None),
        ("id: a\0b\nretry: 1.5\n\nretry: 9999999999\n\n", b"", None),
    ],
)
def test_where_an_event_stream_can_be_taken_up_is_remembered(
    text: str, last_id: bytes, retry_ms: int | None
) -> None:
    parser = EventParser(1000)
    parser.feed(text.encode())
    assert (parser.last_id, parser.retry_ms) == (last_id, retry_ms)


@given(
    st.lists(st.tuples(st.sampled_from(["data: x", "event: e", ":c", "data: ü"]),
                       st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\n\r\n"])), max_size=12),
    st.lists(st.integers(0, 60), max_size=6),
)  # fmt: skip
def test_where_chunks_split_makes_no_difference(
    lines: list[tuple[str, str]], cuts: list[int]
) -> None:
    text = ("".join(line + end for line, end in lines) + "\n\n").encode()
    whole = EventParser(10_000).feed(text)
    parser = EventParser(10_000)
    positions = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(positions)]
    assert [event for piece in pieces for event in parser.feed(piece)] == whole


@pytest.mark.parametrize("text", ["data: " + "x" * 2000, "data: " + "x" * 2000 + "\n\n"])
def test_an_event_above_the_bound_is_refused(text: str) -> None:
    with pytest.raises(EventTooLarge):
        sse(text)
