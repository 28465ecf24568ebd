"""app-server mcp: servers of config.toml, and sign-ins, from the command line."""

import asyncio
import json
import os
import sys
import tomllib
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.cli.mcp import main
from app_server.mcp.oauth.credentials import credential_key
from app_server.transport.address import UnixAddress
from tests.support.files.plugins import server, write_plugin
from tests.support.harness import WAIT_S, claim, environment_without, serve, stdio_server
from tests.support.mcp_peers.calls import steps_until_settled
from tests.support.mcp_peers.oauth_peer import OAuthPeer, query_of
from tests.support.mcp_peers.registrations import open_shop
from tests.support.mcp_peers.sign_in import keep, stored, table, visit
from tests.support.paths import MCP_PEER
from tests.support.processes import EXECUTABLE

SECRETS = """\
# mine
[mcp_servers.local] # kept
command = "tool"
args = ["--fast"]
env = { NAME = "secret-1" }

[mcp_servers.remote]
url = "https://mcp.example.com/mcp"
http_headers = { X-Key = "secret-2" }
enabled = false
"""


def run(home: Path, *words: str) -> int:
    end = list(words).index("--") if "--" in words else len(words)
    return main([*words[:end], "--home", str(home), *words[end:]])


@claim("cli:mcp-list")
def test_servers_are_shown_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text(SECRETS)
    assert run(tmp_path, "list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "NAME    STATE     WHERE",
        "local   enabled   tool --fast",
        "remote  disabled  https://mcp.example.com/mcp",
    ]
    assert run(tmp_path, "list", "--json") == 0
    listed = capsys.readouterr().out
    assert [server["name"] for server in json.loads(listed)] == ["local", "remote"]
    assert run(tmp_path, "get", "local") == 0
    shown = capsys.readouterr().out
    assert "env: NAME" in shown
    assert run(tmp_path, "get", "remote", "--json") == 0
    of_remote = capsys.readouterr().out
    assert json.loads(of_remote)["transport"] == {
        "type": "streamable_http",
        "url": "https://mcp.example.com/mcp",
        "bearer_token_env_var": None,
        "http_headers": ["X-Key"],
        "env_http_headers": {},
    }
    assert "secret" not in listed + shown + of_remote
    assert run(tmp_path, "get", "none") == 1
    error = "app-server mcp: no MCP server named `none`; there are: local, remote\n"
    assert capsys.readouterr().err == error


LIFE = 'protocol = "2025"\nshare = "folder"\nlazy = true\nidle_seconds = 90\n'


@claim("cli:mcp-list")
def test_how_long_a_server_runs_and_for_whom_is_shown_where_it_is_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text(
        f'[mcp_servers.set]\ncommand = "tool"\n{LIFE}[mcp_servers.usual]\ncommand = "tool"\n'
    )
    found = []
    for name in ("set", "usual"):
        assert run(tmp_path, "get", name, "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        keys = ("protocol", "share", "lazy", "idle_seconds")
        found.append({key: shown[key] for key in keys if key in shown})
    expected = {"protocol": "2025", "share": "folder", "lazy": True, "idle_seconds": 90}
    assert found == [expected, {}]
    assert run(tmp_path, "get", "set") == 0
    assert "share: folder\nlazy: True\nidle_seconds: 90" in capsys.readouterr().out


@claim("cli:mcp-list")
def test_a_table_that_cannot_be_used_is_named_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(SECRETS + "\n[mcp_servers.bad]\ncommand = 5\n[mcp_servers.worse]\n")
    line = file.read_text().splitlines().index("command = 5") + 1
    wrong = f"{file}:{line}:11: invalid type: integer, expected a string"
    assert run(tmp_path, "list") == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "NAME    STATE     WHERE",
        "local   enabled   tool --fast",
        "remote  disabled  https://mcp.example.com/mcp",
        "bad     broken",
        "worse   broken",
    ]
    bad, worse = shown.err.splitlines()
    assert bad == f"app-server mcp: MCP server `bad`: {wrong}"
    assert worse.startswith("app-server mcp: MCP server `worse`: ")
    assert run(tmp_path, "list", "--json") == 1
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["local", "remote"]
    assert run(tmp_path, "get", "local") == 0
    assert run(tmp_path, "get", "bad") == 1
    assert capsys.readouterr().err == f"app-server mcp: {wrong}\n"
    # It is mended by taking it away.
    assert run(tmp_path, "remove", "bad") == 0
    assert run(tmp_path, "remove", "worse") == 0
    capsys.readouterr()
    assert run(tmp_path, "list") == 0


@claim("cli:mcp-add")
def test_the_first_server_is_added_before_there_is_a_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "state" / "app-server"
    assert run(home, "add", "new", "--", "npx") == 0
    servers = tomllib.loads((home / "config.toml").read_text())["mcp_servers"]
    assert servers == {"new": {"command": "npx", "args": []}}
    capsys.readouterr()
    assert run(Path("/proc/none"), "add", "new", "--", "npx") == 1
    begin = "app-server mcp: the home folder cannot be used: "
    assert capsys.readouterr().err.startswith(begin)


def test_servers_are_added_and_removed_and_the_rest_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(SECRETS)
    assert run(tmp_path, "add", "new", "--env", "A=b=c", "--", "npx", "-y", "x", "--", "y") == 0
    assert run(tmp_path, "add", "web", "--url", "https://a.example/mcp") == 0
    servers = tomllib.loads(file.read_text())["mcp_servers"]
    assert servers["new"] == {"command": "npx", "args": ["-y", "x", "--", "y"], "env": {"A": "b=c"}}
    assert servers["web"] == {"url": "https://a.example/mcp"}
    for name in ("new", "web"):
        assert run(tmp_path, "remove", name) == 0
    assert tomllib.loads(file.read_text()) == tomllib.loads(SECRETS)
    assert "# mine" in file.read_text()
    assert "# kept" in file.read_text()
    capsys.readouterr()
    before = file.read_bytes()
    for words, problem in (
        (("remove", "new"), f"{file} has no MCP server named `new`"),
        (("login", "local"), "MCP server `local` does not sign in with OAuth"),
    ):
        assert run(tmp_path, *words) == 1
        assert capsys.readouterr().err == f"app-server mcp: {problem}\n"
    either = "add takes either --url URL, or -- and a command"
    wrong: list[tuple[tuple[str, ...], str]] = [
        (
            ("add", "a b", "--", "x"),
            "`a b` is no name of a server: use letters, digits and _ : @ / . -",
        ),
        (
            ("add", "a", "--url", "nonsense"),
            "`nonsense` is no URL of a server: it begins with https:// or http://",
        ),
        (
            ("add", "a", "--url", "http://["),
            "`http://[` is no URL of a server: it begins with https:// or http://",
        ),
        (("add", "a", "--env", "=x", "--", "x"), "cannot read --env : use KEY=VALUE"),
        (
            ("add", "a", "--url", "https://a", "--env", "A=b"),
            "--env is for servers that are started, not for those behind a URL",
        ),
        (
            ("add", "a", "--bearer-token-env-var", "A", "--", "x"),
            "--bearer-token-env-var is for servers behind a URL",
        ),
        (("add", "a"), either),
        (("add", "a", "--url", "https://a", "--", "x"), either),
        (("list", "--", "x"), "only add takes a command"),
        (("list", "-c", "x"), "cannot read --config 'x': use key=value"),
        (
            ("list", "-p", "../x"),
            "invalid profile '../x': a name has at most 64 letters, digits, hyphens and "
            "underscores",
        ),
    ]
    for call, rule in wrong:
        with pytest.raises(SystemExit) as caught:
            run(tmp_path, *call)
        assert caught.value.code == 2
        assert capsys.readouterr().err.endswith(f"app-server mcp: error: {rule}\n")
    assert file.read_bytes() == before


@claim("cli:mcp-login")
async def test_a_sign_in_stores_a_token_and_a_sign_out_deletes_it(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        store = 'mcp_oauth_credentials_store = "file"\n'
        (tmp_path / "config.toml").write_text(store + table(peer))
        process = await asyncio.create_subprocess_exec(
            *(str(EXECUTABLE), "mcp", "login", "web", "--no-browser", "--home", str(tmp_path)),
            env=environment_without("OPENAI_API_KEY"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            with anyio.fail_after(WAIT_S):
                while not (line := (await process.stdout.readline()).decode()).startswith("http"):
                    assert line, "it ended without an address"
                query = query_of(line.strip())
                code = peer.agree(query)
                await visit(query["redirect_uri"], code=code, state=query["state"])
                rest = await process.stdout.read()
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert rest.decode().strip() == "Signed in to MCP server `web`."
        assert len(stored(tmp_path)) == 1
        for _ in range(2):
            assert await anyio.to_thread.run_sync(run, tmp_path, "logout", "web") == 0
        assert stored(tmp_path) == {}


@claim("environment:sign-in")
async def test_a_server_of_an_environment_is_signed_in_to_by_a_running_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with OAuthPeer().serve() as peer:
        store = 'mcp_oauth_credentials_store = "file"\n'
        (tmp_path / "config.toml").write_text(store + table(peer, 'environment_id = "far"'))
        keep(tmp_path, peer, peer.give())
        keep(tmp_path, peer, peer.give(), environment_id="far")
        assert await anyio.to_thread.run_sync(run, tmp_path, "login", "web") == 1
        assert capsys.readouterr().err == (
            "app-server mcp: MCP server `web` is in the environment `far`, which a running "
            "app-server knows: sign in there with mcpServer/oauth/login\n"
        )
        assert await anyio.to_thread.run_sync(run, tmp_path, "logout", "web") == 0
        assert list(stored(tmp_path)) == [credential_key("web", peer.url)]


@claim("cli:mcp-switch")
def test_a_server_is_switched_and_the_rest_of_the_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(SECRETS)
    assert run(tmp_path, "disable", "local") == 0
    off = tomllib.loads(file.read_text())["mcp_servers"]
    assert (off["local"]["enabled"], off["remote"]) == (
        False, tomllib.loads(SECRETS)["mcp_servers"]["remote"],
    )  # fmt: skip
    assert "# kept" in file.read_text()
    assert run(tmp_path, "disable", "local") == 0
    assert run(tmp_path, "enable", "local") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"MCP server `local` is disabled in {file}.",
        "MCP server `local` is disabled already.",
        f"MCP server `local` is enabled in {file}.",
    ]


@claim("cli:mcp-switch")
@pytest.mark.parametrize("before", ["", SECRETS])
def test_a_server_of_no_file_is_switched_without_a_server_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(before)
    known = "local, remote" if before else "none"
    for command, word in (("disable", "disabled"), ("enable", "enabled")):
        assert run(tmp_path, command, "shelved") == 0
        assert capsys.readouterr().out == (
            f"MCP server `shelved` is {word} in {file}, should an extension, an app or a plugin of "
            f"a thread bring it: no file sets it up. Those of this home: {known}.\n"
        )
        switches = {"mcp_switches": {"shelved": command == "enable"}}
        assert tomllib.loads(file.read_text()) == {**tomllib.loads(before), **switches}
        assert run(tmp_path, command, "shelved") == 0
        assert capsys.readouterr().out == f"MCP server `shelved` is {word} already.\n"
    written = file.read_bytes()
    with pytest.raises(SystemExit) as caught:
        run(tmp_path, "disable", "a b")
    assert (caught.value.code, file.read_bytes()) == (2, written)
    rule = "`a b` is no name of a server: use letters, digits and _ : @ / . -"
    assert capsys.readouterr().err.endswith(f"app-server mcp: error: {rule}\n")


@claim("cli:mcp-switch")
async def test_a_server_of_no_file_that_was_switched_off_before_the_start_stays_off(
    tmp_path: Path,
) -> None:
    for command in ("disable", "enable"):
        home = tmp_path / command
        home.mkdir()
        assert await anyio.to_thread.run_sync(run, home, command, "shelved") == 0
        switches = (home / "config.toml").read_text()
        async with open_shop(home, config=switches) as shop:
            shop.put()
            thread_id = await shop.client.start_thread()
            listed = await shop.client.call("mcpServerStatus/list", {"threadId": thread_id})
            [row] = listed["data"]
            assert (row["runtimeStatus"] == "disabled") is (command == "disable")


@claim("cli:mcp-switch")
def test_a_server_of_a_plugin_is_switched_in_the_plugins_table(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins/cache/shop/kit/local", "kit", servers={"kit": server()})
    file = tmp_path / "config.toml"
    file.write_text('[plugins."kit@shop"]\nenabled = true\n')
    assert run(tmp_path, "disable", "kit") == 0
    tables = tomllib.loads(file.read_text())["plugins"]["kit@shop"]["mcp_servers"]
    assert tables == {"kit": {"enabled": False}}


@claim("cli:mcp-asks")
async def test_a_running_server_follows_restarts_and_shows_what_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def command(*words: str) -> tuple[int, list[str]]:
        status = await anyio.to_thread.run_sync(run, tmp_path, *words)
        return status, capsys.readouterr().out.splitlines()

    socket = tmp_path / "s"
    script = f'echo "here with $TOKEN" >&2; exec {sys.executable} {MCP_PEER}'
    config = (
        f'[mcp_servers.raw]\ncommand = "sh"\nargs = {json.dumps(["-c", script])}\n'
        'env = { TOKEN = "of-many-characters" }\n'
    )
    listen = [UnixAddress(socket)]
    async with (
        serve(tmp_path, config=config, listen=listen, watches_files=True) as served,
        served.client() as client,
    ):
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw")
        status, said = await command("restart", "raw")
        assert (status, said) == (
            0,
            [
                f"MCP server `raw` starts afresh in thread {thread_id}.",
                "If it is lazy, or threads share it, it starts with its next call.",
            ],
        )
        assert await anyio.to_thread.run_sync(run, tmp_path, "logs", "raw", "--thread", "no") == 1
        assert capsys.readouterr().err.endswith(
            "; --thread names a loaded thread, and all count without it\n"
        )
        await steps_until_settled(client, "raw")
        with anyio.fail_after(WAIT_S):
            while await command("logs", "raw", "--thread", thread_id) != (
                0, ["here with ***"] * 2,
            ):  # fmt: skip
                pass
        status, said = await command("disable", "raw")
        shown = f"The app-server that runs takes it over (process {os.getpid()})."
        assert (status, said[1:]) == (0, [shown])
        params = {"threadId": thread_id}
        with anyio.fail_after(WAIT_S):
            while True:
                listed = await client.call("mcpServerStatus/list", params)
                if listed["data"][0]["runtimeStatus"] == "disabled":
                    break
        assert await anyio.to_thread.run_sync(run, tmp_path, "restart", "raw") == 1
        assert capsys.readouterr().err.endswith(", `app-server mcp enable raw` switches it on\n")


@claim("cli:mcp-switch")
async def test_a_server_of_an_extension_is_switched_by_the_server_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    async with open_shop(tmp_path, listen=[UnixAddress(tmp_path / "s")]) as shop:
        shop.put()
        thread_id = await shop.thread()
        for command, status in (("disable", "disabled"), ("enable", "enabled")):
            assert await anyio.to_thread.run_sync(run, tmp_path, command, "shelved") == 0
            text = f"MCP server `shelved` is {status} in {file}.\n"
            assert capsys.readouterr().out == text
            switches = tomllib.loads(file.read_text())["mcp_switches"]
            assert switches == {"shelved": command == "enable"}
            listed = await shop.client.call("mcpServerStatus/list", {"threadId": thread_id})
            assert (listed["data"][0]["runtimeStatus"] == "disabled") is (command == "disable")
        assert await anyio.to_thread.run_sync(run, tmp_path, "disable", "nobody") == 1
        assert "No MCP server named 'nobody' found" in capsys.readouterr().err


WAITING = """
[mcp_servers.lazy]
command = "none-such"
lazy = true

[mcp_servers.off]
command = "none-such"
enabled = false

[mcp_servers.gone]
command = "none-such"

[mcp_servers.wrong]
command = "none-such"
share = "nobody"
"""


@claim("cli:mcp-asks")
async def test_logs_of_a_server_that_has_none_say_why_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def said_of(name: str, *words: str) -> tuple[int, str, str]:
        status = await anyio.to_thread.run_sync(run, tmp_path, "logs", name, *words)
        said = capsys.readouterr()
        return status, said.out, said.err

    listen = [UnixAddress(tmp_path / "s")]
    config = WAITING + stdio_server("raw")
    off = "MCP server `off` is disabled: `app-server mcp enable off` switches it on.\n"
    unknown = (
        "No MCP server named 'none' found; `app-server mcp list` shows the servers of this home"
    )
    async with serve(tmp_path, config=config, listen=listen) as served, served.client() as client:
        assert await said_of("raw") == (
            0, "", "No loaded thread has MCP server `raw`: it starts with the next thread.\n"
        )  # fmt: skip
        assert await said_of("off") == (0, "", off)
        assert await said_of("none") == (1, "", f"app-server mcp: {unknown}\n")
        thread_id = await client.start_thread()
        await steps_until_settled(client, "raw", "gone", "wrong")
        for words in ((), ("--thread", thread_id)):
            assert await said_of("lazy", *words) == (
                0, "", "MCP server `lazy` has not started: it starts with its first call.\n"
            )  # fmt: skip
            assert await said_of("off", *words) == (0, "", off)
            assert await said_of("raw", *words) == (
                0, "", "MCP server `raw` has written nothing to stderr, and logged nothing.\n"
            )  # fmt: skip
            assert await said_of("gone", *words) == (
                0,
                "",
                "MCP server `gone` has failed: MCP startup failed: none-such: No such file or "
                "directory (os error 2). "
                "`app-server mcp restart gone` tries again.\n",
            )
            assert await said_of("wrong", *words) == (
                0,
                "",
                f"The settings of MCP server `wrong` cannot be used: {tmp_path}/config.toml:23:9: "
                "unknown variant `nobody`, expected one of `thread`, `folder`, `home`\n",
            )
        assert (await said_of("none"))[2] == f"app-server mcp: {unknown}\n"


@claim("cli:mcp-asks")
@pytest.mark.parametrize("command", ["restart", "logs"])
def test_without_a_server_that_runs_it_says_how_to_start_one(
    tmp_path: Path,
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app_server.clients.chosen_server.START_S", 0)
    (tmp_path / "config.toml").write_text(SECRETS)
    assert run(tmp_path, command, "local") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"app-server mcp: no server runs with {tmp_path}. Start one:")
    assert f"app-server mcp {command} local" in error
