"""server: idle threads and clients follow edits of settings and plugins (docs/config.md)."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.files.plugins import server, write_plugin
from tests.support.harness import WAIT_S, Served, WireClient, claim, methods_of, serve, stdio_server
from tests.support.mcp_peers.reloads import Thread


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have edits noticed sooner than users need it."""
    for name in ("STEP_MS", "MERGE_MS", "WAIT_MS"):
        monkeypatch.setattr(f"app_server.server.settings_watch.{name}", 20)


@asynccontextmanager
async def idle_thread(home: Path, config: str = "", **more: Any) -> AsyncIterator[Thread]:
    """Give a thread of which nothing is asked, in a server that watches its files."""
    async with (
        serve(home, config=config, watches_files=True, **more) as served,
        served.client() as client,
    ):
        yield Thread(served, client, await client.start_thread())


async def steps(client: WireClient, *expected: tuple[str, str]) -> None:
    """Wait for these notifications of servers, and no others."""
    for name, status in expected:
        params = (await client.wait_for("mcpServer/startupStatus/updated"))["params"]
        assert (params["name"], params["status"]) == (name, status)


async def until(holds: Callable[[], Any]) -> None:
    with anyio.fail_after(WAIT_S):
        while not await holds():
            await anyio.lowlevel.checkpoint()


def config_of(served: Served, tables: str) -> str:
    text = (served.home / "config.toml").read_text()
    return text.split("[mcp_servers.", 1)[0] + tables


def overwrite(file: Path, text: str) -> None:
    file.write_text(text)


def replace(file: Path, text: str) -> None:
    beside = file.with_name(".config.toml.swp")
    beside.write_text(text)
    beside.replace(file)


def delete_and_make(file: Path, text: str) -> None:
    file.unlink()
    file.write_text(text)


def backup_and_make(file: Path, text: str) -> None:
    file.rename(file.with_name("config.toml~"))
    file.write_text(text)


def in_pieces(file: Path, text: str) -> None:
    with file.open("w") as out:
        for line in text.splitlines(keepends=True):
            out.write(line)
            out.flush()


SAVES = (overwrite, replace, delete_and_make, backup_and_make, in_pieces)


@claim("config:watched")
@pytest.mark.parametrize("save", SAVES)
async def test_an_idle_thread_has_the_servers_of_a_file_that_was_saved(
    tmp_path: Path, save: Callable[[Path, str], None]
) -> None:
    async with idle_thread(tmp_path) as thread:
        file = tmp_path / "config.toml"
        save(file, config_of(thread.served, stdio_server("new")))
        await steps(thread.client, ("new", "starting"), ("new", "ready"))
        pid, _ = await thread.direct("whoami", "new")
        save(file, config_of(thread.served, stdio_server("other")))
        await steps(thread.client, ("other", "starting"), ("other", "ready"))
        assert await thread.runtime() == {"other": "connected"}
        await until_dead(pid)


async def until_dead(pid: int) -> None:
    async def is_dead() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await until(is_dead)


@claim("config:watched")
async def test_a_link_is_followed_to_what_it_leads_to_now(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with idle_thread(home) as thread:
        file = home / "config.toml"
        first, second = elsewhere / "first.toml", elsewhere / "second.toml"
        first.write_text(config_of(thread.served, stdio_server("one")))
        second.write_text(config_of(thread.served, stdio_server("two")))
        file.unlink()
        file.symlink_to(first)
        await steps(thread.client, ("one", "starting"), ("one", "ready"))
        replace(first, config_of(thread.served, stdio_server("three")))
        await steps(thread.client, ("three", "starting"), ("three", "ready"))
        beside = home / "link"
        beside.symlink_to(second)
        beside.replace(file)
        await steps(thread.client, ("two", "starting"), ("two", "ready"))
        assert await thread.runtime() == {"two": "connected"}


@claim("config:watched")
async def test_servers_with_equal_settings_go_on_without_a_notification(tmp_path: Path) -> None:
    config = stdio_server("kept") + stdio_server("changed")
    async with idle_thread(tmp_path, config) as thread:
        await thread.statuses("kept", "changed")
        kept, _ = await thread.direct("whoami", "kept")
        changed, _ = await thread.direct("whoami", "changed")
        tables = "# a comment\n" + stdio_server("kept", tool_timeout_sec="7")
        tables += stdio_server("changed", env='{ WHO = "b" }')
        replace(tmp_path / "config.toml", config_of(thread.served, tables))
        await steps(thread.client, ("changed", "starting"), ("changed", "ready"))
        assert (await thread.direct("whoami", "kept"))[0] == kept
        assert (await thread.direct("whoami", "changed"))[0] != changed


@claim("config:watched")
async def test_an_idle_thread_follows_the_profile_that_it_was_started_with(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    profile = home / "mine.config.toml"
    profile.write_text(stdio_server("raw", env='{ WHO = "profile" }'))
    config = {"mcp_servers.raw.tool_timeout_sec": 9}
    async with idle_thread(home, stdio_server("kept")) as other:
        await other.statuses("kept")
        client = other.client
        thread_id = await client.start_thread(profile="mine", config=config)
        thread = Thread(other.served, client, thread_id)
        await thread.statuses("kept", "raw")
        assert (await thread.direct("whoami"))[1] == "profile"
        replace(profile, stdio_server("raw", env='{ WHO = "edited" }') + stdio_server("more"))
        await until(lambda: _is(thread, dict.fromkeys(["kept", "more", "raw"], "connected")))
        assert (await thread.direct("whoami"))[1] == "edited"
        # What the request said stays on top, and so does what a client sets for the thread.
        params = {"name": "more", "threadId": thread_id, "enabled": False}
        await client.call("mcpServer/set", params)
        replace(profile, stdio_server("raw", enabled="false") + stdio_server("more"))
        expected = {"kept": "connected", "more": "disabled", "raw": "disabled"}
        await until(lambda: _is(thread, expected))
        # With what the request says a server has no transport: nothing changes.
        client.take_kept()
        replace(profile, stdio_server("more"))
        text = (await client.wait_for("warning"))["params"]["message"]
        assert text.startswith("failed to refresh MCP servers: invalid transport")
        assert await _is(thread, expected)
        replace(profile, "[broken\n")
        text = (await client.wait_for("warning"))["params"]["message"]
        assert text.startswith(f"failed to refresh MCP servers: {profile}:1:")
        assert await _is(thread, expected)
        replace(profile, stdio_server("raw") + stdio_server("more"))
        await until(lambda: _is(thread, {**expected, "raw": "connected"}))
        assert await _is(other, {"kept": "connected"})


@claim("config:watched")
async def test_a_profile_that_is_empty_for_a_while_is_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    profile = home / "mine.config.toml"
    profile.write_text("")
    async with idle_thread(home, stdio_server("kept")) as other:
        client = other.client
        thread_id = await client.start_thread(profile="mine")
        thread = Thread(other.served, client, thread_id)
        await thread.statuses("kept")
        params = {"name": "kept", "threadId": thread_id, "enabled": False}
        await client.call("mcpServer/set", params)
        for tables, more in (
            (stdio_server("raw"), {"raw": "connected"}),
            ("", {}),
            (stdio_server("raw"), {"raw": "connected"}),
        ):
            replace(profile, tables)
            await until(partial(_is, thread, {"kept": "disabled", **more}))
        # What the client set for the thread is still its own.
        await client.call("mcpServer/set", {**params, "enabled": True})
        await until(partial(_is, thread, {"kept": "connected", "raw": "connected"}))
        assert await _is(other, {"kept": "connected"})


BROKEN = {
    "no TOML": "[mcp_servers.raw\n",
    "cut off": '[mcp_servers.raw]\ncommand = "',
    "no transport": "[mcp_servers.raw]\nargs = []\n",
    "two transports": '[mcp_servers.raw]\ncommand = "a"\nurl = "http://127.0.0.1:1"\n',
    "wrong type": "[mcp_servers.raw]\ncommand = 5\n",
    "no table": "mcp_servers = 5\n",
    "unknown word": '[mcp_servers.raw]\ncommand = "a"\ndefault_tools_approval_mode = "x"\n',
    "not UTF-8": b"\xff\n",
    "too large": b"#" * (1024 * 1024 + 1),
}


@claim("config:watched-broken")
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_broken_file_changes_nothing_and_is_named_once_to_every_client(
    tmp_path: Path, broken: str | bytes
) -> None:
    async with (
        idle_thread(tmp_path, stdio_server("raw")) as thread,
        thread.served.client() as other,
    ):
        await thread.statuses("raw")
        pid, _ = await thread.direct("whoami")
        file = tmp_path / "config.toml"
        good = file.read_text()
        above = good.split("[mcp_servers")[0].encode()
        for _ in range(2):
            file.write_bytes(broken_text(above, broken))
            for client in (thread.client, other):
                assert str(file) in json.dumps(await client.wait_for("configWarning"))
            assert (await thread.direct("whoami"))[0] == pid
            file.write_text(good + stdio_server("next"))
            await steps(thread.client, ("next", "starting"), ("next", "ready"))
            assert (await thread.direct("whoami"))[0] == pid
            file.write_text(good)
            await until(lambda: _is(thread, {"raw": "connected"}))
        for client in (thread.client, other):
            assert "configWarning" not in methods_of(client.take_kept())


def broken_text(above: bytes, broken: str | bytes) -> bytes:
    """Return the file with what is broken in the place of its tables of servers."""
    if broken == BROKEN["no table"]:
        return b"mcp_servers = 5\n" + above
    return above + (broken if isinstance(broken, bytes) else broken.encode())


async def _is(thread: Thread, servers: dict[str, str]) -> bool:
    return await thread.runtime() == servers


@claim("config:watched-plugins")
async def test_plugins_that_come_change_and_go_are_followed(tmp_path: Path) -> None:
    home, made = tmp_path / "home", tmp_path / "made"
    folder = home / "plugins/cache/shop/kit/local"
    config = '[plugins."kit@shop"]\nenabled = true\n'
    async with idle_thread(home, config, with_apps=True) as thread:
        write_plugin(made, "kit", servers={"kit": server()})
        folder.parent.mkdir(parents=True)
        made.rename(folder)
        await steps(thread.client, ("kit", "starting"), ("kit", "ready"))
        pid, _ = await thread.direct("whoami", "kit")
        replace(folder / ".mcp.json", json.dumps({"mcpServers": {"tool": server()}}))
        await steps(thread.client, ("tool", "starting"), ("tool", "ready"))
        await until_dead(pid)
        pid, _ = await thread.direct("whoami", "tool")
        shutil.rmtree(folder)
        await until_dead(pid)
        await until(lambda: _is(thread, {}))
        broken = write_plugin(made, "kit", servers={"kit": server()})
        (broken / ".codex-plugin/plugin.json").write_text("{")
        made.rename(folder)
        write_plugin(folder, "kit", servers={"kit": server()})
        await steps(thread.client, ("kit", "starting"), ("kit", "ready"))
