"""runtime: texts that JavaScript cut in the middle of a character are read all the same."""

import pytest

from app_server.runtime.half_characters import read_json


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


@pytest.mark.parametrize("text", ["", r'["\ud83d"', r'["\u12', r'["\ud83d",' + "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1|column|char|recursion"):
        read_json(text)
