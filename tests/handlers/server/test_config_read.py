"""config/read: all that is in force, without secrets; and what a client does with it."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from app_server.config.known_keys import KNOWN, OF_OTHER_PROGRAMS, WITHOUT_EFFECT
from app_server.config.masking import MARK
from app_server.handlers.server.feature_table import FEATURES
from protocol.server.config import Config
from tests.interop.methods.settings import RICH as RICHEST
from tests.interop.methods.settings import differences, recorded, without_reason
from tests.support.harness import WireClient, claim, serve, stdio_server
from tests.support.mcp_peers.calls import steps_until_settled

PLANTED = "s3cr3t"

RICH = f"""
review_model = "r"
model_verbosity = "low"
project_root_markers = [".git", ".hg"]
chatgpt_base_url = "https://u:{PLANTED}@chat.example/api"
tool_output_token_limit = 12000
nobody_knows = "{PLANTED}"
notify = ["notify-send", "done"]

[features]
plugins = false
connectors = false
memories = true
network_proxy = {{ enabled = true, domains = {{ "a.example" = "allow" }} }}

[mcp_servers.local]
command = "true"
args = ["-y", "thing", "--url=http://u:{PLANTED}@h?k={PLANTED}"]
env = {{ KEY = "{PLANTED}" }}
env_vars = ["HOME"]
enabled = false
startup_timeout_sec = 7.5
tools = {{ t = {{ approval_mode = "approve" }} }}

[mcp_servers.web]
url = "http://127.0.0.1:1/mcp?token={PLANTED}"
bearer_token_env_var = "TOKEN"
http_headers = {{ Authorization = "Bearer {PLANTED}" }}
env_http_headers = {{ X-Key = "VARIABLE" }}
enabled = false

[model_providers.other]
name = "Other"
base_url = "http://127.0.0.1:1/v1"
env_key = "OTHER_KEY"
experimental_bearer_token = "{PLANTED}"
query_params = {{ key = "{PLANTED}" }}

[shell_environment_policy]
inherit = "core"
set = {{ TOKEN = "{PLANTED}" }}

[projects."/a.b"]
trust_level = "trusted"

[tui]
theme = "dark"

[desktop]
since = 2026-01-02

[tools.web_search]
context_size = "low"

[analytics]
enabled = false
"""


async def read(client: WireClient, **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await client.call("config/read", params)
    return answer


@claim("config:read")
async def test_all_that_is_in_force_is_shown_with_marks_for_secrets(tmp_path: Path) -> None:
    async with serve(tmp_path, config=RICH) as served, served.client() as client:
        answer = await read(client, includeLayers=True)
        (layer,) = answer["layers"]
        shown = answer["config"]
        url = served.model.url
    assert PLANTED not in str(answer)
    servers = {
        "local": {
            "command": "true",
            "args": ["-y", "thing", f"--url=http://{MARK}@h?{MARK}"],
            "env": {"KEY": MARK},
            "env_vars": ["HOME"],
            "enabled": False,
            "startup_timeout_sec": 7.5,
            "tools": {"t": {"approval_mode": "approve"}},
        },
        "web": {
            "url": f"http://127.0.0.1:1/mcp?{MARK}",
            "bearer_token_env_var": "TOKEN",
            "http_headers": {"Authorization": MARK},
            "env_http_headers": {"X-Key": "VARIABLE"},
            "enabled": False,
        },
    }
    providers = {
        "scripted": {
            "name": "scripted",
            "base_url": url,
            "request_max_retries": 0,
            "stream_max_retries": 0,
        },
        "other": {
            "name": "Other",
            "base_url": "http://127.0.0.1:1/v1",
            "env_key": "OTHER_KEY",
            "experimental_bearer_token": MARK,
            "query_params": {"key": MARK},
        },
    }
    proxy = {"enabled": True, "domains": {"a.example": "allow"}}
    file: dict[str, Any] = {
        "model": "scripted",
        "model_provider": "scripted",
        "review_model": "r",
        "model_verbosity": "low",
        "project_root_markers": [".git", ".hg"],
        "chatgpt_base_url": f"https://{MARK}@chat.example/api",
        "tool_output_token_limit": 12000,
        "notify": ["notify-send", "done"],
        "features": {
            "plugins": False,
            "connectors": False,
            "memories": True,
            "network_proxy": proxy,
        },
        "mcp_servers": servers,
        "model_providers": providers,
        "shell_environment_policy": {"inherit": "core", "set": {"TOKEN": MARK}},
        "projects": {"/a.b": {"trust_level": "trusted"}},
        "tui": {"theme": "dark"},
        "desktop": {"since": "2026-01-02"},
        "tools": {"web_search": {"context_size": "low"}},
        "analytics": {"enabled": False},
    }
    assert layer["config"] == file
    in_force = {
        **file,
        "approval_policy": "on-request",
        "allow_login_shell": True,
        "cli_auth_credentials_store": "file",
        "features": {
            **{feature.names[0]: feature.default for feature in FEATURES},
            **file["features"],
            "apps": False,
        },
        "include_apps_instructions": True,
        "marketplaces": {},
        "mcp_oauth_credentials_store": "auto",
        "plugins": {},
        "project_doc_fallback_filenames": [],
        "project_doc_max_bytes": 32768,
        "shell_environment_policy": {
            "inherit": "core",
            "ignore_default_excludes": False,
            "exclude": [],
            "set": {"TOKEN": MARK},
            "include_only": [],
        },
        "tools": {"web_search": {"context_size": "low", "allowed_domains": None, "location": None}},
    }
    assert {key: value for key, value in shown.items() if value is not None} == in_force
    assert answer["origins"]["mcp_servers.local.env.KEY"]["name"]["type"] == "user"


async def test_every_known_key_is_there_and_null_where_nothing_is_set(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        shown = (await read(client))["config"]
    known = (*KNOWN, *WITHOUT_EFFECT, *OF_OTHER_PROGRAMS)
    names = {path.partition(".")[0] for path in known} | set(Config.model_fields)
    assert set(shown) == names
    assert [shown[name] for name in ("hooks", "tui", "permissions", "otel", "skills")] == [None] * 5
    assert (shown["mcp_servers"], shown["plugins"]) == ({}, {})


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        ("[tools]\nweb_search = true\n", "tools", {"web_search": None}),
        ("[analytics]\nenabled = 5\n", "analytics", None),
        ('apps = "none"\n', "apps", None),
        ('browser_use = "none"\n', "browser_use", None),
        ('mcp_servers = "x"\n', "mcp_servers", MARK),
        ('[mcp_servers]\ns = "x"\n', "mcp_servers", {"s": MARK}),
        ('features = "x"\n', "features", "x"),
        ("[desktop]\na = [inf, -inf, nan]\n", "desktop", {"a": ["inf", "-inf", "nan"]}),
    ],
)
async def test_what_does_not_fit_hinders_no_client_from_reading_the_rest(
    tmp_path: Path, config: str, key: str, value: Any
) -> None:
    async with serve(tmp_path, config=config) as served, served.client() as client:
        shown = (await read(client, includeLayers=True))["config"]
        assert (shown["model"], shown[key]) == ("scripted", value)


async def test_each_difference_from_what_codex_shows_has_a_reason(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        (tmp_path / "config.toml").write_text(RICHEST.read_text())
        found = differences(recorded(), (await read(client))["config"])
    assert list(without_reason(found)) == []
    assert PLANTED not in str([ours for path, (_, ours) in found.items() if path != "hooks.Stop"])


@claim("config:marks")
async def test_a_mark_that_is_sent_back_is_refused_and_named(tmp_path: Path) -> None:
    async with serve(tmp_path, config=RICH) as served, served.client() as client:
        before = (tmp_path / "config.toml").read_bytes()
        servers = (await read(client))["config"]["mcp_servers"]
        servers["local"]["args"] = []

        def refusal(key: str) -> str:
            return (
                f"`{key}` has `{MARK}`, which stands for a secret that is not shown: send the "
                "secret itself, or leave the key out"
            )

        key = "mcp_servers.local.env.KEY"
        for path, value in (
            ("mcp_servers.local.env.KEY", MARK),
            ("mcp_servers.local", servers["local"]),
            ("mcp_servers", servers),
        ):
            for strategy in ("replace", "upsert"):
                edit = {"keyPath": path, "value": value, "mergeStrategy": strategy}
                for method, params in (
                    ("config/value/write", edit),
                    ("config/batchWrite", {"edits": [edit]}),
                ):
                    error = await client.refusal(method, params)
                    word = "configValidationError"
                    assert (error.code, error.message, error.data) == (
                        -32600,
                        refusal(key),
                        {"code": word, "config_write_error_code": word},
                    )
        for config in ({"mcp_servers": servers}, {key: MARK}):
            error = await client.refusal("thread/start", {"config": config})
            assert error.message == f"failed to load configuration: {refusal(key)}"
        assert (tmp_path / "config.toml").read_bytes() == before


async def test_what_is_read_can_be_written_back_and_changes_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, config=RICH) as served, served.client() as client:
        file = tmp_path / "config.toml"
        before = tomllib.loads(file.read_text())
        (layer,) = (await read(client, includeLayers=True))["layers"]
        written = 0
        for key, value in layer["config"].items():
            if MARK not in str(value) and key != "desktop":
                edit = {"keyPath": key, "value": value, "mergeStrategy": "replace"}
                await client.call("config/value/write", edit)
                written += 1
        assert written == 12
        table = layer["config"]["mcp_servers"]["local"]
        for name in ("command", "enabled", "env_vars", "startup_timeout_sec", "tools"):
            edit = {"keyPath": f"mcp_servers.local.{name}", "value": table[name]}
            await client.call("config/value/write", {**edit, "mergeStrategy": "replace"})
        assert tomllib.loads(file.read_text()) == before


@claim("terminal:title-threads")
async def test_a_thread_with_all_servers_off_that_were_read_starts_none(tmp_path: Path) -> None:
    # What the terminal client does for each title.
    config = stdio_server("one") + stdio_server("two")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        await client.start_thread()
        steps = await steps_until_settled(client, "one", "two")
        assert [states[-1] for states in steps.values()] == [("ready", None)] * 2
        names = (await read(client))["config"]["mcp_servers"]
        off = {"mcp_servers": {name: {"enabled": False} for name in names}}
        started = await client.call("thread/start", {"config": off, "ephemeral": True})
        params = {"threadId": started["thread"]["id"]}
        listed = await client.call("mcpServerStatus/list", params)
        states = {server["name"]: server["runtimeStatus"] for server in listed["data"]}
        assert states == {"one": "disabled", "two": "disabled"}
