"""Hunks are found where they are meant, and change what they name and nothing else."""

import pytest

from app_server.patch.parse import NotApplicable, UpdateFile, parse_patch
from app_server.patch.plan import apply_hunks
from tests.patch.folders import patch_of


def changed(text: str, *lines: str) -> str:
    (update,) = parse_patch(patch_of("*** Update File: a", *lines)).changes
    assert isinstance(update, UpdateFile)
    return apply_hunks("/a", text, update.hunks)


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        ("a\nb\nc\n", ["-b", "+B"], "a\nB\nc\n"),
        ("a\nb\nc\n", [" a", "-b", " c"], "a\nc\n"),
        # White space, and what typing programs make of quotes and dashes.
        ("  a  \nb\n", ["-  a", "+x"], "x\nb\n"),
        ("  a  \nb\n", ["-a", "+x"], "x\nb\n"),
        ("say \u201chi\u201d \u2013 now\u00a0!\n", ['-say "hi" - now !', "+x"], "x\n"),
        ('say "hi" - now\n', ["-say \u201chi\u201d \u2014 now", "+x"], "x\n"),
        # A line that stays is that of the file.
        ("  a  \nb\n\tc\n", [" a", "-b", "+B", " c"], "  a  \nB\n\tc\n"),
        # The strictest match wins over an earlier one that is looser.
        (" a\na\n", ["-a", "+x"], " a\nx\n"),
        # The first after the hunk before.
        ("x\nx\nx\n", ["-x", "+1", "@@", "-x", "+2"], "1\n2\nx\n"),
        ("x\na\nx\n", ["-x", "+y", "*** End of File"], "x\na\ny\n"),
        # Contexts.
        ("a\nx\nb\nx\n", ["@@ b", "-x", "+y"], "a\nx\nb\ny\n"),
        (
            "class A\ndef f\nx\nclass B\ndef f\nx\nclass C\ndef f\nx\n",
            ["@@ class B", "@@ def f", "-x", "+y"],
            "class A\ndef f\nx\nclass B\ndef f\ny\nclass C\ndef f\nx\n",
        ),
        ("def f\na\ndef f\nx\n", ["@@ def f", "-x", "+y"], "def f\na\ndef f\ny\n"),
        # What only comes.
        ("a\nb\n", ["@@", "+c"], "a\nb\nc\n"),
        ("a\nb\n", ["@@ a", "+c"], "a\nc\nb\n"),
        ("", ["@@", "+c"], "c\n"),
        # Empty lines that models add at the end of a hunk.
        ("a\nb\n", ["-b", "+B", " ", ""], "a\nB\n"),
        ("a\nb\n\n", ["-b", "+B", ""], "a\nB\n\n"),
        # Line ends.
        ("a\r\nb\r\nc\r\n", [" a", "-b", "+B", "+C"], "a\r\nB\r\nC\r\nc\r\n"),
        ("a\r\nb\nc\r\n", ["-b", "+B"], "a\r\nB\nc\r\n"),
        ("a\nb", ["-b", "+B"], "a\nB"),
        ("a\nb", ["@@", "+c"], "a\nb\nc"),
        ("a\nb", ["-b"], "a"),
        ("a\r\nb", ["@@", "+c"], "a\r\nb\r\nc"),
        ("a\r\nb", ["-b"], "a"),
        ("\ufeffa\nb\n", ["-a", "+x"], "\ufeffx\nb\n"),
        ("a\n", ["-a"], ""),
        # Characters that other programs take for line ends.
        ("a\u2028b\x0cc\n", ["-a\u2028b\x0cc", "+x"], "x\n"),
    ],
)
def test_a_hunk_changes_what_it_names(before: str, lines: list[str], after: str) -> None:
    assert changed(before, *lines) == after


@pytest.mark.parametrize(
    ("before", "lines", "message"),
    [
        ("a\n", ["-x", "-y", "+z"], "Failed to find expected lines in /a:\nx\ny"),
        ("a\nb\n", ["-b", "@@", "-a"], "Failed to find expected lines in /a:\na"),
        ("a\nb\n", ["-a", "*** End of File"], "Failed to find expected lines in /a:\na"),
        ("a\n", ["@@ def f", "-a"], "Failed to find context 'def f' in /a"),
        ("b\na\n", ["@@ b", "@@ c", "-a"], "Failed to find context 'c' in /a"),
        (
            "def f\nx\ndef f\nx\n",
            ["@@ def f", "-x", "+y"],
            "Context 'def f' is in several places of /a (lines 1, 3), and the change fits more "
            "than one of them. Add lines around the change, or a context that is there once",
        ),
        (
            "def f\nx\ndef f\nx\n",
            ["@@ def f", "+y"],
            "Context 'def f' is in several places of /a (lines 1, 3), and the change fits more "
            "than one of them. Add lines around the change, or a context that is there once",
        ),
    ],
)
def test_what_is_not_clear_is_refused(before: str, lines: list[str], message: str) -> None:
    with pytest.raises(NotApplicable) as refused:
        changed(before, *lines)
    assert str(refused.value) == message


def test_lines_that_were_not_found_are_shown_up_to_a_bound() -> None:
    with pytest.raises(NotApplicable) as refused:
        changed("a\n", "-" + "x" * 100_000)
    assert len(str(refused.value)) < 10_100
