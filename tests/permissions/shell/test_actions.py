"""What clients are shown of a command, compared with what Codex 0.169.0 showed of the same ones."""

import json
from typing import Any

import pytest

from app_server.permissions.shell.actions import command_actions
from app_server.permissions.shell.parse import ShellGrammar
from tests.support.harness import claim
from tests.support.paths import RECORDINGS

RECORDED = RECORDINGS / "command_actions.jsonl"
"""A command and its actions a line, in the folder /home/me/work."""

READER = ShellGrammar()


async def actions(text: str, cwd: str = "/home/me/work") -> list[dict[str, Any]]:
    """Return the actions of a command, without members that are null."""
    found = command_actions(await READER.read(text), cwd)
    return [action.model_dump(mode="json", by_alias=True, exclude_none=True) for action in found]


def unknown(text: str) -> list[dict[str, Any]]:
    """Return the action for what is not known."""
    return [{"type": "unknown", "command": text}]


def search(command: str, query: str, path: str | None = None) -> list[dict[str, Any]]:
    """Return the action of a search."""
    place = {} if path is None else {"path": path}
    return [{"type": "search", "command": command, "query": query, **place}]


def lists(command: str, path: str | None = None) -> list[dict[str, Any]]:
    """Return the action of a list of files."""
    return [{"type": "listFiles", "command": command, **({} if path is None else {"path": path})}]


def read(command: str, name: str) -> list[dict[str, Any]]:
    """Return the action of a file that is read."""
    return [{"type": "read", "command": command, "name": name, "path": f"/home/me/work/{name}"}]


WRITES = [
    "cat a.txt | tee b.txt",
    "cat a.txt | tee -a b.txt",
    "ls -la | tee x",
    "rg foo | xargs rm",
    "find . -name x -delete",
    "fd -x rm",
    "rg --pre cat foo src",
]
"""Codex shows only what is read. Whoever looks at a list of reads must not miss a write."""

OPAQUE = [
    "python -c \"import os; print(os.listdir('.'))\"",
    "python3 -c \"import os; os.walk('.')\"",
    "python3 -c \"import glob; glob.glob('*')\"",
]
"""Codex calls them lists of files, by a word in the code."""

DELIBERATE = {
    **{text: unknown(text) for text in (*WRITES, *OPAQUE)},
    # Escapes and comments are understood.
    "cat a\\ b.txt": read("cat 'a b.txt'", "a b.txt"),
    "cat a.txt # comment": read("cat a.txt", "a.txt"),
    'ls "a\\"b"': lists("ls 'a\"b'", 'a"b'),
    "ls a~": lists("ls 'a~'", "a~"),
    "ls ^a": lists("ls '^a'", "^a"),
    "rg foo | xargs -I{} cat {}": search("rg foo", "foo"),
    # Options with values are known, and only what Codex shows of the rest is shown.
    "cat a.txt | sed -n '/x/p'": read("cat a.txt", "a.txt"),
    "ls --width 80 src": lists("ls --width 80 src", "src"),
    "ls --ignore x src": lists("ls --ignore x src", "src"),
    "find -name x": search("find -name x", "x"),
    "find -maxdepth 1 src": lists("find -maxdepth 1 src"),
    "fd -d 2 foo src": search("fd -d 2 foo src", "foo", "src"),
    "grep --exclude x foo src": search("grep --exclude x foo src", "foo", "src"),
    "grep --regexp=foo a.txt": search("grep '--regexp=foo' a.txt", "foo", "a.txt"),
    "grep -efoo a.txt": search("grep -efoo a.txt", "foo", "a.txt"),
    "grep -d skip foo src": search("grep -d skip foo src", "foo", "src"),
    "rg -T py foo src": search("rg -T py foo src", "foo", "src"),
    "rg -j 2 foo src": search("rg -j 2 foo src", "foo", "src"),
    "rg --sort path foo src": search("rg --sort path foo src", "foo", "src"),
    "rg -r x foo src": search("rg -r x foo src", "foo", "src"),
    "rg --replace x foo src": search("rg --replace x foo src", "foo", "src"),
    "rg -d 3 foo src": search("rg -d 3 foo src", "foo", "src"),
    "rg --regexp=foo src": search("rg '--regexp=foo' src", "foo", "src"),
    "rg -efoo src": search("rg -efoo src", "foo", "src"),
    "rg -F -- -foo src": search("rg -F -- -foo src", "-foo", "src"),
    "rg --colors x foo": search("rg --colors x foo", "foo"),
    "ack --type py foo src": search("ack --type py foo src", "foo", "src"),
    "nl -n ln a.txt": read("nl -n ln a.txt", "a.txt"),
}
"""What differs on purpose."""


@claim("commands:actions")
async def test_commands_are_shown_as_codex_shows_them() -> None:
    rows = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    assert len(rows) > 500
    recorded = dict(rows)
    assert DELIBERATE.keys() <= recorded.keys()
    ours = {text: await actions(text) for text in recorded}
    assert {text: given for text, given in ours.items() if given != recorded[text]} == DELIBERATE


@pytest.mark.parametrize(
    "text",
    [
        "ls | sort -o x",
        "ls | sort --output=x",
        "ls | uniq a b",
        "cat a | sed 'w x'",
        "cat a | sed -e s/a/b/w -e p",
        "cat a | sed 's/a/b/e'",
        "cat a | sed s/a/b/ b",
        "cat a | awk '{print > \"x\"}'",
        "awk 'BEGIN{system(\"x\")}' a",
        "awk '{\"x\" | getline}' a",
        "ls | xargs sh -c x",
        "ls | xargs sed -n 'w x'",
        "ls | xargs git commit -m",
        "find . -fprint x",
        "fd foo --exec rm",
        "rg foo --hostname-bin x",
        "rg --files --pre x",
        "git grep -O foo",
        "git grep --open-files-in-pager=x foo",
        "git -C x grep foo",
        "git ls-files | git update-index --stdin",
        "cd src; cd; cat a",
        "ls *.py",
        "cat ~/x",
        "cat a=~/x",
        "cat a=x:~/x",
    ],
)
async def test_what_may_write_makes_the_whole_unknown(text: str) -> None:
    assert await actions(text) == unknown(text)


async def test_folders_that_are_entered_are_part_of_paths() -> None:
    shown = await actions("cd /etc && cd ../usr && cat share/x && cat /a/../b")
    assert [action["path"] for action in shown] == ["/usr/share/x", "/b"]


async def test_a_script_that_is_not_understood_is_shown_whole() -> None:
    assert await actions("cat a > b; ls") == unknown("cat a > b; ls")
    assert await actions("") == unknown("")
