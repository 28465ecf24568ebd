"""The configuration of models: overrides, files, and wrong settings."""

from pathlib import Path
from typing import Any

import pytest

from app_server.config.config_toml import MAX_FILE_BYTES, parse_override, read_config
from app_server.config.values import Config, ConfigError
from app_server.sessions.settings import Overrides, initial_settings
from tests.support.harness import (
    claim,
    serve,
)


def test_overrides_merge_and_keep_the_file_as_it_was() -> None:
    config = Config({"a": {"x": 1, "y": 2}, "b": 1})
    merged = config.override({"a.x": 9, "a": {"z": 3}, "c.d": {"e": 1}, "b": {"f": 1}})
    assert merged.document == {
        "a": {"x": 9, "y": 2, "z": 3},
        "b": {"f": 1},
        "c": {"d": {"e": 1}},
    }
    assert config.document == {"a": {"x": 1, "y": 2}, "b": 1}
    assert Config({"a": 1}).override({"a.b": 2}).document == {"a": {"b": 2}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=5", ("a.b", 5)),
        ('model="x"', ("model", "x")),
        ("model=gpt-5", ("model", "gpt-5")),
        ("x=[1,2]", ("x", [1, 2])),
        ("x=", ("x", "")),
        (" x = a=b ", ("x", "a=b")),
    ],
)
def test_overrides_are_read_from_the_command_line(text: str, expected: Any) -> None:
    assert parse_override(text) == expected


def test_an_override_without_a_key_is_refused() -> None:
    for text in ("novalue", "=5"):
        with pytest.raises(ConfigError, match="use key=value"):
            parse_override(text)


@claim("config:file-position", "config:request-path")
@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("a =\n", {}, "{file}:1:4: Invalid value"),
        ("model = 5\n", {}, "{file}:1:9: invalid type: integer `5`, expected a string"),
        (
            "\n[sandbox_workspace_write]\nnetwork_access = 'x'\n",
            {"sandbox_mode": "workspace-write"},
            '{file}:3:18: invalid type: string "x", expected a boolean',
        ),
        (
            "sandbox_mode = 'x'",
            {},
            "{file}:1:16: unknown variant `x`, expected one of `read-only`, `workspace-write`, "
            "`danger-full-access`",
        ),
        ("", {"model": 5}, "invalid type: integer `5`, expected a string\nin `model`\n"),
        (
            "",
            {"model_providers": {"m": {"wire_api": "grpc"}}},
            "unknown variant `grpc`, expected `responses` or `chat`\n"
            "in `model_providers.m.wire_api`\n",
        ),
        (
            "",
            {"model_providers.m.http_headers": "secret"},
            "invalid type: string, expected a map\nin `model_providers.m.http_headers`\n",
        ),
        (
            "",
            {"model_providers.m.request_max_retries": -1},
            "invalid value: integer `-1`, expected u64\n"
            "in `model_providers.m.request_max_retries`\n",
        ),
        (
            "",
            {"model_providers": [1]},
            "invalid type: sequence, expected a map\nin `model_providers`\n",
        ),
        ("", {"model": {}}, "invalid type: map, expected a string\nin `model`\n"),
        ("", {"model": 1.5}, "invalid type: floating point `1.5`, expected a string\nin `model`\n"),
        ("", {"model": True}, "invalid type: boolean `true`, expected a string\nin `model`\n"),
    ],
)  # fmt: skip
async def test_a_wrong_setting_is_named_with_its_place(
    tmp_path: Path, text: str, overrides: dict[str, Any], message: str
) -> None:
    # The server starts with a file that cannot be used, so none stands in for the next one.
    async with serve(tmp_path, config="mcp_servers = 5\n") as served, served.client() as client:
        (tmp_path / "config.toml").write_text(text)
        error = await client.refusal("thread/start", {"config": overrides})
        expected = message.replace("{file}", str(tmp_path / "config.toml"))
        assert error.code == -32600
        assert error.message == f"failed to load configuration: {expected}"
        assert error.data == {"code": "configInvalid", "detail": expected}


def test_files_that_are_no_configuration_say_so(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert read_config(path).document == {}
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config(path)
    path.write_text(f"a = '{'x' * MAX_FILE_BYTES}'")
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        read_config(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        read_config(path)
    path.rmdir()
    path.write_text("a = [")
    with pytest.raises(ConfigError, match=r"config\.toml"):
        read_config(path)


def test_settings_come_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings = initial_settings(Config({}), "/w", Overrides())
    assert (settings.model_provider, settings.model) == ("offline", "offline")
    assert (settings.approval_policy, settings.sandbox_policy.type) == ("on-request", "readOnly")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    settings = initial_settings(Config({}), "/w", Overrides())
    assert (settings.model_provider, settings.model) == ("openai", "gpt-6.1-sol")
    config = Config(
        {
            "approval_policy": {"granular": {"rules": False}},
            "sandbox_mode": "workspace-write",
            "sandbox_workspace_write": {"writable_roots": ["/a"], "network_access": True},
        }
    )
    settings = initial_settings(config, "/w", Overrides(effort="high"))
    assert settings.model_dump(mode="json", exclude_none=True) == {
        "model": "gpt-6.1-sol",
        "modelProvider": "openai",
        "cwd": "/w",
        "approvalPolicy": {
            "granular": {
                "mcp_elicitations": True,
                "rules": False,
                "sandbox_approval": True,
                "request_permissions": False,
                "skill_approval": False,
            }
        },
        "approvalsReviewer": "user",
        "sandboxPolicy": {
            "type": "workspaceWrite",
            "writableRoots": ["/a"],
            "networkAccess": True,
            "excludeTmpdirEnvVar": False,
            "excludeSlashTmp": False,
        },
        "effort": "high",
        "disabledPluginIds": [],
    }
    config = Config({"approval_policy": "on-failure", "sandbox_mode": "danger-full-access"})
    settings = initial_settings(config, "/w", Overrides())
    assert (settings.approval_policy, settings.sandbox_policy.type) == (
        "on-request",
        "dangerFullAccess",
    )


async def test_a_provider_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        error = await client.refusal("thread/start", {"modelProvider": "nope"})
        assert error.message == "failed to load configuration: Model provider `nope` not found"
