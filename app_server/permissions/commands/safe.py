"""Commands that are known to read only, with options that are known to be harmless. No I/O.

What is not in this table is not known to be harmful, but does not run unasked either where a policy
asks for all but reads.
Source: docs/tools.md, "Approvals and rules"; the manuals of the programs.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import TypeAlias

from app_server.permissions.commands.harmless_options import (
    CHECKED,
    FIND_FLAGS,
    FIND_VALUED,
    GIT,
    HARMLESS,
)
from app_server.permissions.shell.options import known_operands, known_options, option_names
from app_server.permissions.shell.readers import LINES
from app_server.permissions.shell.script import Command, Script, Word

_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin"})

_Check: TypeAlias = Callable[[Sequence[Word]], bool]


def not_reading(script: Script, *, is_trusted: bool = False) -> list[Command]:
    """Return the commands of a script that are not known to read only.

    `is_trusted` says that the user trusts the repository of the folder which they run in.
    """
    programs = {program_name(command.words[0]) for command in script.commands}
    # The settings of a repository, and those in it, may name programs to run.
    harmful = {"git"} if not is_trusted or "cd" in programs else set()
    return [
        command
        for command in script.commands
        if program_name(command.words[0]) in harmful or not _is_read(command)
    ]


def program_name(word: Word) -> str | None:
    """Return the name of a program that the system has; None for one of a folder of its own."""
    path = PurePosixPath(word.text)
    if word.is_pattern or word.text.startswith("~"):
        return None
    return path.name if "/" not in word.text or str(path.parent) in _SYSTEM_FOLDERS else None


def _is_read(command: Command) -> bool:
    name = program_name(command.words[0]) or ""
    words = command.words[1:]
    if name in _ANY_ARGUMENTS:
        return True
    if name in HARMLESS:
        return _are_known(words, HARMLESS[name], strict=False)
    if name in CHECKED and not _are_known(words, CHECKED[name]):
        return False
    check = _CHECKS.get(name)
    return name in CHECKED if check is None else check(words)


def _are_known(words: Sequence[Word], table: str, *, strict: bool = True) -> bool:
    return known_operands(words, known_options(table + _COMMON), strict=strict) is not None


def _find(words: Sequence[Word]) -> bool:
    rest = iter(words)
    for word in rest:
        if word.text in FIND_VALUED:
            word = next(rest, Word("-"))
            if word.text.startswith("-") and not _FIND_NUMBER.fullmatch(word.text):
                return False
        elif word.text.startswith("-") and word.text not in FIND_FLAGS:
            return False
        if word.may_be_many and word.may_be_option:
            return False
    return True


def _uniq(words: Sequence[Word]) -> bool:
    # The second operand is written. Where options end with the first, those behind it are operands.
    operands = known_operands(words, known_options(CHECKED["uniq"] + _COMMON)) or []
    is_last = not operands or words[-1] is operands[0]
    return len(operands) <= 1 and is_last and not any(word.may_be_many for word in words)


def _sed(words: Sequence[Word]) -> bool:
    match [word.text for word in words]:
        case ["-n", "-e", lines, *files] | ["-n", lines, *files] if LINES.fullmatch(lines):
            is_option = any(file.startswith("-") and file != "--" for file in files)
            return not is_option and not any(w.may_be_many and w.may_be_option for w in words)
    return False


def _date(words: Sequence[Word]) -> bool:
    # Another operand sets the clock.
    operands = known_operands(words, known_options(CHECKED["date"] + _COMMON)) or []
    is_format = all(word.text.startswith("+") for word in operands)
    return is_format and not any(word.may_be_many for word in words)


def _printf(words: Sequence[Word]) -> bool:
    ends_options = [word.text for word in words[:1]] == ["--"]
    match words[1:] if ends_options else words:
        case [form, *_]:
            # The format is not known where the name of a file or folder becomes it.
            is_option = not ends_options and form.text.startswith("-")
            is_known = not form.may_be_many and not form.text.startswith("~")
            # Some shells evaluate what is printed as a number, and zsh runs what an index says.
            return is_known and not is_option and bool(_TEXT_FORMAT.fullmatch(form.text))
    return True


def _command(words: Sequence[Word]) -> bool:
    is_lookup = len(words) == 2 and words[0].text in ("-v", "-V")
    return is_lookup and not any(word.may_be_many for word in words)


_BRANCH_LISTS = re.compile(
    r"-[avrl]+|--(all|list|remotes|verbose|show-current|no-color|merged|no-merged|column|no-column)"
)


def _git(words: Sequence[Word]) -> bool:
    match [word.text for word in words]:
        case ["--no-pager", *_]:
            return _git(words[1:])
        case ["--version"]:
            return True
        case ["branch", *rest]:
            return all(map(_BRANCH_LISTS.fullmatch, rest))
        case ["remote", *rest]:
            return rest in ([], ["-v"], ["--verbose"])
        case ["stash", "list"] | ["tag"] | ["tag", "-l" | "--list"] | ["worktree", "list"]:
            return True
        case [name, *rest] if name in GIT:
            # A signature is checked by another program.
            signs = _REF_SIGNATURE if name == "for-each-ref" else _SIGNATURE
            is_known = known_operands(words[1:], known_options(GIT[name])) is not None
            return is_known and not any(map(signs.search, rest))
    return False


_COMMON = " --help --version"
_FIND_NUMBER = re.compile(r"-\d[\w.]*|-[ugoa]+[+=][rwxXst]+")
_TEXT_FORMAT = re.compile(r"(?:[^%]|%%|%-?\d*[sb])*", re.DOTALL)
_SIGNATURE = re.compile(r"%[-+ ]?G")
_REF_SIGNATURE = re.compile(r"signature")

_ANY_ARGUMENTS = option_names("echo expr false true")
"""They have no options, or print what is none."""

_CHECKS: dict[str, _Check] = {
    "command": _command,
    "date": _date,
    "find": _find,
    "git": _git,
    "printf": _printf,
    "sed": _sed,
    "uniq": _uniq,
}
