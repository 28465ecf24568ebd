"""A script together with the scripts that it has other shells run.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Iterator
from dataclasses import replace

from app_server.permissions.commands.wrappers import inline_script, layers
from app_server.permissions.shell.parse import ScriptReader
from app_server.permissions.shell.script import Script

MAX_NESTED = 32
"""Scripts within one script; with more, it counts as too long to be looked at."""


async def read_command(reader: ScriptReader, text: str) -> Script:
    """Take a script apart, and whatever it gives to `bash -c`, `eval` and the like.

    Raises:
        LoadFailed: the grammar cannot be loaded now.
    """
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
