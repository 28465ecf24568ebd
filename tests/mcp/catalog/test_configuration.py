"""mcp: the tables of config.toml, the environment of processes and the headers of requests."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config, ConfigError
from app_server.mcp.catalog import tables
from app_server.mcp.catalog.config import (
    DEFAULT_GRACE_MS,
    HttpTransport,
    McpSettings,
    ServerConfig,
    ServerUnavailable,
    StdioTransport,
)
from app_server.mcp.catalog.tables import read_mcp_settings
from tests.support.harness import (
    claim,
    serve,
)
from tests.support.mcp_peers.calls import read


@claim("mcp:config")
def test_requests_wait_a_second_for_servers_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In tests it is longer.
    monkeypatch.setattr(tables, "DEFAULT_GRACE_MS", DEFAULT_GRACE_MS)
    assert read({}).startup_grace_s == McpSettings({}).startup_grace_s == 1.0


@claim("mcp:config")
def test_both_transports_are_read_with_every_key() -> None:
    settings = read(
        {
            "b": {
                "command": "run",
                "args": ["-x"],
                "env": {"A": "1"},
                "env_vars": ["PASSED", {"name": "ALSO"}, {"name": "FAR", "source": "remote"}],
                "cwd": "/w",
                "enabled": False,
                "required": True,
                "startup_timeout_sec": 1.5,
                "tool_timeout_sec": 2,
                "enabled_tools": ["a", "b"],
                "disabled_tools": ["b"],
                "default_tools_approval_mode": "prompt",
                "tools": {"a": {"approval_mode": "approve"}, "c": {}},
                "protocol": "2026-07-28",
                "name": "ignored",
                "unknown": 1,
            },
            "a": {
                "url": "http://u:p@127.0.0.1:1/mcp?k=secret",
                "bearer_token_env_var": "TOKEN",
                "http_headers": {"X": "1"},
                "env_http_headers": {"Y": "Y_VAR"},
                "environment_id": "far",
                "startup_timeout_ms": 500,
            },
        },
        mcp_optional_startup_grace_ms=0,
    )
    assert list(settings.servers) == ["a", "b"]
    assert settings.startup_grace_s is None
    stdio = settings.servers["b"]
    assert stdio == ServerConfig(
        name="b",
        transport=StdioTransport("run", ["-x"], {"A": "1"}, ["PASSED", "ALSO"], "/w", ["FAR"]),
        enabled=False,
        required=True,
        startup_timeout_s=1.5,
        tool_timeout_s=2.0,
        enabled_tools=["a", "b"],
        disabled_tools=["b"],
        approval_mode="prompt",
        tool_approval_modes={"a": "approve"},
        protocol="2026-07-28",
    )
    assert [stdio.allows(tool) for tool in ("a", "b", "c")] == [True, False, False]
    assert [stdio.approval_mode_of(tool) for tool in ("a", "c")] == ["approve", "prompt"]
    http = settings.servers["a"]
    assert (http.enabled, stdio.enabled) == (True, False)
    assert (http.environment_id, stdio.environment_id) == ("far", "local")
    assert http.startup_timeout_s == 0.5
    assert http.protocol == "auto"
    assert isinstance(http.transport, HttpTransport)
    assert http.transport.origin == "http://127.0.0.1:1"
    assert http.transport.has_credentials
    assert HttpTransport("nonsense").origin is None
    assert HttpTransport("http://[nonsense").origin is None
    assert HttpTransport("http://x", http_headers={"AUTHORIZATION": "z"}).has_credentials
    assert "hidden" not in repr(HttpTransport("u", http_headers={"X": "hidden"}))
    assert read({"s": {"command": "x"}}).servers["s"].approval_mode_of("t") == "auto"


@claim("mcp:config-errors")
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "invalid transport\nin `mcp_servers.s`\n"),
        ({"command": "x", "url": "y"}, "url is not supported for stdio\nin `mcp_servers.s`\n"),
        *(
            ({"command": "x", key: "v"}, f"{key} is not supported for stdio\nin `mcp_servers.s`\n")
            for key in (
                *("bearer_token_env_var", "bearer_token", "http_headers", "env_http_headers"),
                *("http_headers_helper", "oauth", "oauth_resource", "auth"),
            )
        ),
        *(
            (
                {"url": "x", key: "v"},
                f"{key} is not supported for streamable_http\nin `mcp_servers.s`\n",
            )
            for key in ("args", "env", "env_vars", "cwd", "bearer_token")
        ),
        *(
            (
                {"url": "x", "http_headers_helper": blank},
                "http_headers_helper must not be empty\nin `mcp_servers.s`\n",
            )
            for blank in ("", " \t")
        ),
        (
            {"command": "x", "env_vars": [{"name": "A", "source": "weird"}]},
            "unsupported env_vars source `weird`; expected `local` or `remote`\n"
            "in `mcp_servers.s.env_vars`\n",
        ),
        (
            {"command": "x", "env_vars": [{}]},
            "missing field `name`\nin `mcp_servers.s.env_vars`\n",
        ),
        (
            {"command": "x", "env_vars": [5]},
            "invalid type: integer, expected a string or a map\nin `mcp_servers.s.env_vars`\n",
        ),
        (
            {"command": "x", "tool_timeout_sec": -1},
            "cannot convert float seconds to Duration: value is negative\n"
            "in `mcp_servers.s.tool_timeout_sec`\n",
        ),
        (
            {"command": "x", "startup_timeout_sec": "5"},
            'invalid type: string "5", expected f64\nin `mcp_servers.s.startup_timeout_sec`\n',
        ),
        (
            {"command": "x", "default_tools_approval_mode": "x"},
            "unknown variant `x`, expected one of `auto`, `prompt`, `writes`, `approve`\n"
            "in `mcp_servers.s.default_tools_approval_mode`\n",
        ),
        (
            {"command": "x", "args": ["a", 5]},
            "invalid type: integer, expected a string\nin `mcp_servers.s.args`\n",
        ),
        (
            {"command": "x", "env": {"A": 5}},
            "invalid type: integer, expected a string\nin `mcp_servers.s.env.A`\n",
        ),
    ],
)
async def test_a_table_that_makes_no_sense_is_named(
    tmp_path: Path, table: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_mcp_settings(Config({}).override({"mcp_servers": {"s": table}}))
    assert str(caught.value) == message


async def test_a_table_in_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    config = '[mcp_servers.a]\ncommand = "x"\n[mcp_servers."b.c"]\nurl = "x"\nargs = []\n'
    async with serve(tmp_path) as served, served.client() as client:
        (tmp_path / "config.toml").write_text(config)
        rows = (await client.call("mcpServerStatus/list", {}))["data"]
        assert [row["name"] for row in rows] == ["a", "b.c"]
        assert rows[1]["toolsError"].endswith(
            f"{tmp_path}/config.toml:3:1: args is not supported for streamable_http\n"
            "in `mcp_servers.b.c`"
        )


def test_a_process_gets_what_it_is_given_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "HTTP_PROXY", "PYTHONPATH", "AWS_KEY", "PASSED", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, f"our {name}")
    transport = StdioTransport("x", env={"PATH": "/mine"}, env_vars=["PASSED", "NONE"])
    environment = transport.launch("local", "/work").environment(os.environ)
    assert environment["PATH"] == "/mine"
    assert environment["PASSED"] == "our PASSED"
    assert environment["SSL_CERT_FILE"] == "our SSL_CERT_FILE"
    assert {"HTTP_PROXY", "PYTHONPATH", "AWS_KEY", "NONE"}.isdisjoint(environment)


def test_headers_come_from_the_table_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = HttpTransport(
        "http://x",
        bearer_token_env_var="TOKEN",
        http_headers={"A": "1"},
        env_http_headers={"B": "B_VAR", "C": "C_VAR"},
    )
    monkeypatch.delenv("TOKEN", raising=False)
    with pytest.raises(ServerUnavailable) as caught:
        transport.headers("s")
    assert str(caught.value) == "Environment variable TOKEN for MCP server 's' is not set"
    monkeypatch.setenv("TOKEN", "t")
    monkeypatch.setenv("B_VAR", "2")
    assert transport.headers("s") == {"A": "1", "B": "2", "Authorization": "Bearer t"}


def test_threads_share_what_was_read_of_a_server_and_equal_settings_are_read_once() -> None:
    table = {
        "url": "http://127.0.0.1:1",
        "tool_timeout_sec": 1,
        "supports_parallel_tool_calls": True,
    }
    first = read({"a": table}).servers["a"]
    assert read({"a": dict(table), "b": {"command": "x"}}).servers["a"] is first
    others = [
        read({"a": {**table, "url": "http://127.0.0.1:2"}}).servers["a"],
        read({"b": table}).servers["b"],
        read({"a": table}, mcp_oauth_callback_port=2).servers["a"],
    ]
    assert [one == first for one in others] == [False, False, False]
    for value in ({"supports_parallel_tool_calls": 1}, {"tool_timeout_sec": True}):
        with pytest.raises(ConfigError, match="invalid type"):
            read({"a": {**table, **value}})


def test_a_problem_is_read_anew_wherever_it_stands(tmp_path: Path) -> None:
    table = '[mcp_servers.a]\ncommand = "x"\nlazy = true\nrequired = true\n'
    problems = []
    for number in range(2):
        text = "\n" * number + table
        config = Config(tomllib.loads(text), tmp_path / "config.toml", text)
        problems.append(read_mcp_settings(config).servers["a"].problem)
    assert [problem and problem.split(":")[1] for problem in problems] == ["3", "4"]


def test_of_what_was_read_a_bounded_number_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_READ", 2)
    kept: dict[bytes, ServerConfig] = {}
    monkeypatch.setattr(tables, "_READ", kept)
    for name in "abca":
        tables.parse_server(name, {"command": "x"})
    assert [config.name for config in kept.values()] == ["c", "a"]


def test_what_was_read_of_all_servers_is_kept_for_the_newest_settings() -> None:
    table = {"command": "kept"}
    first = read({"a": table}).servers
    assert read({"a": dict(table)}).servers is first
    for number in range(tables.MAX_READ_TOGETHER):
        read({f"b{number}": table})
    again = read({"a": table}).servers
    assert again == first
    assert again is not first
