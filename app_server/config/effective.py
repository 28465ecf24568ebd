"""The configuration as a request sees it: files, command line, and what the request overrides."""

import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio.to_thread

from app_server.config.config_toml import (
    profile_file,
    read_config,
    read_profile,
    refuse_older_selector,
    with_profile,
)
from app_server.config.default_provider import chooses_no_provider, with_openai
from app_server.config.masking import refuse_marks
from app_server.config.requirements import (
    SYSTEM_REQUIREMENTS,
    Requirements,
    read_requirements,
    requirements_of,
)
from app_server.config.unchanged import Stamp, is_settled, stamp_of
from app_server.config.values import Config, ConfigError
from app_server.runtime.loader import load, load_from_worker


@dataclass(frozen=True, slots=True)
class ConfigSources:
    """Sources of the settings of a server."""

    home: Path
    """Folder of config.toml and the profiles."""
    cwd: Path
    """Base of relative paths."""
    requirements: Path = SYSTEM_REQUIREMENTS
    """The file of the administrator."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Values of the command line, over those of the files."""
    profile: str | None = None
    """The profile that the server is started with, over config.toml."""


class Configuration:
    """config.toml and requirements.toml, as they are when a request needs them.

    Each request looks at both files, which takes two stats on the event loop; those that have not
    changed are not read again.
    """

    def __init__(
        self,
        sources: ConfigSources,
        is_signed_in: Callable[[], Awaitable[bool]] | None = None,
        *,
        is_strict: bool = False,
        ahead_ns: int = 0,
    ) -> None:
        """Read nothing yet.

        `is_signed_in` says whether there is an account for OpenAI's models; `is_strict` makes an
        error of each unknown key; `ahead_ns` is how far the clock is ahead of that of the files.

        Raises:
            ConfigError: the profile has a name that no profile can have.
        """
        self._sources = sources
        self.file = (sources.home / "config.toml").absolute()
        """Path of config.toml, whether it exists or not."""
        self.profile = profile = sources.profile
        """The name of the profile that the server was started with."""
        self.profile_file = (
            None if profile is None else profile_file(sources.home, profile).absolute()
        )
        """Path of the profile, whether it exists or not."""
        self._is_strict = is_strict
        self._is_signed_in = is_signed_in
        self._ahead_ns = ahead_ns
        self._stamps: Sequence[Stamp | None] | None = None
        """Of the files that `_files` was read from; None: they have to be read again."""
        self._files = Config({})
        self._made_of: Config | None = None
        """Source of `_started_with`: the files, with the command line on top."""
        self._started_with = self._files
        self._features: dict[str, bool] = {}
        """Features that clients switched, until the server ends."""
        self._seen: Config | str = self._files
        """Result of the last read of the files: settings, or the error."""
        self.changes = 0
        """Count of detected changes of the files."""
        self._on_change: list[Callable[[], None]] = []

    @property
    def files(self) -> Sequence[Path]:
        """Paths of all files that are read, whether they exist or not."""
        files = (self.file, self._sources.requirements, self.profile_file)
        return [file for file in files if file is not None]

    def on_change(self, react: Callable[[], None]) -> None:
        """Call `react` whenever a request finds that the files have changed, also for the worse."""
        self._on_change.append(react)

    async def read(self, overrides: Mapping[str, Any] | None = None) -> Config:
        """Read the settings in force, with `overrides` of one request on top.

        Raises:
            ConfigError: a file cannot be read or is not TOML, a demand makes no sense, a profile is
                chosen in the older way, an override has the mark of a secret, or a key is unknown
                and that is an error.
        """
        if overrides:
            refuse_marks(Config({}).override(overrides).document)
        if self._is_strict and overrides:
            refuse = (await load(_unknown_keys)).refuse_unknown_overrides
            refuse(Config({}).override(overrides).document, "the `config` of the request")
        files = await self._read()
        if self._made_of is not files:
            # What was read stays as it is: putting values on top makes a copy.
            self._made_of, self._started_with = files, files.override(self._sources.overrides)
        config = self._started_with
        if overrides:
            config = config.override(overrides)
        refuse_older_selector(config)
        config = config.with_defaults("features", self._features)
        if self._is_signed_in is not None and chooses_no_provider(config):
            return with_openai(config) if await self._is_signed_in() else config
        return config

    async def read_profile(self, name: str) -> Config:
        """Read the settings of a profile alone.

        Raises:
            ConfigError: there is none of this name, or its file cannot be used.
        """
        file = profile_file(self._sources.home, name)
        profile = await anyio.to_thread.run_sync(read_profile, file, name)
        if self._is_strict:
            (await load(_unknown_keys)).refuse_unknown_keys(profile)
        return profile

    def switch_features(self, enabled: Mapping[str, bool]) -> None:
        """Switch features on or off where no file, command line or request says otherwise."""
        self._features.update(enabled)

    async def _read(self) -> Config:
        stamps = [stamp_of(file) for file in self.files]
        if self._stamps is None or stamps != self._stamps:
            self._stamps = None
            now_ns = time.time_ns() + self._ahead_ns
            # Those that change while they are read have other stamps by the next look.
            try:
                self._files = await anyio.to_thread.run_sync(self._read_files)
            except ConfigError as exc:
                self._look_was(str(exc))
                raise
            self._look_was(self._files)
            settled = all(is_settled(stamp, now_ns) for stamp in stamps)
            self._stamps = stamps if settled else None
        return self._files

    def _look_was(self, seen: Config | str) -> None:
        if seen != self._seen:
            self._seen = seen
            self.changes += 1
            for react in self._on_change:
                react()

    def _read_files(self) -> Config:
        demanded = read_requirements(self._sources.requirements)
        config = read_config(self.file)
        if self.profile is not None and self.profile_file is not None:
            config = with_profile(config, self.profile, self.profile_file)
        if self._is_strict:
            keys = load_from_worker(_unknown_keys)
            for source in config.sources:
                keys.refuse_unknown_keys(source)
            on_top = Config({}).override(self._sources.overrides).document
            keys.refuse_unknown_overrides(on_top, "-c/--config")
        return replace(config, requirements=demanded, is_strict=self._is_strict)

    async def requirements(self) -> Requirements:
        """Read what an administrator demands, and nothing else.

        Raises:
            ConfigError: it cannot be read, or makes no sense.
        """
        demanded = await anyio.to_thread.run_sync(read_requirements, self._sources.requirements)
        return requirements_of(Config({}, requirements=demanded))

    def resolve(self, path: str | None) -> str:
        """Make a path absolute; none means the server's working directory.

        Raises:
            RpcError: no file system has such a path.
        """
        if path is not None and "\0" in path:
            # Whoever serves a request has it; a start does without types of the wire.
            from protocol.jsonrpc.errors import invalid_params

            rule = "a path must not hold a NUL character"
            raise invalid_params(f"Invalid params: `cwd`: {rule}", field="cwd", rule=rule)
        return os.path.normpath(self._sources.cwd / (path or "."))


def _unknown_keys() -> ModuleType:
    # Only who asks for it needs the lists of keys.

    from app_server.config import key_check

    return key_check


async def lets_others_in(sources: ConfigSources) -> bool:
    """Return whether other users of this machine may connect: not unless the settings say so."""
    try:
        view = (await Configuration(sources).read()).view()
        return not view.boolean("refuse_other_users", default=True)
    except ConfigError:
        # The check of the configuration says so.
        return False
