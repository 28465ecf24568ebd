"""Profiles: a second file of the user's, `NAME.config.toml`, over config.toml.

Source: docs/config.md, "Profiles".
"""

import re
from pathlib import Path

from app_server.config.values import Config, ConfigError, read_config

MAX_NAME_CHARS = 64

_NAME = re.compile(r"[A-Za-z0-9_-]+")


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
    """Read the file of a profile that somebody named. Blocks: call it in a worker.

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
