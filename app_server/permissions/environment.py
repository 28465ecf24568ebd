"""Which variables a command gets: pure, the variables of this process come from outside.

Source: docs/tools.md, "Commands"; docs/config.md, "shell_environment_policy".
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import Literal, TypeAlias, cast

from app_server.config.values import Config

Inherit: TypeAlias = Literal["all", "core", "none"]
INHERIT: Sequence[Inherit] = ("all", "core", "none")

CORE = frozenset(
    (
        *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP"),
        *("TMPDIR", "USER", "USERNAME"),
    )
)
"""Names of the variables that `core` inherits."""

SECRETIVE = ("*KEY*", "*SECRET*", "*TOKEN*")
"""Names of variables that are left out unless `ignore_default_excludes` asks for them."""

CREDENTIALS = frozenset(
    (
        *("APP_SERVER_EXEC_TOKEN", "APP_SERVER_STORE", "APP_SERVER_TOKEN", "CODEX_ACCESS_TOKEN"),
        *("CODEX_API_KEY", "OPENAI_API_KEY", "PRISM_API_KEY"),
    )
)
"""Variables that programs of this package read their own credentials from."""

PLAIN_OUTPUT: Mapping[str, str] = {
    "NO_COLOR": "1",
    "COLORTERM": "",
    "TERM": "xterm",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "LC_CTYPE": "C.UTF-8",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "CODEX_CI": "1",
}
"""Variables for plain output: no colors, UTF-8, no pager that waits for a key; and the one that
keeps `git status` from writing to the index.
"""

TERMINAL = "xterm"
"""The kind of terminal, where this process has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPolicy:
    """`[shell_environment_policy]` of config.toml. Patterns have `*` and `?`, in any case."""

    inherit: Inherit = "all"
    ignore_default_excludes: bool = False
    exclude: tuple[str, ...] = ()
    set: Mapping[str, str] = field(default_factory=dict, repr=False)
    include_only: tuple[str, ...] = ()
    """Empty: all that is there."""


def command_environment(
    policy: EnvironmentPolicy,
    parent: Mapping[str, str],
    credentials: Collection[str],
    given: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of a command, made of that of this process.

    `given` are variables that every command gets; what the policy sets wins over them. Names in
    `credentials` and `CREDENTIALS` are never there, whatever the policy says.
    """
    inherited = dict(_inherited(policy, parent))
    result = {"TERM": TERMINAL, **inherited, **given, **policy.set}
    if policy.include_only:
        wanted = (*policy.include_only, "TERM", *given)
        shown = _pattern(wanted)
        result = {name: value for name, value in result.items() if shown.match(name.upper())}
    kept_back = CREDENTIALS | set(credentials)
    return {name: value for name, value in result.items() if name not in kept_back}


def _inherited(policy: EnvironmentPolicy, parent: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    excluded = policy.exclude
    if not policy.ignore_default_excludes:
        excluded = (*SECRETIVE, *excluded)
    left_out = _pattern(excluded)
    for name, value in parent.items():
        is_inherited = policy.inherit == "all" or (policy.inherit == "core" and name in CORE)
        if is_inherited and not left_out.match(name.upper()):
            yield name, value


@lru_cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Match names in capitals that have one of the patterns; no pattern matches none."""
    return re.compile("|".join(translate(each.upper()) for each in patterns) or r"(?!)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """Settings of a thread's commands, from config.toml."""

    environment: EnvironmentPolicy = field(default_factory=EnvironmentPolicy)
    allow_login_shell: bool = True
    """Without it no shell reads a profile."""


def read_command_settings(config: Config) -> CommandSettings:
    """Read the settings of commands.

    Raises:
        ConfigError: a value has the wrong type, or `inherit` is another word.
    """
    view = config.view().at("shell_environment_policy")
    policy = EnvironmentPolicy(
        inherit=cast(Inherit, view.choice("inherit", INHERIT) or "all"),
        ignore_default_excludes=view.boolean("ignore_default_excludes", False),
        exclude=tuple(view.strings("exclude") or ()),
        set=view.string_map("set") or {},
        include_only=tuple(view.strings("include_only") or ()),
    )
    return CommandSettings(
        environment=policy,
        allow_login_shell=config.view().boolean("allow_login_shell", True),
    )
