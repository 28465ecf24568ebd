"""The configuration as a request sees it: file, command line, and what the request overrides."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread

from app_server.config import Config, read_config
from protocol.errors import invalid_params


class Configuration:
    """config.toml below a home directory, read anew for every request that needs it."""

    def __init__(self, home: Path, overrides: Mapping[str, Any], cwd: Path) -> None:
        """Take overrides from the command line; relative paths begin at `cwd`."""
        self._file = home / "config.toml"
        self._overrides = overrides
        self._cwd = cwd

    async def read(self, overrides: Mapping[str, Any] | None = None) -> Config:
        """Read the settings in force, with `overrides` of one request on top.

        Raises:
            ConfigError: the file cannot be read or is not TOML.
        """
        config = await anyio.to_thread.run_sync(read_config, self._file)
        return config.override(self._overrides).override(overrides or {})

    def resolve(self, path: str | None) -> str:
        """Make a path absolute; none means the server's working directory.

        Raises:
            RpcError: no file system has such a path.
        """
        if path is not None and "\0" in path:
            rule = "a path must not hold a NUL character"
            raise invalid_params(f"Invalid params: `cwd`: {rule}", field="cwd", rule=rule)
        return os.path.normpath(self._cwd / (path or "."))
