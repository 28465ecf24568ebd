"""mcp: texts of servers are shown without what the server was given to sign in with."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app_server.mcp.catalog.config import HttpTransport, ServerConfig, StdioTransport
from app_server.mcp.record import MAX_RUNS, ServerRecord
from app_server.mcp.redaction import without_secrets
from tests.support.harness import claim, serve
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.mcp_peers.web_servers import listening

URL = "http://127.0.0.1:1/mcp"


@pytest.mark.parametrize(
    ("transport", "text", "clean"),
    [
        (HttpTransport(URL, bearer_token_env_var="GH_PAT_MCP"), "no pat-4711 here", "no *** here"),
        (HttpTransport(URL, env_http_headers={"X-A": "GH_PAT_MCP"}), "is pat-4711", "is ***"),
        (HttpTransport(URL, bearer=SecretStr("inline-1")), "got inline-1!", "got ***!"),
        (
            HttpTransport(URL, http_headers={"X-Auth": "Custom abcdef"}),
            "abcdef of Custom abcdef",
            "*** of ***",
        ),
        (
            HttpTransport(URL, http_headers={"X-Auth": "Bearer abcdef de"}),
            "Bearer of abcdef is not de",
            "Bearer of *** is not de",
        ),
        (StdioTransport("c", env={"PLAIN": "eight-ch", "DEBUG": "1"}), "1 eight-ch", "1 ***"),
        (StdioTransport("c", env_vars=["GH_PAT_MCP"]), "is pat-4711", "is ***"),
        (StdioTransport("c"), "is pat-4711", "is pat-4711"),
    ],
)
def test_what_a_server_signs_in_with_is_left_out_of_its_texts(
    transport: Any, text: str, clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_PAT_MCP", "pat-4711")
    assert without_secrets(text, ServerConfig("s", transport)) == clean


async def shown(home: Path, config: str) -> tuple[Any, Any, Any]:
    """Start the server `raw`; gives the error of its start, `toolsError` and `lastError`."""
    async with serve(home, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        step, error = (await steps_until_settled(client, "raw"))["raw"][-1]
        assert step == "failed"
        found = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        [row] = found["data"]
        return error, row["toolsError"], row["lastError"]


def texts(reason: str) -> tuple[str, str, str]:
    failure = f"MCP startup failed: {reason}"
    return f"MCP client for `raw` failed to start: {failure}", failure, failure


@claim("mcp:status-process")
@pytest.mark.parametrize("share", ["thread", "home"])
async def test_no_error_of_a_start_has_a_variable_of_the_process(
    tmp_path: Path, share: str
) -> None:
    script = 'echo "cannot use $PLAIN" >&2; exit 3'
    config = (
        f'[mcp_servers.raw]\nprotocol = "2025"\ncommand = "sh"\nshare = "{share}"\n'
        f'args = {json.dumps(["-c", script])}\nenv = {{ PLAIN = "some-secret-words" }}\n'
    )
    reason = "the server ended too early: exit status 3: cannot use ***"
    assert await shown(tmp_path, config) == texts(reason)


def test_what_a_command_printed_is_left_out_of_texts() -> None:
    config = ServerConfig("s", HttpTransport(URL, header_command="x"))
    record = ServerRecord(config)
    runs = [f"Bearer printed{number}" for number in range(MAX_RUNS + 1)]
    for value in runs:
        record.printed.append([value, "short"])
    said = record.without_secrets(f"{' '.join(run.split()[1] for run in runs)} is short")
    assert said == f"printed0 {'*** ' * MAX_RUNS}is short"
    record.misbehaved("sent printed4")
    record.ended("it had printed4")
    assert (record.last_fault, record.last_error) == ("sent ***", "it had ***")


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Refuse each request with a text that has its headers."""
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    body += message.get("body", b"")
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    words = [headers["x-auth"].split()[1], headers["authorization"].split()[1]]
    error = {"code": -32001, "message": f"neither {words[0]} nor {words[1]}"}
    answer = {"jsonrpc": "2.0", "id": json.loads(body or b'{"id": 0}')["id"], "error": error}
    kind = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": kind})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


@claim("mcp:status-process")
async def test_no_error_of_a_start_has_words_of_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_PAT_MCP", "pat-4711")
    async with listening(echo) as port:
        config = (
            f'[mcp_servers.raw]\nprotocol = "2025"\nurl = "http://127.0.0.1:{port}/mcp"\n'
            'bearer_token_env_var = "GH_PAT_MCP"\nhttp_headers = { X-Auth = "Custom abcdef" }\n'
        )
        assert await shown(tmp_path, config) == texts("neither *** nor ***")


@claim("mcp:status-process", "mcp:header-command")
@pytest.mark.parametrize("share", ["thread", "folder"])
async def test_no_error_of_a_start_has_what_a_command_printed(tmp_path: Path, share: str) -> None:
    headers = {"X-Auth": "Custom abcdef", "Authorization": "Bearer printed-4711"}
    (tmp_path / "printed").write_text(json.dumps(headers))
    async with listening(echo) as port:
        config = (
            f'[mcp_servers.raw]\nprotocol = "2025"\nurl = "http://127.0.0.1:{port}/mcp"\n'
            f'share = "{share}"\nhttp_headers_helper = "cat {tmp_path}/printed"\n'
        )
        assert await shown(tmp_path, config) == texts("neither *** nor ***")
