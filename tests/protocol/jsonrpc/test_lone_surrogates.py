"""protocol: texts that JavaScript cut in the middle of a character are read all the same."""

import pytest

from protocol.jsonrpc.envelope import Request, parse_message
from protocol.jsonrpc.lone_surrogates import MAX_REPAIRED, read_json


@pytest.mark.parametrize(
    ("half", "whole"),
    [
        (r"\ud83d", "\ufffd"),
        (r"a\ude00b", "a\ufffdb"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\\ud83d\ud83d", "\\ud83d\ufffd"),
        (r"\ud83d\ude00", "\U0001f600"),
    ],
)
def test_halves_are_replaced(half: str, whole: str) -> None:
    text = f'{{"{half}": ["{half}", 1e5, 12345678901234567890, null]}}'
    found = {whole: [whole, 1e5, 12345678901234567890, None]}
    assert read_json(text) == read_json(text.encode()) == found


def test_a_long_text_is_refused_as_it_is() -> None:
    """A list of this length takes 0.1 s."""
    text = r'["\ud83d"' + ",1" * (MAX_REPAIRED // 2) + "]"
    with pytest.raises(ValueError, match="hex escape"):
        read_json(text)
    assert len(read_json(text.replace(r"\ud83d", ""))) > MAX_REPAIRED // 2


def test_infinities_are_refused_where_they_are_not_wanted() -> None:
    for text in (r'["\ud83d", NaN]', r'["\ud83d", -Infinity]'):
        with pytest.raises(ValueError, match="line 1"):
            read_json(text, allow_inf_nan=False)


@pytest.mark.parametrize("text", ["", r'["\ud83d"', r'["\u12', r'["\ud83d",' + "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1|column|char|recursion"):
        read_json(text)


def test_a_request_with_half_a_character_is_a_request() -> None:
    """It was answered without its id, so that its client waited for ever."""
    text = r'{"id": 1, "method": "turn/start", "params": {"text": "a\ud83d"}}'
    assert parse_message(text) == Request(1, "turn/start", {"text": "a\ufffd"})


def test_the_parser_keeps_texts_of_keys_and_none_of_values() -> None:
    text = '{"a key that comes again": "a value that does not"}'
    (key, value), (same_key, equal_value) = (next(iter(read_json(text).items())) for _ in range(2))
    assert (key is same_key, value == equal_value, value is equal_value) == (True, True, False)
