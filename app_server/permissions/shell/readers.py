"""Reads, listings and searches of single commands, by the programs that are known. No I/O.

Source: docs/tools.md, "Approvals and rules"; the manuals of the programs.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from app_server.permissions.shell.options import option_names, sort_out


@dataclass(frozen=True, slots=True)
class Reading:
    """Read, listing or search that a command does."""

    kind: Literal["read", "listFiles", "search"]
    path: str | None = None
    """As it was given; always there for a file that is read."""
    query: str | None = None


Words: TypeAlias = Sequence[str]
_Reader: TypeAlias = Callable[[Words], Reading | None]

LINES = re.compile(r"\d+(,\d+)?p")
"""A script of sed that prints lines and does nothing else."""

_COUNT = re.compile(r"\+?\d+")

_GREP = option_names(
    "-e --regexp -f --file -m --max-count -A --after-context -B --before-context -C --context "
    "-d --directories -D --devices --include --exclude --exclude-from --exclude-dir --label "
    "--binary-files --color --colour"
)
_RG = option_names(
    "-e --regexp -f --file -g --glob --iglob -t --type -T --type-not --type-add --type-clear "
    "-m --max-count -A --after-context -B --before-context -C --context -d --max-depth -j "
    "--threads --sort --sortr -r --replace -M --max-columns -E --encoding --engine --color "
    "--colors --context-separator --field-match-separator --field-context-separator "
    "--dfa-size-limit --regex-size-limit --ignore-file --max-filesize --path-separator --pre "
    "--pre-glob --hostname-bin --hyperlink-format"
)
_AG = option_names(
    "-G --file-search-regex -A --after -B --before -C --context -m --max-count --ignore "
    "--ignore-dir --depth -p --path-to-ignore --pager --workers --type -t -T"
)
_FD = option_names(
    "-e --extension -E --exclude -t --type -d --max-depth --min-depth --exact-depth -S --size "
    "-c --color -j --threads --search-path --base-directory --changed-within --changed-before "
    "-o --owner --format --max-results --path-separator --ignore-file --and"
)
_LS = option_names(
    "-I --ignore -w --width -T --tabsize --block-size --format --time-style --color --hide "
    "--quoting-style --indicator-style --sort --time"
)
_EXA = option_names("-I --ignore-glob --color --colour --sort -s --time-style --time -t --level -L")
_TREE = option_names("-L -P -I --charset --filelimit --sort --timefmt --gitfile")
_DU = option_names("-d --max-depth -B --block-size --exclude --time-style -t --threshold")
_BAT = option_names(
    "--theme --language -l --style --terminal-width --tabs --line-range -r --map-syntax -m "
    "--highlight-line -H --file-name --color --decorations --paging --pager --wrap"
)
_LESS = option_names(
    "-p --pattern -P --prompt -x --tabs -y -z --window -j --jump-target -b -h -k -t -T"
)
_NL = option_names(
    "-s -w -v -i -b -d -f -h -l -n --number-separator --number-width --starting-line-number "
    "--line-increment --body-numbering --number-format"
)
_AWK = option_names("-F -v -f --field-separator --assign --file")
_GIT_LS_FILES = option_names("-x --exclude -X --exclude-from --exclude-per-directory")
_FIND_TESTS = ("-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex")
_FIND_ACTS = option_names(
    "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from"
)


def _read(path: str | None) -> Reading | None:
    return None if path is None else Reading("read", path)


def _one_file(valued: frozenset[str]) -> _Reader:
    def reader(words: Words) -> Reading | None:
        files = [operand for operand in sort_out(words, valued).operands if operand != "-"]
        return Reading("read", files[0]) if len(files) == 1 else None

    return reader


def _first_file(valued: frozenset[str]) -> _Reader:
    def reader(words: Words) -> Reading | None:
        files = sort_out(words, valued).operands
        return Reading("read", files[0]) if files and files[0] != "-" else None

    return reader


def _end_of_file(words: Words) -> Reading | None:
    """Read `head` and `tail`: a file, or a number of lines and a file."""
    match words:
        case [file] if not file.startswith(("-", "+")):
            return Reading("read", file)
        case ["-n", count, *rest] if _COUNT.fullmatch(count):
            pass
        case [count, *rest] if _COUNT.fullmatch(count.removeprefix("-n")) and count[:2] == "-n":
            pass
        case _:
            return None
    return _read(next((word for word in rest if not word.startswith("-")), None))


def _sed(words: Words) -> Reading | None:
    match words:
        case ["-n", "-e", lines, *files] | ["-n", lines, *files] if LINES.fullmatch(lines):
            files = files[1:] if files[:1] == ["--"] else files
            return _read(next((file for file in files if not file.startswith("-")), None))
    return None


def _awk(words: Words) -> Reading | None:
    given = sort_out(words, _AWK)
    if given.has("-f", "--file"):
        return Reading("read", given.operands[0]) if given.operands else None
    script, *files = given.operands or ("",)
    # It may write files, and run commands.
    if any(mark in script for mark in ("system", "getline", ">", "|")):
        return None
    return Reading("read", files[0]) if files else None


def _list(valued: frozenset[str]) -> _Reader:
    def reader(words: Words) -> Reading | None:
        operands = sort_out(words, valued).operands
        return Reading("listFiles", operands[0] if operands else None)

    return reader


def _search(valued: frozenset[str], harmful: tuple[str, ...] = ()) -> _Reader:
    def reader(words: Words) -> Reading | None:
        given = sort_out(words, valued)
        if given.has(*harmful):
            return None
        query = given.value_of("-e", "--regexp") if valued & {"-e"} else None
        paths = given.operands
        if query is None and given.value_of("-f", "--file") is not None and "-f" in valued:
            query = given.value_of("-f", "--file")
        elif query is None:
            query, paths = (paths[0] if paths else None), paths[1:]
        return Reading("search", paths[0] if paths else None, query)

    return reader


_grep_reader = _search(_GREP)
_rg_reader = _search(_RG, ("--pre", "--hostname-bin"))


def _rg(words: Words) -> Reading | None:
    given = sort_out(words, _RG)
    if given.has("--files") and not given.has("--pre", "--hostname-bin"):
        return Reading("listFiles", given.operands[0] if given.operands else None)
    return _rg_reader(words)


def _fd(words: Words) -> Reading | None:
    given = sort_out(words, _FD)
    if given.has("-x", "--exec", "-X", "--exec-batch"):
        return None
    if not given.operands:
        return Reading("listFiles")
    return Reading(
        "search", given.operands[1] if len(given.operands) > 1 else None, given.operands[0]
    )


def _find(words: Words) -> Reading | None:
    if _FIND_ACTS.intersection(words):
        return None
    rest = list(words)
    while rest and (rest[0] in ("-H", "-L", "-P") or rest[0].startswith(("-O", "-D"))):
        rest.pop(0)
    path = rest[0] if rest and not rest[0].startswith(("-", "(", "!")) else None
    for name, value in pairwise(rest):
        if name in _FIND_TESTS:
            return Reading("search", path, value)
    return Reading("listFiles", path)


def _git(words: Words) -> Reading | None:
    match words:
        case ["grep", *rest]:
            if any(word.startswith(("-O", "--open-files-in-pager", "--ext-grep")) for word in rest):
                return None
            return _grep_reader([word for word in rest if word != "--"])
        case ["ls-files", *rest]:
            return _list(_GIT_LS_FILES)(rest)
    return None


READERS: dict[str, _Reader] = {
    "cat": _one_file(frozenset()),
    "bat": _one_file(_BAT),
    "batcat": _one_file(_BAT),
    "less": _one_file(_LESS),
    "more": _one_file(frozenset()),
    "head": _end_of_file,
    "tail": _end_of_file,
    "nl": _first_file(_NL),
    "sed": _sed,
    "awk": _awk,
    "ls": _list(_LS),
    "eza": _list(_EXA),
    "exa": _list(_EXA),
    "tree": _list(_TREE),
    "du": _list(_DU),
    "find": _find,
    "fd": _fd,
    "rg": _rg,
    "rga": _rg,
    "ripgrep-all": _rg,
    "grep": _grep_reader,
    "egrep": _grep_reader,
    "fgrep": _grep_reader,
    "ag": _search(_AG, ("--pager",)),
    "ack": _search(_AG, ("--pager",)),
    "pt": _search(_AG, ("--pager",)),
    "git": _git,
}
"""By the name of the program; paths of programs are not looked up."""


def reading_of(words: Words) -> Reading | None:
    """Return the paths that a command reads; None if it does anything else, or is unknown."""
    reader = READERS.get(words[0])
    return None if reader is None else reader(words[1:])
