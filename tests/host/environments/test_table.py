"""environment/*: which environments there are, and what cannot be added."""

from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from tests.support.harness import claim, serve, stdio_server
from tests.support.host.environments import FAR, NOWHERE, add, status, until
from tests.support.mcp_peers.calls import settled


@claim("environment:local")
async def test_this_machine_is_an_environment_that_is_always_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/zsh")
    async with serve(tmp_path) as served, served.client() as client:
        assert await status(client, "local") == {"status": "ready"}
        assert await client.call("environment/info", {"environmentId": "local"}) == {
            "shell": {"name": "zsh", "path": "/bin/zsh"},
            "cwd": Path.cwd().as_uri(),
        }
        params = {"environmentId": "local", "execServerUrl": NOWHERE}
        error = await client.refusal("environment/add", params)
        assert (error.code, error.message, error.data) == (
            -32600,
            "exec-server protocol error: environment id `local` is reserved for EnvironmentManager",
            {"code": "environmentRefused", "environmentId": "local"},
        )


@claim("environment:unknown")
async def test_an_environment_that_nobody_added_is_unknown(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        text = "unknown environment id `far`"
        assert await status(client) == {"status": "unknown", "error": text}
        error = await client.refusal("environment/info", {"environmentId": "far"})
        assert (error.code, error.message, error.data) == (
            -32600,
            text,
            {"code": "unknownEnvironment", "environmentId": "far"},
        )


@claim("environment:add-refused")
@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"environmentId": ""}, "environment id cannot be empty"),
        ({"environmentId": "x" * 1025}, "environment id must have at most 1024 characters"),
        ({"execServerUrl": "none"}, "remote environment cannot use disabled exec-server url"),
        (
            {"execServerUrl": "ws://192.0.2.1:1", "authBearerToken": "secret"},
            "exec-server WebSocket headers require wss:// or a loopback destination",
        ),
        ({"skills": {"required": ["a"]}}, "skills of environments are not offered here"),
    ],
)
async def test_what_cannot_be_added_is_refused_and_changes_nothing(
    tmp_path: Path, params: Any, reason: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        whole = {"environmentId": "far", "execServerUrl": NOWHERE, **params}
        error = await client.refusal("environment/add", whole)
        assert (error.code, error.message) == (-32600, f"exec-server protocol error: {reason}")
        assert (await status(client))["status"] == "unknown"


@claim("environment:bounds")
async def test_environments_are_bounded_in_number(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.services.environments.max_count = 2
        for name in ("a", "b", "a"):
            await add(client, NOWHERE, environmentId=name)
        params = {"environmentId": "c", "execServerUrl": NOWHERE}
        error = await client.refusal("environment/add", params)
        said = "exec-server protocol error: there are 2 environments already"
        assert error.message == said


@claim("environment:unavailable")
async def test_an_environment_out_of_reach_says_why(tmp_path: Path) -> None:
    config = stdio_server("raw", environment_id=FAR)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        served.services.mcp_pool.retry_waits_s = (0, 0)
        await add(client, NOWHERE)
        why = (
            "exec-server connection attempt failed: failed to connect to exec-server websocket "
            f"`{NOWHERE}`: connection refused"
        )
        assert await until(client, "disconnected") == {"status": "disconnected", "error": why}
        error = await client.refusal("environment/info", {"environmentId": "far"})
        assert (error.code, error.message, error.data["code"]) == (
            -32603,
            f"failed to get info for environment `far`: {why}",
            "environmentUnavailable",
        )
        await client.start_thread()
        failed = f"MCP client for `raw` failed to start: MCP startup failed: {why}"
        assert await settled(client) == ("failed", failed)


@claim("environment:headers")
async def test_token_and_request_id_are_sent_at_every_connect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "app_server")
    seen: list[tuple[str | None, str | None]] = []

    async def play(socket: ServerConnection) -> None:
        assert socket.request is not None
        headers = socket.request.headers
        seen.append((headers.get("Authorization"), headers.get("X-Request-ID")))

    async with (
        serve_sockets(play, "127.0.0.1", 0) as server,
        serve(tmp_path) as served,
        served.client() as client,
    ):
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await add(client, url, authBearerToken="secret", websocketRequestId="r-1")
        error = (await until(client, "disconnected"))["error"]
        refusal = await client.refusal("environment/info", {"environmentId": "far"})
        assert seen == [("Bearer secret", "r-1")] * 2
        assert "secret" not in error + refusal.message + caplog.text
