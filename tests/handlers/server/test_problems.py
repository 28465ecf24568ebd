"""Settings that are wrong: clients are warned, and `--strict-config` ends the start."""

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.config.config_toml import read_config
from app_server.config.effective import ConfigSources, Configuration
from app_server.config.values import ConfigError
from app_server.handlers.server.config_check import REFUSED, WrongValue, wrong_values
from app_server.handlers.server.config_problems import ConfigProblems
from tests.support.harness import WAIT_S, Served, WireError, claim, serve
from tests.support.processes import run_cli, running


async def config_warnings(served: Served, count: int) -> list[dict[str, Any]]:
    """Connect, and return the warnings about the configuration that the client gets."""
    async with served.client() as client:
        return [(await client.wait_for("configWarning"))["params"] for _ in range(count)]


def line_of(file: Path, text: str) -> int:
    return file.read_text().splitlines().index(text) + 1


def at(line: int, column: int) -> dict[str, Any]:
    position = {"line": line, "column": column}
    return {"start": position, "end": position}


@claim("config:unknown-keys")
async def test_a_new_client_is_warned_of_unknown_keys_and_of_those_without_effect(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, config="[features]\nbogus = true\n[agents]\n") as served:
        unknown, useless = await config_warnings(served, 2)
    file = tmp_path / "config.toml"
    bogus, agents = line_of(file, "bogus = true"), line_of(file, "[agents]")
    assert unknown["summary"].startswith(
        "Ignoring 1 unrecognized configuration setting:\n"
        f"  {file}:{bogus}:1: unknown configuration field `features.bogus`, expected one of "
    )
    assert {**unknown, "summary": ""} == {
        "summary": "",
        "details": None,
        "path": str(file),
        "range": at(bogus, 1),
    }
    assert useless == {
        "summary": "1 setting of Codex without effect in this server:\n"
        f"  {file}:{agents}:1: `agents`",
        "details": None,
        "path": str(file),
        "range": at(agents, 1),
    }


@claim("config:unknown-keys")
async def test_a_new_client_is_warned_of_an_unknown_key_of_the_command_line(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, overrides={"features.bogus": 1, "notify": ["x"]}) as served:
        (unknown,) = await config_warnings(served, 1)
    assert {**unknown, "summary": re.sub(r", expected one of .*", "", unknown["summary"])} == {
        "summary": "Ignoring 1 unrecognized configuration setting:\n"
        "  -c/--config: unknown configuration field `features.bogus`",
        "details": None,
    }


async def test_a_new_client_is_warned_of_a_value_that_does_not_fit(tmp_path: Path) -> None:
    async with serve(tmp_path, config='sandbox_mode = "sometimes"\n') as served:
        (wrong,) = await config_warnings(served, 1)
    file = tmp_path / "config.toml"
    line = line_of(file, 'sandbox_mode = "sometimes"')
    assert wrong == {
        "summary": "The setting `sandbox_mode` cannot be used; requests that need it are refused.",
        "details": f"{file}:{line}:16: unknown variant `sometimes`, expected one of `read-only`, "
        "`workspace-write`, `danger-full-access`",
        "path": str(file),
        "range": at(line, 16),
    }


async def test_a_provider_that_is_not_there_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "there is no provider `nowhere`; there are offline, openai, scripted"
    instead = "threads start with a provider of their own alone"
    async with serve(tmp_path, overrides={"model_provider": "nowhere"}) as served:
        (wrong,) = await config_warnings(served, 1)
    summary = f"The setting `model_provider` cannot be used; {instead}."
    assert wrong == {"summary": summary, "details": f"{text}\nin `model_provider`\n"}
    assert [message for message in caplog.messages if "nowhere" in message] == [
        f"{summary} {text}\nin `model_provider`\n"
    ]


@pytest.mark.parametrize("provider", ["nowhere", "offline"])
async def test_a_provider_that_is_not_there_is_the_first_that_is_looked_for(
    tmp_path: Path,
    provider: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = anyio.Event()

    async def only_the_first(parts: Sequence[Callable[[], Awaitable[object]]]) -> None:
        await parts[0]()
        done.set()

    monkeypatch.setattr("app_server.server.core.warm_up", only_the_first)
    overrides = {"model_provider": provider, "no_such_key": "1"}
    async with serve(tmp_path, overrides=overrides):
        with anyio.fail_after(WAIT_S):
            await done.wait()
        said = [message for message in caplog.messages if "provider" in message]
    assert len(said) == (provider == "nowhere"), said


async def test_the_warning_of_a_file_that_is_no_toml_has_its_place(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        file = tmp_path / "config.toml"
        file.write_text("model =\n")
        (wrong,) = await config_warnings(served, 1)
    assert (wrong["details"], wrong["range"]) == (f"{file}:1:8: Invalid value", at(1, 8))


async def test_a_changed_file_is_looked_at_again(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        file = tmp_path / "config.toml"
        right = file.read_text()
        file.write_text(right + "[features]\nbogus = true\n")
        (first,) = await config_warnings(served, 1)
        file.write_text(right + "[agents]\n")
        (second,) = await config_warnings(served, 1)
    assert [problem["summary"].partition(":")[0] for problem in (first, second)] == [
        "Ignoring 1 unrecognized configuration setting",
        "1 setting of Codex without effect in this server",
    ]


async def test_a_file_that_changes_while_it_is_looked_at_is_looked_at_again(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")

    async def change_and_read() -> bool:
        # Another request finds the change before this look has its settings.
        if not file.read_text():
            file.write_text("[agents]\n")
            await configuration.read()
        return False

    sources = ConfigSources(home=tmp_path, cwd=tmp_path, requirements=tmp_path / "none.toml")
    configuration = Configuration(sources, change_and_read)
    problems = ConfigProblems(configuration)
    assert await problems.find() == ([], [])
    useless = ["1 setting of Codex without effect in this server"]
    for news in (useless, []):
        found = await problems.find()
        assert [one.summary.partition(":")[0] for one in found.all] == useless
        assert [one.summary.partition(":")[0] for one in found.new] == news


@claim("config:unknown-keys")
async def test_the_client_that_starts_a_thread_is_warned_of_unknown_keys_of_request_and_project(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    (project / ".codex").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / ".git/HEAD").touch()
    (project / ".codex/config.toml").write_text('model = "m"\nmodell = "x"\n')
    trusted = f'[projects."{project}"]\ntrust_level = "trusted"\n'
    async with serve(tmp_path, config=trusted) as served, served.client() as client:
        params = {"cwd": str(project), "config": {"features.bogus": True}}
        await client.call("thread/start", params)
        told = [(await client.wait_for("configWarning"))["params"]["summary"] for _ in range(2)]
    assert [re.sub(r", expected.*", "", text) for text in told] == [
        "Ignoring 1 unrecognized configuration setting:\n"
        "  config of the request: unknown configuration field `features.bogus`",
        "Ignoring 1 unrecognized configuration setting:\n"
        f"  {project}/.codex/config.toml:2:1: unknown configuration field `modell`",
    ]


# `--strict-config`.


@claim("config:strict")
@pytest.mark.parametrize(
    ("config", "overrides", "problem"),
    [
        (
            "[features]\nbogus = true\n",
            {},
            "FILE:N:1: unknown configuration field `features.bogus`",
        ),
        ("model_verbosity = 5\n", {}, "FILE:N:19: invalid type: integer `5`"),
        ("", {"features.bogus": 1}, "unknown configuration field `features.bogus`"),
        ("", {"model_verbosity": 5}, "invalid type: integer `5`"),
        ("", {"model_provider": "absent"}, "there is no provider `absent`"),
    ],
)
async def test_a_strict_start_ends_at_the_first_fault(
    tmp_path: Path, config: str, overrides: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        async with serve(tmp_path, config=config, overrides=overrides, is_strict=True):
            pass
    text = re.sub(r":\d+:(\d+): ", r":N:\1: ", str(refused.value), count=1)
    text = text.replace(str(tmp_path / "config.toml"), "FILE")
    assert re.split(", expected|; there are", text)[0] == problem


@claim("config:strict")
async def test_a_strict_server_refuses_what_becomes_wrong_later(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config="agents = 1\n", is_strict=True) as served,
        served.client() as client,
    ):
        # What Codex alone knows is no error: both programs may share the file.
        await client.call("thread/start", {})
        edit = {"keyPath": "features.bogus", "value": True, "mergeStrategy": "replace"}
        refused = await client.refusal("config/value/write", edit)
        assert refused.data["config_write_error_code"] == "configValidationError"
        refused = await client.refusal("thread/start", {"config": {"features.bogus": True}})
        assert refused.message.endswith("in the `config` of the request")
        file = tmp_path / "config.toml"
        file.write_text(f"{file.read_text()}[features]\nbogus = true\n")
        refused = await client.refusal("config/read", {})
        line = line_of(file, "bogus = true")
        assert (refused.code, refused.message.partition(", expected")[0]) == (
            -32600,
            f"failed to load configuration: {file}:{line}:1: unknown configuration field "
            "`features.bogus`",
        )


@pytest.mark.process
def test_the_command_ends_with_the_place_of_the_fault(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("modell = 1\n")
    result = run_cli("--strict-config", "--home", str(tmp_path), "--listen", "off")
    # How many keys there are, and which others are near, changes with what is built.
    text = re.sub(r"the \d+ in(.*`model`).*", r"the N in\1", result.stderr)
    assert (result.returncode, text) == (
        1,
        f"app-server: {file}:1:1: unknown configuration field `modell`, expected one of the N in "
        "docs/config.md; the nearest: `model`\n",
    )


WRONG = """\
sandbox_mode = "sometimes"
thread_unload_delay_secs = "soon"
memory_budget_bytes = 1
review_model = 5
modell = "m"
[analytics]
enabled = 5
[features]
plugins = 5
[orchestrator.skills]
enabled = 5
[otel]
trace_exporter = 5
[tool_suggest]
disabled_tools = 5
"""
WRONG_ALONE = (
    'sandbox_mode = "sometimes"',
    "sandbox_hidden_paths = 5",
    "review_model = 5",
    'tool_output_token_limit = "x"',
    "model_supports_search_tool = 5",
    'approval_timeout_s = "x"',
    "project_root_markers = 5",
    "chatgpt_base_url = 5",
    "[mcp_servers.x]\ncommand = 5",
    "[orchestrator.skills]\nenabled = 5",
    "[features]\nskill_mcp_dependency_install = 5",
    "[features]\ndefault_mode_request_user_input = 5",
    "[features]\nmcp_tool_list_changed = 5",
    "[features]\nnetwork_proxy = 5",
    "[features]\nrequest_permissions_tool = 5",
    "[features]\napply_patch_streaming_events = 5",
    "[shell_environment_policy]\ninherit = 5",
    "[features]\napps = 5",
    "[features]\nauth_elicitation = 5",
    "[features]\nplugins = 5",
    "[features]\ntool_suggest = 5",
    "apps_mcp_product_sku = 5",
    "include_apps_instructions = 5",
    "[apps_service]\ndemo = 5",
    "[apps._default]\nenabled = 5",
    'thread_unload_delay_secs = "soon"',
    "refuse_other_users = 5",
    "thread_events_kept = 1",
    "[analytics]\nenabled = 5",
    "[otel]\ntrace_exporter = 5",
    "[plugins.x]\nenabled = 5",
    "[plugins.x]\nmcp_servers = 5",
    "[marketplaces.x]\nsource = 5",
    "[tool_suggest]\ndisabled_tools = 5",
    "[[skills.config]]\nenabled = 5",
)
UNREAD = "requests that need it are refused"
FIVE = "invalid type: integer `5`"


@claim("config:unknown-keys")
@pytest.mark.process
async def test_a_start_logs_each_value_that_does_not_fit_and_what_happens_now(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(WRONG)
    text = 'invalid type: string "soon", expected u64'
    at_start = "a server that starts with it uses its default"
    expected = [
        f"The setting `sandbox_mode` cannot be used; {UNREAD}. {file}:1:16: unknown variant "
        "`sometimes`, expected one of `read-only`, `workspace-write`, `danger-full-access`",
        f"The setting `review_model` cannot be used; {UNREAD}. {file}:4:16: {FIVE}, expected a "
        "string",
        f"The setting `orchestrator.skills.enabled` cannot be used; {UNREAD}. {file}:11:11: "
        f"{FIVE}, expected a boolean",
        f"The setting `features.plugins` cannot be used; its default is used. {file}:9:11: "
        f"{FIVE}, expected a boolean",
        f"The setting `thread_unload_delay_secs` cannot be used; {at_start}. {file}:2:28: {text}",
        f"The setting `memory_budget_bytes` cannot be used; {at_start}. {file}:3:23: 1 is not "
        "between 1048576 and 1099511627776",
        f"The setting `analytics.enabled` cannot be used; {at_start}. {file}:7:11: {FIVE}, "
        "expected a boolean",
        "The setting `otel.trace_exporter` cannot be used; a server that starts with it sends "
        f"nothing to a collector. {file}:13:18: invalid type: integer, expected a map",
        "The setting `tool_suggest.disabled_tools` cannot be used; the entry has no effect. "
        f"{file}:15:18: invalid type: integer, expected a sequence",
        "Ignoring 1 unrecognized configuration setting:",
    ]
    async with running(tmp_path) as server:
        assert server.process.stderr is not None
        logged: list[str] = []
        with anyio.fail_after(WAIT_S):
            # Nobody connects.
            while len(logged) < len(expected):
                line = (await server.process.stderr.readline()).decode()
                logged += re.findall(r" WARNING \S+: (.*)\n", line)
        async with server.client() as client:
            told = [(await client.wait_for("configWarning"))["params"] for _ in expected]
        server.process.terminate()
        rest = (await server.process.stderr.read()).decode()
    assert logged == expected
    assert [f"{one['summary']} {one['details']}" for one in told[:-1]] == expected[:-1]
    # Who comes makes no second line of it.
    assert "WARNING" not in rest


def test_all_that_is_wrong_with_settings_that_are_read_together_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        'approval_policy = "sometimes"\nsandbox_mode = 5\nmodel = 7\n'
        "[mcp_servers.a]\ncommand = 'a'\ntool_timeout_sec = -1\n"
        '[mcp_servers.b]\nurl = "http://127.0.0.1:1"\nenabled = "x"\n'
        "[plugins.p]\nenabled = 1\n[plugins.q]\nenabled = 2\n"
    )
    found = wrong_values(read_config(file))
    assert sorted(".".join(wrong.error.path) for wrong in found) == [
        "approval_policy",
        "mcp_servers.a.tool_timeout_sec",
        "mcp_servers.b.enabled",
        "model",
        "plugins.p.enabled",
        "plugins.q.enabled",
        "sandbox_mode",
    ]
    assert {wrong.error.position.line for wrong in found if wrong.error.position} == {
        1, 2, 3, 6, 9, 11, 13,
    }  # fmt: skip


async def test_the_look_of_a_start_takes_no_news_from_clients(tmp_path: Path) -> None:
    configuration = Configuration(ConfigSources(tmp_path, tmp_path, tmp_path / "requirements.toml"))
    problems = ConfigProblems(configuration)
    assert list((await problems.find()).all) == []
    (tmp_path / "config.toml").write_text("modell = 1\n")
    await problems.find_at_start()
    (new,) = (await problems.find()).new
    assert new.summary.startswith("Ignoring 1 unrecognized configuration setting")


async def test_what_is_said_of_wrong_values_is_what_happens(tmp_path: Path) -> None:
    """Threads start with values that are said to be read at a start, or to have no effect."""
    first = WRONG_ALONE[0]
    async with serve(tmp_path, config=f"{first}\n") as served, served.client() as client:
        file = tmp_path / "config.toml"
        right = file.read_text().replace(f"{first}\n", "")
        found: dict[str, str] = {}
        texts = {
            wrong: f"{right}{wrong}\n" if wrong[0] == "[" else f"{wrong}\n{right}"
            for wrong in WRONG_ALONE
        }
        problems: dict[str, WrongValue] = {}
        for wrong, text in texts.items():
            file.write_text(text)
            (problems[wrong],) = wrong_values(read_config(file))
        refused = [wrong for wrong in texts if problems[wrong].instead == REFUSED]
        # What can be used comes after: it would stand in for what cannot.
        for wrong in [*refused, *(one for one in texts if one not in refused)]:
            (tmp_path / "next").write_text(texts[wrong])
            (tmp_path / "next").replace(file)
            try:
                await client.call("thread/start", {})
                started = True
            except WireError:
                started = False
            problem = problems[wrong]
            assert (started, wrong) == (problem.instead != REFUSED, wrong)
            found[".".join(problem.error.path)] = problem.instead
    assert len(found) == len(WRONG_ALONE)
    assert len(set(found.values())) == 9
