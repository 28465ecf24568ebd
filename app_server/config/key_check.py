"""Detection of unknown keys of config.toml. No I/O.

Source: docs/config.md, "Unknown keys".
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from app_server.config.known_keys import KNOWN, OF_OTHER_PROGRAMS, WITHOUT_EFFECT
from app_server.config.positions import KeyPath
from app_server.config.values import Config, ConfigError, Document

MAX_NAMED = 20
"""Keys that one text names."""

MAX_LISTED = 24
"""Names that may stand in a table; of more only the nearest are shown."""

NEAREST = 3

MAX_KEY_CHARS = 80

EACH = "*"

Tree: TypeAlias = dict[str, "Tree"]
"""Names of keys; below a name without members nothing is looked at."""


class UnknownKey(NamedTuple):
    """Unknown key of a document."""

    path: KeyPath
    allowed: Sequence[str]
    """Known keys of the table, sorted."""

    @property
    def name(self) -> str:
        """The dotted path, as it is shown."""
        return shown_path(self.path)

    @property
    def nearest(self) -> str | None:
        """The known key of the table that this one may be meant to be, if one is like it."""
        return next(iter(difflib.get_close_matches(self.path[-1], self.allowed, 1)), None)

    @property
    def detail(self) -> str:
        """Return the key, and the keys that were expected."""
        shown: Sequence[str] = self.allowed
        if len(shown) > MAX_LISTED:
            shown = difflib.get_close_matches(self.path[-1], self.allowed, NEAREST)
        names = ", ".join(f"`{name}`" for name in shown)
        if len(shown) == len(self.allowed):
            rule = f", expected one of {names}" if names else ""
        else:
            rule = f", expected one of the {len(self.allowed)} in docs/config.md"
            rule += f"; the nearest: {names}" if names else ""
        return f"unknown configuration field `{self.name}`{rule}"


def unknown_keys(document: Document) -> Iterator[UnknownKey]:
    """Find the keys that are in no list of known_keys.py, in the order of the document."""
    return _unknown(document, KNOWN_TREE, _OURS, ())


def known_part(document: Document) -> Document:
    """Copy the part of a document with keys in a list of known_keys.py."""
    part: Document = _known(document, KNOWN_TREE)
    return part


def keys_without_effect(document: Document) -> Iterator[KeyPath]:
    """Find the keys of Codex that have no effect here."""
    for path in WITHOUT_EFFECT:
        yield from _present(document, tuple(path.split(".")), ())


def shown_path(path: KeyPath) -> str:
    """Return a dotted path, at most MAX_KEY_CHARS of it."""
    name = ".".join(path)
    return name if len(name) <= MAX_KEY_CHARS else f"{name[:MAX_KEY_CHARS]}…"


def ignored_text(unknown: Sequence[str]) -> str:
    """Say that keys are ignored; each is given as a place, or a word, and its `detail`."""
    return _listed(f"Ignoring {_count(unknown, 'unrecognized configuration setting')}:", unknown)


def without_effect_text(names: Sequence[str]) -> str:
    """Describe settings of Codex without effect; each is given as a position and a name."""
    return _listed(f"{_count(names, 'setting')} of Codex without effect in this server:", names)


def _count(lines: Sequence[str], what: str) -> str:
    return f"{len(lines)} {what}{'' if len(lines) == 1 else 's'}"


def _listed(head: str, lines: Sequence[str]) -> str:
    left = len(lines) - MAX_NAMED
    more = [f"... and {left} more"] if left > 0 else []
    return "\n  ".join([head, *lines[:MAX_NAMED], *more])


def unknown_in_file(config: Config) -> list[str]:
    """Describe each unknown key of a file, with its position and the expected keys."""
    return [
        f"{config.position_of_key(unknown.path)}: {unknown.detail}"
        for unknown in unknown_keys(config.document)
    ]


def unknown_in_overrides(overrides: Mapping[str, Any], where: str) -> list[str]:
    """Describe each unknown key of a command line or request, with the expected keys.

    `where` says in words which.
    """
    found = unknown_keys(Config({}).override(overrides).document)
    return [f"{where}: {unknown.detail}" for unknown in found]


def refuse_unknown_keys(config: Config) -> None:
    """Refuse a file, or overrides, in which a key is unknown.

    Raises:
        ConfigError: says which one, where it is, and what is allowed there.
    """
    for unknown in unknown_keys(config.document):
        raise config.key_error(unknown.path, unknown.detail)


def refuse_unknown_overrides(document: Document, where: str) -> None:
    """Refuse values of a command line or a request; `where` says in words which.

    Raises:
        ConfigError: see `refuse_unknown_keys`.
    """
    for unknown in unknown_keys(document):
        raise ConfigError(f"{unknown.detail} in {where}")


def _unknown(value: Any, tree: Tree, ours: Tree, above: KeyPath) -> Iterator[UnknownKey]:
    match value:
        case list():
            for element in value:
                if isinstance(element, dict):
                    yield from _unknown(element, tree, ours, above)
        case dict():
            for key, inner in value.items():
                below = _below(tree, key)
                if below is None:
                    yield UnknownKey((*above, key), sorted(ours))
                elif below:
                    yield from _unknown(inner, below, _below(ours, key) or {}, (*above, key))


def _known(value: Any, tree: Tree) -> Any:
    if not tree:
        return value
    match value:
        case list():
            return [_known(element, tree) for element in value]
        case dict():
            found = {key: (inner, _below(tree, key)) for key, inner in value.items()}
            return {
                key: _known(inner, below)
                for key, (inner, below) in found.items()
                if below is not None
            }
    return value


def _below(tree: Tree, key: str) -> Tree | None:
    return tree.get(key, tree.get(EACH))


def _present(value: Any, path: KeyPath, above: KeyPath) -> Iterator[KeyPath]:
    if not path:
        yield above
    elif isinstance(value, dict):
        names = list(value) if path[0] == EACH else [path[0]]
        for name in names:
            if name in value:
                yield from _present(value[name], path[1:], (*above, name))


def _tree(paths: Iterable[str]) -> Tree:
    tree: Tree = {}
    for path in paths:
        inner = tree
        for name in path.split("."):
            inner = inner.setdefault(name, {})
    return tree


_OURS = _tree(KNOWN)
KNOWN_TREE = _tree([*KNOWN, *WITHOUT_EFFECT, *OF_OTHER_PROGRAMS])

FIRST_KEYS: Sequence[str] = sorted(KNOWN_TREE)
"""The known keys that stand in no table, and the names of the tables."""
