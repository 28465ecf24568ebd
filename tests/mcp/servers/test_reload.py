"""mcp: servers of loaded threads when settings are read again: kept, changed, stopped."""

from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.config.values import Config
from app_server.mcp.catalog.config import McpSettings, ServerConfig, StdioTransport
from app_server.mcp.errors import UnknownServer
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.server_set import ServerSet
from app_server.sessions.turn import Turn
from app_server.threads.files.store import FileStore
from tests.support.harness import (
    claim,
    serve,
    stdio_server,
)
from tests.support.mcp_peers.calls import http_peer, steps_until_settled
from tests.support.mcp_peers.no_processes import NoProcesses
from tests.support.mcp_peers.reloads import Thread, thread_with, until_gone
from tests.support.threads.stores import created, sessions_of


@claim("mcp:reload-keeps")
async def test_reloads_without_a_change_keep_every_process(tmp_path: Path) -> None:
    async with http_peer(json_response=True) as (url, requests):
        config = (
            stdio_server("raw", env='{ WHO = "me" }')
            + stdio_server("off", enabled="false")
            + f'[mcp_servers.web]\nurl = "{url}"\nhttp_headers = {{ X = "1" }}\n'
        )
        async with thread_with(tmp_path, config, "raw", "web") as thread:
            before = await thread.direct("whoami")
            posts = requests.count("POST")
            for _ in range(2):
                answered = await thread.client.request("config/mcpServer/reload")
                assert await thread.client.receive() == {"id": answered, "result": {}}
                assert await thread.statuses("raw", "web") == [("raw", "ready"), ("web", "ready")]
                assert await thread.direct("whoami") == before
            assert requests.count("POST") == posts
            assert await thread.runtime() == {
                "off": "disabled", "raw": "connected", "web": "connected",
            }  # fmt: skip


@claim("mcp:reload-reconciles")
async def test_a_reload_makes_the_servers_what_the_file_says(tmp_path: Path) -> None:
    config = (
        stdio_server("same", startup_timeout_sec="20")
        + stdio_server("changed", env='{ WHO = "a" }')
        + stdio_server("disabled")
        + stdio_server("removed")
        + '[mcp_servers.broken]\ncommand = "/no/such"\n'
    )
    names = ("same", "changed", "disabled", "removed", "broken")
    async with thread_with(tmp_path, config, *names) as thread:
        assert await thread.namespaces() == [
            "mcp__changed", "mcp__disabled", "mcp__removed", "mcp__same",
        ]  # fmt: skip
        same, _ = await thread.direct("whoami", "same")
        changed, who = await thread.direct("whoami", "changed")
        assert who == "a"
        stopped = [(await thread.direct("whoami", name))[0] for name in ("disabled", "removed")]
        thread.write(
            stdio_server("same", tool_timeout_sec="5", disabled_tools='["meta"]')
            + stdio_server("changed", env='{ WHO = "b" }')
            + stdio_server("disabled", enabled="false")
            + stdio_server("broken")
            + stdio_server("new")
        )
        await thread.reload()
        told = await thread.statuses("same", "changed", "broken", "new")
        assert told[0] == ("same", "ready")
        assert sorted(told[1:]) == [
            ("broken", "ready"), ("broken", "starting"), ("changed", "ready"),
            ("changed", "starting"), ("new", "ready"), ("new", "starting"),
        ]  # fmt: skip
        assert (await thread.direct("whoami", "same"))[0] == same
        changed_now, who = await thread.direct("whoami", "changed")
        assert (changed_now != changed, who) == (True, "b")
        assert await thread.runtime() == {
            "broken": "connected", "changed": "connected", "disabled": "disabled",
            "new": "connected", "same": "connected",
        }  # fmt: skip
        assert await thread.namespaces() == [
            "mcp__broken", "mcp__changed", "mcp__new", "mcp__same",
        ]  # fmt: skip
        error = await thread.client.refusal(
            "mcpServer/tool/call", {"threadId": thread.id, "server": "same", "tool": "meta"}
        )
        assert error.message == "tool 'meta' is disabled for MCP server 'same'"
        await until_gone(changed, *stopped)


@claim("mcp:reload-by-value")
async def test_servers_are_compared_by_what_their_settings_resolve_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO", "a")
    monkeypatch.setenv("TOKEN", "t")
    async with http_peer(json_response=True) as (url, _):
        config = (
            stdio_server("raw", env_vars='["WHO"]')
            + f'[mcp_servers.web]\nurl = "{url}"\nbearer_token_env_var = "TOKEN"\n'
        )
        async with thread_with(tmp_path, config, "raw", "web") as thread:
            pid, who = await thread.direct("whoami")
            assert who == "a"
            monkeypatch.setenv("WHO", "b")
            await thread.reload()
            assert sorted(await thread.statuses("raw", "web")) == [
                ("raw", "ready"), ("raw", "starting"), ("web", "ready"),
            ]  # fmt: skip
            now, who = await thread.direct("whoami")
            assert (now != pid, who) == (True, "b")
            monkeypatch.delenv("TOKEN")
            await thread.reload()
            assert sorted(await thread.statuses("raw", "web")) == [
                ("raw", "ready"), ("web", "failed"), ("web", "starting"),
            ]  # fmt: skip


@claim("mcp:reload-refused")
async def test_a_file_that_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    async with thread_with(tmp_path, stdio_server("raw"), "raw") as thread:
        before = await thread.direct("whoami")
        file = tmp_path / "config.toml"
        right = file.read_text()
        line = len(right.splitlines()) + 1
        for text, detail in (
            ("[mcp_servers.other]\nargs = []\n", f"{file}:{line}:1: invalid transport"),
            ("[x\n", f"{file}:{line}:3: Expected ']' at the end of a table declaration"),
        ):
            file.write_text(right + text)
            error = await thread.client.refusal("config/mcpServer/reload")
            assert (error.code, error.message, error.data) == (
                -32603,
                f"failed to refresh MCP servers: {detail}",
                {"code": "configInvalid", "detail": detail},
            )
            assert await thread.direct("whoami") == before


@claim("mcp:reload-overrides")
async def test_what_a_thread_was_started_with_holds_after_a_reload(tmp_path: Path) -> None:
    overrides = {
        "mcp_servers.file.enabled": False,
        "mcp_servers.own": {"command": "/no/such"},
    }
    config = stdio_server("file")
    async with thread_with(tmp_path, config, "own", overrides=overrides) as thread:
        assert await thread.runtime() == {"file": "disabled", "own": "failed"}
        thread.write(config + stdio_server("new"))
        other = await thread.client.start_thread()
        await steps_until_settled(thread.client, "file", "new")
        await thread.reload()
        told = {(name, status) for name, status in await thread.statuses("own", "new", "file")}
        assert told == {
            ("file", "ready"), ("new", "ready"), ("new", "starting"), ("own", "failed"),
            ("own", "starting"),
        }  # fmt: skip
        assert await thread.runtime() == {
            "file": "disabled", "new": "connected", "own": "failed",
        }  # fmt: skip
        thread.id = other
        assert await thread.runtime() == {"file": "connected", "new": "connected"}


@claim("mcp:reload-misfit")
async def test_a_thread_that_the_new_file_does_not_fit_keeps_its_servers(tmp_path: Path) -> None:
    overrides = {"mcp_servers.raw": {"tool_timeout_sec": 9}}
    async with thread_with(tmp_path, stdio_server("raw"), "raw", overrides=overrides) as thread:
        before = await thread.direct("whoami")
        other = await thread.client.start_thread()
        thread.write("")
        await thread.reload()
        warning = await thread.client.wait_for("warning")
        assert warning["params"] == {
            "threadId": thread.id,
            "message": "failed to refresh MCP servers: invalid transport\nin `mcp_servers.raw`\n",
        }
        assert await thread.direct("whoami") == before
        thread.id = other
        assert await thread.runtime() == {}


@claim("mcp:reload-starting")
async def test_a_start_that_is_under_way_goes_on_unless_it_is_changed(tmp_path: Path) -> None:
    config = "mcp_optional_startup_grace_ms = 1\n" + stdio_server("hangs", "hang")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread = Thread(served, client, await client.start_thread())
        first = await client.wait_for("mcpServer/startupStatus/updated")
        assert first["params"]["status"] == "starting"
        await thread.reload()
        thread.write(stdio_server("hangs", env='{ A = "1" }'))
        await thread.reload()
        assert await thread.statuses("hangs") == [("hangs", "cancelled")]
        assert await thread.statuses("hangs") == [("hangs", "starting"), ("hangs", "ready")]
        thread.write(stdio_server("hangs", "hang"))
        await thread.reload()
        starting = await client.wait_for("mcpServer/startupStatus/updated")
        assert starting["params"]["status"] == "starting"
        # A question that waits for the start is answered by what replaces it.
        asked = await client.request(
            "mcpServer/tool/call",
            {"threadId": thread.id, "server": "hangs", "tool": "whoami"},
        )
        status = await client.request("mcpServerStatus/list", {"threadId": thread.id})
        thread.write("")
        await thread.reload()
        assert await thread.statuses("hangs") == [("hangs", "cancelled")]
        answer = await client.answer(asked)
        assert answer["error"]["message"] == "unknown MCP server 'hangs'"
        assert (await client.answer(status))["result"]["data"] == []


async def test_a_required_server_may_be_replaced_while_the_thread_waits_for_it(
    tmp_path: Path,
) -> None:
    config = stdio_server("must", "hang", required="true")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        starting = await client.request("thread/start", {})
        while not (loaded := await client.call("thread/loaded/list", {}))["data"]:
            pass
        thread = Thread(served, client, loaded["data"][0])
        thread.write(stdio_server("must", required="true"))
        await thread.reload()
        assert (await client.answer(starting))["result"]["thread"]["id"] == thread.id
        assert await thread.runtime() == {"must": "connected"}


async def test_a_set_that_has_not_begun_or_has_ended_is_reconciled_without_starts() -> None:
    steps: list[tuple[str, str]] = []

    def settings(command: str) -> McpSettings:
        return McpSettings({"s": ServerConfig("s", StdioTransport(command))})

    servers = ServerSet(
        settings("/no/a"),
        "/",
        ServerPool(NoProcesses()),
        lambda news: steps.extend((one.name, one.step) for one in news),
    )
    old = servers.servers["s"]
    servers.update(settings("/no/b"), reload=True)
    assert old.settled.is_set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        server = await servers.decided("s")
        assert server.config == settings("/no/b").servers["s"]
        servers.stop()
    servers.update(McpSettings({}), reload=True)
    servers.revive()
    assert steps == [("s", "starting"), ("s", "failed")]
    assert await servers.decided("s") is server
    with pytest.raises(UnknownServer):
        await servers.decided("t")
    stopped = ServerSet(
        settings("/no/a"),
        "/",
        ServerPool(NoProcesses()),
        lambda news: steps.extend((one.name, one.step) for one in news),
    )
    stopped.stop()
    await stopped.run()
    assert len(steps) == 2


async def test_a_thread_that_is_loaded_during_a_reload_takes_it_over(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.open()
    after = Config({"mcp_servers": {"new": {"command": "/no/such", "enabled": False}}})

    async with anyio.create_task_group() as tasks:
        sessions = sessions_of(tmp_path, store, tasks)
        first, _ = await sessions.loading.start_once(created(), Config({}))
        await sessions.unload(first.log.id)
        async with sessions.loading.locked(first.log.id) as found:
            sessions.reload_servers(after)
            second = await sessions.loading.load(found, Config({}), found.state.settings)
        assert list(second.servers.live().servers) == ["new"]
        third, _ = await sessions.loading.start_once(created(), Config({}))
        assert list(third.servers.live().servers) == []
        await sessions.aclose()
    await store.aclose()


async def test_a_turn_begins_with_the_servers_of_the_last_reload(tmp_path: Path) -> None:
    """Also one that asks no model for tools: it counts what they take."""
    store = FileStore(tmp_path)
    await store.open()
    after = Config({"mcp_servers": {"new": {"command": "/no/such", "enabled": False}}})
    async with anyio.create_task_group() as tasks:
        sessions = sessions_of(tmp_path, store, tasks)
        session, _ = await sessions.loading.start_once(created(), Config({}))
        # What starts the servers asks for them too.
        await anyio.wait_all_tasks_blocked()
        session.servers.reload_later(after)
        compaction = await session.turns.start_compaction()
        assert isinstance(compaction, Turn)
        assert session.servers.statuses() == [("new", "disabled")]
        compaction.run_soon()
        await session.slot.idle.wait()
        await sessions.aclose()
    await store.aclose()
