"""clients: every program of this package shows the token that a server wants."""

import json
import os
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.cli import serve as command_line
from app_server.clients.app_connection import ConnectionLost
from app_server.clients.bench.rows import converse
from app_server.clients.receiver.agent.environment import URL_VARIABLE
from app_server.clients.receiver.agent.surface import connect_app
from app_server.peer.address import ServerAddress
from app_server.peer.connection import NoAppServer, identify, open_client
from app_server.peer.token_file import (
    TOKEN_FILE_VARIABLE,
    NoToken,
    TokenWanted,
    chosen_token_file,
    read_token,
    take_token,
    token_headers,
)
from app_server.transport.address import Address, TcpAddress, UnixAddress
from app_server.transport.guards import ListenerGuards
from tests.support.clients.coder import environment, read_given, run_coder
from tests.support.files.descriptors import open_below
from tests.support.harness import WAIT_S, claim, serve
from tests.support.receiver.peer import context, parts

# The file.


def test_white_space_around_a_token_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n right-token\r\n")
    assert read_token(tmp_path / "token") == "right-token"


@pytest.mark.parametrize("content", [b"", b" \n", b"one\ntwo", b"x" * 4097, "\xe4".encode(), b"\0"])
def test_what_is_no_token_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(NoToken) as caught:
        read_token(tmp_path / "token")
    assert str(caught.value) == (
        f"{tmp_path}/token holds no token: 1 to 4096 printable ASCII characters on one line"
    )


def test_a_variable_that_is_no_text_is_refused_as_one_and_does_not_count_beside_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("right-token")
    monkeypatch.setenv("A_TOKEN", os.fsdecode(b"caf\xe9"))
    assert take_token("token", "A_TOKEN", tmp_path / "token") == "right-token"
    monkeypatch.setenv("A_TOKEN", os.fsdecode(b"caf\xe9"))
    with pytest.raises(ValueError, match=r"^the token must be 1 to 4096 printable ASCII") as caught:
        take_token("token", "A_TOKEN", None)
    assert "caf" not in str(caught.value)
    assert "A_TOKEN" not in os.environ


async def test_a_token_pipe_without_a_writer_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "token")
    with anyio.fail_after(WAIT_S), pytest.raises(NoToken):
        await anyio.to_thread.run_sync(read_token, pipe, abandon_on_cancel=True)


def test_a_folder_is_refused_and_not_left_open(tmp_path: Path) -> None:
    """A receiver reads the file again for each connection that it tries."""
    with pytest.raises(NoToken, match=f"cannot be read: {tmp_path}: Is a directory"):
        read_token(tmp_path)
    assert open_below(tmp_path) == []


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoToken) as caught:
        await token_headers(tmp_path / "token")
    assert str(caught.value) == (
        f"the token file cannot be read: {tmp_path}/token: No such file or directory"
    )
    assert await token_headers(None) == {}


def test_the_option_comes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    environ = {TOKEN_FILE_VARIABLE: "~/token"}
    assert chosen_token_file(Path("/other"), environ) == Path("/other")
    assert chosen_token_file(None, environ) == Path("/home/me/token")
    assert chosen_token_file(None, {TOKEN_FILE_VARIABLE: ""}) is None
    assert chosen_token_file(None, {}) is None


# The programs.


@claim("listener:token-file")
async def test_clients_show_the_token_and_are_refused_without_it(tmp_path: Path) -> None:
    path, wrong = tmp_path / "token", tmp_path / "wrong"
    wrong.write_text("wrong-token")
    listen: list[Address] = [TcpAddress("127.0.0.1", 0), UnixAddress(tmp_path / "socket")]
    guards = ListenerGuards(token_file=path)
    async with serve(tmp_path / "home", listen=listen, guards=guards) as served:
        for url in served.urls:
            async with open_client(url, "test", token_file=path) as client:
                assert await client.call("thread/loaded/list", {}) == {
                    "data": [],
                    "nextCursor": None,
                }
        url = served.urls[0]
        home = (await identify(url, "test", timeout_s=WAIT_S, token_file=path))["codexHome"]
        assert home == str(tmp_path / "home")
        async with converse(ServerAddress(url, path)) as conversation:
            assert (await conversation.call("thread/list", {}))["data"] == []
        await (await connect_app(url, path)).aclose()
        for file, said in ((None, "wants a token"), (wrong, f"refuses the token of {wrong}")):
            with pytest.raises(TokenWanted, match=said):
                async with open_client(url, "test", token_file=file):
                    pass
            with pytest.raises(TokenWanted, match=said):
                async with converse(ServerAddress(url, file)):
                    pass
            with pytest.raises(NoAppServer):
                await identify(url, "test", timeout_s=WAIT_S, token_file=file)
            with pytest.raises(ConnectionLost):
                await connect_app(url, file)
        with pytest.raises(ValueError, match="the token file cannot be read"):
            await connect_app(url, tmp_path / "nowhere")


@claim("listener:token-file")
async def test_a_receiver_reads_the_token_anew_for_each_connection(tmp_path: Path) -> None:
    path = tmp_path / "token"
    guards = ListenerGuards(token_file=path)
    async with parts(tmp_path) as made:
        for _ in range(2):
            async with serve(tmp_path / "home", guards=guards) as served:
                told_where = context(served.urls[0], **{TOKEN_FILE_VARIABLE: str(path)})
                await made.surface.on_bootstrap(told_where)
                assert made.surface.is_connected
                await made.surface.on_wrap(told_where)


@claim("listener:token-file")
async def test_commands_take_the_file_from_an_option_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*words: str) -> tuple[int, str, str]:
        status = await anyio.to_thread.run_sync(command_line.main, words)
        return status, *capsys.readouterr()

    monkeypatch.delenv(TOKEN_FILE_VARIABLE, raising=False)
    path = tmp_path / "token"
    async with serve(tmp_path / "home", guards=ListenerGuards(token_file=path)) as served:
        listing = ("signal", "--url", served.urls[0])
        assert await run(*listing, "--token-file", str(path), "list") == (0, "", "")
        with monkeypatch.context() as patched:
            patched.setenv(TOKEN_FILE_VARIABLE, str(path))
            assert await run(*listing, "list") == (0, "", "")
        status, out, err = await run(*listing, "list")
        assert (status, out, err) == (
            1,
            "",
            f"app-server signal: the server at {served.urls[0]} wants a token: name the file that "
            "has it with --token-file or APP_SERVER_TOKEN_FILE\n",
        )
        bench = ("bench", served.urls[0], "--steps", "1", "--row", "thread/list", "--json")
        status, out, _ = await run(*bench, "--token-file", str(path))
        assert status == 0
        (target,) = json.loads(out)["targets"]
        assert target == {"url": served.urls[0], "pid": os.getpid()}
    status, out, err = await run(*listing, "--token-file", str(path), "list")
    assert (status, out, err) == (
        1,
        "",
        f"app-server signal: the token file cannot be read: {path}: No such file or directory\n",
    )


def test_a_bench_wants_a_file_for_each_server_or_one_for_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = ("--token-file", "a", "--token-file", "b")
    with pytest.raises(SystemExit) as ended:
        command_line.main(["bench", "ws://a:1", "ws://b:1", "ws://c:1", *files])
    assert ended.value.code == 2
    wrong = "--token-file must be given once, or once for every URL in their order"
    assert wrong in capsys.readouterr().err


@pytest.mark.process
@claim("listener:token-file")
async def test_a_launcher_starts_its_server_with_a_token_and_gives_it_to_the_agent(
    tmp_path: Path,
) -> None:
    path = tmp_path / "token"
    variables = environment(tmp_path)
    words = ("-codex-app-server", "local", "-codex-app-server-token-file", str(path))
    result = await anyio.to_thread.run_sync(lambda: run_coder(variables, *words))
    assert (result.returncode, result.stderr) == (0, "")
    agent = read_given(tmp_path)
    url = agent["variables"]["PRISM_CODEX_APP_SERVER_URL"]
    assert agent["words"][:4] == ["--remote", url, "--remote-auth-token-env", "APP_SERVER_TOKEN"]
    assert agent["home"] == str(tmp_path / "home")
    assert not path.exists()


@pytest.mark.process
@claim("listener:token-file")
async def test_a_launcher_uses_a_server_that_wants_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    async with serve(tmp_path / "other", guards=ListenerGuards(token_file=path)) as served:
        words = ("-codex-app-server", "local", "-codex-app-server-url", served.urls[0])
        for variables in (
            environment(tmp_path),
            environment(tmp_path, **{TOKEN_FILE_VARIABLE: ""}),
        ):
            result = await anyio.to_thread.run_sync(run_coder, variables, *words)
            assert result.returncode == 2
            assert result.stderr == f"coder: no app-server answers at {served.urls[0]}\n"
        shown = environment(tmp_path, **{TOKEN_FILE_VARIABLE: str(path)})
        result = await anyio.to_thread.run_sync(run_coder, shown, *words)
        assert result.returncode == 0
        # It has another home, so that its receivers do not find it by themselves.
        wanted = f"{URL_VARIABLE}={served.urls[0]} {TOKEN_FILE_VARIABLE}={path}"
        assert f"was started with {wanted} in its environment" in result.stderr
        assert read_given(tmp_path)["home"] == str(tmp_path / "other")
