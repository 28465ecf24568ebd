"""Files that cannot be used: each is refused with a sentence, which has no secret."""

from pathlib import Path

import pytest

from app_server.config.config_toml import MAX_DEPTH, parse_override, read_config
from app_server.config.values import ConfigError
from app_server.handlers.server.config_check import check_settings


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a = " + "[" * 10_000, "more than 80 tables and arrays are in each other"),
        (
            f"a = {'[' * MAX_DEPTH}{']' * MAX_DEPTH}",
            "more than 80 tables and arrays are in each other",
        ),
        ("a." * 2_000 + "b = 1", "more than 80 tables and arrays are in each other"),
        ("a = " + "1" * 5_000, "a number has too many digits"),
    ],
    ids=["arrays", "one too many", "tables", "digits"],
)
def test_what_is_too_deep_or_too_long_names_the_file(tmp_path: Path, text: str, rule: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    assert str(caught.value) == f"{file}: {rule}"


def test_what_is_as_deep_as_allowed_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"a = {'[' * (MAX_DEPTH - 1)}{']' * (MAX_DEPTH - 1)}")
    assert list(read_config(file).document) == ["a"]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("mcp_servers.s.env.PIN = 271828", "integer, expected a string"),
        ("mcp_servers.s.args = '--pin=271828'", "string, expected a sequence"),
        ("mcp_servers.s.args = ['--pin', 271828]", "integer, expected a string"),
        ("mcp_servers.s.env_vars = [271828]", "integer, expected a string or a map"),
        ("mcp_servers.s.env = 271828", "integer, expected a map"),
        (
            "model_providers.p.experimental_bearer_token = 2.71828",
            "floating point, expected a string",
        ),
        ("model_providers = '271828'", "string, expected a map"),
        ("shell_environment_policy.set.PIN = 271828", "integer, expected a string"),
        ("mcp_servers.s.env.PIN = true", "boolean, expected a string"),
        # Where a boolean or a number belongs nobody puts a secret.
        ("features.plugins = 'yes'", 'string "yes", expected a boolean'),
        ("model = 5", "integer `5`, expected a string"),
    ],
)
def test_what_may_be_a_secret_is_in_no_error(tmp_path: Path, text: str, detail: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text.replace("mcp_servers.s.", "mcp_servers.s.command = 'x'\nmcp_servers.s."))
    with pytest.raises(ConfigError) as refused:
        check_settings(read_config(file))
    assert str(refused.value).split(": ", 1)[1] == f"invalid type: {detail}"


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("[" * 10_000, "more than 80 tables and arrays are in each other"),
        ("1" * 5_000, "a number has too many digits"),
    ],
    ids=["arrays", "digits"],
)
def test_an_override_that_cannot_be_taken_names_its_key(value: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_override(f"model = {value}")
    assert str(caught.value) == f"cannot read --config model: {rule}"
