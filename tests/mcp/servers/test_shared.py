"""mcp: servers that threads share, and servers that are started by their first call."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.config.values import Config
from app_server.mcp.catalog.tables import broken_servers, read_mcp_settings
from app_server.mcp.servers import pool as pool_module
from app_server.mcp.servers.pool import ToolCache
from app_server.mcp.servers.server_set import STARTS_AT_ONCE
from app_server.mcp.servers.status import cached_at_ms
from app_server.mcp.tools.listing import Listing
from tests.support.clients.lean import lean_client
from tests.support.harness import WAIT_S, Served, WireClient, claim, serve, stdio_server
from tests.support.mcp_peers.calls import (
    answer_of,
    asking,
    outputs_of,
    read,
    settled,
    start_asking,
    steps_until_settled,
)
from tests.support.mcp_peers.web_peer import JSON, Answer, WebPeer
from tests.support.paths import MCP_PEER
from tests.support.processes import RUN_S, memory_mb, started, tree_of

FORM = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
HOME = {"share": '"home"'}
STEP = "mcpServer/startupStatus/updated"
READY = [("starting", None), ("ready", None)]


async def ready_thread(client: WireClient, *names: str, **params: Any) -> str:
    """Start a thread whose servers become ready."""
    thread_id = await client.start_thread(**params)
    told = await steps_until_settled(client, *names)
    assert told == dict.fromkeys(names, READY)
    return thread_id


async def call(client: WireClient, thread_id: str, tool: str = "whoami", **arguments: Any) -> Any:
    """Call a tool of the server `raw` and read its text."""
    params = {"threadId": thread_id, "server": "raw", "tool": tool, "arguments": arguments}
    result = await client.call("mcpServer/tool/call", params)
    return json.loads(result["content"][0]["text"])


async def pid_of(client: WireClient, thread_id: str) -> int:
    """Return the process that answers a thread."""
    pid: int = (await call(client, thread_id))[0]
    return pid


async def until_called(served: Served, client: WireClient, *threads: str) -> None:
    """Wait until calls of all these threads have been sent to the server."""
    sessions = [served.services.sessions.get(thread_id) for thread_id in threads]
    servers = [session.servers.live().servers["raw"] for session in sessions]
    with anyio.fail_after(WAIT_S):
        while not all(server.is_in_use for server in servers):
            await client.call("thread/loaded/list", {})


async def end_of(pid: int) -> None:
    """Wait for the end of a process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(WAIT_S):
            await anyio.wait_readable(handle)
    finally:
        os.close(handle)


async def unload(client: WireClient, thread_id: str) -> None:
    """Unload a thread that nobody else has."""
    await client.call("thread/unsubscribe", {"threadId": thread_id})
    await client.wait_for("thread/closed", lambda p: p["threadId"] == thread_id)


async def test_a_thread_joins_all_servers_that_run_in_one_step_behind_its_start(
    tmp_path: Path,
) -> None:
    names = [f"raw{number:02}" for number in range(STARTS_AT_ONCE + 2)]
    config = "".join(stdio_server(name, **HOME) for name in names)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        await ready_thread(client, *names)
        client.take_kept()
        thread_id = await client.start_thread()
        told = [await client.wait_for(STEP) for _ in range(2 * len(names))]
        assert [(one["params"]["name"], one["params"]["status"]) for one in told] == [
            (name, step) for name in names for step in ("starting", "ready")
        ]
        assert {one["params"]["threadId"] for one in told} == {thread_id}
        assert [one["seq"] for one in told] == list(range(told[0]["seq"], told[-1]["seq"] + 1))
        assert len({one["emittedAtMs"] for one in told}) == 1


@claim("mcp:shared")
async def test_threads_share_one_process_and_each_is_told_of_its_own_calls(tmp_path: Path) -> None:
    config = "thread_unload_delay_secs = 0\n" + stdio_server("raw", **HOME)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        threads = [await ready_thread(client, "raw") for _ in range(3)]
        pids = {await pid_of(client, thread_id) for thread_id in threads}
        assert len(pids) == 1
        for thread_id in threads:
            meta = await call(client, thread_id, "meta")
            assert meta["threadId"] == thread_id
            row = served.services.sessions.get(thread_id).servers.live().servers["raw"]
            assert ({row.pid}, row.record.shared_by, row.status) == (pids, 3, "connected")
        await unload(client, threads[0])
        assert await pid_of(client, threads[1]) in pids
        assert row.record.shared_by == 2
        # It stays for the next one, and has no thread that is gone.
        for thread_id in threads[1:]:
            await unload(client, thread_id)
        assert row.record.shared_by == 0
        assert await pid_of(client, await ready_thread(client, "raw")) in pids
    for pid in pids:
        await end_of(pid)


@claim("mcp:shared")
async def test_other_folders_and_settings_of_a_thread_have_processes_of_their_own(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", env_vars='["WHO"]', **HOME)
    other = tmp_path / "other"
    other.mkdir()
    async with serve(tmp_path, config=config) as served, served.client() as client:
        here = await ready_thread(client, "raw")
        there = await ready_thread(client, "raw", cwd=str(other))
        alike = await ready_thread(client, "raw", cwd=str(other))
        variables = {"mcp_servers.raw.env.WHO": "me"}
        set_up = await ready_thread(client, "raw", config=variables)
        alone = await ready_thread(client, "raw", config={"mcp_servers.raw.share": "thread"})
        found = [await pid_of(client, one) for one in (here, there, alike, set_up, alone)]
        assert (len(set(found)), found[1]) == (4, found[2])


@claim("mcp:shared")
async def test_a_shared_process_that_is_not_used_ends_and_the_next_call_starts_it(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", idle_seconds="1", **HOME)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        one, two = [await ready_thread(client, "raw") for _ in range(2)]
        pid = await pid_of(client, one)
        server = served.services.sessions.get(one).servers.live().servers["raw"]
        began_ms = server.record.started_at_ms
        await end_of(pid)
        # What it listed is known, so it is not started to be described.
        for params in ({"threadId": two}, {"threadId": two, "detail": "toolsAndAuthOnly"}, {}):
            [row] = (await client.call("mcpServerStatus/list", params))["data"]
            assert (row["pid"], row["resources"], "meta" in row["tools"]) == (None, [], True)
            assert row["toolsCachedAtMs"] == row["startedAtMs"] == began_ms
            assert row["runtimeStatus"] == ("connected" if params else None)
        starts = server.record.restarts
        assert await pid_of(client, two) != pid
        assert (server.record.restarts, server.record.last_error) == (starts + 1, None)


@claim("mcp:shared")
async def test_the_death_of_a_shared_process_is_one_error_for_each_call_of_each_thread(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", **HOME)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        threads = [await ready_thread(client, "raw") for _ in range(3)]
        pid = await pid_of(client, threads[0])
        slow = {"server": "raw", "tool": "slow"}
        asked = [
            await client.request("mcpServer/tool/call", {**slow, "threadId": thread_id})
            for thread_id in threads
        ]
        await until_called(served, client, *threads)
        os.kill(pid, signal.SIGKILL)
        for request in asked:
            error = (await client.answer(request))["error"]
            assert error["message"] == "tool call failed for `raw/slow`: Transport closed"
        found = {await pid_of(client, thread_id) for thread_id in threads}
        assert (len(found), pid in found) == (1, False)
        server = served.services.sessions.get(threads[1]).servers.live().servers["raw"]
        assert server.record.restarts == 1
        assert server.record.last_error is not None
        assert server.record.last_error.endswith(": the server ended: exit status -9")


@claim("mcp:shared")
async def test_a_shared_server_whose_first_start_failed_is_started_by_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAIT_S", 0.0)
    broken = tmp_path / "broken"
    broken.touch()
    config = stdio_server("raw", "unless", str(broken), **HOME)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        threads = []
        for _ in range(3):
            threads.append(await client.start_thread())
            assert (await settled(client))[0] == "failed"
        for thread_id in threads:
            whoami = {"threadId": thread_id, "server": "raw", "tool": "whoami"}
            error = await client.refusal("mcpServer/tool/call", whoami)
            assert "failed to get client" in error.message
            status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
            [row] = status["data"]
            assert (row["runtimeStatus"], row["tools"]) == ("failed", {})
        broken.unlink()
        pid = await pid_of(client, threads[0])
        # What one thread's request has started, all threads have.
        for thread_id in threads:
            status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
            [row] = status["data"]
            assert (row["runtimeStatus"], row["toolsError"]) == ("connected", None)
            assert (row["protocolVersion"], row["pid"]) == ("2025-06-18", pid)
            assert "meta" in row["tools"]
            assert await pid_of(client, thread_id) == pid
        await client.turn(threads[-1], "hi")
        tools = served.model.requests[-1]["tools"]
        assert "mcp__raw" in [entry["name"] for entry in tools if "name" in entry]


@claim("mcp:shared")
async def test_a_question_of_a_process_is_refused_while_two_threads_call_it(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", **HOME)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        one, two = [await ready_thread(client, "raw") for _ in range(2)]
        turn_id = await start_asking(served, client, two, asking(FORM))
        question = await client.wait_for("mcpServer/elicitation/request")
        assert (question["params"]["threadId"], question["params"]["turnId"]) == (two, turn_id)
        # A question that is answered while another thread calls stays its thread's.
        slow = {"server": "raw", "tool": "slow", "threadId": one}
        await client.request("mcpServer/tool/call", slow)
        await until_called(served, client, one)
        await client.send({"id": question["id"], "result": {"action": "accept", "content": {}}})
        await client.wait_for("turn/completed")
        assert answer_of(outputs_of(served)[-1]) == {"result": {"action": "accept", "content": {}}}
        await start_asking(served, client, two, asking(FORM))
        await client.wait_for("turn/completed")
        text = "the question names no call, and 2 threads could be meant"
        assert answer_of(outputs_of(served)[-1]) == {"error": {"code": -32600, "message": text}}
        server = served.services.sessions.get(one).servers.live().servers["raw"]
        assert server.record.last_error == f"a question of the server was refused: {text}"


@claim("mcp:shared")
async def test_a_server_that_is_taken_out_of_the_settings_ends_with_its_last_thread(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", **HOME)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        threads = [await ready_thread(client, "raw") for _ in range(2)]
        pid = await pid_of(client, threads[0])
        file = tmp_path / "config.toml"
        file.write_text(file.read_text().replace(config, ""))
        await client.call("config/mcpServer/reload")
        await end_of(pid)


@claim("mcp:shared")
async def test_a_server_behind_a_url_without_session_is_shared_by_the_threads_to_come(
    tmp_path: Path,
) -> None:
    async with WebPeer().serve() as peer:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        peer.known.add(None)  # type: ignore[arg-type]
        config = f'[mcp_servers.raw]\nurl = "{peer.url}"\nprotocol = "2025"\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            for number in range(1, 5):
                body = {"jsonrpc": "2.0", "id": number, "result": hello}
                peer.answers["initialize"] = [Answer(200, json.dumps(body).encode(), JSON)] * 9
                await ready_thread(client, "raw")
        assert peer.methods().count("initialize") == 2


@claim("mcp:lazy")
async def test_a_lazy_server_is_started_by_its_first_call_once_its_tools_are_known(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    config = stdio_server("raw", "log", str(log), lazy="true", share='"home"')
    async with serve(tmp_path, config=config) as served, served.client() as client:
        first = await client.start_thread()
        sessions = served.services.sessions
        server = sessions.get(first).servers.live().servers["raw"]
        assert (server.status, log.exists()) == ("notStarted", False)
        # A first model request has to know the tools.
        await client.turn(first, "hi")
        [request] = served.model.requests
        assert "mcp__raw" in [entry["name"] for entry in request["tools"] if "name" in entry]
        assert cached_at_ms(server) is None
    began_ms = server.record.started_at_ms
    log.unlink()
    async with serve(tmp_path, config=config) as served, served.client() as client:
        threads = [await ready_thread(client, "raw") for _ in range(2)]
        await client.turn(threads[0], "hi")
        assert served.model.requests[-1]["tools"] == request["tools"]
        server = served.services.sessions.get(threads[0]).servers.live().servers["raw"]
        assert (cached_at_ms(server), server.record.started_at_ms) == (began_ms, None)
        for detail in ("toolsAndAuthOnly", "full"):
            params = {"threadId": threads[0], "detail": detail}
            [row] = (await client.call("mcpServerStatus/list", params))["data"]
            assert (row["toolsCachedAtMs"], row["resources"]) == (began_ms, [])
            assert "meta" in row["tools"]
        assert not log.exists()
        assert await pid_of(client, threads[0]) == await pid_of(client, threads[1])
        [row] = (await client.call("mcpServerStatus/list", {"threadId": threads[0]}))["data"]
        assert (row["toolsCachedAtMs"], len(row["resources"])) == (None, 1)
    # What it lists now takes the place of what is kept.
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(config={"mcp_servers.raw.share": "thread"})
        await settled(client)
        server = served.services.sessions.get(thread_id).servers.live().servers["raw"]
        listed_ms = cached_at_ms(server)
        assert listed_ms is not None
        assert began_ms is not None
        assert listed_ms > began_ms


@claim("mcp:lazy")
async def test_a_lazy_server_whose_tools_are_unknown_is_started_to_be_listed_or_called(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", lazy="true")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        one = await client.start_thread()
        await client.call("turn/interrupt", {"threadId": one, "turnId": ""})
        status = await client.call("mcpServerStatus/list", {"threadId": one})
        [row] = status["data"]
        assert (row["runtimeStatus"], "whoami" in row["tools"]) == ("connected", False)
        assert len(row["tools"]) > 5
    for path in (tmp_path / "cache" / "mcp_tools").iterdir():
        path.write_text('{"version": 1, "hello": {}, "tools": [1], "listedAtMs": 1}')
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert await pid_of(client, thread_id) > 0


def test_lists_of_lazy_servers_are_bounded_and_hold_no_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    cache = ToolCache(tmp_path, max_files=2)
    servers = read({name: {"command": "x", "env_vars": ["TOKEN"]} for name in "abc"}).servers
    listing = Listing.of({"serverInfo": {"name": "n"}}, [{"name": "t"}], {"m": 1})
    for number, config in enumerate(servers.values()):
        assert cache.read(config, "/") is None
        cache.write(config, "/", listing, number)
        assert cache.read(config, "/") == (listing, number)
        assert cache.read(config, "/else") is None
    files = list((tmp_path / "cache" / "mcp_tools").iterdir())
    assert len(files) == 2
    assert all(b"secret" not in file.read_bytes() for file in files)
    small = ToolCache(tmp_path, max_file_bytes=10)
    assert small.read(servers["c"], "/") is None
    small.write(servers["a"], "/", listing, 1)
    assert cache.read(servers["a"], "/") is None
    for content in (b"{", b"[]", b'{"version": 2}', b'{"version": 1, "hello": {}, "tools": {}}'):
        for file in files:
            file.write_bytes(content)
        assert cache.read(servers["c"], "/") is None
    for file in files:
        file.unlink()
    (tmp_path / "cache" / "mcp_tools").rmdir()
    (tmp_path / "cache" / "mcp_tools").write_text("")
    cache.write(servers["c"], "/", listing, 1)
    assert cache.read(servers["c"], "/") is None
    assert "a list of tools cannot be kept" in caplog.text


@claim("mcp:sharing-settings")
@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"share": '"all"'}, "unknown variant `all`, expected one of `thread`, `folder`, `home`"),
        ({"idle_seconds": "0"}, "invalid value: 0, expected 1 to 86400 seconds"),
        ({"idle_seconds": "90000"}, "invalid value: 90000, expected 1 to 86400 seconds"),
        ({"lazy": "1"}, "invalid type: integer `1`, expected a boolean"),
        ({"lazy": "true", "required": "true"}, "`lazy` contradicts `required`"),
        ({"protocol": '"2024"'}, "unknown variant `2024`, expected one of `auto`"),
    ],
)
async def test_a_server_whose_life_makes_no_sense_fails_and_others_go_on(
    tmp_path: Path, keys: dict[str, str], problem: str
) -> None:
    key, value = next(iter(keys.items()))
    odd = stdio_server("odd", **keys)
    async with (
        serve(tmp_path, config=odd + stdio_server("raw")) as served,
        served.client() as client,
    ):
        file = tmp_path / "config.toml"
        lines = file.read_text().splitlines()
        place = f"{file}:{lines.index(f'{key} = {value}') + 1}:{len(key) + 4}"
        thread_id = await client.start_thread()
        told = await steps_until_settled(client, "odd", "raw")
        assert told["raw"] == READY
        step, error = told["odd"][-1]
        assert (step, f"{place}: {problem}" in error) == ("failed", True)
        assert error.endswith(f"in `mcp_servers.odd.{key}`")
        assert await pid_of(client, thread_id) > 0
        warned = [
            message["params"]["details"]
            for message in (*client.take_kept(), *(json.loads(x[2:]) for x in client.transcript))
            if message.get("method") == "configWarning"
        ]
        assert any(problem in str(details) for details in warned)


def test_headers_of_a_folder_contradict_one_session_for_all() -> None:
    table = {"url": "http://x", "http_headers_helper": "h", "share": "home"}
    config = Config({"mcp_servers": {"s": table}})
    text = (
        "`share` contradicts `http_headers_helper`, which runs in the folder of each thread; "
        "`folder` can be shared\nin `mcp_servers.s.share`"
    )
    assert read_mcp_settings(config).servers["s"].problem == text
    assert str(broken_servers(config)["s"]).strip() == text
    assert read({"s": {**table, "share": "folder"}}).servers["s"].problem is None


@claim("mcp:shared")
async def test_threads_that_start_at_once_make_one_process_of_each_server(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(3)]
    config = "".join(stdio_server(name, **HOME) for name in names)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        requests = [await client.request("thread/start", {}) for _ in range(10)]
        threads = [(await client.answer(one))["result"]["thread"]["id"] for one in requests]
        found: dict[str, set[int]] = {name: set() for name in names}
        for thread_id in threads:
            for name in names:
                params = {"threadId": thread_id, "server": name, "tool": "whoami"}
                result = await client.call("mcpServer/tool/call", params)
                found[name].add(json.loads(result["content"][0]["text"])[0])
        assert [len(pids) for pids in found.values()] == [1, 1, 1]


@claim("mcp:shared")
@pytest.mark.process
@pytest.mark.slow
async def test_a_hundred_threads_have_eleven_processes_and_hardly_more_memory_than_ten(
    tmp_path: Path,
) -> None:
    names = [f"shared{number}" for number in range(11)]
    config = "".join(stdio_server(name, **HOME) for name in names)
    (tmp_path / "config.toml").write_text(config)
    async with started(tmp_path) as server, lean_client(server.urls[0]) as client:

        async def until_ready(threads: int) -> tuple[set[int], float]:
            for _ in range(threads):
                await client.call("thread/start", {})
            told = [event["params"] for event in client.events]
            ready = sum(params.get("status") == "ready" for params in told)
            while ready < threads * len(names):
                ready += (await client.read(lambda _: True))["params"].get("status") == "ready"
            client.events.clear()
            tree = tree_of(server.process.pid)
            peers = {
                pid for pid in tree if str(MCP_PEER) in Path(f"/proc/{pid}/cmdline").read_text()
            }
            return peers, memory_mb(*tree)

        with anyio.fail_after(RUN_S):
            few, memory_of_few = await until_ready(10)
            many, memory_of_many = await until_ready(90)
        assert (len(few), many) == (11, few)
        assert memory_of_many < memory_of_few * 1.1
        server.process.terminate()
    for pid in few:
        await end_of(pid)
