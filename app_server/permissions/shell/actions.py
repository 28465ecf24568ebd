"""Actions of the commands of a script (read, list, search), for clients to show. No I/O.

Source: docs/tools.md, "Approvals and rules".
"""

import os.path
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from app_server.permissions.shell.options import option_names, sort_out
from app_server.permissions.shell.readers import LINES, Reading, reading_of
from app_server.permissions.shell.script import Command, Script, shown
from protocol.turns.items import (
    CommandAction,
    ListFilesCommandAction,
    ReadCommandAction,
    SearchCommandAction,
    UnknownCommandAction,
)

_FOLDERS_OF_ALL = frozenset({"src", "dist", "build", "node_modules"})
"""Names that say little of a place."""

_SHAPERS = frozenset({"wc", "tr", "cut", "column", "yes", "printf"})
"""They give what they get another form, and do nothing else whatever their options are."""

_XARGS = option_names("-I -n -P -L -d -s -a -E --max-args --max-procs --delimiter")
_BEHIND_XARGS = frozenset({"cat", "echo", "ls", "wc", "stat", "file", "du", "grep", "rg"})


def command_actions(script: Script, cwd: str) -> list[CommandAction]:
    """Return an action for each command that is worth showing; a lone `cd` gives none.

    `cwd` is absolute, and paths of files that are read are absolute, from it on; other paths are
    cut to the part that says most. If there is any command that may write, or is not known, or the
    shell puts file names in the place of patterns, there is one action for the whole script:
    unknown.
    """
    if actions := _actions(script, cwd):
        return actions
    commands = list(script.commands)
    if commands and all(command.texts[0] == "cd" for command in commands):
        return []
    return [UnknownCommandAction(command=script.text)]


def _actions(script: Script, cwd: str) -> list[CommandAction] | None:
    commands = list(script.commands)
    if any(_is_put_in_place(command) for command in commands):
        return None
    if (lines := _lines_of_file(script, cwd)) is not None:
        return [lines]
    actions: list[CommandAction] = []
    folder: str | None = cwd
    for number, command in enumerate(commands):
        words = command.texts
        if words[0] == "cd":
            folder = _folder_after(folder, words)
            continue
        if len(commands) > 1 and _only_shapes(words, is_first=number == 0):
            continue
        reading = reading_of(words)
        if reading is None or (folder is None and reading.kind == "read"):
            return None
        action = _action(shown(words), reading, folder or cwd)
        if action not in actions[-1:]:
            actions.append(action)
    return actions


def _is_put_in_place(command: Command) -> bool:
    return any(word.is_pattern or word.may_have_home for word in command.words)


def _lines_of_file(script: Script, cwd: str) -> CommandAction | None:
    """Show a file that is read, of which sed prints some lines, as one."""
    if script.pipelines is None or len(script.pipelines) != 1:
        return None
    match [command.texts for command in script.pipelines[0].commands]:
        case [first, ["sed", "-n", lines]] if LINES.fullmatch(lines):
            reading = reading_of(first)
            if reading is not None and reading.kind == "read":
                return _action(script.text, reading, cwd)
    return None


def _folder_after(folder: str | None, words: Sequence[str]) -> str | None:
    """Return where `cd` leads to; None if that is not known."""
    operands = sort_out(words[1:]).operands
    if not operands or operands[-1] == "-" or (folder is None and operands[-1][:1] != "/"):
        return None
    return _place(folder or "/", operands[-1])


def _only_shapes(words: Sequence[str], *, is_first: bool) -> bool:
    """Whether a command is worth no mention beside others: it reads no file of its own."""
    arguments = words[1:]
    match words[0]:
        case "true":
            return True
        case "echo":
            return is_first
        case "head" | "tail":
            return not any(_is_file_of_head(*pair) for pair in _pairs(arguments))
        case "sort":
            return not any(_is_option(word, "o", "--output") for word in arguments)
        case "uniq" | "nl":
            most = 1 if words[0] == "uniq" else 0
            valued = ("-f", "-s", "-w", "-b", "-n", "-v", "-i")
            return len(sort_out(arguments, valued).operands) <= most
        case "tee":
            return not sort_out(arguments).operands
        case "sed":
            return _sed_only_shapes(arguments)
        case "awk":
            return reading_of([*words, "-"]) is not None and reading_of(words) is None
        case "xargs":
            return _xargs_only_reads(arguments)
    return words[0] in _SHAPERS


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words], words, strict=False))


def _is_file_of_head(before: str, word: str) -> bool:
    return not word.startswith(("-", "+")) and before not in ("-n", "-c", "--lines", "--bytes")


def _is_option(word: str, letter: str, name: str) -> bool:
    return word.startswith(name) or (word[:1] == "-" and word[:2] != "--" and letter in word)


_SUBSTITUTION = re.compile(r"s([/|,#]).*\1[gip0-9]*", re.DOTALL)
_SELECTION = re.compile(r"[0-9,$]*[pdq]|/[^/]*/[pd]")


def _sed_only_shapes(arguments: Sequence[str]) -> bool:
    if any(_is_option(word, "i", "--in-place") for word in arguments):
        return False
    given = sort_out(arguments, ("-e", "--expression"))
    scripts = [value or "" for name, value in given.options if name in ("-e", "--expression")]
    files = given.operands if scripts else given.operands[1:]
    scripts = scripts or list(given.operands[:1])
    harmless = (_SUBSTITUTION.fullmatch(s) or _SELECTION.fullmatch(s) for s in scripts)
    return not files and bool(scripts) and all(harmless)


def _xargs_only_reads(arguments: Sequence[str]) -> bool:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        if rest.pop(0) in _XARGS and rest:
            rest.pop(0)
    if not rest:
        return True
    if rest[0] in ("grep", "rg", "sed"):
        return reading_of([*rest, "file"]) is not None
    return rest[0] in _BEHIND_XARGS or reading_of([*rest, "file"]) is not None


def _action(command: str, reading: Reading, folder: str) -> CommandAction:
    path = reading.path
    match reading.kind:
        case "read":
            assert path is not None
            place = _place(folder, path)
            return ReadCommandAction(command=command, name=_name_of(path), path=place)
        case "listFiles":
            name = None if path is None else _name_of(path)
            return ListFilesCommandAction(command=command, path=name)
        case "search":
            name = None if path is None else _name_of(path)
            return SearchCommandAction(command=command, query=reading.query, path=name)


def _place(folder: str, path: str) -> str:
    # What a link leads to is not looked at: this is for display.
    return os.path.normpath(PurePosixPath(folder, path))


def _name_of(path: str) -> str:
    """Return the last part of a path that says something of the place."""
    parts = path.rstrip("/").split("/")
    return next((part for part in reversed(parts) if part not in _FOLDERS_OF_ALL), "/".join(parts))
