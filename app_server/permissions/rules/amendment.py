"""Which rule a user may be offered, so that commands like this one are not asked about. No I/O.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Sequence

from app_server.permissions.commands.dangerous import danger_of_words
from app_server.permissions.commands.wrappers import RUNS_INLINE_CODE, base_name, is_wrapper
from app_server.permissions.shell.options import option_names
from app_server.permissions.shell.script import Command

MAX_WORDS = 64
MAX_RULE_BYTES = 4_096
"""Of UTF-8, all words together."""

_WITH_SUBCOMMANDS = option_names(
    "git hg svn docker podman kubectl helm npm npx pnpm pnpx yarn bunx uv uvx pip pip3 pipx poetry "
    "cargo go gh glab aws gcloud az terraform systemctl apt apt-get brew ssh"
)
"""Alone, their name says nothing of what they do."""

_TAKES_CODE = option_names("eval exec source . awk gawk mawk")
"""Their first argument is code, or whatever else may be run."""


def proposed(asking: Sequence[Command], wanted: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the words of a rule; None if none should be offered.

    `asking` are the commands of a script that would be asked about, and `wanted` is what the model
    would like. There is none for several commands, for one that is dangerous, or for one that runs
    whatever its arguments say.
    """
    if len(asking) != 1 or any(word.is_pattern for word in asking[0].words):
        return None
    words = asking[0].texts
    for candidate in (tuple(wanted or ()), words):
        if candidate and words[: len(candidate)] == candidate and _is_narrow(candidate):
            return candidate
    return None


def is_writable(words: Sequence[str]) -> bool:
    """Whether a rule of these words may be written at all."""
    try:
        size = len("".join(words).encode())
    except UnicodeEncodeError:
        return False
    return 0 < len(words) <= MAX_WORDS and all(words) and size <= MAX_RULE_BYTES


def _is_narrow(words: Sequence[str]) -> bool:
    if not is_writable(words) or is_wrapper(words) or danger_of_words(words) is not None:
        return False
    name = base_name(words[0])
    if name in _WITH_SUBCOMMANDS and (len(words) == 1 or words[1].startswith("-")):
        return False
    if name in _TAKES_CODE:
        return False
    return name not in RUNS_INLINE_CODE or _names_its_code(words[1:])


def _names_its_code(arguments: Sequence[str]) -> bool:
    """Whether the first argument of an interpreter is a file, or `-m` before a module."""
    match arguments:
        case ["-m", module, *_]:
            return bool(module)
        case [file, *_]:
            return not file.startswith("-") and not any(char.isspace() for char in file)
    return False
