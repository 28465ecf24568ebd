"""mcp: servers that clients switch, change and start afresh (docs/mcp.md, "Switches")."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.files.plugins import server, write_plugin
from tests.support.harness import claim, serve, stdio_server
from tests.support.mcp_peers.calls import raw_call, steps_until_settled
from tests.support.mcp_peers.registrations import open_shop
from tests.support.mcp_peers.reloads import Thread, thread_with, until_gone
from tests.support.model import Gate, calls, says

PATIENT = "mcp_optional_startup_grace_ms = 0\n"


async def set_server(thread: Thread, **params: Any) -> Any:
    return await thread.client.call("mcpServer/set", {"name": "raw", **params})


def tables(home: Path) -> Any:
    return tomllib.loads((home / "config.toml").read_text())["mcp_servers"]


@claim("mcp:set")
async def test_a_switch_is_written_and_holds_in_all_threads(tmp_path: Path) -> None:
    config = PATIENT + "# mine\n" + stdio_server("raw") + stdio_server("other")
    async with thread_with(tmp_path, config, "raw", "other") as thread:
        file = tmp_path / "config.toml"
        before = file.read_text()
        second = Thread(thread.served, thread.client, await thread.client.start_thread())
        await steps_until_settled(thread.client, "raw", "other")
        pids = [(await one.direct("whoami"))[0] for one in (thread, second)]
        answer = {"filePath": str(file), "overridden": False}
        assert await set_server(thread, enabled=False) == answer
        assert tables(tmp_path)["raw"]["enabled"] is False
        assert "# mine\n" in file.read_text()
        for one in (thread, second):
            assert await one.runtime() == {"other": "connected", "raw": "disabled"}
            assert await one.namespaces() == ["mcp__other"]
        await until_gone(*pids)
        assert await set_server(thread, enabled=True) == answer
        assert file.read_text().replace("enabled = true\n", "") == before
        assert await second.namespaces() == ["mcp__other", "mcp__raw"]


@claim("mcp:set")
async def test_a_switch_of_one_thread_is_its_own_until_it_is_unloaded(tmp_path: Path) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        other = Thread(thread.served, thread.client, await thread.client.start_thread())
        await steps_until_settled(thread.client, "raw")
        before = (tmp_path / "config.toml").read_text()
        answer = {"filePath": None, "overridden": False}
        assert await set_server(thread, threadId=thread.id, enabled=False) == answer
        assert await thread.runtime() == {"raw": "disabled"}
        assert (await other.runtime(), await other.namespaces()) == (
            {"raw": "connected"}, ["mcp__raw"],
        )  # fmt: skip
        assert (tmp_path / "config.toml").read_text() == before
        # It stays on top of the file, whatever that says.
        thread.write(PATIENT + stdio_server("raw", tool_timeout_sec="9"))
        assert await thread.namespaces() == []
        await thread.reload()
        assert await thread.runtime() == {"raw": "disabled"}
        unload = {"threadId": thread.id, "unload": True}
        await thread.client.call("thread/unsubscribe", unload)
        await thread.client.call("thread/resume", {"threadId": thread.id})
        assert await thread.namespaces() == ["mcp__raw"]


@claim("mcp:set")
async def test_settings_are_set_one_by_one_and_null_takes_one_away(tmp_path: Path) -> None:
    config = PATIENT + stdio_server("raw", disabled_tools='["meta"]')
    async with thread_with(tmp_path, config, "raw") as thread:
        pid, _ = await thread.direct("whoami")
        before = tables(tmp_path)["raw"]
        await set_server(thread, settings={"tool_timeout_sec": 7, "disabled_tools": None})
        assert tables(tmp_path)["raw"] == {
            "command": before["command"], "args": before["args"], "tool_timeout_sec": 7,
        }  # fmt: skip
        assert (await thread.direct("whoami"))[0] == pid
        await set_server(thread, threadId=thread.id, settings={"env": {"WHO": "mine"}})
        await steps_until_settled(thread.client, "raw")
        assert (await thread.direct("whoami"))[1] == "mine"
        await set_server(thread, threadId=thread.id, settings={"env": None})
        await steps_until_settled(thread.client, "raw")
        assert (await thread.direct("whoami"))[1] is None
        await set_server(thread, name="added", settings=before)
        assert await thread.namespaces() == ["mcp__added", "mcp__raw"]


@claim("mcp:set")
@pytest.mark.parametrize("of_thread", [False, True])
async def test_a_table_that_is_set_replaces_the_one_that_was_there(
    tmp_path: Path, of_thread: bool
) -> None:
    config = PATIENT + stdio_server("raw", env='{ WHO = "file" }')
    async with thread_with(tmp_path, config, "raw") as thread:
        of = {"threadId": thread.id} if of_thread else {}
        found = [(await thread.direct("whoami"))[1]]
        for variables in ({"OTHER": "x"}, {"WHO": "second"}, {"OTHER": "y"}):
            await set_server(thread, settings={"env": variables}, **of)
            await steps_until_settled(thread.client, "raw")
            found.append((await thread.direct("whoami"))[1])
        assert found == ["file", None, "second", None]


@claim("mcp:set")
async def test_a_switch_that_mends_a_refused_edit_has_it_followed(tmp_path: Path) -> None:
    overrides = {"mcp_servers.raw.disabled_tools": ["meta"]}
    config = PATIENT + stdio_server("raw")
    async with thread_with(tmp_path, config, "raw", overrides=overrides) as thread:
        before = tables(tmp_path)["raw"]
        # With what the thread was started with, `raw` has no command now.
        thread.write(PATIENT + stdio_server("other"))
        assert await thread.namespaces() == ["mcp__raw"]
        await set_server(thread, threadId=thread.id, settings=before)
        assert sorted(await thread.runtime()) == ["other", "raw"]
        assert await thread.namespaces() == ["mcp__other", "mcp__raw"]


@claim("mcp:set")
async def test_a_switch_in_a_turn_holds_from_its_next_request_on(tmp_path: Path) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        gate = Gate()
        thread.served.model.scripts += [[gate, *calls(raw_call("meta"))], says("Done.")]
        params = {"threadId": thread.id, "input": [{"type": "text", "text": "go"}]}
        await thread.client.call("turn/start", params)
        await gate.wait_until_reached()
        await set_server(thread, threadId=thread.id, enabled=False)
        gate.opened.set()
        ended = await thread.client.wait_for(
            "item/completed", lambda params: params["item"]["type"] == "mcpToolCall"
        )
        assert ended["params"]["item"]["status"] == "completed"
        await thread.client.wait_for("turn/completed")
        kinds = [
            [tool["name"] for tool in request.get("tools", []) if tool["type"] == "namespace"]
            for request in thread.served.model.requests
        ]
        assert kinds == [["mcp__raw"], []]


@claim("mcp:set")
@pytest.mark.parametrize("is_last", [False, True])
async def test_a_turn_goes_on_where_a_switch_and_an_edit_contradict_each_other(
    tmp_path: Path, is_last: bool
) -> None:
    config = PATIENT + stdio_server("raw")
    async with thread_with(tmp_path, config, "raw") as thread:
        gate = Gate()
        answers = [says("Done.")] if is_last else [calls(raw_call("meta")), says("Done.")]
        thread.served.model.scripts += [[gate, *answers[0]], *answers[1:]]
        params = {"threadId": thread.id, "input": [{"type": "text", "text": "go"}]}
        await thread.client.call("turn/start", params)
        await gate.wait_until_reached()
        # What was found has no such server any more, and what is in force has it.
        thread.write(PATIENT)
        await thread.served.services.sessions.follow_files()
        await set_server(thread, threadId=thread.id, enabled=False)
        gate.opened.set()
        ended = await thread.client.wait_for("turn/completed")
        assert ended["params"]["turn"]["status"] == "completed"
        assert await thread.runtime() == {"raw": "disabled"}
        assert await thread.namespaces() == []
        warnings = [line for line in thread.client.transcript if "failed to refresh" in line]
        assert len(warnings) == 1
        assert "invalid transport" in warnings[0]


@claim("mcp:set")
async def test_a_plugins_server_is_switched_in_the_table_of_the_plugin(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins/cache/shop/kit/local", "kit", servers={"kit": server()})
    config = PATIENT + '[plugins."kit@shop"]\nenabled = true\n'
    async with serve(tmp_path, config=config, with_apps=True) as served, served.client() as client:
        thread = Thread(served, client, await client.start_thread())
        await steps_until_settled(client, "kit")
        await set_server(thread, name="kit", threadId=thread.id, enabled=False)
        assert await thread.runtime() == {"kit": "disabled"}
        await set_server(thread, name="kit", threadId=thread.id, enabled=True)
        assert await thread.namespaces() == ["mcp__kit"]
        await set_server(thread, name="kit", enabled=False)
        document = tomllib.loads((tmp_path / "config.toml").read_text())
        assert document["plugins"]["kit@shop"]["mcp_servers"] == {"kit": {"enabled": False}}
        error = await client.refusal("mcpServer/set", {"name": "kit", "settings": {"command": "x"}})
        assert error.data["field"] == "settings"


@claim("mcp:set")
async def test_a_server_of_no_file_is_switched_in_one_thread(tmp_path: Path) -> None:
    chosen = write_plugin(tmp_path / "given", "sel", servers={"sel": server()})
    place = {"type": "environment", "environmentId": "local", "path": str(chosen)}
    params = {"selectedCapabilityRoots": [{"id": "sel@x", "location": place}]}
    home = tmp_path / "home"
    home.mkdir()
    async with serve(home, config=PATIENT, with_apps=True) as served, served.client() as client:
        first, second = [
            Thread(served, client, await client.start_thread(**params)) for _ in range(2)
        ]
        assert await first.namespaces() == ["mcp__sel"]
        before = (home / "config.toml").read_text()
        answer = {"filePath": None, "overridden": False}
        off = {"name": "sel", "threadId": first.id, "enabled": False}
        assert await client.call("mcpServer/set", off) == answer
        assert await first.runtime() == {"sel": "disabled"}
        assert await first.namespaces() == []
        assert await second.namespaces() == ["mcp__sel"]
        assert await client.call("mcpServer/set", {**off, "enabled": True}) == answer
        assert await first.namespaces() == ["mcp__sel"]
        settings = {"name": "sel", "threadId": first.id, "settings": {"tool_timeout_sec": 3}}
        error = await client.refusal("mcpServer/set", settings)
        assert error.data["code"] == "mcpServerNotEditable"
        assert "only `enabled` can be set" in error.message
        assert (home / "config.toml").read_text() == before


@claim("mcp:set")
async def test_a_server_of_a_threads_plugin_is_switched_in_all_threads(tmp_path: Path) -> None:
    chosen = write_plugin(tmp_path / "given", "sel", servers={"sel": server()})
    place = {"type": "environment", "environmentId": "local", "path": str(chosen)}
    params = {"selectedCapabilityRoots": [{"id": "sel@x", "location": place}]}
    home = tmp_path / "home"
    home.mkdir()
    async with serve(home, config=PATIENT, with_apps=True) as served, served.client() as client:
        first, second = [
            Thread(served, client, await client.start_thread(**params)) for _ in range(2)
        ]
        assert await first.namespaces() == ["mcp__sel"]
        answer = {"filePath": str(home / "config.toml"), "overridden": False}
        off = {"name": "sel", "enabled": False}
        assert await client.call("mcpServer/set", off) == answer
        document = tomllib.loads((home / "config.toml").read_text())
        assert document["mcp_switches"] == {"sel": False}
        third = Thread(served, client, await client.start_thread(**params))
        for thread in (first, second, third):
            assert await thread.runtime() == {"sel": "disabled"}
            assert await thread.namespaces() == []
        # One thread alone may have it all the same.
        await client.call("mcpServer/set", {**off, "threadId": second.id, "enabled": True})
        assert await second.namespaces() == ["mcp__sel"]
        assert await first.namespaces() == []
        await client.call("mcpServer/set", {**off, "enabled": True})
        assert await first.namespaces() == ["mcp__sel"]
        assert await third.namespaces() == ["mcp__sel"]
        error = await client.refusal("mcpServer/set", {"name": "nobody", "enabled": False})
        assert error.data["code"] == "unknownMcpServer"


@claim("mcp:set")
@pytest.mark.parametrize("of_thread", [False, True])
async def test_a_server_of_an_extension_is_switched(tmp_path: Path, of_thread: bool) -> None:
    async with open_shop(tmp_path, PATIENT) as shop:
        shop.put()
        thread = Thread(shop.served, shop.client, await shop.thread())
        of = {"threadId": thread.id} if of_thread else {}
        for enabled, shown in ((False, []), (True, ["mcp__shelved"])):
            await set_server(thread, name="shelved", enabled=enabled, **of)
            document = tomllib.loads((tmp_path / "config.toml").read_text())
            switches = None if of_thread else {"shelved": enabled}
            assert document.get("mcp_switches") == switches
            assert await thread.namespaces() == shown
            # Published anew, it is switched as it was.
            shop.put(enabled_tools=["look"])
            assert await thread.namespaces() == shown


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({}, "invalidParams", "exactly one of `enabled` and `settings` is given"),
    ({"enabled": True, "settings": {"a": 1}}, "invalidParams", "exactly one of"),
    ({"settings": {}}, "invalidParams", "an object with at least one key"),
    ({"settings": {"command": "x" * 70_000}}, "invalidParams", "at most 65536 bytes of JSON"),
    ({"name": "a b", "enabled": True}, "invalidParams", "a name of a server matches"),
    ({"name": "nobody", "enabled": True}, "unknownMcpServer", "No MCP server named 'nobody'"),
    ({"name": "new", "settings": {"args": []}}, "config", "invalid transport"),
    ({"settings": {"url": "http://127.0.0.1:1"}}, "config", "url is not supported for stdio"),
    ({"settings": {"command": 5}}, "config", "expected a string"),
    ({"settings": {"startup_timeout_sec": -1}}, "config", "value is negative"),
]


@claim("mcp:set-refused")
@pytest.mark.parametrize("of_thread", [False, True])
@pytest.mark.parametrize(("params", "word", "text"), WRONG)
async def test_a_change_that_makes_no_sense_is_refused_and_changes_nothing(
    tmp_path: Path, params: dict[str, Any], word: str, text: str, of_thread: bool
) -> None:
    async with thread_with(tmp_path, stdio_server("raw"), "raw") as thread:
        before = (tmp_path / "config.toml").read_text()
        pid, _ = await thread.direct("whoami")
        of = {"threadId": thread.id} if of_thread else {}
        error = await thread.client.refusal("mcpServer/set", {"name": "raw", **params, **of})
        expected = {"config": "configInvalid" if of_thread else "configValidationError"}
        assert error.data["code"] == expected.get(word, word)
        assert text in error.message
        assert (tmp_path / "config.toml").read_text() == before
        assert await thread.runtime() == {"raw": "connected"}
        assert (await thread.direct("whoami"))[0] == pid


@claim("mcp:set-refused")
async def test_a_server_that_an_administrator_forbids_cannot_be_switched_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "requirements.toml").write_text("[mcp_servers]\n")
    async with thread_with(tmp_path, stdio_server("raw")) as thread:
        error = await thread.client.refusal("mcpServer/set", {"name": "raw", "enabled": True})
        assert (error.code, error.data["code"]) == (-32603, "mcpServerNotAllowed")


@claim("mcp:restart")
async def test_a_restart_is_of_one_thread_or_of_all_and_calls_end_on_the_old(
    tmp_path: Path,
) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        other = Thread(thread.served, thread.client, await thread.client.start_thread())
        await steps_until_settled(thread.client, "raw")
        first, second = [(await one.direct("whoami"))[0] for one in (thread, other)]
        call = {"threadId": thread.id, "server": "raw", "tool": "meet", "arguments": {"n": 1}}
        running = await thread.client.request("mcpServer/tool/call", call)
        meets = await thread.client.request("mcpServer/tool/call", {**call, "arguments": {"n": 2}})
        params = {"name": "raw", "threadId": thread.id}
        restarted = await thread.client.call("mcpServer/restart", params)
        assert restarted == {"threadIds": [thread.id]}
        for request in (running, meets):
            assert "result" in await thread.client.answer(request)
        await steps_until_settled(thread.client, "raw")
        await until_gone(first)
        assert (await thread.direct("whoami"))[0] != first
        assert (await other.direct("whoami"))[0] == second
        os.kill(second, 0)
        restarted = await thread.client.call("mcpServer/restart", {"name": "raw"})
        assert restarted == {"threadIds": [thread.id, other.id]}
        await until_gone(second)
        assert await other.namespaces() == ["mcp__raw"]


@claim("mcp:restart")
async def test_a_server_that_failed_starts_with_a_restart(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    stop.touch()
    async with thread_with(tmp_path, stdio_server("raw", "unless", str(stop)), "raw") as thread:
        assert await thread.runtime() == {"raw": "failed"}
        stop.unlink()
        await thread.client.call("mcpServer/restart", {"name": "raw"})
        assert await thread.runtime() == {"raw": "connected"}


@claim("mcp:restart-refused")
async def test_a_restart_of_what_cannot_run_is_refused(tmp_path: Path) -> None:
    config = stdio_server("raw", enabled="false")
    async with thread_with(tmp_path, config) as thread:
        for params in ({}, {"threadId": thread.id}):
            error = await thread.client.refusal("mcpServer/restart", {"name": "raw", **params})
            assert (error.code, error.data["code"]) == (-32600, "mcpServerDisabled")
            error = await thread.client.refusal("mcpServer/restart", {"name": "no", **params})
            assert (error.code, error.data["code"]) == (-32600, "unknownMcpServer")
    async with serve(tmp_path, config=stdio_server("raw")) as served, served.client() as client:
        assert await client.call("mcpServer/restart", {"name": "raw"}) == {"threadIds": []}


@claim("mcp:restart")
async def test_a_shared_server_starts_anew_with_the_next_call(tmp_path: Path) -> None:
    config = PATIENT + stdio_server("raw", share='"home"')
    async with thread_with(tmp_path, config, "raw") as thread:
        other = Thread(thread.served, thread.client, await thread.client.start_thread())
        await steps_until_settled(thread.client, "raw")
        first = (await thread.direct("whoami"))[0]
        assert (await other.direct("whoami"))[0] == first
        call = {"threadId": other.id, "server": "raw", "tool": "meet", "arguments": {"n": 1}}
        running = await thread.client.request("mcpServer/tool/call", call)
        meets = await thread.client.request("mcpServer/tool/call", {**call, "arguments": {"n": 2}})
        await thread.client.call("mcpServer/restart", {"name": "raw"})
        for request in (running, meets):
            assert "result" in await thread.client.answer(request)
        await until_gone(first)
        second = (await thread.direct("whoami"))[0]
        assert second != first
        assert (await other.direct("whoami"))[0] == second
