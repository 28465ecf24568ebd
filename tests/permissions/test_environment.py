"""permissions: which variables a command gets."""

from collections.abc import Mapping
from typing import Any

import pytest

from app_server.config.values import Config, ConfigError
from app_server.permissions.environment import (
    CommandSettings,
    EnvironmentPolicy,
    command_environment,
    read_command_settings,
)

PARENT = {
    "PATH": "/bin",
    "HOME": "/home/u",
    "EDITOR": "vi",
    "GITHUB_TOKEN": "t",
    "my_secret": "s",
    "AWS_ACCESS_KEY_ID": "k",
    "OPENAI_API_KEY": "o",
    "CODEX_API_KEY": "c",
    "PROVIDER": "p",
}
GIVEN = {"CODEX_CI": "1"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, {"PATH", "HOME", "EDITOR"}),
        ({"inherit": "core"}, {"PATH", "HOME"}),
        ({"inherit": "none"}, set()),
        (
            {"ignore_default_excludes": True},
            {"PATH", "HOME", "EDITOR", "GITHUB_TOKEN", "my_secret", "AWS_ACCESS_KEY_ID"},
        ),
        (
            {"ignore_default_excludes": True, "exclude": ("aws_*", "E?ITOR")},
            {"PATH", "HOME", "GITHUB_TOKEN", "my_secret"},
        ),
        ({"exclude": ("*",)}, set()),
        (
            {"set": {"GITHUB_TOKEN": "x", "MORE": "y"}},
            {"PATH", "HOME", "EDITOR", "GITHUB_TOKEN", "MORE"},
        ),
        ({"include_only": ("P*",)}, {"PATH"}),
        ({"set": {"A": "1"}, "include_only": ("path", "A")}, {"PATH", "A"}),
        ({"include_only": ("GITHUB_TOKEN",)}, set()),
        (
            {"set": {"OPENAI_API_KEY": "mine", "PROVIDER": "mine"}, "inherit": "none"},
            set(),
        ),
        (
            {"ignore_default_excludes": True, "include_only": ("OPENAI_*", "PROVIDER")},
            set(),
        ),
    ],
)
def test_the_policy_says_which_variables_there_are(
    policy: Mapping[str, Any], expected: set[str]
) -> None:
    result = command_environment(EnvironmentPolicy(**policy), PARENT, ("PROVIDER",), GIVEN)
    assert set(result) - {"TERM", "CODEX_CI"} == expected
    assert (result["TERM"], result["CODEX_CI"]) == ("xterm", "1")


def test_what_the_policy_sets_wins_over_what_is_given_and_that_over_what_is_inherited() -> None:
    policy = EnvironmentPolicy(set={"A": "policy"})
    parent = {"A": "parent", "B": "parent", "C": "parent", "TERM": "vt100"}
    result = command_environment(policy, parent, (), {"A": "given", "B": "given"})
    assert result == {"A": "policy", "B": "given", "C": "parent", "TERM": "vt100"}


def test_the_settings_are_read() -> None:
    table = {
        "inherit": "core",
        "ignore_default_excludes": True,
        "exclude": ["A*"],
        "set": {"X": "1"},
        "include_only": ["P*"],
    }
    config = Config({"shell_environment_policy": table, "allow_login_shell": False})
    policy = EnvironmentPolicy(
        inherit="core",
        ignore_default_excludes=True,
        exclude=("A*",),
        set={"X": "1"},
        include_only=("P*",),
    )
    assert read_command_settings(config) == CommandSettings(
        environment=policy, allow_login_shell=False
    )
    assert read_command_settings(Config({})) == CommandSettings()


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"shell_environment_policy": {"inherit": "some"}}, "unknown variant `some`"),
        ({"shell_environment_policy": {"exclude": "A"}}, "expected a sequence"),
        ({"shell_environment_policy": {"set": {"A": 1}}}, "expected a string"),
        ({"allow_login_shell": "no"}, "expected a boolean"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(document: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        read_command_settings(Config(document))
