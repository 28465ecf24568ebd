"""mcp: headers that a command prints, from its process to the requests that carry them."""

import json
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.mcp.catalog.config import HttpTransport, OAuthSettings, ServerConfig
from app_server.mcp.errors import HeaderCommandFailed
from app_server.mcp.header_command import (
    MAX_OUTPUT_BYTES,
    HeaderCommand,
    parse_headers,
    run_command,
)
from app_server.mcp.oauth.credentials import Credential, CredentialStore
from app_server.runtime.launch import Launch
from tests.support.files.fifos import open_fifo
from tests.support.harness import WAIT_S, Served, WireClient, claim, serve, write_config
from tests.support.host.elsewhere import machines
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.mcp_peers.header_commands import FAILED, look, printing, runs, sent, server
from tests.support.mcp_peers.web_peer import Answer, WebPeer


@asynccontextmanager
async def conversation(
    home: Path, peer: WebPeer, command: str, more: str = ""
) -> AsyncIterator[tuple[Served, WireClient]]:
    async with (
        peer.serve(),
        serve(home, config=server(peer, command, more)) as served,
        served.client() as client,
    ):
        yield served, client


# What is printed.


@pytest.mark.parametrize(
    ("printed", "headers"),
    [
        (b"{}", {}),
        (
            b'  {"X-A": "1", "authorization": "Bearer t"}\n',
            {"x-a": "1", "authorization": "Bearer t"},
        ),
        (b'{"X-A": " padded\\t", "X-B": ""}', {"x-a": "padded", "x-b": ""}),
        (b'{"User-Agent": "me"}', {"user-agent": "me"}),
    ],
)
def test_headers_are_read(printed: bytes, headers: dict[str, str]) -> None:
    assert parse_headers(printed) == headers


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (b"", "must output a JSON object of strings"),
        (b"not json", "must output a JSON object of strings"),
        (b'["X-A"]', "must output a JSON object of strings"),
        (b'{"X-A": 1}', "must output a JSON object of strings"),
        (b'{"X-A": null}', "must output a JSON object of strings"),
        (b"[" * 5000, "must output a JSON object of strings"),
        (b'{"X-A": "\xff"}', "wrote non-UTF-8 data"),
        (b'{"X A": "v"}', "returned an invalid header name"),
        (b'{"": "v"}', "returned an invalid header name"),
        (b'{"X-A\\n": "v"}', "returned an invalid header name"),
        (b'{"X-A": "v\\r\\nX-B: w"}', "returned an invalid header value"),
        (b'{"X-A": "v\\u0000"}', "returned an invalid header value"),
        ('{"X-A": "ü"}'.encode(), "returned an invalid header value"),
        (b'{"X-A": "1", "x-a": "2"}', "returned duplicate header names"),
        *(
            (json.dumps({name: "v"}).encode(), "returned a reserved header")
            for name in (
                *("Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type"),
                *("Host", "Keep-Alive", "Last-Event-ID", "MCP-Protocol-Version", "TE"),
                *("Mcp-Session-Id", "Origin", "Trailer", "Transfer-Encoding", "Upgrade"),
            )
        ),
    ],
)
def test_what_is_no_header_is_refused(printed: bytes, reason: str) -> None:
    with pytest.raises(HeaderCommandFailed) as caught:
        parse_headers(printed)
    assert str(caught.value) == f"MCP HTTP headers helper {reason}"


# The process.


async def run_here(command: str, cwd: str, limit_s: float = WAIT_S) -> bytes:
    async with machines() as environments:
        async with environments.run("local", Launch("true")):
            pass  # The watchdog of children runs from here on.
        try:
            return await run_command(environments, "local", command, cwd, limit_s=limit_s)
        except HeaderCommandFailed as exc:
            failure = exc
    # Raised inside it would come out in a group.
    raise failure


async def test_the_command_runs_in_a_shell_with_few_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_SECRET", "1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    printed = await run_here("pwd -P && echo $LANG-$OUR_SECRET- && cat", str(tmp_path))
    assert printed.decode().split("\n") == [str(tmp_path.resolve()), "C.UTF-8--", ""]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo {}; exit 3", "exited with status 3"),
        ("/no/such/program", "exited with status 127"),
        ("kill -15 $$", "was ended by signal 15"),
        ("yes", f"output exceeds {MAX_OUTPUT_BYTES // 1024} KiB"),
    ],
)
async def test_a_command_that_fails_says_how_and_not_what_it_wrote(
    tmp_path: Path, command: str, reason: str
) -> None:
    with anyio.fail_after(WAIT_S), pytest.raises(HeaderCommandFailed) as caught:
        await run_here(f"echo s3cr3t >&2; {command}", str(tmp_path))
    assert str(caught.value) == f"MCP HTTP headers helper {reason}"


async def test_a_command_that_cannot_be_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(HeaderCommandFailed) as caught:
        await run_here("echo {}", str(tmp_path / "missing"))
    assert str(caught.value) == "MCP HTTP headers helper failed to start: No such file or directory"


async def test_output_of_the_largest_size_is_taken(tmp_path: Path) -> None:
    printed = await run_here(f"head -c {MAX_OUTPUT_BYTES} /dev/zero", str(tmp_path))
    assert printed == bytes(MAX_OUTPUT_BYTES)


@pytest.mark.parametrize(
    "command",
    [
        "trap '' TERM; sleep 600",
        "sleep 600 & echo {}",
        "sleep 600 >/dev/null & echo {}",
    ],
    ids=["stays", "leaves-a-child-that-prints", "leaves-a-child"],
)
@pytest.mark.parametrize("cancelled", [False, True])
async def test_nothing_of_a_command_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, cancelled: bool
) -> None:
    ended = command.endswith("& echo {}") and "/dev/null" in command
    limit_s = WAIT_S if cancelled or ended else 0.2
    monkeypatch.setattr("app_server.host.processes.TERMINATE_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    outcome: list[str] = []

    async def run() -> None:
        # All of its processes hold the pipe open.
        try:
            line = f"exec 3>{pipe}; echo here >&3; {command}"
            printed = await run_here(line, str(tmp_path), limit_s)
            outcome.append(printed.decode())
        except HeaderCommandFailed as exc:
            outcome.append(str(exc))

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            if cancelled:
                tasks.start_soon(run)
                reader = await open_fifo(pipe)
                await anyio.to_thread.run_sync(reader.readline, abandon_on_cancel=True)
                tasks.cancel_scope.cancel()
            else:
                # On a busy machine the command may be ended before it opens the pipe.
                reader = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
                os.set_blocking(reader.fileno(), True)
                tasks.start_soon(run)
        with reader:
            await anyio.to_thread.run_sync(reader.read, abandon_on_cancel=True)
    if not cancelled:
        timed_out = "MCP HTTP headers helper timed out after 0.2 seconds"
        assert outcome == ["{}\n" if ended else timed_out]


async def test_requests_that_are_refused_together_run_the_command_once(tmp_path: Path) -> None:
    command = HeaderCommand(partial(run_here, printing(tmp_path), str(tmp_path)), {}, deque())
    first = await command.current()
    found: list[str | None] = []

    async def replace() -> None:
        found.append(await command.replace(first))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(replace)
    assert [command.headers(text or "")["x-run"] for text in found] == ["2", "2", "2"]
    assert (runs(tmp_path), command.stored()) == (2, found[0])


# The connection.


@claim("mcp:header-command")
async def test_every_request_carries_what_the_command_printed_once(tmp_path: Path) -> None:
    peer = WebPeer()
    command = printing(tmp_path, **{"X-Both": "command", "Authorization": "Bearer command"})
    more = 'http_headers = { X-Both = "file", X-File = "file" }\n'
    async with conversation(tmp_path, peer, command, more) as (_, client):
        thread_id = await client.start_thread()
        assert "result" in await look(client, thread_id)
    names = ("authorization", "x-both", "x-file", "x-run")
    seen = {tuple(headers.get(name) for name in names) for headers in peer.headers}
    assert {"initialize", "tools/list", "tools/call", "DELETE"} <= set(peer.methods())
    assert seen == {("Bearer command", "command", "file", "1")}
    assert runs(tmp_path) == 1


@claim("mcp:header-command")
@pytest.mark.parametrize(
    ("more", "authorization"),
    [
        ('bearer_token_env_var = "TOKEN"', "Bearer configured"),
        ('http_headers = { authorization = "Basic configured" }', "Basic configured"),
        ('env_http_headers = { Authorization = "TOKEN" }', "configured"),
        ('env_http_headers = { Authorization = "UNSET" }', "Bearer command"),
    ],
)
async def test_a_configured_authorization_wins_over_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, authorization: str
) -> None:
    monkeypatch.setenv("TOKEN", "configured")
    peer = WebPeer()
    command = printing(tmp_path, authorization="Bearer command")
    async with conversation(tmp_path, peer, command, more) as (_, client):
        await client.start_thread()
        assert (await steps_until_settled(client, "raw"))["raw"][-1] == ("ready", None)
    assert {headers["authorization"] for headers in peer.headers} == {authorization}


@claim("mcp:header-command")
async def test_a_stored_token_wins_over_the_command(tmp_path: Path) -> None:
    peer = WebPeer()
    command = printing(tmp_path, authorization="Bearer command")
    more = '\nmcp_oauth_credentials_store = "file"\n'
    async with peer.serve():
        store = CredentialStore(tmp_path, "file")
        await anyio.to_thread.run_sync(
            store.save, Credential("raw", peer.url, "", client_id="c", access_token="stored")
        )
        config = more + server(peer, command)
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            assert (await steps_until_settled(client, "raw"))["raw"][-1] == ("ready", None)
            listed = await client.call("mcpServerStatus/list", {"threadId": thread_id})
    assert {headers["authorization"] for headers in peer.headers} == {"Bearer stored"}
    assert [entry["authStatus"] for entry in listed["data"]] == ["oAuth"]


@claim("mcp:header-command")
async def test_after_a_401_the_command_runs_again_once(tmp_path: Path) -> None:
    refused = Answer(401, b"who are you")
    peer = WebPeer(answers={"tools/call": [refused]})
    async with conversation(tmp_path, peer, printing(tmp_path)) as (_, client):
        thread_id = await client.start_thread()
        assert "result" in await look(client, thread_id)
        tried = [headers["x-run"] for headers in sent(peer, "tools/call")]
        assert tried == ["1", "2"]
        peer.answers["tools/call"] = [refused] * 2
        error = (await look(client, thread_id))["error"]
        assert error["message"] == f"HTTP status 401 from {peer.url}"
    assert runs(tmp_path) == 3


@claim("mcp:header-command")
async def test_a_command_that_fails_after_a_401_leaves_the_401(tmp_path: Path) -> None:
    peer = WebPeer(answers={"tools/call": [Answer(401)]})
    command = f"{printing(tmp_path)}; test $(wc -c <{tmp_path}/runs) = 1"
    async with conversation(tmp_path, peer, command) as (_, client):
        thread_id = await client.start_thread()
        error = (await look(client, thread_id))["error"]
        assert error["message"] == f"HTTP status 401 from {peer.url}"
        assert "result" in await look(client, thread_id)
    assert runs(tmp_path) == 2


@claim("mcp:header-command")
async def test_a_server_whose_command_fails_does_not_start(tmp_path: Path) -> None:
    peer = WebPeer()
    command = f"{printing(tmp_path)}; exit 3"
    async with conversation(tmp_path, peer, command) as (_, client):
        thread_id = await client.start_thread()
        told = await steps_until_settled(client, "raw")
        reason = "MCP HTTP headers helper exited with status 3"
        assert told["raw"][-1] == ("failed", FAILED + reason)
        listed = await client.call("mcpServerStatus/list", {"threadId": thread_id})
    entry = listed["data"][0]
    assert (entry["runtimeStatus"], entry["authStatus"]) == ("failed", "unknown")
    assert peer.seen == []
    assert runs(tmp_path) == 1


@claim("mcp:header-command")
async def test_a_reload_compares_the_command_and_does_not_run_it(tmp_path: Path) -> None:
    peer = WebPeer()
    command = printing(tmp_path)
    async with conversation(tmp_path, peer, command) as (served, client):
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw")
        await client.call("config/mcpServer/reload")
        assert (await steps_until_settled(client, "raw"))["raw"] == [("ready", None)]
        assert (peer.sessions, runs(tmp_path)) == (1, 1)
        changed = server(peer, printing(tmp_path, **{"X-Changed": "1"}))
        write_config(served.home, served.model.url, changed)
        await client.call("config/mcpServer/reload")
        told = await steps_until_settled(client, "raw")
        assert told["raw"] == [("starting", None), ("ready", None)]
        assert "result" in await look(client, thread_id)
    assert (peer.sessions, runs(tmp_path)) == (2, 2)
    assert [headers.get("x-changed") for headers in sent(peer, "tools/call")] == ["1"]


def test_a_command_is_not_shown() -> None:
    transport = HttpTransport("http://x", header_command="print s3cr3t", oauth=OAuthSettings())
    assert "s3cr3t" not in repr(ServerConfig("raw", transport))
