"""mcp: configuration, names, schemas, connections, calls and status, with real MCP servers."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import (
    StreamableHTTPASGIApp,
    StreamableHTTPSessionManager,
)

from app_server.config.values import Config, ConfigError
from app_server.mcp.catalog.config import (
    HttpTransport,
    ServerConfig,
    ServerUnavailable,
    StdioTransport,
    read_mcp_settings,
)
from app_server.mcp.connections import Tool, ToolTable
from app_server.mcp.elicitation import MAX_OPEN_QUESTIONS, RunningCalls
from app_server.mcp.tools.calls import (
    MAX_MODEL_BLOCKS,
    MAX_RESULT_BYTES,
    CallOrigin,
    bounded_result,
    cut_middle,
    model_output,
    request_meta,
)
from app_server.mcp.tools.declare import declare
from app_server.mcp.tools.listing import Listing, read_only_hint
from app_server.mcp.tools.naming import MAX_LENGTH, RawName, VisibleName, assign_names
from app_server.mcp.tools.schema import reduce_schema, tool_parameters
from app_server.mcp.tools.search import search_tools
from app_server.mcp_wire.http import listener, remote
from app_server.turns.model.prompt import ABORTED_OUTPUT, outputs_for_open_calls
from app_server.turns.tools.sandbox_state import sandbox_state
from app_server.turns.tools.scheduling import run_calls
from protocol import rollout
from protocol.mcp import RESERVED_META
from protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from tests.support.harness import (
    COMPLETED,
    WAIT_S,
    Gate,
    WireClient,
    calls,
    claim,
    serve,
    stdio_server,
)

# Configuration.


def read(servers: Any, **more: Any) -> Any:
    return read_mcp_settings(Config({"mcp_servers": servers, **more}))


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
    )
    assert [stdio.allows(tool) for tool in ("a", "b", "c")] == [True, False, False]
    assert [stdio.approval_mode_of(tool) for tool in ("a", "c")] == ["approve", "prompt"]
    http = settings.servers["a"]
    assert (http.enabled, stdio.enabled) == (True, False)
    assert (http.environment_id, stdio.environment_id) == ("far", "local")
    assert http.startup_timeout_s == 0.5
    assert isinstance(http.transport, HttpTransport)
    assert http.transport.origin == "http://127.0.0.1:1"
    assert http.transport.has_credentials
    assert HttpTransport("nonsense").origin is None
    assert HttpTransport("http://x", http_headers={"AUTHORIZATION": "z"}).has_credentials
    assert "secret" not in repr(HttpTransport("u", http_headers={"X": "secret"}))
    assert read({}).startup_grace_s == 1.0
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
            {"url": "x", "http_headers_helper": "echo {}", "environment_id": "far"},
            "http_headers_helper is only supported for local MCP servers\nin `mcp_servers.s`\n",
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
            "invalid type: integer `5`, expected a string or a map\nin `mcp_servers.s.env_vars`\n",
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
            "invalid type: integer `5`, expected a string\nin `mcp_servers.s.args`\n",
        ),
        (
            {"command": "x", "env": {"A": 5}},
            "invalid type: integer `5`, expected a string\nin `mcp_servers.s.env.A`\n",
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
        error = await client.refusal("thread/start", {})
        assert error.message == (
            f"failed to load configuration: {tmp_path}/config.toml:3:1: "
            "args is not supported for streamable_http"
        )
        status = await client.refusal("mcpServerStatus/list", {})
        assert status.data["code"] == "configInvalid"


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


# Names.


def visible(*tools: tuple[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    return {
        (raw.server, raw.tool): (name.namespace, name.name)
        for raw, name in assign_names(RawName(*tool) for tool in tools).items()
    }


@claim("mcp:names")
def test_names_are_those_of_the_reference() -> None:
    long = "z" * 200
    assert visible(
        ("raw", "echo"),
        ("weird:@/.name", "x"),
        ("mcp__pre", "x"),
        ("example-server", "a-b"),
        ("example-server", "a_b"),
        ("example-server", "a.b"),
        ("example_server", "x"),
        ("q", "with space"),
        ("q", "ünïcode"),
        ("q", ""),
        ("s", long),
    ) == {
        ("raw", "echo"): ("mcp__raw", "echo"),
        ("weird:@/.name", "x"): ("mcp__weird____name", "x"),
        ("mcp__pre", "x"): ("mcp__pre", "x"),
        ("example-server", "a-b"): ("mcp__example_server_8d5022e9c6b4", "a_b_c4c9458dce12"),
        ("example-server", "a_b"): ("mcp__example_server_8d5022e9c6b4", "a_b_6c648c10abe1"),
        ("example-server", "a.b"): ("mcp__example_server_8d5022e9c6b4", "a_b_d4370163c73e"),
        ("example_server", "x"): ("mcp__example_server_e0d48ec7b00c", "x"),
        ("q", "with space"): ("mcp__q", "with_space"),
        ("q", "ünïcode"): ("mcp__q", "_n_code"),
        ("q", ""): ("mcp__q", "_"),
        ("s", long): ("mcp__s", "z" * 107 + "_7b6dc878f2ad"),
    }


def test_a_namespace_that_leaves_no_room_is_cut() -> None:
    ((namespace, name),) = visible(("n" * 200, "tool")).values()
    assert (len(namespace), name[0], len(name)) == (113, "_", 13)


raw_names = st.tuples(st.text(max_size=130), st.text(max_size=130))


@given(st.lists(raw_names | st.tuples(st.sampled_from("ab"), st.sampled_from(["-", "_", "."]))))
def test_names_are_unique_fit_and_do_not_depend_on_the_order(tools: list[tuple[str, str]]) -> None:
    names = assign_names(RawName(*tool) for tool in tools)
    assert set(names) == {RawName(*tool) for tool in tools}
    assert len(set(names.values())) == len(names)
    for name in names.values():
        assert len(name.namespace) + len(name.name) + 2 <= MAX_LENGTH
        assert name.namespace.replace("_", "a").isalnum()
        assert name.name.replace("_", "a").isalnum()
    assert assign_names(RawName(*tool) for tool in reversed(tools)) == names


def test_a_name_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hashes of twelve digits never meet in practice, so they are made to."""
    seeds: list[str] = []

    def few_hashes(identity: str) -> str:
        seeds.append(identity)
        return f"_{len(identity.split(chr(0))) % 7:012}"

    monkeypatch.setattr("app_server.mcp.tools.naming._hash", few_hashes)
    names = visible(("s", "a-b"), ("s", "a_b"), ("s", "a.b"))
    assert len(set(names.values())) == 3
    assert any(seed.endswith("\0" + "1") for seed in seeds)


# Schemas and declarations.


@claim("mcp:schema")
def test_schemas_are_cut_down_to_what_models_take() -> None:
    assert reduce_schema(
        {
            "$schema": "s",
            "title": "t",
            "type": "object",
            "description": "d",
            "properties": {
                "z": {"type": "integer", "minimum": 1, "default": 5},
                "a": {"const": "k"},
                "l": {"type": ["array", "null"]},
                "m": {"type": "array", "items": {"type": "string", "format": "uri"}},
                "u": {"anyOf": [{"$ref": "#/$defs/D"}, {"oneOf": [{"type": "null"}]}]},
                "t": True,
            },
            "required": ["a"],
            "additionalProperties": {"type": "string", "maxLength": 3},
            "$defs": {"D": {"enum": [1, 2], "examples": [1]}},
            "allOf": "nonsense",
            "definitions": 5,
        }
    ) == {
        "type": "object",
        "description": "d",
        "properties": {
            "a": {"enum": ["k"], "type": "string"},
            "l": {"type": ["array", "null"], "items": {"type": "string"}},
            "m": {"type": "array", "items": {"type": "string"}},
            "t": {},
            "u": {"anyOf": [{"$ref": "#/$defs/D"}, {"oneOf": [{"type": "null"}]}]},
            "z": {"type": "integer"},
        },
        "required": ["a"],
        "additionalProperties": {"type": "string"},
        "$defs": {"D": {"enum": [1, 2]}},
    }
    kinds = {True: "boolean", 5: "integer", 1.5: "number"}
    assert {key: reduce_schema({"const": key})["type"] for key in kinds} == kinds
    assert reduce_schema({"const": [1]})["type"] == "array"
    assert reduce_schema({"const": {}})["type"] == "object"
    assert reduce_schema({"const": None})["type"] == "null"
    assert reduce_schema({"additionalProperties": False}) == {"additionalProperties": False}


def test_parameters_are_always_an_object() -> None:
    assert tool_parameters(None) == {"type": "object", "properties": {}}
    assert tool_parameters({"type": "string"}) == {"type": "string"}
    deep: Any = {"type": "object"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    assert len(json.dumps(tool_parameters(deep))) < 4000


def test_a_long_introduction_is_cut() -> None:
    raw, name = RawName("s", "t"), VisibleName("mcp__s", "t")
    config = ServerConfig("s", StdioTransport("x"))
    table = ToolTable([Tool(raw, name, {}, config)], {"mcp__s": "ü" * 4000})
    description = declare(table)[0]["description"]
    assert len(description.encode()) < 4200
    assert description.endswith("… [truncated]")
    assert declare(ToolTable(table.tools, {}))[0] == {
        "type": "namespace",
        "name": "mcp__s",
        "description": "Tools in the mcp__s namespace.",
        "tools": [
            {
                "type": "function",
                "name": "t",
                "description": "",
                "strict": False,
                "parameters": {"type": "object", "properties": {}},
            }
        ],
    }


def test_listings_keep_what_makes_sense() -> None:
    listing = Listing.of(
        {"serverInfo": "strange", "instructions": 5},
        [{"name": "a", "n": 1}, {"name": "a", "n": 2}, {"name": 5}, {}],
        None,
    )
    assert listing == Listing(tools={"a": {"name": "a", "n": 1}})
    assert read_only_hint(None) is None
    assert read_only_hint({"annotations": {"readOnlyHint": "yes"}}) is None
    assert read_only_hint({"annotations": {"readOnlyHint": False}}) is False


# What goes into a call, and what comes out.


@claim("meta:reserved", "meta:members")
def test_metadata_of_a_client_cannot_take_our_place() -> None:
    origin = CallOrigin("t", "u", "call", "item", {"turn_id": "u"})
    reserved = {
        "callId": "evil",
        "itemId": "evil",
        "threadId": "evil",
        "sessionId": "evil",
        "windowId": "evil",
        "turnId": "evil",
        "x-codex-turn-metadata": "evil",
        "_codex_apps": "evil",
        "plugin_id": "evil",
        "codex_bridge_mcp_call_id": "evil",
        "progressToken": "evil",
        "openai/confirmation_policies": "evil",
        "codex/sandbox-state": "evil",
        "io.modelcontextprotocol/x": "evil",
    }
    assert request_meta(origin, {**reserved, "mine": {"nested": None}, "codexx": 1}) == {
        "mine": {"nested": None},
        "codexx": 1,
        "callId": "call",
        "codex/toolCallId": "call",
        "x-codex-turn-metadata": {"turn_id": "u"},
        "threadId": "t",
        "sessionId": "t",
        "windowId": "t:0",
        "itemId": "item",
    }
    assert "itemId" not in request_meta(CallOrigin("t", "u", "c", None, {}), {})


def test_text_is_cut_in_the_middle() -> None:
    assert cut_middle("short", 10) == "short"
    assert cut_middle("a" * 50 + "b" * 50, 20) == "a" * 10 + "…20 tokens truncated…" + "b" * 10
    assert cut_middle("ü" * 50, 21).startswith("ü" * 5 + "…")
    assert cut_middle("x" * 10, 0) == "…3 tokens truncated…"


def test_what_the_model_reads_is_bounded_over_all_blocks() -> None:
    result = {"content": [{"type": "text", "text": "a" * 80}, {"type": "text", "text": "b" * 80}]}
    header, first, second = model_output(result, 1.5, 100)
    assert header["text"] == "Wall time: 1.5000 seconds\nOutput:"
    assert first["text"] == "a" * 80
    assert second["text"] == "b" * 10 + "…15 tokens truncated…" + "b" * 10
    structured = model_output({"structuredContent": {"a": "x" * 500}}, 0, 100)
    assert structured.startswith('Wall time: 0.0000 seconds\nOutput:\n{"a":"xxx')
    assert len(structured) < 200
    assert len(model_output({"content": "strange"}, 0, 100)) == 1


IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}


def test_images_behind_the_last_text_are_seen() -> None:
    texts = [{"type": "text", "text": "a" * 200}, {"type": "text", "text": "b"}]
    _, *parts = model_output({"content": [*texts, IMAGE]}, 0, 100)
    assert [part["type"] for part in parts] == ["input_text", "input_image", "input_text"]
    assert parts[-1]["text"] == "…1 content blocks truncated…"


@pytest.mark.parametrize(
    ("block", "blocks", "shown", "left_out"),
    [
        ({"type": "text", "text": "a" * 60}, 1000, 2, 998),
        ({"type": "text", "text": ""}, MAX_MODEL_BLOCKS, MAX_MODEL_BLOCKS, None),
        (IMAGE, 1000, MAX_MODEL_BLOCKS, 744),
    ],
)
def test_what_the_model_reads_has_a_bounded_number_of_blocks(
    block: Any, blocks: int, shown: int, left_out: int | None
) -> None:
    _header, *parts = model_output({"content": [block] * blocks}, 0, 100)
    note = [] if left_out is None else [f"…{left_out} content blocks truncated…"]
    assert [part["text"] for part in parts[shown:]] == note


def test_a_result_that_fits_no_message_becomes_its_beginning_and_end() -> None:
    small: dict[str, Any] = {"content": [], "structuredContent": {}}
    assert bounded_result(small) is small
    (block,) = bounded_result({"content": [{"type": "text", "text": "é" * MAX_RESULT_BYTES}]})[
        "content"
    ]
    assert block["text"].startswith('Truncated tool output:\n{"content":')
    assert "chars truncated…" in block["text"]
    assert len(block["text"].encode()) < MAX_RESULT_BYTES + 100


# Connections.


async def steps_until_settled(client: WireClient, *names: str) -> dict[str, list[Any]]:
    """Collect the start-up notifications until every named server has settled."""
    told: dict[str, list[Any]] = {name: [] for name in names}
    while any(not steps or steps[-1][0] == "starting" for steps in told.values()):
        message = await client.wait_for("mcpServer/startupStatus/updated")
        params = message["params"]
        told[params["name"]].append((params["status"], params["error"]))
        assert params["failureReason"] is None
    return told


@claim("mcp:startup-notifications", "mcp:startup-errors", "mcp:start-does-not-wait")
async def test_servers_start_side_by_side_and_each_says_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.server.RETRY_WAITS_S", (0, 0))
    monkeypatch.delenv("NOPE", raising=False)
    config = (
        stdio_server("good")
        + stdio_server("garbage", "garbage", "flood")
        + stdio_server("dies", "die")
        + stdio_server("hangs", "hang", startup_timeout_sec="0.2")
        + stdio_server("off", enabled="false")
        + stdio_server("far", environment_id='"far"')
        + '[mcp_servers.missing]\ncommand = "/no/such/program"\n'
        + '[mcp_servers."x!"]\ncommand = "true"\n'
        + '[mcp_servers.web]\nurl = "http://127.0.0.1:1/mcp?key=secret"\n'
        + '[mcp_servers.strange]\nurl = "ftp://x"\n'
        + '[mcp_servers.tokenless]\nurl = "http://127.0.0.1:1"\nbearer_token_env_var = "NOPE"\n'
    )
    async with serve(tmp_path, config=config) as served, served.client() as client:
        await client.request("thread/start", {})
        first = [await client.receive(), await client.receive()]
        assert first[0]["result"]["thread"]["status"] == {"type": "idle"}
        assert first[1]["method"] == "thread/started"
        names = (
            *("good", "garbage", "dies", "hangs", "missing"),
            *("x!", "web", "strange", "tokenless"),
        )
        told = await steps_until_settled(client, *names)

        def failed(name: str, reason: str) -> list[Any]:
            text = f"MCP client for `{name}` failed to start: MCP startup failed: {reason}"
            return [("starting", None), ("failed", text)]

        assert told == {
            "good": [("starting", None), ("ready", None)],
            "garbage": [("starting", None), ("ready", None)],
            "dies": told["dies"],
            "hangs": [
                ("starting", None),
                (
                    "failed",
                    "MCP client for `hangs` timed out after 0.2 seconds. Add or adjust "
                    "`startup_timeout_sec` in your config.toml:\n"
                    "[mcp_servers.hangs]\nstartup_timeout_sec = XX",
                ),
            ],
            "missing": failed("missing", "No such file or directory (os error 2)"),
            "x!": failed(
                "x!", "Invalid MCP server name 'x!': must match pattern ^[a-zA-Z0-9_:@/.-]+$"
            ),
            "web": failed("web", "cannot reach http://127.0.0.1:1/mcp: Connection refused"),
            "strange": failed("strange", "its url is not an http URL"),
            "tokenless": failed(
                "tokenless", "Environment variable NOPE for MCP server 'tokenless' is not set"
            ),
        }
        assert told["dies"][1][1].startswith(
            "MCP client for `dies` failed to start: MCP startup failed: the server ended too early"
        )


@claim("mcp:startup-cancel")
async def test_an_interrupt_without_a_turn_cancels_what_still_starts(tmp_path: Path) -> None:
    config = stdio_server("good") + stdio_server("hangs", "hang")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.wait_for(
            "mcpServer/startupStatus/updated",
            lambda p: (p["name"], p["status"]) == ("good", "ready"),
        )
        cancel = {"threadId": thread_id, "turnId": ""}
        assert await client.call("turn/interrupt", cancel) == {}
        told = await client.wait_for("mcpServer/startupStatus/updated")
        assert told["params"] == {
            "threadId": thread_id,
            "name": "hangs",
            "status": "cancelled",
            "error": None,
            "failureReason": None,
        }
        assert await client.call("turn/interrupt", cancel) == {}
        status = await client.call(
            "mcpServerStatus/list", {"threadId": thread_id, "detail": "toolsAndAuthOnly"}
        )
        assert [(s["name"], s["runtimeStatus"]) for s in status["data"]] == [
            ("good", "connected"),
            ("hangs", "cancelled"),
        ]


@claim("mcp:required")
async def test_a_required_server_that_fails_fails_the_thread(tmp_path: Path) -> None:
    required = '[mcp_servers.must]\ncommand = "/no/such"\nrequired = true\n'
    async with serve(tmp_path, config=required) as served, served.client() as client:
        error = await client.refusal("thread/start", {})
        assert error.code == -32603
        assert error.message == (
            "error creating thread: Fatal error: Failed to initialize session: required MCP "
            "servers failed to initialize: must: MCP startup failed: No such file or directory "
            "(os error 2)"
        )
        assert error.data["code"] == "requiredMcpServersFailed"
        assert (await client.call("thread/loaded/list", {}))["data"] == []
        config: dict[str, Any] = {"mcp_servers.must.command": sys.executable}
        config["mcp_servers.must.args"] = [
            str(Path(__file__).parents[1] / "support" / "mcp_peer.py")
        ]
        result = await client.call("thread/start", {"config": config})
        told = await steps_until_settled(client, "must")
        assert told["must"] == [("starting", None), ("ready", None)]
        status = await client.call("mcpServerStatus/list", {"threadId": result["thread"]["id"]})
        assert status["data"][0]["runtimeStatus"] == "connected"


@claim("mcp:grace")
async def test_the_first_request_waits_for_servers_but_not_for_long(tmp_path: Path) -> None:
    config = "mcp_optional_startup_grace_ms = 50\n" + stdio_server("hangs", "hang")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await client.turn(thread_id, "hi"))["status"] == "completed"
        assert [tool["name"] for tool in served.model.requests[0]["tools"]] == [
            "list_mcp_resources",
            "list_mcp_resource_templates",
            "read_mcp_resource",
        ]
    config = "mcp_optional_startup_grace_ms = 0\n" + stdio_server("good")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        assert served.model.requests[0]["tools"][-1]["name"] == "mcp__good"


@asynccontextmanager
async def with_peer(
    tmp_path: Path, *arguments: str, **keys: str
) -> AsyncIterator[tuple[Any, WireClient, str]]:
    """Give a server and a thread with one connected MCP server named `raw`."""
    config = stdio_server("raw", *arguments, **keys)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await steps_until_settled(client, "raw"))["raw"][-1] == ("ready", None)
        yield served, client, thread_id


def raw_call(name: str, arguments: Any = None) -> dict[str, Any]:
    return {"namespace": "mcp__raw", "name": name, "arguments": arguments or {}}


async def call_items(
    served: Any, client: WireClient, thread_id: str, *functions: Any, **options: Any
) -> tuple[list[Any], list[Any]]:
    """Run a turn whose model makes calls; gives the completed items and outputs, in call order."""
    served.model.scripts.append(calls(*functions))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}], **options}
    await client.call("turn/start", params)
    messages = await client.until("turn/completed")
    items = [m["params"]["item"] for m in messages if m.get("method") == "item/completed"]
    outputs = [
        item["output"]
        for item in served.model.requests[-1]["input"]
        if item["type"] == "function_call_output"
    ]
    items = [item for item in items if item["type"] == "mcpToolCall"]
    return sorted(items, key=lambda item: item["id"]), outputs[-len(functions) :]


def input_text(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


@claim("mcp:declared", "mcp:items", "mcp:outputs")
async def test_calls_become_items_and_outputs(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "paged") as (served, client, thread_id):
        items, outputs = await call_items(
            served,
            client,
            thread_id,
            raw_call("structured"),
            raw_call("fail", "  "),
            raw_call("refuse"),
            raw_call("blocks"),
            raw_call("meta", "[1]"),
            raw_call("meta", "{bad"),
            raw_call("nothing"),
            {"name": "bare", "arguments": {}},
        )
        tools = served.model.requests[0]["tools"]
        namespace = tools[-1]
        assert (namespace["type"], namespace["name"]) == ("namespace", "mcp__raw")
        assert namespace["description"] == "Use it wisely."
        assert namespace["tools"][0] == {
            "type": "function",
            "name": "blocks",
            "description": "",
            "strict": False,
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        }
        assert [tool["name"] for tool in namespace["tools"]] == sorted(
            tool["name"] for tool in namespace["tools"]
        )

        def item(number: int, tool: str, **members: Any) -> Any:
            found = items[number]
            known: dict[str, Any] = {
                "type": "mcpToolCall",
                "id": f"call_{number + 1}",
                "server": "raw",
                "tool": tool,
                "status": "completed",
                "arguments": {},
                "appContext": None,
                "mcpAppUi": None,
                "pluginId": None,
                "readOnlyHint": True,
                "result": None,
                "error": None,
            }
            times = {key: found[key] for key in ("durationMs", "startedAtMs", "completedAtMs")}
            assert all(isinstance(value, int) for value in times.values())
            return known | times | members

        assert items == [
            item(
                0,
                "structured",
                result={
                    "content": [{"type": "text", "text": "t"}],
                    "structuredContent": {"b": 1, "a": [2]},
                    "_meta": {"m": 1},
                },
            ),
            item(
                1,
                "fail",
                status="failed",
                arguments=None,
                result={
                    "content": [{"type": "text", "text": "it went wrong"}],
                    "structuredContent": None,
                    "_meta": None,
                },
            ),
            item(
                2,
                "refuse",
                status="failed",
                error={
                    "message": "tool call error: tool call failed for `raw/refuse`\n\nCaused by:\n"
                    '    Mcp error: -32050: refused({"why":1})'
                },
            ),
            item(3, "blocks", result=items[3]["result"]),
            item(
                4,
                "meta",
                status="failed",
                arguments=[1],
                error={
                    "message": "tool call error: tool call failed for `raw/meta`\n\nCaused by:\n"
                    "    MCP tool arguments must be a JSON object, got [1]"
                },
            ),
        ]
        assert [block["type"] for block in items[3]["result"]["content"]] == [
            "image",
            "audio",
            "resource_link",
        ]
        header = outputs[1][0]["text"]
        assert header.startswith("Wall time: 0.")
        assert header.endswith(" seconds\nOutput:")
        assert outputs[0].endswith(' seconds\nOutput:\n{"b":1,"a":[2]}')
        assert outputs[1][1:] == [input_text("it went wrong")]
        assert outputs[2][1:] == [input_text(items[2]["error"]["message"])]
        assert outputs[3][1:] == [
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"},
            input_text("<audio content omitted because you do not support audio input>"),
            input_text('{"type":"resource_link","uri":"mem://a","name":"a"}'),
        ]
        assert outputs[5].startswith("err: ")
        assert outputs[6:] == ["unsupported call: mcp__rawnothing", "unsupported call: bare"]
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        stored = read["thread"]["turns"][0]["items"][1:-1]
        assert sorted(stored, key=lambda item: item["id"]) == items


@claim(
    "meta:direct",
    "meta:for-its-server",
    "meta:not-the-next-turn",
    "meta:steer",
    "meta:not-in-the-log",
)
async def test_metadata_reaches_its_server_for_one_turn_and_no_other(tmp_path: Path) -> None:
    config = stdio_server("raw") + stdio_server("other")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(model="m", config={"model_reasoning_effort": "low"})
        await steps_until_settled(client, "raw", "other")

        def seen(items: list[Any]) -> list[Any]:
            return [json.loads(item["result"]["content"][0]["text"]) for item in items]

        other_call = {"namespace": "mcp__other", "name": "meta", "arguments": {}}
        meta = {"raw": {"place": {"x": None}, "threadId": "evil"}, "nobody": {"y": 1}}
        items, _ = await call_items(
            served,
            client,
            thread_id,
            raw_call("meta"),
            other_call,
            mcpMetaByServer=meta,
            responsesapiClientMetadata={"bag": "model only"},
            turnTrigger="user",
            parentTurnId="parent",
        )
        mine, others = seen(items)
        turn = mine["x-codex-turn-metadata"]
        assert mine == {
            "place": {"x": None},
            "callId": "call_1",
            "codex/toolCallId": "call_1",
            "x-codex-turn-metadata": {
                "session_id": thread_id,
                "thread_id": thread_id,
                "model": "m",
                "reasoning_effort": "low",
                "turn_trigger": "user",
                "parent_turn_id": "parent",
                "turn_id": turn["turn_id"],
                "turn_started_at_unix_ms": turn["turn_started_at_unix_ms"],
                "sandbox_mode": "read-only",
                "auto_review_enabled": False,
                "codex_version": "0.169.0",
            },
            "threadId": thread_id,
            "sessionId": thread_id,
            "windowId": f"{thread_id}:0",
            "itemId": "fc_1",
            "progressToken": mine["progressToken"],
        }
        assert others.keys() == mine.keys() - {"place"}
        assert served.model.requests[0]["client_metadata"] == {"bag": "model only"}

        items, _ = await call_items(served, client, thread_id, raw_call("meta"))
        assert "place" not in seen(items)[0]

        gate = Gate()
        served.model.scripts.append([gate, *calls(raw_call("meta"), other_call)])
        started = await client.call(
            "turn/start",
            {
                "threadId": thread_id,
                "input": [{"type": "text", "text": "go"}],
                "mcpMetaByServer": {"raw": {"a": 1, "b": 1}},
            },
        )
        await gate.wait_until_reached()
        await client.call(
            "turn/steer",
            {
                "threadId": thread_id,
                "expectedTurnId": started["turn"]["id"],
                "input": [],
                "mcpMetaByServer": {"raw": {"b": 2}, "other": {"c": 3}},
            },
        )
        gate.opened.set()
        messages = await client.until("turn/completed")
        done = [m["params"]["item"] for m in messages if m.get("method") == "item/completed"]
        made = [item for item in done if item["type"] == "mcpToolCall"]
        mine, others = seen(sorted(made, key=lambda item: item["id"]))
        assert (mine.get("a"), mine["b"], others["c"]) == (None, 2, 3)

        given: dict[str, Any] = {"mine": {"x": None}, "codex/sandbox-state-meta": {"a": "evil"}}
        reserved = dict.fromkeys(RESERVED_META, "evil")
        direct = await client.call(
            "mcpServer/tool/call",
            {
                "threadId": thread_id,
                "server": "raw",
                "tool": "meta",
                "_meta": {**given, **reserved},
            },
        )
        direct_meta = json.loads(direct["content"][0]["text"])
        assert direct_meta == {
            "mine": {"x": None},
            "threadId": thread_id,
            "progressToken": direct_meta["progressToken"],
        }
        bad = await client.refusal(
            "turn/start", {"threadId": thread_id, "input": [], "mcpMetaByServer": {"raw": 5}}
        )
        assert (bad.code, bad.data["field"]) == (-32602, "mcpMetaByServer.raw")
        read = await client.call("thread/read", {"threadId": thread_id})
        log = Path(read["thread"]["path"]).read_text()
        assert '"mcpMetaByServer"' not in log


async def test_metadata_by_server_needs_the_opt_in(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        thread_id = await client.start_thread()
        error = await client.refusal(
            "turn/start", {"threadId": thread_id, "input": [], "mcpMetaByServer": {}}
        )
        assert error.message == "turn/start.mcpMetaByServer requires experimentalApi capability"


@claim("mcp:progress")
async def test_progress_with_a_message_is_passed_on(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        served.model.scripts.append(calls(raw_call("progress")))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        started = await client.call("turn/start", params)
        told = await client.wait_for("item/mcpToolCall/progress")
        assert told["params"] == {
            "threadId": thread_id,
            "turnId": started["turn"]["id"],
            "itemId": "call_1",
            "message": "half way",
        }
        await client.wait_for("turn/completed")


@claim("mcp:interrupt-cancels")
async def test_an_interrupt_cancels_the_call_at_its_server(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    async with with_peer(tmp_path, "log", str(log)) as (served, client, thread_id):
        served.model.scripts.append(calls(raw_call("slow")))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        started = await client.call("turn/start", params)
        await client.wait_for("item/started", lambda p: p["item"]["type"] == "mcpToolCall")
        interrupt = {"threadId": thread_id, "turnId": started["turn"]["id"]}
        await client.call("turn/interrupt", interrupt)
        messages = await client.until("turn/completed")
        assert "item/completed" not in {m.get("method") for m in messages}
        assert messages[-1]["params"]["turn"]["status"] == "interrupted"
        # The same connection answers the next call, after the notification.
        items, _ = await call_items(served, client, thread_id, raw_call("meta"))
        assert items[0]["status"] == "completed"
        methods = [json.loads(line)["method"] for line in log.read_text().splitlines()]
        assert methods[-3:] == ["tools/call", "notifications/cancelled", "tools/call"]
        history = served.model.requests[-1]["input"]
        outputs = [item["output"] for item in history if item["type"] == "function_call_output"]
        assert outputs[0] == "aborted before there was a result"


@claim("mcp:timeout", "mcp:death")
async def test_a_call_without_an_answer_fails_alone(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "big", tool_timeout_sec="2") as (served, client, thread_id):
        (timed_out, huge), outputs = await call_items(
            served, client, thread_id, raw_call("slow"), raw_call("huge")
        )
        (died, later), _ = await call_items(
            served, client, thread_id, raw_call("die"), raw_call("request")
        )
        assert timed_out["error"]["message"].endswith("timed out awaiting tools/call after 2s")
        assert huge["status"] == "completed"
        assert huge["result"]["content"][0]["text"].startswith("Truncated tool output:\n")
        assert len(json.dumps(huge)) < 1 << 20
        assert len(outputs[1][1]["text"]) < 13_000
        assert died["error"]["message"].endswith("Caused by:\n    Transport closed")
        assert later["error"]["message"].endswith("Caused by:\n    Transport closed")
        assert (await client.turn(thread_id, "still there?"))["status"] == "completed"
        die = {"threadId": thread_id, "server": "raw", "tool": "die"}
        error = await client.refusal("mcpServer/tool/call", die)
        assert error.message == "tool call failed for `raw/die`: Transport closed"
        status = await client.call(
            "mcpServerStatus/list", {"threadId": thread_id, "serverName": "raw"}
        )
        (entry,) = status["data"]
        assert (entry["runtimeStatus"], entry["toolsError"]) == ("failed", None)
        assert "meta" in entry["tools"]


# Questions of servers.

FORM = {
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "title": "Person",
        "properties": {"name": {"type": "string", "title": "Name", "pattern": "."}},
        "required": ["name"],
    },
    "_meta": {"k": [None]},
}
EMPTY_FORM = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
LINK = {"mode": "url", "message": "Go", "url": "https://example.com/", "elicitationId": "e1"}


def asking(params: Any, method: str = "elicitation/create") -> Any:
    """Make a call whose server asks the client for something."""
    return raw_call("request", {"method": method, "params": params})


def answer_of(output: Any) -> Any:
    """Read what the server was answered."""
    return json.loads(output[1]["text"])


async def start_asking(served: Any, client: WireClient, thread_id: str, *functions: Any) -> str:
    served.model.scripts.append(calls(*functions))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    return str((await client.call("turn/start", params))["turn"]["id"])


def outputs_of(served: Any) -> list[Any]:
    return [
        item["output"]
        for item in served.model.requests[-1]["input"]
        if item["type"] == "function_call_output"
    ]


@claim("elicitation:asked", "elicitation:resolved", "elicitation:status")
async def test_what_a_server_asks_reaches_the_user_and_the_answer_the_server(
    tmp_path: Path,
) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        turn_id = await start_asking(served, client, thread_id, asking(FORM), raw_call("meta"))
        before = await client.until("mcpServer/elicitation/request")
        assert before[-2]["params"]["status"] == {
            "type": "active",
            "activeFlags": ["waitingOnApproval"],
        }
        question = before[-1]
        assert question["params"] == {
            "threadId": thread_id,
            "turnId": turn_id,
            "serverName": "raw",
            "mode": "form",
            "_meta": {"k": [None]},
            "message": "Who are you?",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string", "title": "Name"}},
                "required": ["name"],
            },
        }
        reply = {"action": "accept", "content": {"name": 5}, "_meta": {"m": 1}}
        await client.send({"id": question["id"], "result": reply})
        after = await client.until("turn/completed")
        resolved = [m["params"] for m in after if m["method"] == "serverRequest/resolved"]
        assert resolved == [{"threadId": thread_id, "requestId": question["id"]}]
        asked, meta = outputs_of(served)
        assert answer_of(asked) == {"result": reply}
        told = answer_of(meta)["x-codex-turn-metadata"]
        assert told["user_input_requested_during_turn"] is True


@claim("elicitation:asked")
@pytest.mark.parametrize(
    ("reply", "answered"),
    [
        ({"result": {"action": "accept"}}, {"action": "accept"}),
        ({"result": {"action": "cancel", "content": None}}, {"action": "cancel"}),
        ({"result": {"action": "perhaps"}}, {"action": "decline"}),
        ({"error": {"code": 1, "message": "no"}}, {"action": "decline"}),
    ],
)
async def test_a_link_is_asked_about_and_nonsense_declines(
    tmp_path: Path, reply: Any, answered: Any
) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        turn_id = await start_asking(served, client, thread_id, asking(LINK))
        question = await client.wait_for("mcpServer/elicitation/request")
        here = {"threadId": thread_id, "turnId": turn_id, "serverName": "raw", "_meta": None}
        assert question["params"] == here | LINK
        await client.send({"id": question["id"], **reply})
        await client.wait_for("turn/completed")
        assert answer_of(outputs_of(served)[0]) == {"result": answered}


@claim("elicitation:policy")
@pytest.mark.parametrize(
    ("policy", "sandbox", "form", "answered"),
    [
        ("never", "read-only", EMPTY_FORM, {"action": "decline"}),
        ("never", "danger-full-access", EMPTY_FORM, {"action": "accept", "content": {}}),
        ("never", "danger-full-access", FORM, {"action": "decline"}),
        ("never", "danger-full-access", LINK, {"action": "decline"}),
        (
            {"granular": {"mcp_elicitations": False, "rules": True, "sandbox_approval": True}},
            "danger-full-access",
            EMPTY_FORM,
            {"action": "decline"},
        ),
    ],
)
async def test_policy_may_answer_for_the_user(
    tmp_path: Path, policy: Any, sandbox: str, form: Any, answered: Any
) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy=policy, sandbox=sandbox)
        await start_asking(served, client, thread_id, asking(form))
        told = await client.until("turn/completed")
        assert "mcpServer/elicitation/request" not in [m["method"] for m in told]
        assert answer_of(outputs_of(served)[0]) == {"result": answered}


@claim("elicitation:interrupt")
async def test_an_interrupt_withdraws_the_question(tmp_path: Path) -> None:
    log = tmp_path / "peer.log"
    async with with_peer(tmp_path, "log", str(log)) as (served, client, thread_id):
        await start_asking(served, client, thread_id, asking(FORM))
        question = await client.wait_for("mcpServer/elicitation/request")
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": ""})
        told = [m["method"] for m in await client.until("serverRequest/resolved")]
        assert told.index("turn/completed") < told.index("serverRequest/resolved")
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        assert (await client.turn(thread_id, "go on"))["status"] == "completed"
        # A call is answered after all that was sent to the server before it.
        params = {"threadId": thread_id, "server": "raw", "tool": "meta"}
        await client.call("mcpServer/tool/call", params)
        heard = [json.loads(line) for line in log.read_text().splitlines()]
        assert [line["params"]["capabilities"] for line in heard if "protocolVersion" in str(line)][
            :1
        ] == [{"elicitation": {"form": {}, "url": {}}, "extensions": {"openai/form": {}}}]
        assert {"action": "cancel"} in [line.get("result") for line in heard]
        assert "notifications/cancelled" in [line.get("method") for line in heard]


@claim("elicitation:direct")
async def test_a_question_during_a_direct_call_belongs_to_no_turn(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (_, client, thread_id):
        arguments = {"method": "elicitation/create", "params": EMPTY_FORM}
        params = {"threadId": thread_id, "server": "raw", "tool": "request"}
        called = await client.request("mcpServer/tool/call", {**params, "arguments": arguments})
        question = await client.wait_for("mcpServer/elicitation/request")
        assert question["params"]["turnId"] is None
        await client.send({"id": question["id"], "result": {"action": "decline"}})
        result = (await client.answer(called))["result"]
        assert json.loads(result["content"][0]["text"]) == {"result": {"action": "decline"}}


@claim("elicitation:invalid")
async def test_questions_that_cannot_be_asked_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        broken = {"message": "m", "requestedSchema": {"type": "object", "properties": {"a": 1}}}
        await start_asking(
            served,
            client,
            thread_id,
            asking(broken),
            asking({**FORM, "message": 5}),
            asking({**FORM, "mode": "telepathy"}),
            asking({}, "sampling/createMessage"),
            asking({}, "ping"),
        )
        await client.wait_for("turn/completed")
        answers = [answer_of(output) for output in outputs_of(served)]
        assert [answer.get("error", {}).get("code") for answer in answers] == [
            -32602, -32602, -32602, -32601, None,
        ]  # fmt: skip
        assert answers[0]["error"]["message"].startswith("Invalid elicitation: properties.a")
        assert answers[1]["error"]["message"].startswith("Invalid elicitation: message")
        assert answers[2]["error"]["message"] == "Unsupported elicitation mode: telepathy"
        assert answers[4] == {"result": {}}


EXTENDED = {"message": "Say", "requestedSchema": {"any": ["thing"]}}


@claim("elicitation:extended-form")
@pytest.mark.parametrize(
    "extended",
    [asking({**EXTENDED, "mode": "openai/form"}), asking(EXTENDED, "openai/form")],
    ids=["mode", "method"],
)
async def test_an_extended_form_goes_to_clients_that_declared_it(
    tmp_path: Path, extended: Any
) -> None:
    config = stdio_server("raw")
    async with (
        serve(tmp_path, config=config) as served,
        served.client() as plain,
        served.client(extensions={"openai/form": {}}) as able,
    ):
        thread_id = await plain.start_thread()
        await start_asking(served, plain, thread_id, extended)
        await plain.wait_for("turn/completed")
        refusal = answer_of(outputs_of(served)[0])["error"]
        assert refusal["message"] == "Unsupported elicitation mode: openai/form"
        await able.call("thread/resume", {"threadId": thread_id})
        await start_asking(served, plain, thread_id, extended)
        question = await able.wait_for("mcpServer/elicitation/request")
        asked = question["params"]
        assert (asked["mode"], asked["message"]) == ("openai/form", "Say")
        assert asked["requestedSchema"] == {"any": ["thing"]}
        await able.send({"id": question["id"], "result": {"action": "accept", "content": [1]}})
        told = await plain.until("turn/completed")
        assert "mcpServer/elicitation/request" not in [m["method"] for m in told]
        assert answer_of(outputs_of(served)[-1]) == {"result": {"action": "accept", "content": [1]}}


@claim("mcp:timeout")
async def test_the_clock_of_a_call_stops_while_a_question_is_open() -> None:
    now_s = 100.0
    running = RunningCalls(lambda: now_s)
    with running.run("first", 10) as first:
        assert (first.scope.deadline, running.newest_caller) == (110, "first")
        now_s = 103
        with running.question():
            assert first.scope.deadline == float("inf")
            with running.question(), running.run("second", 5) as second:
                assert (second.scope.deadline, running.newest_caller) == (float("inf"), "second")
                now_s = 200
        assert first.scope.deadline == 207
        with ExitStack() as stack:
            for _ in range(MAX_OPEN_QUESTIONS):
                assert running.may_ask
                stack.enter_context(running.question())
            assert not running.may_ask
    assert running.newest_caller is None


# Settings of single servers and tools.


@claim("mcp:sandbox-state")
async def test_a_server_that_asks_for_it_is_told_of_the_sandbox(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "sandbox") as (served, client, thread_id):
        _, (output,) = await call_items(served, client, thread_id, raw_call("meta"))
        meta = answer_of(output)
        state = meta["codex/sandbox-state-meta"]
        assert meta["codex/sandbox-state"] == state
        assert state == {
            "permissionProfile": {
                "type": "managed",
                "file_system": {
                    "type": "restricted",
                    "entries": [
                        {
                            "path": {"type": "special", "value": {"kind": "root"}},
                            "access": "read",
                        }
                    ],
                },
                "network": "restricted",
            },
            "codexLinuxSandboxExe": None,
            "sandboxCwd": tmp_path.as_uri(),
            "useLegacyLandlock": False,
            "useMxc": False,
        }
        result = await client.call(
            "mcpServer/tool/call", {"threadId": thread_id, "server": "raw", "tool": "meta"}
        )
        assert "codex/sandbox-state" not in result["content"][0]["text"]


@claim("mcp:sandbox-state")
@pytest.mark.parametrize(
    ("policy", "profile"),
    [
        (DangerFullAccessSandboxPolicy(), {"type": "disabled"}),
        (ExternalSandboxPolicy(), {"type": "external", "network": "restricted"}),
    ],
)
def test_what_is_not_confined_here_says_so(policy: Any, profile: Any) -> None:
    settings = rollout.Settings(
        model="m", model_provider="p", cwd="/w", approval_policy="never", sandbox_policy=policy
    )
    assert sandbox_state(settings)["permissionProfile"] == profile


@claim("mcp:sandbox-state")
def test_a_workspace_lists_what_may_be_written() -> None:
    policy = WorkspaceWriteSandboxPolicy(
        writable_roots=["/data"], network_access=True, exclude_slash_tmp=True
    )
    settings = rollout.Settings(
        model="m", model_provider="p", cwd="/w", approval_policy="never", sandbox_policy=policy
    )
    profile = sandbox_state(settings)["permissionProfile"]
    places = [(entry["access"], entry["path"]) for entry in profile["file_system"]["entries"]]
    assert places == [
        ("read", {"type": "special", "value": {"kind": "root"}}),
        ("write", {"type": "special", "value": {"kind": "project_roots", "subpath": None}}),
        ("write", {"type": "special", "value": {"kind": "tmpdir"}}),
        ("write", {"type": "path", "path": "/data"}),
    ]
    assert profile["network"] == "enabled"


@claim("mcp:output-limit")
async def test_a_tool_has_a_budget_of_its_own(tmp_path: Path) -> None:
    config = stdio_server("raw", "big") + "[mcp_servers.raw.tools.huge]\noutput_token_limit = 100\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        _, (output,) = await call_items(served, client, thread_id, raw_call("huge"))
        assert 480 < len(output[1]["text"]) < 520
        assert "tokens truncated" in output[1]["text"]


@claim("mcp:omitted")
async def test_tools_can_be_kept_from_the_model(tmp_path: Path) -> None:
    async with with_peer(tmp_path, omit_tools_from='["direct"]') as (served, client, thread_id):
        _, outputs = await call_items(served, client, thread_id, raw_call("meta"))
        assert outputs == ["unsupported call: mcp__rawmeta"]
        tools = served.model.requests[0]["tools"]
        assert [tool["type"] for tool in tools] == ["function"] * 3
        params = {"threadId": thread_id, "server": "raw", "tool": "plain"}
        result = await client.call("mcpServer/tool/call", params)
        assert result["content"][0]["text"] == "plain ran"


@claim("mcp:visibility")
@pytest.mark.parametrize("deferred", [False, True])
async def test_a_tool_for_user_interfaces_is_not_for_the_model(
    tmp_path: Path, deferred: bool
) -> None:
    config = stdio_server("raw", "ui")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(config={"model_supports_search_tool": deferred})
        await steps_until_settled(client, "raw")
        search = {
            "type": "tool_search_call",
            "execution": "client",
            "id": "s",
            "call_id": "s",
            "arguments": {"query": "for", "limit": 64},
        }
        if deferred:
            found = {"type": "response.output_item.done", "item": search}
            served.model.scripts.append([found, COMPLETED])
        made = [raw_call(f"for_{name}") for name in ("app", "nobody", "both")]
        items, outputs = await call_items(served, client, thread_id, *made)
        assert [item["tool"] for item in items] == ["for_both"]
        assert outputs[:2] == [f"unsupported call: mcp__rawfor_{n}" for n in ("app", "nobody")]
        if deferred:
            answers = [i for i in served.model.requests[1]["input"] if "tools" in i]
            shown = answers[0]["tools"]
        else:
            shown = served.model.requests[0]["tools"]
        [names] = [
            [tool["name"] for tool in entry["tools"] if tool["name"].startswith("for_")]
            for entry in shown
            if entry["type"] == "namespace"
        ]
        assert names == ["for_both", "for_model", "for_nonsense"]
        params = {"threadId": thread_id, "server": "raw", "tool": "for_app"}
        result = await client.call("mcpServer/tool/call", params)
        assert result["content"][0]["text"] == "for_app ran"
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert "for_app" in status["data"][0]["tools"]


@pytest.mark.parametrize(
    ("table", "detail"),
    [
        (
            {"omit_tools_from": ["code"]},
            "unknown variant `code`, expected one of `code_mode`, `deferred`, `direct`",
        ),
        (
            {"tools": {"t": {"output_token_limit": 0}}},
            "invalid value: integer `0`, expected a nonzero usize",
        ),
    ],
)
def test_surfaces_and_budgets_that_make_no_sense_are_refused(table: Any, detail: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(detail)):
        read({"a": {"command": "x", **table}})


@claim("mcp:list-changed")
@pytest.mark.parametrize("follows", [True, False])
async def test_tools_that_a_server_adds_are_seen_if_that_is_wanted(
    tmp_path: Path, follows: bool
) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        features = {"features.mcp_tool_list_changed": follows}
        thread_id = await client.start_thread(config=features)
        await call_items(served, client, thread_id, raw_call("meta"))
        grow = {"threadId": thread_id, "server": "raw", "tool": "grow"}
        await client.call("mcpServer/tool/call", grow)
        await client.turn(thread_id, "go")
        first, *_, last = served.model.requests
        before = {tool["name"] for tool in first["tools"][-1]["tools"]}
        after = {tool["name"] for tool in last["tools"][-1]["tools"]}
        assert len(after - before) == (1 if follows else 0)
        listed = await client.call(
            "mcpServerStatus/list", {"threadId": thread_id, "serverName": "raw"}
        )
        assert len(listed["data"][0]["tools"]) == len(before) + (1 if follows else 0)


# Deferred tools.


def table_of(**descriptions: str) -> ToolTable:
    raws = [RawName("hub", name) for name in sorted(descriptions)]
    names = assign_names(raws)
    config = ServerConfig(name="hub", transport=StdioTransport("x"))
    tools = [
        Tool(raw, names[raw], {"name": raw.tool, "description": descriptions[raw.tool]}, config)
        for raw in raws
    ]
    return ToolTable(tools, {})


@claim("mcp:deferred")
@pytest.mark.parametrize(
    ("query", "limit", "found"),
    [
        ("issue", 8, ["listIssues", "create_issue"]),
        ("list the issues", 1, ["listIssues"]),
        ("weather in town", 8, ["forecast"]),
        ("creating", 8, ["create_issue"]),
        ('" OR NEAR(', 8, []),
        ("", 8, []),
        ("hub", 2, ["forecast", "listIssues"]),
    ],
)
def test_tools_are_found_by_words(query: str, limit: int, found: list[str]) -> None:
    table = table_of(
        create_issue="Open a ticket: a bug, a wish.",
        listIssues="Show the open ones.",
        forecast="How the weather will be.",
    )
    assert [tool.raw.tool for tool in search_tools(table, query, limit)] == found


@claim("mcp:deferred")
async def test_a_model_that_can_search_is_shown_what_it_finds(tmp_path: Path) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(config={"model_supports_search_tool": True})
        search = {"type": "tool_search_call", "execution": "client", "id": "s1"}
        served.model.scripts += [
            [
                {
                    "type": "response.output_item.done",
                    "item": {
                        **search,
                        "call_id": f"search_{number}",
                        "arguments": arguments,
                    },
                }
                for number, arguments in enumerate(
                    [{"query": "destroy things", "limit": 1e9}, '{"query": 5}', "{bad"]
                )
            ]
            + [COMPLETED],
            calls(raw_call("plain"), raw_call("meta")),
        ]
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        question = await client.wait_for("mcpServer/elicitation/request")
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        told = await client.until("turn/completed")
        first, second, third = served.model.requests
        assert [tool["type"] for tool in first["tools"]] == [*["function"] * 3, "tool_search"]
        note = first["input"][0]
        assert (note["role"], third["input"][0]) == ("developer", note)
        assert "<tools>\n- mcp__raw: Use it wisely.\n</tools>" in note["content"][0]["text"]
        found, *nothing = [i for i in second["input"] if i["type"] == "tool_search_output"]
        (namespace,) = found.pop("tools")
        assert found == {
            "type": "tool_search_output",
            "call_id": "search_0",
            "status": "completed",
            "execution": "client",
        }
        assert namespace["name"] == "mcp__raw"
        assert [(tool["name"], tool["defer_loading"]) for tool in namespace["tools"]] == [
            ("wipe", True)
        ]
        assert [output["tools"] for output in nothing] == [[], []]
        items = [m["params"]["item"] for m in told if m["method"] == "item/completed"]
        assert [item["tool"] for item in items if item["type"] == "mcpToolCall"] == [
            "plain",
            "meta",
        ]


@claim("mcp:deferred")
def test_a_search_that_was_cut_off_has_found_nothing() -> None:
    call = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {}}
    done = {"type": "function_call", "call_id": "f"}
    output = {"type": "function_call_output", "call_id": "f", "output": ""}
    (found,) = outputs_for_open_calls([call, done, output])
    assert (found["type"], found["call_id"], found["tools"]) == ("tool_search_output", "s", [])


# Side by side.


@pytest.mark.parametrize(
    ("tool", "together"),
    [("meet", True), ("meet_writing", False)],
    ids=["read-only", "any tool of a server that allows it"],
)
@claim("mcp:parallel")
async def test_calls_that_may_overlap_run_side_by_side(
    tmp_path: Path, tool: str, together: bool
) -> None:
    keys = {} if together else {"supports_parallel_tool_calls": "true"}
    keys["default_tools_approval_mode"] = '"approve"'
    async with with_peer(tmp_path, **keys) as (served, client, thread_id):
        # Each is answered only when both have come.
        items, outputs = await call_items(
            served, client, thread_id, raw_call(tool, {"n": 1}), raw_call(tool, {"n": 2})
        )
        assert [item["status"] for item in items] == ["completed", "completed"]
        assert [output[1]["text"] for output in outputs] == ["met 1", "met 2"]


@claim("mcp:exclusive")
async def test_a_call_that_may_write_runs_alone(tmp_path: Path) -> None:
    keys = {"default_tools_approval_mode": '"approve"'}
    async with with_peer(tmp_path, **keys) as (served, client, thread_id):
        functions = [raw_call(name) for name in ("meta", "wipe", "wipe", "fail", "structured")]
        served.model.scripts.append(calls(*functions))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        messages = await client.until("turn/completed")
        told = [
            (message["method"].removeprefix("item/"), message["params"]["item"]["id"])
            for message in messages
            if message.get("params", {}).get("item", {}).get("type") == "mcpToolCall"
        ]
        assert told[:6] == [
            (step, f"call_{number}") for number in (1, 2, 3) for step in ("started", "completed")
        ]
        assert told[6:8] == [("started", "call_4"), ("started", "call_5")]


@claim("mcp:parallel", "mcp:exclusive")
@pytest.mark.parametrize("beside", [True, False], ids=["side by side", "one after the other"])
async def test_an_interrupt_leaves_the_outputs_of_calls_that_had_ended(
    tmp_path: Path, beside: bool
) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        slow, quick = raw_call("slow"), raw_call("meta")
        functions = [slow, quick] if beside else [asking({}, "ping"), slow]
        await start_asking(served, client, thread_id, *functions)
        await client.wait_for(
            "item/completed", lambda params: params["item"]["type"] == "mcpToolCall"
        )
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": ""})
        await client.wait_for("turn/completed")
        await client.turn(thread_id, "what came out?")
        outputs = outputs_of(served)
        assert outputs.count(ABORTED_OUTPUT) == 1
        ended = next(output for output in outputs if output != ABORTED_OUTPUT)
        assert ended[0]["text"].startswith("Wall time: ")


@claim("mcp:exclusive")
async def test_calls_of_one_response_keep_their_order_and_end_together() -> None:
    began: list[int] = []
    kept: list[tuple[int, ...]] = []
    second_ended = anyio.Event()

    async def keep(*outputs: int) -> None:
        kept.append(outputs)

    async def run(call: int) -> int:
        began.append(call)
        if call < 0:
            raise OSError("disk")
        match call:
            case 1:
                await second_ended.wait()
            case 2:
                second_ended.set()
            case 99:
                await anyio.sleep_forever()
        return call * 10

    await run_calls([1, 2, 3, 4], lambda call: call != 3, run, keep)
    assert (began, kept) == ([1, 2, 3, 4], [(10, 20), (30,), (40,)])
    kept.clear()
    # What had ended is kept, also behind what had not.
    with pytest.raises(OSError, match="disk"):
        await run_calls([99, 5, -1], lambda call: True, run, keep)
    assert kept == [(50,)]
    kept.clear()
    await run_calls(range(100, 200), lambda call: True, run, keep)
    assert [output for outputs in kept for output in outputs] == list(range(1000, 2000, 10))


# Approval.


async def answer_question(client: WireClient, answer: Any) -> Any:
    """Answer the next question; gives its params."""
    question = await client.wait_for("mcpServer/elicitation/request")
    await client.send({"id": question["id"], **answer})
    return question["params"]


@claim("approval:question", "approval:status")
async def test_a_tool_that_may_destroy_things_asks_first(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        served.model.scripts.append(calls(raw_call("wipe", {"p": 1, "a": "x"})))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        started = await client.call("turn/start", params)
        before = await client.until("mcpServer/elicitation/request")
        question = before[-1]
        assert question["params"] == {
            "threadId": thread_id,
            "turnId": started["turn"]["id"],
            "serverName": "raw",
            "mode": "form",
            "_meta": {
                "codex_approval_kind": "mcp_tool_call",
                "persist": ["session", "always"],
                "tool_name": "wipe",
                "tool_title": "Wipe",
                "tool_annotations": {"destructiveHint": True},
                "tool_description": "Destroy things.",
                "tool_params": {"p": 1, "a": "x"},
                "tool_params_display": [
                    {"name": "a", "value": "x", "display_name": "a"},
                    {"name": "p", "value": 1, "display_name": "p"},
                ],
            },
            "message": 'Allow the raw MCP server to run tool "wipe"?',
            "requestedSchema": {"type": "object", "properties": {}},
        }
        assert [m["method"] for m in before[-3:]] == [
            "item/started",
            "thread/status/changed",
            "mcpServer/elicitation/request",
        ]
        assert before[-2]["params"]["status"] == {
            "type": "active",
            "activeFlags": ["waitingOnApproval"],
        }
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        after = await client.until("turn/completed")
        assert [m["method"] for m in after[:3]] == [
            "serverRequest/resolved",
            "thread/status/changed",
            "item/completed",
        ]
        assert after[0]["params"] == {"threadId": thread_id, "requestId": question["id"]}
        assert after[1]["params"]["status"] == {"type": "active", "activeFlags": []}
        assert after[2]["params"]["item"]["result"]["content"][0]["text"] == "wipe ran"


@claim("approval:refused", "approval:session")
async def test_refusals_fail_the_item_and_a_session_is_remembered(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):

        async def ask(answer: Any) -> tuple[Any, Any]:
            served.model.scripts.append(calls(raw_call("wipe")))
            params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
            await client.call("turn/start", params)
            await answer_question(client, answer)
            done = await client.wait_for(
                "item/completed", lambda p: p["item"]["type"] == "mcpToolCall"
            )
            end = await client.wait_for("turn/completed")
            assert end["params"]["turn"]["status"] == "completed"
            output = served.model.requests[-1]["input"][-1]["output"]
            return done["params"]["item"], output

        rejected = "user rejected MCP tool call"
        for answer, text in (
            ({"result": {"action": "decline"}}, rejected),
            ({"result": {"action": "cancel"}}, "user cancelled MCP tool call"),
            ({"result": {"action": "nonsense"}}, rejected),
            ({"error": {"code": -1, "message": "no"}}, rejected),
        ):
            item, output = await ask(answer)
            assert (item["status"], item["error"]) == ("failed", {"message": text})
            assert (item["result"], item["durationMs"]) == (None, 0)
            assert output[1:] == [input_text(text)]
        item, _ = await ask({"result": {"action": "accept", "_meta": "strange"}})
        assert item["status"] == "completed"
        item, _ = await ask({"result": {"action": "accept", "_meta": {"persist": "session"}}})
        assert item["status"] == "completed"
        items, _ = await call_items(served, client, thread_id, raw_call("wipe"))
        assert items[0]["status"] == "completed"


@claim("approval:modes")
@pytest.mark.parametrize(
    ("mode", "tool", "policy", "sandbox", "outcome"),
    [
        ("auto", "meta", "on-request", "read-only", "runs"),
        ("auto", "plain", "on-request", "read-only", "asks"),
        ("auto", "wipe", "on-request", "danger-full-access", "asks"),
        ("auto", "wipe", "never", "danger-full-access", "runs"),
        ("auto", "wipe", "never", "workspace-write", "fails"),
        ("approve", "wipe", "never", "read-only", "runs"),
        ("prompt", "meta", "on-request", "read-only", "asks"),
        ("writes", "meta", "on-request", "read-only", "runs"),
        ("writes", "plain", "untrusted", "read-only", "asks"),
    ],
)
async def test_policy_decides_who_asks(
    tmp_path: Path, mode: str, tool: str, policy: str, sandbox: str, outcome: str
) -> None:
    config = stdio_server("raw", default_tools_approval_mode=f'"{mode}"')
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy=policy, sandbox=sandbox)
        await steps_until_settled(client, "raw")
        served.model.scripts.append(calls(raw_call(tool)))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        if outcome == "asks":
            asked = await answer_question(
                client, {"result": {"action": "accept", "_meta": {"persist": "session"}}}
            )
            assert ("persist" in asked["_meta"]) == (mode == "auto")
        messages = await client.until("turn/completed")
        assert ("mcpServer/elicitation/request" in {m.get("method") for m in messages}) is False
        (item,) = (
            m["params"]["item"]
            for m in messages
            if m["method"] == "item/completed" and m["params"]["item"]["type"] == "mcpToolCall"
        )
        if outcome == "fails":
            assert item["error"]["message"] == (
                "MCP tool call requires approval, but approval policy is never"
            )
        else:
            assert item["status"] == "completed"


@claim("approval:reconnect")
async def test_a_question_waits_for_the_next_client(tmp_path: Path) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as late:
        async with served.client() as client:
            thread_id = await client.start_thread()
            await steps_until_settled(client, "raw")
            served.model.scripts.append(calls(raw_call("wipe")))
            params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
            await client.call("turn/start", params)
            await client.wait_for("mcpServer/elicitation/request")
        resumed = await late.call("thread/resume", {"threadId": thread_id})
        assert resumed["thread"]["status"]["activeFlags"] == ["waitingOnApproval"]
        await answer_question(late, {"result": {"action": "accept"}})
        end = await late.wait_for("turn/completed")
        assert end["params"]["turn"]["status"] == "completed"


async def test_an_interrupt_withdraws_a_question(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        served.model.scripts.append(calls(raw_call("wipe")))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        started = await client.call("turn/start", params)
        question = await client.wait_for("mcpServer/elicitation/request")
        interrupt = {"threadId": thread_id, "turnId": started["turn"]["id"]}
        await client.call("turn/interrupt", interrupt)
        messages = await client.until("turn/completed")
        resolved = [m["params"] for m in messages if m["method"] == "serverRequest/resolved"]
        assert resolved == [{"threadId": thread_id, "requestId": question["id"]}]
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        assert (await client.turn(thread_id, "next"))["status"] == "completed"


# Resources.


async def test_the_model_looks_at_resources(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        items, outputs = await call_items(
            served,
            client,
            thread_id,
            {"name": "list_mcp_resources", "arguments": {"server": "raw"}},
            {"name": "list_mcp_resource_templates", "arguments": ""},
            {"name": "read_mcp_resource", "arguments": {"server": "raw", "uri": "mem://a"}},
            {"name": "read_mcp_resource", "arguments": {"server": "raw"}},
            {"name": "list_mcp_resources", "arguments": {"server": "none"}},
            {"name": "list_mcp_resources", "arguments": {"server": 5}},
            {"name": "list_mcp_resources", "arguments": "[1]"},
        )
        resource = {"server": "raw", "uri": "mem://a", "name": "a"}
        assert json.loads(outputs[0]) == {"server": "raw", "resources": [resource]}
        template = {"server": "raw", "uriTemplate": "mem://{x}", "name": "x"}
        assert json.loads(outputs[1]) == {"resourceTemplates": [template]}
        contents = [{"uri": "mem://a", "text": '{"uri": "mem://a"}'}]
        assert json.loads(outputs[2]) == {"server": "raw", "uri": "mem://a", "contents": contents}
        assert [(item["server"], item["tool"], item["status"]) for item in items] == [
            ("raw", "list_mcp_resources", "completed"),
            ("codex", "list_mcp_resource_templates", "completed"),
            ("raw", "read_mcp_resource", "completed"),
            ("raw", "read_mcp_resource", "failed"),
            ("none", "list_mcp_resources", "failed"),
            ("codex", "list_mcp_resources", "failed"),
            ("codex", "list_mcp_resources", "failed"),
        ]
        assert items[0]["result"]["content"] == [{"type": "text", "text": outputs[0]}]
        assert [item["error"]["message"].split(": ", 1)[1] for item in items[3:]] == [
            "server and uri must be strings",
            "unknown MCP server 'none'",
            "server must be a string",
            "arguments must be a JSON object",
        ]


async def test_a_server_that_dies_while_all_are_listed_counts_as_empty(tmp_path: Path) -> None:
    async with with_peer(tmp_path, "frail") as (served, client, thread_id):
        list_all = {"name": "list_mcp_resources", "arguments": {}}
        _, outputs = await call_items(served, client, thread_id, list_all, list_all)
        assert [json.loads(output) for output in outputs] == [{"resources": []}] * 2
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert (status["data"][0]["resources"], len(status["data"][0]["tools"])) == ([], 13)


# Direct methods.


@claim("mcp:direct-call", "mcp:direct-errors", "mcp:resource-read")
async def test_clients_call_tools_and_read_resources_directly(tmp_path: Path) -> None:
    config = (
        stdio_server("raw", disabled_tools='["plain"]')
        + stdio_server("off", enabled="false")
        + '[mcp_servers.bad]\ncommand = "/no/such"\n'
    )
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()

        async def call(tool: str, server: str = "raw", **more: Any) -> Any:
            params = {"threadId": thread_id, "server": server, "tool": tool, **more}
            return await client.call("mcpServer/tool/call", params)

        async def refused(tool: str, server: str = "raw", **more: Any) -> tuple[int, str, Any]:
            params = {"threadId": thread_id, "server": server, "tool": tool, **more}
            error = await client.refusal("mcpServer/tool/call", params)
            return error.code, error.message, error.data

        assert await call("structured") == {
            "content": [{"type": "text", "text": "t"}],
            "structuredContent": {"b": 1, "a": [2]},
            "_meta": {"m": 1},
        }
        assert await call("fail") == {
            "content": [{"type": "text", "text": "it went wrong"}],
            "isError": True,
        }
        result = await call("meta", _meta={"threadId": "evil", "progressToken": "evil", "k": 1})
        meta = json.loads(result["content"][0]["text"])
        assert (meta["threadId"], meta["k"]) == (thread_id, 1)
        assert meta["progressToken"] != "evil"
        assert (await call("progress"))["content"][0]["text"] == "done"
        assert (await call("unlisted"))["content"][0]["text"] == "unlisted ran"
        assert await refused("refuse") == (-32050, "refused", {"why": 1})
        assert await refused("x", "zzz") == (
            -32603,
            "unknown MCP server 'zzz'",
            {"code": "unknownMcpServer"},
        )
        assert (await refused("x", "off"))[1] == "unknown MCP server 'off'"
        assert await refused("x", "bad") == (
            -32603,
            "failed to get client: MCP startup failed: No such file or directory (os error 2)",
            {"code": "mcpServerUnavailable"},
        )
        assert await refused("plain") == (
            -32603,
            "tool 'plain' is disabled for MCP server 'raw'",
            {"code": "mcpToolDisabled"},
        )
        assert await refused("meta", arguments=[1]) == (
            -32603,
            "tool call failed for `raw/meta`: MCP tool arguments must be a JSON object",
            {"code": "mcpBadArguments"},
        )
        assert (await refused("meta", _meta=[1]))[1] == (
            "tool call failed for `raw/meta`: MCP tool request _meta must be a JSON object, got [1]"
        )
        assert (await refused("die"))[1:] == (
            "tool call failed for `raw/die`: Transport closed",
            {"code": "mcpTransportClosed"},
        )

        read = {"server": "raw", "uri": "mem://a"}
        trial = await client.call(
            "mcpServer/resource/read",
            {**read, "originCallId": "o", "_meta": {"k": 1, "codex/x": 2}},
        )
        assert trial["originCallId"] == "o"
        (content,) = trial["contents"]
        assert json.loads(content["text"]) == {"uri": "mem://a", "_meta": {"k": 1}}
        error = await client.refusal("mcpServer/resource/read", {"server": "zz", "uri": "x"})
        assert error.message == "unknown MCP server 'zz'"
        error = await client.refusal("mcpServer/resource/read", {"server": "bad", "uri": "x"})
        assert error.data["code"] == "mcpServerUnavailable"
        deadly = {"server": "raw", "uri": "mem://die", "threadId": thread_id}
        error = await client.refusal("mcpServer/resource/read", deadly)
        assert error.message == "resource read failed for `raw`: Transport closed"
        own = await client.call("mcpServer/resource/read", {**read, "threadId": thread_id})
        assert json.loads(own["contents"][0]["text"])["_meta"] == {"threadId": thread_id}


# Status.


@claim("mcp:event-streams")
async def test_event_streams_are_for_hosted_apps(tmp_path: Path) -> None:
    start: dict[str, Any] = {
        "threadId": "01900000-0000-7000-8000-000000000000",
        "server": "nobody",
        "subscriptionId": "s",
        "name": "changed",
        "arguments": {},
    }
    async with serve(tmp_path, config=stdio_server("raw")) as served, served.client() as client:
        answers = [
            await client.refusal("mcpServer/event/stream/start", start),
            await client.refusal(
                "mcpServer/event/stream/start",
                {**start, "threadId": await client.start_thread(), "server": "raw"},
            ),
        ]
        stopped = await client.call("mcpServer/event/stream/stop", {"subscriptionId": "s"})
    assert [(error.code, error.message, error.data) for error in answers] == [
        (
            -32600,
            "MCP event subscriptions are only supported for hosted apps",
            {"code": "eventStreamsNotSupported"},
        )
    ] * 2
    assert stopped == {}


@claim("status:list", "status:pages", "status:runtime")
async def test_status_shows_every_server_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.server.RETRY_WAITS_S", (0, 0))
    monkeypatch.setenv("TOKEN", "the-secret")
    config = (
        stdio_server("raw", enabled_tools='["meta"]')
        + stdio_server("off", enabled="false")
        + stdio_server("far", environment_id='"far"')
        + '[mcp_servers.bad]\ncommand = "/no/such"\n'
        + '[mcp_servers.web]\nurl = "http://127.0.0.1:1/mcp"\nbearer_token_env_var = "TOKEN"\n'
    )
    async with serve(tmp_path, config=config) as served, served.client() as client:
        nothing: dict[str, Any] = {
            "runtimeStatus": None,
            "pluginId": None,
            "httpOrigin": None,
            "serverInfo": None,
            "serverCapabilities": None,
            "toolListMeta": None,
            "tools": {},
            "toolsError": None,
            "resources": [],
            "resourceTemplates": [],
            "authStatus": "unsupported",
        }
        tool = {
            "name": "meta",
            "description": "Give back the metadata.",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": True},
        }
        raw: dict[str, Any] = {
            **nothing,
            "name": "raw",
            "serverInfo": {
                "name": "peer",
                "title": None,
                "version": "1",
                "description": None,
                "icons": None,
                "websiteUrl": None,
            },
            "serverCapabilities": {"tools": {}, "resources": {}},
            "toolListMeta": {"list": 1},
            "tools": {"meta": tool},
            "resources": [{"uri": "mem://a", "name": "a"}],
            "resourceTemplates": [{"uriTemplate": "mem://{x}", "name": "x"}],
        }
        failure = "MCP startup failed: No such file or directory (os error 2)"
        full = await client.call("mcpServerStatus/list", {})
        assert full == {
            "data": [
                {**nothing, "name": "bad", "toolsError": failure},
                {**nothing, "name": "far", "toolsError": "unknown environment `far`"},
                {**nothing, "name": "off"},
                raw,
                {
                    **nothing,
                    "name": "web",
                    "httpOrigin": "http://127.0.0.1:1",
                    "toolsError": "MCP startup failed: cannot reach http://127.0.0.1:1/mcp: "
                    "Connection refused",
                    "authStatus": "bearerToken",
                },
            ],
            "nextCursor": None,
        }
        assert "the-secret" not in json.dumps(full)
        quick = await client.call("mcpServerStatus/list", {"detail": "toolsAndAuthOnly"})
        assert quick["data"][3] == {**raw, "resources": [], "resourceTemplates": []}

        page = await client.call("mcpServerStatus/list", {"limit": 2})
        assert ([s["name"] for s in page["data"]], page["nextCursor"]) == (["bad", "far"], "2")
        page = await client.call("mcpServerStatus/list", {"limit": 0, "cursor": "4"})
        assert ([s["name"] for s in page["data"]], page["nextCursor"]) == (["web"], None)
        for cursor, message in (
            ("zzz", "invalid cursor: zzz"),
            ("-1", "invalid cursor: -1"),
            ("99", "cursor 99 exceeds total MCP servers 5"),
        ):
            error = await client.refusal("mcpServerStatus/list", {"cursor": cursor})
            assert (error.code, error.message) == (-32600, message)
        assert (await client.call("mcpServerStatus/list", {"serverName": "none"}))["data"] == []

        thread_id = await client.start_thread()
        of_thread = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert {s["name"]: s["runtimeStatus"] for s in of_thread["data"]} == {
            "bad": "failed",
            "far": "disabled",
            "off": "disabled",
            "raw": "connected",
            "web": "failed",
        }
        one = await client.call(
            "mcpServerStatus/list", {"threadId": thread_id, "serverName": "raw"}
        )
        assert one["data"] == [{**raw, "runtimeStatus": "connected"}]


async def test_lists_that_fit_no_message_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.views.mcp_servers.MAX_PAGE_BYTES", 1500)
    config = stdio_server("raw") + "".join(stdio_server(f"x{n}", enabled="false") for n in range(9))
    async with serve(tmp_path, config=config) as served, served.client() as client:
        first = await client.call("mcpServerStatus/list", {})
        entry, *others = first["data"]
        assert (entry["name"], entry["tools"]) == ("raw", {})
        assert entry["toolsError"] == "its lists are larger than 1500 bytes"
        assert 1 < len(first["data"]) < 9
        assert first["nextCursor"] == str(len(first["data"]))
        second = await client.call("mcpServerStatus/list", {"cursor": first["nextCursor"]})
        names = [entry["name"] for entry in (*others, *second["data"])]
        assert names == [f"x{n}" for n in range(len(names))]
        assert len(second["data"]) > 1


# Streamable HTTP.

Responder = Callable[[Any, types.CallToolRequestParams], Awaitable[types.CallToolResult]]


async def _list_tools(context: Any, params: Any) -> types.ListToolsResult:
    schema: dict[str, Any] = {"type": "object"}
    annotations = types.ToolAnnotations(read_only_hint=True)
    return types.ListToolsResult(
        tools=[types.Tool(name="look", input_schema=schema, annotations=annotations)]
    )


async def _look(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    header = context.request.headers.get("x-test", "")
    size = int((params.arguments or {}).get("size", 0))
    text = types.TextContent(type="text", text=header + "x" * size)
    return types.CallToolResult(content=[text])


@asynccontextmanager
async def http_peer(*, json_response: bool, status: int | None = None) -> AsyncIterator[Any]:
    """Run a real MCP server over HTTP; with `status` it refuses. Gives its URL and requests."""
    manager = StreamableHTTPSessionManager(
        app=Server("web", version="1", on_list_tools=_list_tools, on_call_tool=_look),
        json_response=json_response,
    )
    app = StreamableHTTPASGIApp(manager)
    requests: list[str] = []

    async def recording(scope: Any, receive: Any, send: Any) -> None:
        requests.append(scope["method"])
        if status is None:
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    config = uvicorn.Config(
        recording, port=0, interface="asgi3", lifespan="off", ws="none", log_config=None
    )

    class Quiet(uvicorn.Server):
        def install_signal_handlers(self) -> None:
            """Leave signals alone."""

        def capture_signals(self) -> Any:
            return anyio.CancelScope()

    server = Quiet(config)
    async with manager.run():
        serving = asyncio.create_task(server.serve())
        with anyio.fail_after(WAIT_S):
            while not server.started:
                await asyncio.sleep(0.001)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/mcp", requests
        finally:
            server.should_exit = True
            await serving


@claim("mcp:http")
@pytest.mark.parametrize("json_response", [True, False], ids=["json", "events"])
async def test_a_server_behind_a_url_is_called_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, json_response: bool
) -> None:
    monkeypatch.setattr(listener, "MAX_MESSAGE_BYTES", 100_000)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("X_TEST", "from the environment")
    async with http_peer(json_response=json_response) as (url, requests):
        config = f'[mcp_servers.raw]\nurl = "{url}"\nenv_http_headers = {{ X-Test = "X_TEST" }}\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            assert (await steps_until_settled(client, "raw"))["raw"][-1] == ("ready", None)
            items, outputs = await call_items(
                served,
                client,
                thread_id,
                raw_call("look"),
                raw_call("look", {"size": 200_000}),
                raw_call("look"),
            )
            assert [item["status"] for item in items] == ["completed", "failed", "completed"]
            assert outputs[0][1:] == [input_text("from the environment")]
            assert "Mcp error: " in items[1]["error"]["message"]
            status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
            (entry,) = status["data"]
            assert (entry["httpOrigin"], entry["authStatus"]) == (
                url.removesuffix("/mcp"),
                "unsupported",
            )
        assert requests[-1] == "DELETE"


@pytest.mark.parametrize(
    ("status", "error", "auth"),
    [
        (401, "The raw MCP server is not logged in. Run `codex mcp login raw`.", "unsupported"),
        (
            500,
            "MCP client for `raw` failed to start: MCP startup failed: HTTP status 500 from {url}",
            "unsupported",
        ),
        (
            404,
            "MCP client for `raw` failed to start: MCP startup failed: Not Found",
            "unsupported",
        ),
    ],
)
async def test_a_server_that_refuses_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, error: str, auth: str
) -> None:
    monkeypatch.setattr("app_server.mcp.server.RETRY_WAITS_S", (0, 0))
    async with http_peer(json_response=True, status=status) as (url, requests):
        config = f'[mcp_servers.raw]\nurl = "{url}"\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            told = await steps_until_settled(client, "raw")
            assert told["raw"] == [("starting", None), ("failed", error.replace("{url}", url))]
            assert requests.count("POST") == (3 if status == 500 else 1)
            listed = await client.call("mcpServerStatus/list", {"threadId": thread_id})
            (entry,) = listed["data"]
            assert entry["authStatus"] == auth
            assert entry["runtimeStatus"] == (
                "authenticationRequired" if status == 401 else "failed"
            )


def test_an_ambient_proxy_is_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:1")
    monkeypatch.setenv("NO_PROXY", "near.example")
    choose = remote.ambient_proxy
    assert choose(httpx2.URL("http://127.0.0.1:5/mcp")) is None
    assert choose(httpx2.URL("http://[::1]:5/mcp")) is None
    assert choose(httpx2.URL("http://near.example/mcp")) is None
    assert choose(httpx2.URL("http://far.example/mcp")) == "http://proxy:1"
    assert choose(httpx2.URL("http://10.0.0.1/mcp")) == "http://proxy:1"


async def test_a_peer_that_breaks_the_sdk_reaches_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise LookupError("the SDK broke")

    async def sdk() -> Any:
        return broken

    monkeypatch.setattr("app_server.mcp.connections.load_sdk", sdk)
    async with serve(tmp_path, config=stdio_server("raw")) as served, served.client() as client:
        thread_id = await client.start_thread()
        told = await steps_until_settled(client, "raw")
        assert told["raw"][-1][1].endswith("MCP startup failed: the connection broke")
        assert (await client.turn(thread_id, "hi"))["status"] == "completed"
    assert "the SDK broke" in caplog.text


async def test_a_server_that_listens_to_nothing_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    peer = Path(__file__).parents[1] / "support" / "mcp_peer.py"
    script.write_text(
        "import signal, runpy, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"sys.argv = ['x']\nrunpy.run_path({str(peer)!r}, run_name='__main__')\n"
        "signal.pause()\n"
    )
    config = f"[mcp_servers.raw]\ncommand = {json.dumps(sys.executable)}\nargs = ['{script}']\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app_server.host.processes.TERMINATE_S", 0.05)
        async with serve(tmp_path, config=config) as served, served.client() as client:
            await client.start_thread()
            await steps_until_settled(client, "raw")
    left = [line for line in _processes() if str(script) in line]
    assert left == []


@claim("mcp:deaf")
async def test_a_server_that_stops_reading_holds_up_its_own_calls_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.stdio.SEND_S", 0.1)
    monkeypatch.setattr("app_server.mcp.stdio.MAX_UNSENT_BYTES", 2_000_000)
    config = stdio_server("raw", "deaf") + stdio_server("other")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        params = {"threadId": thread_id, "server": "raw", "tool": "plain"}
        big = {**params, "arguments": {"text": "x" * 900_000}}
        for said in (
            *["the server does not read its input"] * 3,
            "more than 2000000 bytes wait for the server to read them",
        ):
            error = await client.refusal("mcpServer/tool/call", big)
            assert error.message == f"tool call failed for `raw/plain`: {said}"
        result = await client.call("mcpServer/tool/call", {**params, "server": "other"})
        assert result["content"] == [{"type": "text", "text": "plain ran"}]


def _processes() -> list[str]:
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return lines


@claim("mcp:children-end")
async def test_no_child_outlives_its_thread(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}"
    config = stdio_server("raw", marker)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        first, second = await client.start_thread(), await client.start_thread()
        for thread_id in (first, second):
            await client.call(
                "mcpServer/tool/call", {"threadId": thread_id, "server": "raw", "tool": "meta"}
            )
        assert len([line for line in _processes() if marker in line]) == 2
        await client.call("thread/archive", {"threadId": first})
        with anyio.fail_after(WAIT_S):
            while len([line for line in _processes() if marker in line]) > 1:
                await anyio.sleep(0.01)
    assert [line for line in _processes() if marker in line] == []
