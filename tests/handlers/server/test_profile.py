"""Profiles: `NAME.config.toml` over config.toml, read, shown, written, and named in errors."""

from pathlib import Path
from typing import Any

import pytest

from app_server.config.effective import ConfigSources, Configuration
from app_server.config.values import ConfigError
from tests.support.harness import claim, serve
from tests.support.processes import run_cli

BASE = 'model_verbosity = "low"\n'


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    file = tmp_path / "work.config.toml"
    file.write_text('# mine\nmodel = "of-work"\n[features]\nplugins = false\n')
    return file


def edit(key: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"keyPath": key, "value": value, "mergeStrategy": "replace", **more}


def source(layer: dict[str, Any]) -> tuple[str, str | None]:
    return Path(layer["name"]["file"]).name, layer["name"]["profile"]


@claim("config:profile")
async def test_a_profile_lies_over_the_file_and_below_the_command_line(
    tmp_path: Path, profile: Path
) -> None:
    flags = {"model_reasoning_effort": "high"}
    async with (
        serve(tmp_path, config=BASE, overrides=flags, profile="work") as served,
        served.client() as client,
    ):
        read = await client.call("config/read", {"includeLayers": True})
        shown = ("model", "model_verbosity", "model_reasoning_effort")
        assert [read["config"][key] for key in shown] == ["of-work", "low", "high"]
        flag_layer, *of_user = read["layers"]
        assert flag_layer["name"] == {"type": "sessionFlags"}
        assert [source(layer) for layer in of_user] == [
            ("work.config.toml", "work"),
            ("config.toml", None),
        ]
        origins = {key: read["origins"][key]["name"] for key in ("model", "model_verbosity")}
        assert origins == {
            "model": {"type": "user", "file": str(profile), "profile": "work"},
            "model_verbosity": {
                "type": "user",
                "file": str(tmp_path / "config.toml"),
                "profile": None,
            },
        }
        started = await client.call("thread/start", {})
        assert started["model"] == "of-work"
        # Both files are looked at for each request.
        profile.write_text('model = "edited"\n')
        assert (await client.call("thread/start", {}))["model"] == "edited"


async def test_a_profile_without_a_file_changes_nothing(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=BASE, profile="none-yet") as served,
        served.client() as client,
    ):
        assert (await client.call("thread/start", {}))["model"] == "scripted"


@claim("config:profile-written")
async def test_clients_write_to_the_profile_unless_they_name_the_file(
    tmp_path: Path, profile: Path
) -> None:
    async with (
        serve(tmp_path, config=BASE, profile="work") as served,
        served.client() as client,
    ):
        base = tmp_path / "config.toml"
        before = base.read_text()
        written = await client.call("config/value/write", edit("model_verbosity", "high"))
        assert (written["status"], written["filePath"]) == ("ok", str(profile))
        text = (
            '# mine\nmodel = "of-work"\nmodel_verbosity = "high"\n\n[features]\nplugins = false\n'
        )
        assert (profile.read_text(), base.read_text()) == (text, before)
        named = edit("model", "other", filePath=str(base))
        written = await client.call("config/value/write", named)
        assert base.read_text() == before.replace('"scripted"', '"other"', 1)
        assert written["filePath"] == str(base)
        assert written["overriddenMetadata"] | {"overridingLayer": None} == {
            "message": "Overridden by profile",
            "overridingLayer": None,
            "effectiveValue": "of-work",
        }
        over = written["overriddenMetadata"]["overridingLayer"]
        assert source(over) == ("work.config.toml", "work")
        # Each file has a version of its own.
        read = await client.call("config/read", {"includeLayers": True})
        versions = [layer["version"] for layer in read["layers"]]
        stale = edit("model", "x", expectedVersion=versions[1])
        refused = await client.refusal("config/value/write", stale)
        assert refused.data["config_write_error_code"] == "configVersionConflict"
        fresh = edit("model", "x", expectedVersion=versions[0])
        assert (await client.call("config/value/write", fresh))["status"] == "ok"
        refused = await client.refusal("config/value/write", edit("model_verbosity", "loud"))
        assert refused.data["config_write_error_code"] == "configValidationError"


@pytest.mark.parametrize(
    ("base", "text", "problem"),
    [
        ("", "model_verbosity = 5\n", "work.config.toml:1:19: invalid type: integer `5`"),
        ("", "model =\n", "work.config.toml:1:8: Invalid value"),
        (
            "",
            'profile = "x"\n',
            'work.config.toml:1:11: legacy `profile = "x"` config is no longer supported; use '
            "`--profile x` with `x.config.toml` instead",
        ),
        (
            "[profiles.work]\n",
            "",
            "config.toml:1:1: profile `work` cannot be used while config.toml has "
            "`[profiles.work]`; move those settings into HOME/work.config.toml and remove the "
            "table",
        ),
    ],
)
async def test_what_is_wrong_with_a_profile_is_named_in_its_file(
    tmp_path: Path, base: str, text: str, problem: str
) -> None:
    (tmp_path / "config.toml").write_text(base)
    (tmp_path / "work.config.toml").write_text(text)
    home = tmp_path
    configuration = Configuration(
        ConfigSources(home, home, home / "requirements.toml", profile="work")
    )
    with pytest.raises(ConfigError) as refused:
        (await configuration.read()).view().choice("model_verbosity", ("low",))
    found = str(refused.value).partition(", expected")[0].removeprefix(f"{home}/")
    assert found.replace(str(home), "HOME") == problem


@claim("config:profile-older")
async def test_the_older_way_to_choose_a_profile_is_refused(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config="[profiles.x]\n") as served,
        served.client() as client,
    ):
        # The table alone is inert, as in Codex.
        await client.call("thread/start", {})
        refused = await client.refusal("thread/start", {"config": {"profile": "x"}})
        assert (refused.code, refused.message) == (
            -32600,
            'failed to load configuration: legacy `profile = "x"` config is no longer supported; '
            "use `--profile x` with `x.config.toml` instead\nin `profile`\n",
        )


@pytest.mark.process
@pytest.mark.parametrize("command", [[], ["mcp", "list"]])
def test_a_name_that_is_none_ends_the_command(tmp_path: Path, command: list[str]) -> None:
    result = run_cli(*command, "--profile", "../x", "--home", str(tmp_path))
    assert "invalid profile '../x': a name has at most 64 letters, digits" in result.stderr
    assert result.returncode == 2


@pytest.mark.process
def test_a_profile_that_is_not_there_changes_nothing_and_the_log_says_so(tmp_path: Path) -> None:
    result = run_cli("--profile", "absent", "--home", str(tmp_path))
    said, listening = result.stderr.splitlines()
    assert said.endswith(
        f"the profile changes nothing: there is no {tmp_path / 'absent.config.toml'}"
    )
    assert (result.returncode, listening) == (0, "listening on: stdio://")


@pytest.mark.process
def test_servers_of_a_profile_are_listed(tmp_path: Path) -> None:
    (tmp_path / "work.config.toml").write_text('[mcp_servers.of-work]\ncommand = "x"\n')
    result = run_cli("mcp", "list", "--profile", "work", "--home", str(tmp_path), "--json")
    assert '"of-work"' in result.stdout


# The profile of one thread.


@claim("config:profile-of-thread")
async def test_a_thread_can_have_a_profile_of_its_own(tmp_path: Path, profile: Path) -> None:
    profile.write_text('[mcp_servers.of-work]\ncommand = "/no/such/program"\n' + BASE)
    async with serve(tmp_path) as served, served.client() as client:
        params = {"profile": "work", "config": {"model": "mine"}}
        started = await client.call("thread/start", params)
        assert started["model"] == "mine"
        thread = {"threadId": started["thread"]["id"]}
        servers = await client.call("mcpServerStatus/list", thread)
        assert [server["name"] for server in servers["data"]] == ["of-work"]
        # What is read again later keeps it.
        await client.call("config/mcpServer/reload", {})
        servers = await client.call("mcpServerStatus/list", thread)
        assert [server["name"] for server in servers["data"]] == ["of-work"]
        assert (await client.call("mcpServerStatus/list", {}))["data"] == []
        await client.turn(thread["threadId"], "hi")
        profile.write_text('model = "forked"\n')
        forked = await client.call("thread/fork", {**thread, "profile": "work"})
        assert forked["model"] == started["model"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("nope", "", "there is no profile `nope`: HOME/nope.config.toml is not there"),
        ("a/b", "", "invalid profile 'a/b': a name has at most 64 letters, digits, hyphens and "),
        ("work", "model =\n", "HOME/work.config.toml:1:8: Invalid value"),
    ],
)
async def test_a_profile_of_a_thread_that_cannot_be_used_is_refused(
    tmp_path: Path, profile: Path, name: str, text: str, problem: str
) -> None:
    profile.write_text(text)
    async with serve(tmp_path) as served, served.client() as client:
        refused = await client.refusal("thread/start", {"profile": name})
        assert refused.data["code"] == "configInvalid"
        found = refused.message.replace(str(tmp_path), "HOME")
        assert found.startswith(f"failed to load configuration: {problem}")
