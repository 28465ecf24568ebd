"""cli: `app-server config check` and `app-server config schema`."""

import io
import json
import sys
import tomllib
from pathlib import Path

import pytest

from app_server.cli.config import main
from app_server.config.config_toml import MAX_FILE_BYTES
from app_server.config.json_schema import config_schema
from app_server.config.key_check import unknown_keys

WRONG = """\
modle = "x"
model_verbosity = "loud"

[mcp_servers.files]
comand = "a"
command = "b"

[sandbox_workspace_write]
network_access = "yes"
"""


def findings(file: str) -> str:
    first, server = unknown_keys(tomllib.loads(WRONG))
    return f"""\
{file}:1:1: unknown configuration field `modle`, expected one of the {len(first.allowed)} in \
docs/config.md; the \
nearest: `model`
  write `model`, or remove it: nothing reads this key
{file}:5:1: unknown configuration field `mcp_servers.files.comand`, expected one of the \
{len(server.allowed)} in docs/config.md; the nearest: `command`
  write `command`, or remove it: nothing reads this key
{file}:9:18: invalid type: string "yes", expected a boolean
  correct the value; until then requests that need it are refused
{file}:2:19: unknown variant `loud`, expected one of `low`, `medium`, `high`
  correct the value; until then requests that need it are refused
"""


def test_each_wrong_key_is_named_with_place_rule_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(WRONG)
    assert main(["check", str(file)]) == 1
    assert capsys.readouterr().out == findings(str(file))


def test_standard_input_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for content, status, out in (
        (WRONG.encode(), 1, findings("<stdin>")),
        (b'model = "m"\npersonality = "x"\n', 0, None),
        (b"model =\n", 1, "<stdin>:1:8: Invalid value\n  correct the file; nothing can be read of "
         "it before\n"),
        (b"#" * (MAX_FILE_BYTES + 1), 1, f"<stdin>: larger than {MAX_FILE_BYTES} bytes\n"
         "  correct the file; nothing can be read of it before\n"),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main(["check", "-"]) == status
        expected = out or "personality has an effect in Codex, and none here\n<stdin> can be used\n"
        assert capsys.readouterr().out == expected


def test_the_file_of_the_home_and_its_profile_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["check", "--home", str(tmp_path)]
    assert main(home) == 0
    assert capsys.readouterr().out == f"{tmp_path}/config.toml is not there: all has its default\n"
    (tmp_path / "config.toml").write_text('model_provider = "mine"\n')
    assert main(home) == 1
    assert capsys.readouterr().out == (
        f"{tmp_path}/config.toml:1:18: there is no provider `mine`; there are offline, openai\n"
        "  add a table [model_providers.mine], or choose another provider\n"
    )
    (tmp_path / "work.config.toml").write_text('[model_providers.mine]\nbase_url = "http://h/"\n')
    assert main([*home, "--profile", "work"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/config.toml can be used\n"
    assert main([*home, "--profile", "other"]) == 1
    assert "there is no profile `other`" in capsys.readouterr().out


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "none.toml")]) == 1
    assert f"{tmp_path}/none.toml: No such file or directory\n" in capsys.readouterr().out


def test_a_file_and_a_profile_exclude_each_other() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["check", "x.toml", "--profile", "work"])
    assert caught.value.code == 2


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == config_schema()
    assert printed == (Path(__file__).parents[2] / "schema/config.schema.json").read_text()
