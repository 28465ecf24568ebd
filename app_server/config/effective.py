"""Effective configuration of a request: files, command line, and its own overrides.

With it the model provider of threads that name none.
Source: docs/config.md, "Models".
"""

import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from app_server.config.config_toml import (
    MAX_FILE_BYTES,
    profile_file,
    read_config,
    read_profile,
    refuse_older_selector,
    with_profile,
)
from app_server.config.masking import refuse_marks
from app_server.config.requirements import (
    SYSTEM_REQUIREMENTS,
    Requirements,
    read_requirements,
    requirements_of,
)
from app_server.config.store_url import (
    LEASE_S,
    StoreUrl,
    may_name_a_store,
    read_lease_seconds,
    read_store,
)
from app_server.config.unchanged import QUIET_S, Stamp, is_settled, stamp_of
from app_server.config.values import ChosenProfile, Config, ConfigError, ConfigView
from app_server.runtime.loader import load, load_from_worker

if TYPE_CHECKING:
    from app_server.config.node import GroupSettings


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
        check: Callable[[Config], None] | None = None,
    ) -> None:
        """Prepare; the files are read with the first request.

        `is_signed_in` says whether there is an account for OpenAI's models; `is_strict` makes an
        error of each unknown key; `ahead_ns` is how far the clock is ahead of that of the files;
        `check` raises a ConfigError for files that `read` is to have the ones before instead of.

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
        self._check = check
        self._stamps: Sequence[Stamp | None] | None = None
        """Of the files that `_files` was read from; None: they have to be read again."""
        self._files = Config({})
        self._checked: tuple[Config, bool] | None = None
        """`_files`, once they replaced others, and whether they can be used."""
        self._good: Config | None = None
        """The last files that could be used, once they were replaced."""
        self._made_of: Config | None = None
        """Source of `_started_with`: the files, with the command line on top."""
        self._started_with = self._files
        self._features: dict[str, bool] = {}
        """Features that clients switched, until the server ends."""
        self._seen: Config | str = self._files
        """Result of the last read of the files: settings, or the error."""
        self._seen_ns = 0
        """Time of the newest change in it."""
        self._is_whole = False
        """Whether it was read once the files had been left alone."""
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

    @property
    def has_good_files(self) -> bool:
        """Whether `read` has files to give in the place of broken ones."""
        return self._good is not None

    async def read(self, overrides: Mapping[str, Any] | None = None) -> Config:
        """Read the settings in force, with `overrides` of one request on top.

        Where the user's files broke while the server runs, the last ones that could be used stand
        in for them; nothing stands in for an administrator's demands.

        Raises:
            ConfigError: see `read_as_is`, where nothing stands in; or an override has the mark of a
                secret, or is unknown and that is an error.
        """
        return await self._in_force(await self._read_usable(), overrides)

    async def read_as_is(self) -> Config:
        """Read the settings of the files as they are now, with the command line on top.

        Raises:
            ConfigError: a file cannot be read or is not TOML, a demand makes no sense, a profile is
                chosen in the older way, or a key is unknown and that is an error.
        """
        return await self._in_force(await self._read(), None)

    async def _in_force(self, files: Config, overrides: Mapping[str, Any] | None) -> Config:
        if overrides:
            refuse_marks(Config({}).override(overrides).document)
        if self._is_strict and overrides:
            refuse = (await load(_unknown_keys)).refuse_unknown_overrides
            refuse(Config({}).override(overrides).document, "the `config` of the request")
        if self._made_of is not files:
            # What was read stays as it is: putting values on top makes a copy.
            started_with = files.override(self._sources.overrides)
            refuse_older_selector(started_with)
            self._made_of, self._started_with = files, started_with
        config = self._started_with
        if overrides is not None:
            config = config.override(overrides)
            refuse_older_selector(config)
        if self._features:
            config = config.with_defaults("features", self._features)
        if self._is_signed_in is not None and chooses_no_provider(config):
            return with_openai(config) if await self._is_signed_in() else config
        return config

    async def read_profile(self, name: str, own: Mapping[str, Any]) -> ChosenProfile:
        """Read a profile, with the overrides of the request on top.

        Raises:
            ConfigError: there is none of this name, or its file cannot be used.
        """
        chosen = ChosenProfile(profile_file(self._sources.home, name), name, own, own)
        return await anyio.to_thread.run_sync(self.read_again, chosen)

    def read_again(self, chosen: ChosenProfile) -> ChosenProfile:
        """Read a profile as it is now. Blocks: call it in a worker.

        Raises:
            ConfigError: it is not there, or its file cannot be used.
        """
        profile = read_profile(chosen.file, chosen.name)
        if self._is_strict:
            load_from_worker(_unknown_keys).refuse_unknown_keys(profile)
        return chosen.over(profile)

    def switch_features(self, enabled: Mapping[str, bool]) -> None:
        """Switch features on or off where no file, command line or request says otherwise."""
        self._features.update(enabled)

    async def _read_usable(self) -> Config:
        demanded: Config | None
        try:
            files = await self._read()
        except ConfigError:
            if self._good is None:
                raise
            demanded = await anyio.to_thread.run_sync(read_requirements, self._sources.requirements)
        else:
            if self._good is None:
                return files
            if self._checked is None or self._checked[0] is not files:
                self._checked = files, await self._can_be_used(files)
            if self._checked[1]:
                return files
            demanded = files.requirements
        good = self._good
        if good.requirements != demanded:
            good = self._good = replace(good, requirements=demanded)
        return good

    async def _can_be_used(self, files: Config) -> bool:
        if self._check is None:
            return True
        in_force = files.override(self._sources.overrides)
        try:
            await anyio.to_thread.run_sync(self._check, in_force)
        except ConfigError:
            return False
        return True

    async def _read(self) -> Config:
        stamps = [stamp_of(file) for file in self.files]
        if self._stamps is None or stamps != self._stamps:
            self._stamps = None
            now_ns = time.time_ns() + self._ahead_ns
            # Those that change while they are read have other stamps by the next look.
            try:
                files = await anyio.to_thread.run_sync(self._read_files)
            except ConfigError as exc:
                await self._record_read(str(exc), stamps, now_ns)
                raise
            await self._record_read(files, stamps, now_ns)
            if files != self._files:
                self._files = files
            settled = all(is_settled(stamp, now_ns) for stamp in stamps)
            self._stamps = stamps if settled else None
        return self._files

    async def _record_read(
        self, seen: Config | str, stamps: Sequence[Stamp | None], now_ns: int
    ) -> None:
        """Record a successful read, and the last good one that it replaces.

        Between two writes of an editor the file may be empty, which is no fault: what did not stand
        for QUIET_S does not count.
        """
        before, whole = self._seen, all(is_settled(stamp, now_ns, QUIET_S) for stamp in stamps)
        if seen == before:
            self._is_whole |= whole
            return
        changed_ns = max(stamp.changed_ns if stamp else 0 for stamp in stamps)
        if changed_ns <= self._seen_ns:
            changed_ns = now_ns
        stood = self._is_whole or changed_ns - self._seen_ns > QUIET_S * 1e9
        if isinstance(before, Config) and before.source is not None and stood:
            # Only what was replaced is tried: most files are never edited.
            is_good = await self._can_be_used(before)
            self._good = before if is_good else self._good
        if seen != self._seen:
            self._seen, self._seen_ns, self._is_whole = seen, changed_ns, whole
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
        """Read the requirements of the administrator alone.

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


@dataclass(frozen=True, slots=True)
class StartSettings:
    """Settings that a server needs before it listens."""

    lets_others_in: bool
    """Whether other users of this machine may connect: not unless the settings say so."""
    store: StoreUrl | None
    """The database that threads are kept in; None: files."""
    node: "GroupSettings | None" = None
    """How other servers of the database reach this one; None: they do not, or there is none."""
    lease_s: int = LEASE_S
    """Seconds that a server's lease in that database lasts."""


async def read_start_settings(
    sources: ConfigSources, store: StoreUrl | None = None
) -> StartSettings:
    """Read the settings of a start; `store` overrides that of the files.

    Raises:
        ConfigError: where threads are kept makes no sense, or cannot be known as a file that may
            say it cannot be read; with a database, also what is said of this node.
    """
    try:
        view = (await Configuration(sources).read()).view()
    except ConfigError:
        # The check of the configuration says so.
        if store is None and await anyio.to_thread.run_sync(_may_name_a_store, sources):
            raise
        return StartSettings(lets_others_in=False, store=store)
    try:
        others = not view.boolean("refuse_other_users", default=True)
    except ConfigError:
        others = False
    chosen = read_store(view) if store is None else store
    lease_s = read_lease_seconds(view)
    node = None if chosen is None else (await load(_read_node))(view, sources.home)
    return StartSettings(others, chosen, node, lease_s)


def _read_node() -> "Callable[[ConfigView, Path], GroupSettings | None]":
    # With files nothing reads these settings.
    from app_server.config.node import read_node

    return read_node


def _may_name_a_store(sources: ConfigSources) -> bool:
    names = (
        ["config.toml"]
        if sources.profile is None
        else ["config.toml", f"{sources.profile}.config.toml"]
    )
    for name in names:
        with suppress(OSError), (sources.home / name).open("rb") as file:
            if may_name_a_store(file.read(MAX_FILE_BYTES)):
                return True
    return False


async def lets_others_in(sources: ConfigSources) -> bool:
    """Return whether other users of this machine may connect: not unless the settings say so."""
    try:
        return (await read_start_settings(sources)).lets_others_in
    except ConfigError:
        return False


OPENAI = "openai"
OFFLINE = "offline"

OPENAI_KEY = "OPENAI_API_KEY"


def default_provider_id(config: Config) -> str:
    """Choose the provider of threads that name none.

    That is `model_provider`, else OpenAI if there is a key for it, else the offline stand-in; who
    reads the configuration of a server with an account finds `model_provider` set.
    """
    chosen = config.view().string("model_provider")
    return chosen or (OPENAI if os.environ.get(OPENAI_KEY) else OFFLINE)


def chooses_no_provider(config: Config) -> bool:
    """Whether only a sign-in could make OpenAI the default."""
    return config.document.get("model_provider") is None and not os.environ.get(OPENAI_KEY)


def with_openai(config: Config) -> Config:
    """Make OpenAI the default of a configuration that chooses none."""
    return replace(config, document={**config.document, "model_provider": OPENAI})
