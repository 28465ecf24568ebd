"""mcp: a file that breaks while the server runs (docs/config.md, "An edited file")."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import WireClient, claim, let_stand, serve, stdio_server
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.mcp_peers.reloads import Thread, thread_with

PATIENT = "mcp_optional_startup_grace_ms = 0\n"


def warnings_in(client: WireClient) -> list[Any]:
    """Return the configuration warnings that the client has received."""
    messages = [json.loads(line[2:]) for line in client.transcript if '"configWarning"' in line]
    return [message["params"] for message in messages]


async def warned(client: WireClient) -> Any:
    """Return the first configuration warning, also where it has come before."""
    for params in warnings_in(client):
        return params
    return (await client.wait_for("configWarning"))["params"]


async def another(thread: Thread) -> Thread:
    """Start one more thread for the same client."""
    return Thread(thread.served, thread.client, await thread.client.start_thread())


@claim("mcp:broken-file")
@pytest.mark.parametrize(
    ("good", "broken"),
    [
        ("", "[broken\n"),
        ("", 'sandbox_mode = "sometimes"\n'),
        ("model_provider", "no_provider"),
        ("mcp_optional_startup_grace_ms = 0", 'mcp_optional_startup_grace_ms = "none"'),
    ],
)
async def test_new_threads_start_with_the_last_good_file_and_each_client_is_warned_once(
    tmp_path: Path, good: str, broken: str
) -> None:
    config = PATIENT + stdio_server("raw")
    async with thread_with(tmp_path, config, "raw") as thread, thread.served.client() as second:
        file = tmp_path / "config.toml"
        await let_stand(second, file)
        text = file.read_text()
        if broken == "no_provider":
            file.write_text(text.replace("[model_providers.", "[model_providers.other-"))
        else:
            file.write_text(text.replace(good, broken, 1) if good else broken + text)
        for _ in range(2):
            assert await (await another(thread)).namespaces() == ["mcp__raw"]
        for client in (thread.client, second):
            summary = (await warned(client))["summary"]
            assert summary.endswith("the last configuration that could be used holds.")
        thread.write(config + stdio_server("more"))
        fresh = await another(thread)
        assert await fresh.namespaces() == ["mcp__more", "mcp__raw"]
        assert await thread.namespaces() == ["mcp__more", "mcp__raw"]
        await second.call("thread/loaded/list", {})
        assert [len(warnings_in(client)) for client in (thread.client, second)] == [1, 1]


async def test_a_server_that_starts_with_a_broken_file_refuses_threads(tmp_path: Path) -> None:
    broken = 'sandbox_mode = "sometimes"\n'
    async with serve(tmp_path, config=broken) as served, served.client() as client:
        for _ in range(2):
            error = await client.refusal("thread/start", {})
            assert (error.code, error.data["code"]) == (-32600, "configInvalid")


async def test_nothing_stands_in_for_an_administrators_demands(tmp_path: Path) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        (tmp_path / "requirements.toml").write_text("[broken\n")
        file = tmp_path / "config.toml"
        for text in (file.read_text(), "[broken\n"):
            file.write_text(text)
            error = await thread.client.refusal("thread/start", {})
            assert "failed to parse requirements layer" in error.message


WRONG = [
    ("[mcp_servers.bad]\ncommand = 5\n", ":2:11: ", "`mcp_servers.bad.command`"),
    ("[mcp_servers.bad]\nargs = []\n", ":1:1: invalid transport", "`mcp_servers.bad`"),
    (
        '[mcp_servers.bad]\nurl = "http://127.0.0.1:1"\nargs = []\n',
        ":1:1: args",
        "`mcp_servers.bad`",
    ),
    ("[mcp_servers]\nbad = 5\n", ":2:7: ", "`mcp_servers.bad`"),
    ('[mcp_servers.bad]\ncommand = "x"\nlazy = true\nrequired = true\n', ":3:8: ", "bad.lazy`"),
]


@claim("mcp:broken-server")
@pytest.mark.parametrize(("table", "place", "key"), WRONG)
async def test_a_wrong_table_fails_its_server_and_the_others_follow_the_edit(
    tmp_path: Path, table: str, place: str, key: str
) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        pid, _ = await thread.direct("whoami")
        file = tmp_path / "config.toml"
        before = len(file.read_text().splitlines())
        file.write_text(file.read_text() + stdio_server("more"))
        lines = len(file.read_text().splitlines())
        assert lines > before
        head, _, line = place[1:].partition(":")
        file.write_text(file.read_text() + table)
        at = f"{file}:{lines + int(head)}:{line}"
        if "required" in table:
            # Only a thread that is loaded already has it.
            assert await thread.namespaces() == ["mcp__more", "mcp__raw"]
            threads = [thread]
        else:
            threads = [thread, await another(thread)]
        for one in threads:
            assert await one.namespaces() == ["mcp__more", "mcp__raw"]
            params = {"threadId": one.id}
            rows = (await one.client.call("mcpServerStatus/list", params))["data"]
            assert {row["name"]: row["runtimeStatus"] for row in rows} == {
                "bad": "failed", "more": "connected", "raw": "connected",
            }  # fmt: skip
            (bad,) = [row for row in rows if row["name"] == "bad"]
            assert at in bad["toolsError"]
            assert key in bad["toolsError"]
        assert (await thread.direct("whoami"))[0] == pid
        thread.write(PATIENT + stdio_server("raw") + stdio_server("bad"))
        assert await thread.namespaces() == ["mcp__bad", "mcp__raw"]
        assert (await thread.direct("whoami"))[0] == pid


@claim("mcp:broken-server")
@pytest.mark.parametrize(
    ("of_user", "table", "place", "key"),
    [
        ("", "[mcp_servers.bad]\ncommand = 5\n", "4:11", "mcp_servers.bad.command"),
        ("", "[mcp_servers.bad]\nargs = []\n", "3:1", "mcp_servers.bad"),
        # The user's table is right until the project's is put over it.
        (
            '[mcp_servers.bad]\ncommand = "x"\n',
            '[mcp_servers.bad]\nlazy = true\nshare = "world"\n',
            "5:9",
            "mcp_servers.bad.share",
        ),
    ],
)
async def test_a_wrong_table_of_a_project_is_named_with_its_file_and_line(
    tmp_path: Path, of_user: str, table: str, place: str, key: str
) -> None:
    project = tmp_path / "project"
    file = project / ".codex" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f"# of the project\n\n{table}")
    home = tmp_path / "home"
    home.mkdir()
    trusted = f'[projects."{project}"]\ntrust_level = "trusted"\n'
    config = PATIENT + stdio_server("raw") + of_user + trusted
    async with thread_with(home, config, "raw", "bad", params={"cwd": str(project)}) as thread:
        params = {"threadId": thread.id}
        rows = (await thread.client.call("mcpServerStatus/list", params))["data"]
        assert {row["name"]: row["runtimeStatus"] for row in rows} == {
            "bad": "failed", "raw": "connected",
        }  # fmt: skip
        (bad,) = [row for row in rows if row["name"] == "bad"]
        assert f"{file}:{place}: " in bad["toolsError"]
        assert f"`{key}`" in bad["toolsError"]


@claim("mcp:broken-server")
async def test_a_server_that_starts_with_a_wrong_table_runs_the_others(tmp_path: Path) -> None:
    config = PATIENT + stdio_server("raw") + "[mcp_servers.bad]\ncommand = 5\n"
    async with thread_with(tmp_path, config, "raw", "bad") as thread:
        assert await thread.runtime() == {"bad": "failed", "raw": "connected"}
        error = await thread.client.refusal("config/mcpServer/reload")
        assert (error.code, error.data["code"]) == (-32603, "configInvalid")
        assert "invalid type: integer" in error.message
        # What a client writes has to make sense, and may mend it.
        edit = {"name": "bad", "settings": {"args": []}}
        error = await thread.client.refusal("mcpServer/set", edit)
        assert error.data["code"] == "configValidationError"
        settings = {"command": "/no/such", "args": []}
        await thread.client.call("mcpServer/set", {"name": "bad", "settings": settings})
        await steps_until_settled(thread.client, "bad")
        statuses = await thread.client.call("mcpServerStatus/list", {"threadId": thread.id})
        assert "/no/such" in statuses["data"][0]["toolsError"]
