"""A script together with the scripts that it has other shells run.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from app_server.permissions.commands.wrappers import inline_script, layers
from app_server.permissions.shell.parse import ScriptReader
from app_server.permissions.shell.script import Command, Pipeline, Script, Word
from app_server.runtime.loader import LoadFailed

SCRIPT_SHELLS = frozenset({"bash", "dash", "ksh", "sh", "zsh"})
"""Shells whose scripts the grammar understands."""

_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})

MAX_NESTED = 32
"""Scripts within one script; with more, it counts as too long to be looked at."""


def run_by(script: Script, shell: str, *, is_users: bool) -> Script:
    """Return a script as what a shell makes of it, whose absolute path is given.

    It stays understood if the grammar is that shell's, and it is the user's own or the system's:
    what else has the name of a shell may do anything with the words.
    """
    path = PurePosixPath(shell)
    if path.name in SCRIPT_SHELLS and (is_users or str(path.parent) in _SYSTEM_FOLDERS):
        return script
    command = Command((Word(shell), Word("-c"), Word(script.text, is_literal=False)), script.text)
    mentioned = (Pipeline((command,)), *script.mentioned)
    return replace(script, pipelines=None, mentioned=mentioned)


async def read_command(reader: ScriptReader, text: str) -> Script:
    """Take a script apart, and whatever it gives to `bash -c`, `eval` and the like.

    If the grammar cannot be loaded now, it is like a script that is too long to be looked at.
    """
    try:
        return await _read_with_nested(reader, text)
    except LoadFailed:
        return Script(text, None, is_read=False)


async def _read_with_nested(reader: ScriptReader, text: str) -> Script:
    whole = await reader.read(text)
    found: list[Script] = []
    waiting = list(_inline_scripts(whole))
    while waiting:
        if len(found) == MAX_NESTED:
            return replace(whole, pipelines=None, nested=tuple(found), is_read=False)
        inner = await reader.read(waiting.pop())
        found.append(inner)
        waiting += _inline_scripts(inner)
    return replace(whole, nested=tuple(found)) if found else whole


def _inline_scripts(script: Script) -> Iterator[str]:
    texts = {command.texts for pipeline in script.mentioned for command in pipeline.commands}
    for words in sorted(texts):
        for layer in layers(words):
            if inner := inline_script(layer):
                yield inner
