"""Commands are shown with the quotes that clients of the reference see."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.permissions.shell.script import quoted, shown


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("true", "true"),
        ("", "''"),
        ("echo 'a b'", "\"echo 'a b'\""),
        ('echo "a"', "'echo \"a\"'"),
        ("echo \"a\" 'b' $HOME", "\"echo \\\"a\\\" 'b' \"'$HOME'"),
        ("echo it\\'s !x ^y", "\"echo it\\\\'s \"'!x ''^y'"),
        ("echo a\\b", '"echo a\\\\b"'),
        ("printf '%s\\n' \"$HOME\" 'x'", "\"printf '%s\\\\n' \\\"\"'$HOME\" '\"'x'\""),
        ("echo é 'ü'", "\"echo é 'ü'\""),
        ("^x", "'^x'"),
        ("echo 'a'`date`'b'", "\"echo 'a'\"'`date`'\"'b'\""),
        ('echo "it\'s"', '"echo \\"it\'s\\""'),
    ],
)
def test_a_word_is_quoted_as_the_reference_does(line: str, seen: str) -> None:
    assert shown(["/bin/bash", "-c", line]) == f"/bin/bash -c {seen}"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_shell_reads_the_word_back(word: str) -> None:
    assert shlex.split(quoted(word)) == [word]
