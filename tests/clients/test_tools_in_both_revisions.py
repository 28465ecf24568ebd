"""The servers that come with the package, and the SDK's client in both revisions."""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.apps.hosted import serve_hosted
from tests.support.forked_commands.listener import forked_command
from tests.support.harness import WAIT_S, claim

pytestmark = pytest.mark.process

NEW = "2026-07-28"
MODES = pytest.mark.parametrize(
    ("mode", "spoken"), [("legacy", "2025-11-25"), ("auto", NEW), (NEW, NEW)]
)


def started(home: Path, command: str, *words: str) -> Any:
    """Start a server on the pipes of a client of the SDK."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "APP_SERVER_HOME": str(home)}
    return stdio_client(
        StdioServerParameters(command=command, args=list(words), env=variables, cwd=home)
    )


@claim("mcp:revisions")
@MODES
async def test_the_tools_of_the_receiver_are_the_same_in_both_revisions(
    tmp_path: Path, mode: Any, spoken: str
) -> None:
    words = ("receiver", "--home", str(tmp_path), "--session", "Texi")
    receiver = started(tmp_path, *await forked_command("app_server.cli.entry", *words))
    with anyio.fail_after(2 * WAIT_S):
        async with Client(receiver, mode=mode) as client:
            assert client.protocol_version == spoken
            tools = (await client.list_tools()).tools
            waiting = await client.call_tool("prism_signals_pending", {})
            wrong = await client.call_tool("prism_signals_pending", {"ack": 5})
    assert [tool.name for tool in tools] == [
        "prism_signals_pending",
        "prism_signal",
        "prism_status",
    ]
    assert waiting.structured_content == {"signals": [], "acked": [], "pending_signals": 0}
    assert wrong.is_error


@claim("mcp:revisions")
@MODES
async def test_the_demo_server_gives_the_metadata_of_a_call_back_in_both_revisions(
    tmp_path: Path, mode: Any, spoken: str
) -> None:
    meta: Any = {"demo/key": 5}
    demo = started(tmp_path, sys.executable, "-m", "app_server.clients.demo.tools")
    with anyio.fail_after(2 * WAIT_S):
        async with Client(demo, mode=mode) as client:
            assert client.protocol_version == spoken
            seen = await client.call_tool("look", {"at": "it"}, meta=meta)
            note = await client.read_resource("demo://note")
    assert seen.structured_content is not None
    assert seen.structured_content["arguments"] == {"at": "it"}
    assert seen.structured_content["_meta"]["demo/key"] == 5
    assert [getattr(content, "text", None) for content in note.contents] == ["Hello from the demo."]


@claim("mcp:revisions")
@MODES
async def test_the_demo_of_the_hosted_endpoint_answers_in_both_revisions(
    mode: Any, spoken: str
) -> None:
    with anyio.fail_after(2 * WAIT_S):
        async with serve_hosted() as hosted:
            bearer = f"Bearer {hosted.endpoint.token.get_secret_value()}"
            async with (
                httpx2.AsyncClient(
                    headers={"authorization": bearer}, timeout=WAIT_S, trust_env=False
                ) as http,
                Client(
                    streamable_http_client(hosted.target().url, http_client=http), mode=mode
                ) as client,
            ):
                assert client.protocol_version == spoken
                called = await client.call_tool("calendar_list_events", {})
    assert called.structured_content == {"events": [{"day": "2030-01-01", "title": "New year"}]}
