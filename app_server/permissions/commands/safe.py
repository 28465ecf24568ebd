"""Commands that are known to read only, with options that are known to be harmless. No I/O.

What is not in this table is not known to be harmful, but does not run unasked either where a policy
asks for all but reads.
Source: docs/tools.md, "Approvals and rules"; the manuals of the programs.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import TypeAlias

from app_server.permissions.shell.options import option_names, sort_out
from app_server.permissions.shell.readers import LINES
from app_server.permissions.shell.script import Command, Script, Word

_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin"})

_Check: TypeAlias = Callable[[Sequence[str]], bool]


def not_reading(script: Script, *, is_elsewhere: bool = False) -> list[Command]:
    """Return the commands of a script that are not known to read only.

    `is_elsewhere` says that they run in a folder which does not belong to the thread.
    """
    programs = {program_name(command.words[0]) for command in script.commands}
    # The configuration of another repository may name programs to run.
    harmful = {"git"} if is_elsewhere or "cd" in programs else set()
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
    name = program_name(command.words[0])
    arguments = command.words[1:]
    if name in _ANY_ARGUMENTS:
        return True
    check = _CHECKED.get(name or "")
    # A pattern may become an option.
    if check is None or any(word.is_pattern and word.may_be_option for word in arguments):
        return False
    return check([word.text for word in arguments])


def _without(*harmful: str) -> _Check:
    """Forbid options, also as shortened names, and letters among others."""
    letters = {option[1] for option in harmful if not option.startswith("--")}
    names = [option for option in harmful if option.startswith("--")]

    def check(arguments: Sequence[str]) -> bool:
        for word in arguments:
            if word == "--":
                break
            if word.startswith("--"):
                given = word.partition("=")[0]
                if any(name.startswith(given) for name in names):
                    return False
            elif word.startswith("-") and letters.intersection(word[1:]):
                return False
        return True

    return check


def _find(arguments: Sequence[str]) -> bool:
    harmful = ("-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from")
    return not any(word.startswith(harmful) for word in arguments)


def _uniq(arguments: Sequence[str]) -> bool:
    valued = option_names("-f -s -w --skip-fields --skip-chars --check-chars")
    return len(sort_out(arguments, valued).operands) <= 1


def _sed(arguments: Sequence[str]) -> bool:
    match arguments:
        case ["-n", "-e", lines, *files] | ["-n", lines, *files] if LINES.fullmatch(lines):
            return not any(file.startswith("-") and file != "--" for file in files)
    return False


def _date(arguments: Sequence[str]) -> bool:
    options = ("-u", "--utc", "--universal", "-R", "--rfc-email", "-I", "--iso-8601")
    return all(word.startswith("+") or word in options for word in arguments)


def _command(arguments: Sequence[str]) -> bool:
    return len(arguments) == 2 and arguments[0] in ("-v", "-V")


_GIT_READS = option_names(
    "status log diff show shortlog rev-parse rev-list ls-files ls-tree blame describe merge-base "
    "name-rev grep cherry diff-tree for-each-ref count-objects whatchanged"
)
_git_options = _without(
    "--output", "--ext-diff", "--textconv", "--open-files-in-pager", "--exec", "--ext-grep"
)
_BRANCH_LISTS = re.compile(
    r"-[avrl]+|--(all|list|remotes|verbose|show-current|no-color|merged|no-merged|column|no-column)"
)


def _git(arguments: Sequence[str]) -> bool:
    match arguments:
        case ["--no-pager", *rest]:
            return _git(rest)
        case ["--version"]:
            return True
        case ["branch", *rest]:
            return all(map(_BRANCH_LISTS.fullmatch, rest))
        case ["remote", *rest]:
            return rest in ([], ["-v"], ["--verbose"])
        case ["stash", "list"] | ["tag"] | ["tag", "-l" | "--list"] | ["worktree", "list"]:
            return True
        case ["grep", *rest] if any(word.startswith("-O") for word in rest):
            return False
        case [name, *rest] if name in _GIT_READS:
            return _git_options(rest)
    return False


_ANY_ARGUMENTS = option_names(
    "cat cd echo false head id pwd tail true wc basename cmp cksum comm cut df dirname du expr "
    "free md5sum nl od paste ps readlink realpath rev seq sha1sum sha256sum sha512sum stat tac "
    "tr tty type uname uptime which whoami ls grep egrep fgrep"
)
"""Whatever their arguments are, they write to their output alone."""

_CHECKED: dict[str, _Check] = {
    "base64": _without("-o", "--output"),
    "column": _without(),
    "command": _command,
    "date": _date,
    "diff": _without("-l", "--paginate"),
    "fd": _without("-x", "-X", "--exec", "--exec-batch"),
    "file": _without("-C", "--compile", "-z", "-Z", "--uncompress"),
    "find": _find,
    "git": _git,
    "hexdump": _without(),
    "jq": _without(),
    "printf": _without("-v"),
    "rg": _without("--pre", "--hostname-bin", "--search-zip", "-z"),
    "sed": _sed,
    "sort": _without("-o", "--output", "--compress-program", "-T", "--temporary-directory"),
    "tree": _without("-o", "-R"),
    "uniq": _uniq,
}
