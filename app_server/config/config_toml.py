"""Settings as people write them: config.toml, profiles over it, and `--config key=value`.

A profile is a second file of the user's, `NAME.config.toml`.
Source: docs/config.md, "Profiles".
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from app_server.config.positions import Position
from app_server.config.values import Config, ConfigError, Document, error_at

MAX_FILE_BYTES = 1024 * 1024
"""Bytes of config.toml; a larger one is refused."""

MAX_DEPTH = 80
"""Tables and arrays in each other; a deeper file is refused."""
TOO_DEEP = f"more than {MAX_DEPTH} tables and arrays are in each other"
TOO_MANY_DIGITS = "a number has too many digits"

MAX_NAME_CHARS = 64
"""Of a profile."""
_NAME = re.compile(r"[A-Za-z0-9_-]+")

BYTE_ORDER_MARK = "\ufeff"
"""Editors on Windows begin a file with it; Codex takes such files, TOML 1.0 says nothing of it."""


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
    return parse_config(content, path)


def parse_config(content: bytes, path: Path) -> Config:
    """Parse the text of a file; `path` is for errors.

    Raises:
        ConfigError: as `read_config`.
    """
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


def profile_file(home: Path, name: str) -> Path:
    """Say where the settings of a profile are, or would be.

    Raises:
        ConfigError: this cannot be the name of a profile.
    """
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        shown = name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…"
        raise ConfigError(
            f"invalid profile {shown!r}: a name has at most {MAX_NAME_CHARS} letters, digits, "
            "hyphens and underscores"
        )
    return home / f"{name}.config.toml"


def with_profile(config: Config, name: str, file: Path) -> Config:
    """Read a profile and put it over the user's file. Blocks: call it in a worker.

    Raises:
        ConfigError: it cannot be read, or config.toml has an older kind of profile of this name.
    """
    older = config.document.get("profiles")
    if isinstance(older, dict) and name in older:
        raise config.error(
            ("profiles", name),
            f"profile `{name}` cannot be used while config.toml has `[profiles.{name}]`; move "
            f"those settings into {file} and remove the table",
        )
    return config.with_profile(read_config(file))


def read_profile(file: Path, name: str) -> Config:
    """Read the file of a profile. Blocks: call it in a worker thread.

    Raises:
        ConfigError: it is not there, or cannot be read.
    """
    if not file.exists():
        raise ConfigError(f"there is no profile `{name}`: {file} is not there")
    return read_config(file)


def refuse_older_selector(config: Config) -> None:
    """Refuse the key `profile`, which Codex no longer takes: it would be ignored without a word.

    Raises:
        ConfigError: the key is there.
    """
    name = config.document.get("profile")
    if name is not None:
        shown = name if isinstance(name, str) else "NAME"
        raise config.error(
            ("profile",),
            f'legacy `profile = "{shown}"` config is no longer supported; use `--profile {shown}` '
            f"with `{shown}.config.toml` instead",
        )


def parse_override(text: str) -> tuple[str, Any]:
    """Parse one `--config key=value`; a value that is no TOML is a string.

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


def _toml_error(path: Path, message: str) -> ConfigError:
    found = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if found is None:
        return ConfigError(f"{path}: {message}")
    position = Position(path, int(found[1]), int(found[2]))
    return error_at(position, message[: found.start()])
