"""Commands inside of wrappers: programs that run others, and shells that get a script. No I/O.

Source: docs/tools.md, "Approvals and rules"; the manuals of the programs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeAlias

from app_server.permissions.shell.options import option_names
from app_server.permissions.shell.parse import ShellGrammar
from app_server.permissions.shell.script import Command, Pipeline, Script, Word
from app_server.runtime.loader import LoadFailed

Words: TypeAlias = tuple[str, ...]

MAX_LAYERS = 8
"""Programs that run programs that run programs; what is inside of more is not looked at."""

SHELLS = option_names("sh bash dash zsh ksh ash fish")

RUNS_INLINE_CODE = option_names(
    "sh bash dash zsh ksh ash fish python python2 python3 pypy pypy3 node deno bun ruby perl php "
    "lua osascript pwsh powershell tclsh R Rscript julia eval source . exec awk gawk mawk"
)
"""Programs that do whatever their arguments or their input say; `python3.11` is `python` here."""

_WRAPPERS: dict[str, frozenset[str]] = {
    "command": frozenset(),
    "builtin": frozenset(),
    "exec": frozenset({"-a"}),
    "nohup": frozenset(),
    "time": option_names("-o -f --output --format"),
    "nice": option_names("-n --adjustment"),
    "ionice": option_names("-c -n -p"),
    "setsid": frozenset(),
    "stdbuf": option_names("-i -o -e"),
    "timeout": option_names("-k -s --kill-after --signal"),
    "env": option_names("-u -C -S --unset --chdir --split-string"),
    "sudo": option_names("-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir"),
    "doas": option_names("-u -C"),
    "xargs": option_names(
        "-I -n -P -L -d -s -a -E --max-args --max-procs --delimiter --replace --arg-file"
    ),
    "watch": option_names("-n --interval"),
    "chroot": frozenset(),
    "unshare": frozenset(),
    "flock": frozenset(),
    "parallel": option_names("-j --jobs"),
}
"""By name, with the options whose value is the next word."""

_OPERANDS = {"timeout": 1, "chroot": 1, "flock": 1}
"""Number of operands between a wrapper's options and the command, by wrapper."""


def base_name(program: str) -> str:
    """Return the name of a program without its folder and its version."""
    return PurePosixPath(program).name.rstrip("0123456789.") or program


def layers(words: Words) -> list[Words]:
    """Return a command, the command that it runs, the one that that one runs, and so on."""
    found = [words]
    while len(found) <= MAX_LAYERS:
        inner = _unwrapped(found[-1])
        if not inner:
            break
        found.append(inner)
    return found


def is_wrapper(words: Sequence[str]) -> bool:
    """Whether a command runs another one that its arguments, or its input, name."""
    name = base_name(words[0])
    return name in _WRAPPERS or (name == "find" and any(map(_runs, words)))


def inline_script(words: Words) -> str | None:
    """Return the script that a command has a shell run; None if it runs none."""
    name = base_name(words[0])
    if name == "eval":
        return " ".join(words[1:])
    if name in ("watch", "parallel", "su") and len(words) > 1:
        return words[-1]
    if name not in SHELLS:
        return None
    for at, word in enumerate(words[1:], start=1):
        if not word.startswith("-"):
            return None
        if not word.startswith("--") and "c" in word:
            return next((text for text in words[at + 1 :] if not text.startswith("-")), None)
    return None


def _runs(word: str) -> bool:
    return word in ("-exec", "-execdir", "-ok", "-okdir")


def _unwrapped(words: Words) -> Words:
    name = base_name(words[0])
    if name == "find":
        at = next((at for at, word in enumerate(words) if _runs(word)), len(words))
        return words[at + 1 :]
    valued = _WRAPPERS.get(name)
    if valued is None:
        return ()
    rest = list(words[1:])
    while rest and (rest[0].startswith("-") or _is_assignment(name, rest[0])):
        option = rest.pop(0)
        if option == "--":
            break
        if option in valued and rest:
            rest.pop(0)
    return tuple(rest[_OPERANDS.get(name, 0) :])


def _is_assignment(name: str, word: str) -> bool:
    return name in ("env", "sudo", "doas") and "=" in word


SCRIPT_SHELLS = frozenset({"bash", "dash", "ksh", "sh", "zsh"})
"""Shells whose scripts the grammar understands."""

_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})

MAX_NESTED = 32
"""Scripts within one script; with more, it counts as too long to be looked at."""


def run_by(script: Script, shell: str, *, is_users: bool) -> Script:
    """Return a script as the shell at an absolute path runs it.

    It stays understood if the grammar is that shell's, and it is the user's own or the system's:
    what else has the name of a shell may do anything with the words.
    """
    path = PurePosixPath(shell)
    if path.name in SCRIPT_SHELLS and (is_users or str(path.parent) in _SYSTEM_FOLDERS):
        return script
    command = Command((Word(shell), Word("-c"), Word(script.text, is_literal=False)), script.text)
    mentioned = (Pipeline((command,)), *script.mentioned)
    return replace(script, pipelines=None, mentioned=mentioned)


async def read_command(grammar: ShellGrammar, text: str) -> Script:
    """Take a script apart, and whatever it gives to `bash -c`, `eval` and the like.

    If the grammar cannot be loaded now, it is like a script that is too long to be looked at.
    """
    try:
        whole = await grammar.read(text)
        found: list[Script] = []
        waiting = list(_inline_scripts(whole))
        while waiting:
            if len(found) == MAX_NESTED:
                return replace(whole, pipelines=None, nested=tuple(found), is_read=False)
            inner = await grammar.read(waiting.pop())
            found.append(inner)
            waiting += _inline_scripts(inner)
    except LoadFailed:
        return Script(text, None, is_read=False)
    return replace(whole, nested=tuple(found)) if found else whole


def _inline_scripts(script: Script) -> Iterator[str]:
    texts = {command.texts for pipeline in script.mentioned for command in pipeline.commands}
    for words in sorted(texts):
        for layer in layers(words):
            if inner := inline_script(layer):
                yield inner
