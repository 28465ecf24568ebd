"""mcp: texts of servers are shown without what the server was given to sign in with."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app_server.mcp.catalog.config import HttpTransport, ServerConfig, StdioTransport
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.tokens import TokenSource
from app_server.mcp.record import MAX_SENT, ServerRecord, without_secrets
from app_server.mcp_wire.errors import PeerError
from tests.support.harness import claim, serve
from tests.support.mcp_peers.calls import (
    call_items,
    raw_call,
    settled,
    steps_until_settled,
    with_peer,
)
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


def texts(reason: str, command: str = "") -> tuple[str, str, str]:
    failure = f"MCP startup failed: {reason}"
    return f"MCP client for `raw` failed to start: {failure}", failure, f"{command}{failure}"


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
    assert await shown(tmp_path, config) == texts(reason, "sh: ")


def test_what_a_command_printed_is_left_out_of_texts() -> None:
    config = ServerConfig("s", HttpTransport(URL, header_command="x"))
    record = ServerRecord(config)
    runs = [f"Bearer printed{number}" for number in range(MAX_SENT + 1)]
    for value in runs:
        record.sent.append([value, "short"])
    said = record.without_secrets(f"{' '.join(run.split()[1] for run in runs)} is short")
    assert said == f"printed0 {'*** ' * MAX_SENT}is short"
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


class Echo:
    """Serve a tool, and refuse requests with errors that have their headers."""

    def __init__(self, status: int) -> None:
        self.status = status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        asked = json.loads(body + message.get("body", b"") or b"{}")
        status, answer = 200, {"result": RESULTS.get(asked.get("method"), {})}
        if asked.get("method") in ("tools/call", "resources/read"):
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            sent = [headers.get(name, "") for name in ("x-auth", "authorization")]
            said = " and ".join(word for value in sent for word in value.split()[1:])
            status = self.status
            answer = {"error": {"code": -32001, "message": f"not {said}", "data": {"sent": sent}}}
        reply = {"jsonrpc": "2.0", "id": asked.get("id"), **answer}
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": kind})
        await send({"type": "http.response.body", "body": json.dumps(reply).encode()})


RESULTS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "resources": {}},
        "serverInfo": {"name": "echo", "version": "1"},
    },
    "tools/list": {
        "tools": [
            {
                "name": "look",
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True},
            }
        ]
    },
}

TABLES = {
    "bearer": 'bearer_token_env_var = "GH_PAT_MCP"\nhttp_headers = { X-Auth = "Custom abcdef" }\n',
    "variables": 'env_http_headers = { X-Auth = "MCP_CUSTOM", Authorization = "MCP_BEARER" }\n',
    "command": """http_headers_helper = "cat '{home}/printed'"\n""",
}
HEADERS = {"X-Auth": "Custom abcdef", "Authorization": "Bearer pat-4711"}


@claim("mcp:error-secrets")
@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("share", ["thread", "folder"])
@pytest.mark.parametrize("table", TABLES)
async def test_no_error_of_a_call_has_what_the_server_was_sent(
    tmp_path: Path, table: str, share: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_PAT_MCP", "pat-4711")
    monkeypatch.setenv("MCP_CUSTOM", HEADERS["X-Auth"])
    monkeypatch.setenv("MCP_BEARER", HEADERS["Authorization"])
    (tmp_path / "printed").write_text(json.dumps(HEADERS))
    async with listening(Echo(status)) as port:
        config = (
            f'[mcp_servers.raw]\nprotocol = "2025"\nurl = "http://127.0.0.1:{port}/mcp"\n'
            f'share = "{share}"\n' + TABLES[table].replace("{home}", str(tmp_path))
        )
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            assert await settled(client) == ("ready", None)
            [item], [output] = await call_items(served, client, thread_id, raw_call("look"))
            here = {"threadId": thread_id, "server": "raw"}
            called = await client.refusal("mcpServer/tool/call", {**here, "tool": "look"})
            read = await client.refusal("mcpServer/resource/read", {**here, "uri": "mem://a"})
    # A bearer token alone is a secret, and not the word before it.
    first = "***" if table != "bearer" else "Bearer ***"
    data = {"sent": ["***", first]}
    said = f"Mcp error: -32001: not *** and ***({json.dumps(data, separators=(',', ':'))})"
    assert item["error"]["message"].endswith(f"\n    {said}")
    assert output[1]["text"] == item["error"]["message"]
    assert (called.code, called.message, called.data) == (-32001, "not *** and ***", data)
    assert (read.code, read.message, read.data) == (-32001, "not *** and ***", data)


@pytest.mark.process
@claim("mcp:error-secrets")
async def test_no_error_of_a_call_has_a_variable_of_the_process(tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    why = "no some-secret-words at https://example.com/?a=b"
    answers.write_text(json.dumps({"error": ["tools/call", why]}))
    env = '{ PLAIN = "some-secret-words" }'
    async with with_peer(tmp_path, "answers", str(answers), env=env) as (served, client, thread_id):
        [item], [output] = await call_items(served, client, thread_id, raw_call("meta"))
    # What else it says is its own affair, as in a result.
    said = "Mcp error: -32000: no *** at https://example.com/?a=b"
    assert item["error"]["message"].endswith(f"\n    {said}")
    assert output[1]["text"] == item["error"]["message"]


@claim("mcp:error-secrets")
def test_no_error_of_a_call_has_a_token_of_a_sign_in_or_the_one_before(tmp_path: Path) -> None:
    transport = HttpTransport(URL)
    record = ServerRecord(ServerConfig("s", transport))
    store = CredentialStore(tmp_path, "file")
    tokens = TokenSource(SignInTarget("s", transport), store, record.sent)
    for token in ("first-token", "second-token", "first-token"):
        assert tokens.headers(token) == {"authorization": f"Bearer {token}"}
    error = PeerError(-32001, "neither first-token nor second-token", ["Bearer first-token"])
    record.redact_error(error)
    assert (str(error), error.message) == ("neither *** nor ***",) * 2
    assert error.data == ["Bearer ***"]
    assert list(record.sent) == [("first-token",), ("second-token",)]


def test_what_is_sent_while_an_error_is_cleaned_does_not_fail_it() -> None:
    record = ServerRecord(ServerConfig("s", HttpTransport(URL)))

    class Printed(list[str]):
        """Values in the middle of which a connection sends another one."""

        def __iter__(self) -> Iterator[str]:
            record.sent.append(("later-1",))
            return super().__iter__()

    record.sent.append(Printed(["first-1"]))
    error = PeerError(-32000, "no first-1", {"is": "first-1"})
    record.redact_error(error)
    assert (error.message, error.data) == ("no ***", {"is": "***"})
