"""config.toml: reading, overriding, and saying exactly what is wrong with a value.

Knows: layers (file, command line, request), key paths, positions, types.
Does not know: what any key means; each package reads its own table through a ConfigView.
Source: docs/config.md.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Document: TypeAlias = dict[str, Any]
KeyPath: TypeAlias = tuple[str, ...]

MAX_FILE_BYTES = 1024 * 1024
"""Bytes of config.toml; a larger one is refused."""

MAX_DEPTH = 80
"""Tables and arrays in each other; a deeper file is refused."""
TOO_DEEP = f"more than {MAX_DEPTH} tables and arrays are in each other"
TOO_MANY_DIGITS = "a number has too many digits"

NO_SECRETS = ("a boolean", "u64", "f64")
"""Where one of these belongs nobody puts a secret: an error repeats what stands there."""

BYTE_ORDER_MARK = "\ufeff"
"""Editors on Windows begin a file with it; Codex takes such files, TOML 1.0 says nothing of it."""


class ConfigError(Exception):
    """A setting that cannot be used; the text is what clients are shown."""

    def __init__(self, text: str, place: "Place | None" = None, path: KeyPath = ()) -> None:
        """Say where it stands in a file, as the text does, and which setting it is about.

        `path` is empty for what is about no single one.
        """
        super().__init__(text)
        self.place = place
        self.path = path


class Place(NamedTuple):
    """A position in a file; line and column begin at 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


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
    overridden: frozenset[KeyPath] = field(default=frozenset())
    """Paths that did not come from a file of the user's."""
    layers: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """What was put on top of the files, in order."""
    projects: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """What lies between the file and the layers: the settings of projects, in order."""
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
        """Put values on top; keys may be dotted paths, tables are merged."""
        document = _copy(self.document)
        overridden = set(self.overridden)
        for key, value in overrides.items():
            path = tuple(key.split("."))
            overridden.add(path)
            _merge_at(document, path, value)
        layers = (*self.layers, overrides) if overrides else self.layers
        return replace(self, document=document, overridden=frozenset(overridden), layers=layers)

    def with_profile(self, profile: "Config") -> "Config":
        """Put a second file over the first one, which has nothing on top of it yet."""
        document = _copy(self.document)
        for key, value in profile.document.items():
            _merge(document, key, value)
        return replace(self, document=document, profile=profile)

    def with_defaults(self, table: str, defaults: Mapping[str, Any]) -> "Config":
        """Put values into a table where nothing else has put one; what is no table stays."""
        there = self.document.get(table, {})
        if not defaults or not isinstance(there, dict):
            return self
        return replace(self, document={**self.document, table: {**defaults, **there}})

    def with_projects(self, projects: Sequence[Mapping[str, Any]]) -> "Config":
        """Put settings of projects over the file, below all layers; the last one wins."""
        if not projects:
            return self
        document = _copy(self.document)
        paths = set(self.overridden)
        for settings in projects:
            for key, value in settings.items():
                paths.add((key,))
                _merge(document, key, value)
        config = replace(
            self,
            document=document,
            overridden=frozenset(paths),
            layers=(),
            projects=tuple(projects),
        )
        for overrides in self.layers:
            config = config.override(overrides)
        return config

    def with_layers(self, layers: Sequence[Mapping[str, Any]]) -> "Config":
        """Put on top what lay on top of another reading; its first layers are those of this one."""
        config = self
        for overrides in layers[len(self.layers) :]:
            config = config.override(overrides)
        return config

    def error(self, path: KeyPath, detail: str) -> ConfigError:
        """Say what is wrong at a path, and where it stands."""
        if self.source is None or any(path[: len(o)] == o for o in self.overridden):
            return ConfigError(f"{detail}\nin `{'.'.join(path)}`\n", path=path)
        if self.profile is not None and _has(self.profile.document, path):
            return self.profile.error(path, detail)
        return _error_at(Place(self.source, *_locate(self.text, path)), detail, path)

    def key_error(self, path: KeyPath, detail: str) -> ConfigError:
        """Say what is wrong with a key of the file itself, and where it stands."""
        return _error_at(self.place_of_key(path), detail, path)

    def place_of_key(self, path: KeyPath) -> Place:
        """Find a key of the file; its first line where that is unsure."""
        assert self.source is not None
        return Place(self.source, *_locate_key(self.text, path))


def read_config(path: Path) -> Config:
    """Read config.toml; a file that does not exist is an empty one. Blocks: call it in a worker.

    Raises:
        ConfigError: not TOML, not UTF-8, unreadable, or above MAX_FILE_BYTES or MAX_DEPTH.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return Config({}, path)
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from exc
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        text = content.decode()
        mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        text = text.removeprefix(BYTE_ORDER_MARK)
        document = tomllib.loads(text)
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8") from exc
    except RecursionError as exc:
        raise ConfigError(f"{path}: {TOO_DEEP}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise _toml_error(path, str(exc)) from exc
    except ValueError as exc:
        # Python bounds what `int` reads, which the parser leaves to it.
        raise ConfigError(f"{path}: {TOO_MANY_DIGITS}") from exc
    if _is_too_deep(document):
        raise ConfigError(f"{path}: {TOO_DEEP}")
    return Config(document, path, text, mark)


def _is_too_deep(document: Document) -> bool:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def parse_override(text: str) -> tuple[str, Any]:
    """Read one `--config key=value`; what is not TOML is taken as a string.

    Raises:
        ConfigError: there is no key or no `=`, or TOML that cannot be taken.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"cannot read --config {text!r}: use key=value")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
    except RecursionError as exc:
        raise ConfigError(f"cannot read --config {key.strip()}: {TOO_DEEP}") from exc
    except ValueError as exc:
        raise ConfigError(f"cannot read --config {key.strip()}: {TOO_MANY_DIGITS}") from exc


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

    def boolean(self, key: str, default: bool) -> bool:
        """Read a boolean."""
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
        value = self.table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong_type(key, value, "f64")
        if value < 0:
            raise self.error("cannot convert float seconds to Duration: value is negative", key)
        return float(value)

    def choice(self, key: str, variants: Sequence[str]) -> str | None:
        """Read one of a few words; None when absent."""
        value = self.string(key)
        if value is not None and value not in variants:
            raise self.error(f"unknown variant `{value}`, expected {_any_of(variants)}", key)
        return value

    def strings(self, key: str) -> list[str] | None:
        """Read a list of strings; None when absent."""
        value: list[str] | None = self._typed(key, list, "a sequence")
        for element in value or ():
            if not isinstance(element, str):
                raise self._wrong_type(key, element, "a string")
        return value

    def choices(self, key: str, variants: Sequence[str]) -> tuple[str, ...]:
        """Read a list of some of a few words; an empty one when absent."""
        chosen = tuple(self.strings(key) or ())
        for word in chosen:
            if word not in variants:
                raise self.error(f"unknown variant `{word}`, expected {_any_of(variants)}", key)
        return chosen

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
        """Say what is wrong with this table, or with one key of it."""
        return self.config.error(self.path if key is None else (*self.path, key), detail)

    def _typed(self, key: str, kind: type, expected: str) -> Any:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._wrong_type(key, value, expected)
        return value

    def _wrong_type(self, key: str, value: object, expected: str) -> ConfigError:
        # What stands where headers, variables or arguments belong may be a secret.
        may_be_secret = expected == "a map" or (self.path and expected not in NO_SECRETS)
        found = _kind(value) if may_be_secret else _describe(value)
        return self.error(f"invalid type: {found}, expected {expected}", key)


def _any_of(variants: Sequence[str]) -> str:
    names = [f"`{variant}`" for variant in variants]
    return " or ".join(names) if len(names) < 3 else f"one of {', '.join(names)}"


def _kind(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "floating point"
        case str():
            return "string"
        case list():
            return "sequence"
        case dict():
            return "map"
    return type(value).__name__


def _describe(value: object) -> str:
    match value:
        case bool():
            return f"{_kind(value)} `{str(value).lower()}`"
        case int() | float():
            return f"{_kind(value)} `{value}`"
        case str():
            return f'{_kind(value)} "{value}"'
    return _kind(value)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return value


def _has(document: Document, path: KeyPath) -> bool:
    value: Any = document
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def _merge_at(document: Document, path: KeyPath, value: Any) -> None:
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


def _toml_error(path: Path, message: str) -> ConfigError:
    found = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if found is None:
        return ConfigError(f"{path}: {message}")
    place = Place(path, int(found[1]), int(found[2]))
    return _error_at(place, message[: found.start()])


def _error_at(place: Place, detail: str, path: KeyPath = ()) -> ConfigError:
    return ConfigError(f"{place}: {detail}", place, path)


_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"\s*((?:\"[^\"]*\"|'[^']*'|[\w.-]+)(?:\s*\.\s*(?:\"[^\"]*\"|[\w-]+))*)\s*=\s*")


def _locate(text: str, path: KeyPath) -> tuple[int, int]:
    """Find the line and column of a value, or of the table that holds it; (1, 1) when unsure."""
    best = (1, 1)
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _split_key(header[1])
            if table == path:
                best = (number, 1)
        elif (key := _KEY.match(line)) and (*table, *_split_key(key[1])) == path:
            return number, key.end() + 1
    return best


def _locate_key(text: str, path: KeyPath) -> tuple[int, int]:
    """Find the line and column where a key first stands, or what of its path is found."""
    found = ((1, 1), 0)
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            here = table = _split_key(header[1])
        elif key := _KEY.match(line):
            here = (*table, *_split_key(key[1]))
        else:
            continue
        common = _common(here, path)
        if common > found[1]:
            found = (number, len(line) - len(line.lstrip()) + 1), common
    return found[0]


def _common(one: KeyPath, other: KeyPath) -> int:
    """Count the parts with which both paths begin."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _split_key(text: str) -> KeyPath:
    parts = re.findall(r"\"([^\"]*)\"|'([^']*)'|([^.\s]+)", text)
    return tuple(next(filter(None, part), "") for part in parts)
