"""receiver: what a signal's envelope may say."""

import pytest

from app_server.clients.receiver.router.envelope import (
    BadEnvelope,
    Envelope,
    parse_body,
    parse_envelope,
    render_body,
)
from tests.support.large import Case, made
from tests.support.receiver.peer import envelope, signal


def test_an_envelope_keeps_what_it_does_not_know_in_its_payload() -> None:
    read = parse_envelope(
        signal(
            "s1",
            payload={"summary": "x", "urgent": "no"},
            urgent="yes",
            room=7,
            created_at=12.5,
            ttl_s=60,
            delivery_class="sync",
        )
    )

    assert read == Envelope(
        id="s1",
        type="Question",
        sender="Desiree",
        to="Texi",
        payload={"urgent": "no", "room": 7, "summary": "x"},
        created_at=12,
        ttl_s=60,
        mode="wake",
    )
    assert read.expires_at == 72
    assert parse_body(render_body(read)) == read


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (["s1"], "it is no object"),
        ({**signal("s1"), "signal_id": None}, "`signal_id` must be 1 to 200 printable characters"),
        (signal("two\nlines"), "`signal_id` must be 1 to 200 printable characters"),
        (signal("s1", signal_type=""), "`signal_type` must be 1 to 200 printable characters"),
        ({**signal("s1"), "from": 5}, "`from` must be a string"),
        (signal("s1", created_at="now"), "`created_at` must be a number of seconds"),
        (signal("s1", ttl_s=-1), "`ttl_s` must be a number of seconds"),
        (lambda: signal("s1", payload="x" * 262_143), "`payload` is larger than 262144 bytes"),
    ],
)
def test_what_is_no_signal_is_refused_by_the_member_that_is_wrong(
    value: Case[object], problem: str
) -> None:
    with pytest.raises(BadEnvelope) as caught:
        parse_envelope(made(value))

    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("payload", "summary"),
    [
        (None, ""),
        ("plain text", "plain text"),
        ({"text": "second", "summary": "first"}, "first"),
        ({"summary": " ", "question": "which?"}, "which?"),
        ({"a": 1}, '{"a":1}'),
        (["x"], '["x"]'),
        ("ü" * 3000, "ü" * 2046 + "…"),
    ],
)
def test_a_summary_says_what_a_signal_is_about_in_4_kib(payload: object, summary: str) -> None:
    assert envelope("s1", payload=payload).summary == summary


def test_types_of_signals_can_be_set_to_wake_or_not() -> None:
    modes = {"Question": "wake", "StatusUpdate": "passive"}

    read = [
        parse_envelope(signal("s", signal_type=kind, delivery_class=asked), modes).mode  # type: ignore[arg-type]
        for kind, asked in [
            ("Question", "async"),
            ("StatusUpdate", "sync"),
            ("Blocker", "sync"),
            ("Blocker", "someday"),
        ]
    ]

    assert read == ["wake", "passive", "wake", "passive"]
