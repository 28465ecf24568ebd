"""mcp: headers that a command prints on another machine."""

from pathlib import Path

import pytest

from app_server.mcp.errors import HeaderCommandFailed
from app_server.mcp.header_command import MAX_OUTPUT_BYTES, run_command
from tests.support.harness import WAIT_S, claim, serve
from tests.support.host.elsewhere import add, machines, put
from tests.support.host.exec_conversations import listening
from tests.support.host.exec_peer import Holders, exec_server
from tests.support.mcp_peers.calls import settled
from tests.support.mcp_peers.header_commands import FAILED, look, printing, runs, sent, server
from tests.support.mcp_peers.web_peer import Answer, WebPeer

THERE = 'environment_id = "far"\n'


@claim("environment:header-command")
async def test_the_command_runs_where_the_server_is_reached_from(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    peer = WebPeer(answers={"tools/call": [Answer(401)]})
    command = printing(tmp_path, **{"X-Place": "$PWD-$LANG-$OUR_SECRET-$(cat)"})
    environment = {"LANG": "far", "OUR_SECRET": "1"}
    async with (
        exec_server("--listen", "ws://127.0.0.1:0", cwd=far, environment=environment) as there,
        peer.serve(),
        serve(tmp_path / "home", config=server(peer, command, THERE)) as served,
        served.client() as client,
    ):
        await add(client, there.url, "far")
        thread_id = await client.start_thread()
        assert await settled(client) == ("ready", None)
        assert "result" in await look(client, thread_id)
    tried = [(headers["x-place"], headers["x-run"]) for headers in sent(peer, "tools/call")]
    assert tried == [(f"{far}-far--", "1"), (f"{far}-far--", "2")]
    assert runs(tmp_path) == 2


@claim("environment:header-command")
async def test_a_command_that_fails_there_keeps_the_server_from_starting(tmp_path: Path) -> None:
    peer = WebPeer()
    async with (
        listening() as url,
        peer.serve(),
        serve(tmp_path / "home", config=server(peer, "exit 3", THERE)) as served,
        served.client() as client,
    ):
        await add(client, url, "far")
        await client.start_thread()
        reason = "MCP HTTP headers helper exited with status 3"
        assert await settled(client) == ("failed", FAILED + reason)
    assert peer.seen == []


@claim("environment:header-command")
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 3", "exited with status 3"),
        ("kill -9 $$", "was ended by signal 9"),
        ("yes", f"output exceeds {MAX_OUTPUT_BYTES // 1024} KiB"),
        ("sleep 1000", "timed out after 0.5 seconds"),
    ],
)
async def test_the_error_says_how_a_command_failed_there(command: str, reason: str) -> None:
    limit_s = 0.5 if command.startswith("sleep") else WAIT_S
    async with listening() as url, machines() as environments:
        put(environments, "far", url)
        with pytest.raises(HeaderCommandFailed) as failed:
            await run_command(environments, "far", command, None, limit_s=limit_s)
        assert str(failed.value) == f"MCP HTTP headers helper {reason}"


@claim("environment:header-command")
async def test_what_the_command_complains_of_there_is_not_kept_waiting() -> None:
    async with listening() as url, machines() as environments:
        put(environments, "far", url)
        # More than the exec server sends before somebody reads it.
        complains = "head -c 3000000 /dev/zero >&2; echo '{}'"
        assert await run_command(environments, "far", complains, None, limit_s=WAIT_S) == b"{}\n"


@pytest.mark.slow
@claim("environment:header-command")
async def test_nothing_of_it_is_left_there(tmp_path: Path) -> None:
    async with (
        listening() as url,
        machines() as environments,
        Holders(tmp_path).watch() as holders,
    ):
        put(environments, "far", url)
        line = f"exec 9>{holders.path}; printf x >&9; sleep 1000 </dev/null >/dev/null & echo {{}}"
        assert await run_command(environments, "far", line, None, limit_s=WAIT_S) == b"{}\n"
        await holders.held(1)
        await holders.ended()


@claim("environment:header-command")
async def test_a_machine_that_is_away_is_no_fault_of_the_command() -> None:
    async with machines() as environments:
        async with listening() as url:
            put(environments, "far", url)
        with pytest.raises(ConnectionError):
            await run_command(environments, "far", "echo {}", None)
