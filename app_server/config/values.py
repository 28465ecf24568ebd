"""Values of config.toml: overrides, and errors that name key and position.

Knows: layers (file, command line, request), key paths, types.
Does not know: what any key means; each package reads its own table through a ConfigView.
Source: docs/config.md.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from app_server.config.positions import KeyPath, Position, locate, locate_key

Document: TypeAlias = dict[str, Any]
Default = TypeVar("Default", bound=bool | None)

NO_SECRETS = ("a boolean", "u64", "f64")
"""Types whose values are no secrets: an error may repeat them."""


class ConfigError(Exception):
    """Unusable setting; the text is for clients."""

    def __init__(self, text: str, position: Position | None = None, path: KeyPath = ()) -> None:
        """Say where it stands in a file, as the text does, and which setting it is about.

        `path` is empty for what is about no single one.
        """
        super().__init__(text)
        self.position = position
        self.path = path


@dataclass(frozen=True, slots=True)
class Config:
    """Settings in force: a file, perhaps a profile, and overrides on top."""

    document: Document
    source: Path | None = None
    text: str = ""
    """The file as it was read, for positions."""
    mark: str = ""
    """The byte order mark that the file begins with, if it has one."""
    profile: "Config | None" = field(default=None, repr=False)
    """The user's second file, alone; the document has it over the first one."""
    chosen: "ChosenProfile | None" = field(default=None, repr=False)
    """The profile that a request chose, which is in one of the layers."""
    overridden: frozenset[KeyPath] = field(default=frozenset())
    """Paths that did not come from a file."""
    layers: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """Overrides of the files, in order."""
    projects: tuple["Config", ...] = field(default=(), repr=False)
    """Files of projects between the user's and the layers, in order, each alone."""
    requirements: "Config | None" = field(default=None, repr=False)
    """An administrator's demands, which nothing overrides (app_server/config/requirements.py)."""
    is_strict: bool = False
    """Whether a key that nothing reads is an error (docs/config.md, "Unknown keys")."""

    @property
    def sources(self) -> Sequence["Config"]:
        """The user's files, each alone and as it was read, the first one first; parses it anew."""
        if self.source is None:
            return ()
        first = Config(tomllib.loads(self.text), self.source, self.text)
        return (first,) if self.profile is None else (first, self.profile)

    def view(self) -> "ConfigView":
        """Look at the whole document."""
        return ConfigView(self, self.document, ())

    def override(self, overrides: Mapping[str, Any]) -> "Config":
        """Put values on top; keys may be dotted paths, tables are merged.

        They are a layer even if there are none: a profile may have some later.
        """
        # Threads share the tables that nothing is put over.
        touched = {key.partition(".")[0] for key in overrides}
        document = {
            key: _copy(value) if key in touched else value for key, value in self.document.items()
        }
        overridden = set(self.overridden)
        for key, value in overrides.items():
            path = tuple(key.split("."))
            overridden.add(path)
            merge_at(document, path, value)
        layers = (*self.layers, overrides)
        return replace(self, document=document, overridden=frozenset(overridden), layers=layers)

    def with_profile(self, profile: "Config") -> "Config":
        """Put a second file over the first one, before any other layer."""
        document = _copy(self.document)
        for key, value in profile.document.items():
            _merge(document, key, value)
        return replace(self, document=document, profile=profile)

    def with_defaults(self, table: str, defaults: Mapping[str, Any]) -> "Config":
        """Fill in values of a table that no other layer sets; anything but a table stays."""
        there = self.document.get(table, {})
        if not defaults or not isinstance(there, dict):
            return self
        return replace(self, document={**self.document, table: {**defaults, **there}})

    def with_projects(self, projects: Sequence["Config"]) -> "Config":
        """Put files of projects over the user's, below all layers; the last one wins."""
        if not projects:
            return self
        document = _copy(self.document)
        for project in projects:
            for key, value in project.document.items():
                _merge(document, key, value)
        below = replace(self, document=document, projects=tuple(projects))
        return replace(below, layers=()).with_layers(self.layers)

    def with_layers(self, layers: Sequence[Mapping[str, Any]]) -> "Config":
        """Take over the upper layers of another reading; the files are those of this one."""
        config = self
        for overrides in layers[len(self.layers) :]:
            config = config.override(overrides)
        return config

    def with_layers_of(self, other: "Config") -> "Config":
        """Take over the upper layers of another reading, with the profile of this one.

        Its first layers are those of this one; without a profile here the other's is kept.
        """
        before = other.chosen
        chosen = self.chosen or before
        layers = [
            chosen.layer if before is not None and chosen is not None and layer is before.layer
            else layer
            for layer in other.layers
        ]  # fmt: skip
        return replace(self.with_layers(layers), chosen=chosen)

    def error(self, path: KeyPath, detail: str) -> ConfigError:
        """Make an error that names a path and its position."""
        unplaced = ConfigError(f"{detail}\nin `{'.'.join(path)}`\n", path=path)
        if any(path[: len(o)] == o for o in self.overridden):
            return unplaced
        for project in reversed(self.projects):
            if has(project.document, path):
                return project.error(path, detail)
        if self.source is None:
            return unplaced
        if self.profile is not None and has(self.profile.document, path):
            return self.profile.error(path, detail)
        return error_at(Position(self.source, *locate(self.text, path)), detail, path)

    def key_error(self, path: KeyPath, detail: str) -> ConfigError:
        """Make an error that names a key of the file itself and its position."""
        return error_at(self.position_of_key(path), detail, path)

    def position_of_key(self, path: KeyPath) -> Position:
        """Find a key of the file; its first line where that is unsure."""
        assert self.source is not None
        return Position(self.source, *locate_key(self.text, path))


@dataclass(frozen=True, slots=True)
class ChosenProfile:
    """The profile that a request chose for one thread."""

    file: Path
    name: str
    own: Mapping[str, Any]
    """What the request itself says, which is over the profile."""
    layer: Mapping[str, Any]
    """Both together, a layer of the settings in force."""

    def over(self, profile: Config) -> "ChosenProfile":
        """Put the request's overrides over another reading of the profile."""
        config = Config({}).override(profile.document).override(self.own)
        return replace(self, layer=config.document)


@dataclass(frozen=True, slots=True)
class ConfigView:
    """One table, read key by key; a value of the wrong type is a ConfigError at its path."""

    config: Config
    table: Document
    path: KeyPath

    def __contains__(self, key: str) -> bool:
        return self.table.get(key) is not None

    def string(self, key: str) -> str | None:
        """Read a string; None when absent."""
        value: str | None = self._typed(key, str, "a string")
        return value

    def boolean(self, key: str, default: Default) -> bool | Default:
        """Read a boolean; `default` when absent."""
        value = self._typed(key, bool, "a boolean")
        return default if value is None else value

    def integer(self, key: str) -> int | None:
        """Read an integer of at least 0; None when absent."""
        value: int | None = self._typed(key, int, "u64")
        if value is not None and value < 0:
            raise self.error(f"invalid value: integer `{value}`, expected u64", key)
        return value

    def seconds(self, key: str) -> float | None:
        """Read a duration of at least 0 seconds; None when absent."""
        value: float | None = self._typed(key, (int, float), "f64")
        if value is not None and value < 0:
            raise self.error("cannot convert float seconds to Duration: value is negative", key)
        return None if value is None else float(value)

    def choice(self, key: str, variants: Sequence[str]) -> str | None:
        """Read one of a few words; None when absent."""
        value = self.string(key)
        return None if value is None else self._one_of(key, value, variants)

    def strings(self, key: str) -> list[str] | None:
        """Read a list of strings; None when absent."""
        value: list[str] | None = self._typed(key, list, "a sequence")
        for element in value or ():
            if not isinstance(element, str):
                raise self._wrong_type(key, element, "a string")
        return value

    def choices(self, key: str, variants: Sequence[str]) -> tuple[str, ...]:
        """Read a list of some of a few words; an empty one when absent."""
        return tuple(self._one_of(key, word, variants) for word in self.strings(key) or ())

    def items(self, key: str) -> Iterator["str | ConfigView"]:
        """Read a list of strings and tables."""
        for element in self._typed(key, list, "a sequence") or ():
            if isinstance(element, dict):
                yield ConfigView(self.config, element, (*self.path, key))
            elif isinstance(element, str):
                yield element
            else:
                raise self._wrong_type(key, element, "a string or a map")

    def string_map(self, key: str) -> dict[str, str] | None:
        """Read a table of strings; None when absent."""
        if key not in self:
            return None
        inner = self.at(key)
        return {name: inner.string(name) or "" for name in inner.table}

    def at(self, key: str) -> "ConfigView":
        """Look at a table below this one; an absent one is empty."""
        value = self._typed(key, dict, "a map")
        return ConfigView(self.config, value or {}, (*self.path, key))

    def tables(self) -> Iterator[tuple[str, "ConfigView"]]:
        """Look at every table below this one, by name."""
        for name in self.table:
            yield name, self.at(name)

    def error(self, detail: str, key: str | None = None) -> ConfigError:
        """Make an error that names this table, or one key of it."""
        return self.config.error(self.path if key is None else (*self.path, key), detail)

    def unknown_variant(self, key: str, word: str, variants: Sequence[str]) -> ConfigError:
        """Return the error text for a word that is not an allowed variant."""
        names = [f"`{variant}`" for variant in variants]
        known = " or ".join(names) if len(names) < 3 else f"one of {', '.join(names)}"
        return self.error(f"unknown variant `{word}`, expected {known}", key)

    def _one_of(self, key: str, word: str, variants: Sequence[str]) -> str:
        if word not in variants:
            raise self.unknown_variant(key, word, variants)
        return word

    def _typed(self, key: str, kind: type | tuple[type, ...], expected: str) -> Any:
        value = self.table.get(key)
        if value is None:
            return None
        # To Python a boolean is an integer, too.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong_type(key, value, expected)
        return value

    def _wrong_type(self, key: str, value: object, expected: str) -> ConfigError:
        # What stands where headers, variables or arguments belong may be a secret.
        may_be_secret = expected == "a map" or (self.path and expected not in NO_SECRETS)
        found = _kind(value) if may_be_secret else _describe(value)
        return self.error(f"invalid type: {found}, expected {expected}", key)


_KINDS = {
    bool: "boolean",
    int: "integer",
    float: "floating point",
    str: "string",
    list: "sequence",
    dict: "map",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _describe(value: object) -> str:
    match value:
        case int() | float():
            return f"{_kind(value)} `{str(value).lower()}`"
        case str():
            return f'{_kind(value)} "{value}"'
    return _kind(value)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return value


def has(document: Any, path: Sequence[str]) -> bool:
    """Whether a document has a value at a path."""
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return False
        document = document[key]
    return True


def merge_at(document: Document, path: KeyPath, value: Any) -> None:
    """Put a value at a path of a document; a table is merged with one that is there."""
    for key in path[:-1]:
        inner = document.get(key)
        if not isinstance(inner, dict):
            inner = document[key] = {}
        document = inner
    _merge(document, path[-1], value)


def _merge(document: Document, key: str, value: Any) -> None:
    if isinstance(value, dict) and isinstance(document.get(key), dict):
        for inner_key, inner in value.items():
            _merge(document[key], inner_key, inner)
    else:
        document[key] = _copy(value)


def error_at(position: Position, detail: str, path: KeyPath = ()) -> ConfigError:
    """Make an error that names a position of a file."""
    return ConfigError(f"{position}: {detail}", position, path)


class NotRecorded(Exception):
    """Something that should last could not be written down; the text says why."""
