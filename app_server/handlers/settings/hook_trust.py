"""What is written when a hook of a plugin is trusted: both parts of its hash, as Codex keeps them.

Source: docs/hooks.md, "Hooks of plugins".
"""

from collections.abc import Iterator, Sequence
from typing import Any

from app_server.config.editing.keys import split_key_path
from protocol.model import Json
from protocol.server.config import ConfigEdit

STATE = ("hooks", "state")
OWN, WHOLE = "trusted_hash", "trusted_content_hash"


def with_parts(edits: Sequence[ConfigEdit]) -> list[ConfigEdit]:
    """Split the hashes of hooks of plugins, `HOOK/PLUGIN`, wherever edits write them.

    Raises:
        BadEdit: a path makes no sense.
    """
    return [part for edit in edits for part in _parts(edit)]


def _parts(edit: ConfigEdit) -> Iterator[ConfigEdit]:
    path = split_key_path(edit.key_path)
    if tuple(path[:2]) != STATE:
        yield edit
    elif tuple(path[3:]) == (OWN,) and isinstance(edit.value, str):
        for name, value in _split({OWN: edit.value}).items():
            # The last part has no dot, whether it stands in quotes or not.
            above = edit.key_path.rpartition(".")[0]
            yield edit.model_copy(update={"key_path": f"{above}.{name}", "value": value})
    else:
        yield edit.model_copy(update={"value": _within(edit.value, 3 - len(path))})


def _within(value: Json, depth: int) -> Json:
    """Split in the tables of hooks that are `depth` levels below a value."""
    if not isinstance(value, dict) or depth < 0:
        return value
    if depth == 0:
        return _split(value)
    return {key: _within(one, depth - 1) for key, one in value.items()}


def _split(state: dict[str, Any]) -> dict[str, Any]:
    trusted = state.get(OWN)
    if not isinstance(trusted, str) or "/" not in trusted:
        return state
    own, _, whole = trusted.partition("/")
    return {**state, OWN: own, WHOLE: whole}
