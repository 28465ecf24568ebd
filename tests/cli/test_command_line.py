"""The real executable: its command line, and what a start imports."""

import asyncio
import importlib.metadata
import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from app_server import VERSION
from app_server.cli import entry, serve
from app_server.config import home
from tests.support.harness import WireClient, environment_without
from tests.support.processes import EXECUTABLE, START_S, run_cli
from tests.support.wire.pipes import LinePipe

pytestmark = pytest.mark.process


def test_help_teaches() -> None:
    result = run_cli("--help")
    assert result.returncode == 0
    for word in (
        "--listen",
        "ws://127.0.0.1:4500",
        "app-server demo",
        "mcp-server",
        "config.toml",
        "SIGTERM",
    ):
        assert word in result.stdout
    assert result.stdout.index("app-server demo") < result.stdout.index("--ws-auth")
    for command in {*serve.LAZY_COMMANDS, *serve.COMMANDS, *entry.PROGRAMS}:
        assert f"  {command} " in result.stdout


def test_a_server_may_have_the_name_of_a_command(tmp_path: Path) -> None:
    result = run_cli("mcp", "get", "schema", "--home", str(tmp_path))
    assert (result.returncode, result.stderr) == (
        1,
        "app-server mcp: no MCP server named `schema`; there are: none\n",
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--home", "schema"],
        ["app-server", "--home", "schema"],
        ["app-server", "--home=schema", "serve"],
        ["serve", "--home", "demo"],
        ["--home", "serve", "serve"],
        ["--hom", "generate-ts", "app-server", "serve"],
        ["-c", "schema", "app-server"],
    ],
)
def test_the_value_of_an_option_is_no_command(tmp_path: Path, words: list[str]) -> None:
    wrong = ["--listen", "tcp://x"]
    result = run_cli(*words, *wrong, cwd=tmp_path)
    assert (result.returncode, "use ws://127.0.0.1:PORT" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_types_are_written_where_launchers_put_options_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-c", "schema=1", "app-server", "generate-ts", "--out", "app-server"]
    assert (serve.main(words), capsys.readouterr().out) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["app-server"]


def test_the_version_is_that_of_the_package() -> None:
    assert run_cli("--version").stdout == f"app-server {VERSION}\n"
    assert importlib.metadata.version("app-server") == VERSION


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen", "ws://0.0.0.0:1"], "refusing to listen on 0.0.0.0 without a token"),
        (["--ws-auth", "nothing"], "invalid choice"),
        (["--listen", "tcp://x"], "use ws://127.0.0.1:PORT, unix://PATH, stdio:// or off"),
        (["-c", "nonsense"], "use key=value"),
        (["--drain-seconds", "-1"], "at least 0"),
        (["nonsense"], "there is no command 'nonsense'; app-server --help lists them"),
        (["inspekt"], "there is no command 'inspekt' (did you mean inspect?)"),
        (["--listn", "off"], "there is no option --listn (did you mean --listen?)"),
        (["--zzz=1"], "there is no option --zzz; app-server --help lists them"),
        (["--home", "x", "status"], "options stand behind it: app-server status --help"),
        (["mcp-server", "--listen", "off"], "leave out --listen"),
    ],
)
def test_a_wrong_call_says_what_would_be_right(arguments: list[str], complaint: str) -> None:
    result = run_cli(*arguments)
    assert result.returncode == 2
    assert complaint in result.stderr


OWN_HELP = [
    *serve.LAZY_COMMANDS,
    "demo",
    "mcp-server",
    "receiver",
    "generate-ts",
    "generate-json-schema",
]


@pytest.mark.parametrize("command", OWN_HELP)
def test_the_help_of_a_command_is_its_own_and_shows_how_it_is_used(command: str) -> None:
    helped = run_cli(command, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith(f"usage: app-server {command} ")
    assert f"\n  app-server {command}" in helped.stdout


def test_a_port_that_is_taken_ends_with_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}"
        result = run_cli("--home", str(tmp_path), "--listen", url)
    assert result.returncode == 1
    assert result.stderr.startswith("app-server: [Errno 98] error while attempting to bind")
    # And what to do about it.
    assert f"\napp-server doctor --only ports --listen {url}\n" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_socket_whose_folder_cannot_be_made_names_what_is_missing(tmp_path: Path) -> None:
    missing = tmp_path / "no"
    result = run_cli("--home", str(tmp_path), "--listen", f"unix://{missing}/dir/x")
    assert (result.returncode, result.stderr) == (
        1,
        f"app-server: {missing} is not there, and the socket's folder would be in it\n"
        "Make that folder, or choose another path.\n",
    )


def test_a_part_that_cannot_be_loaded_ends_a_start_with_a_sentence(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['app_server.server.core'] = None; "
        "from app_server.cli import serve; sys.exit(serve.main(sys.argv[1:]))"
    )
    options = ("--home", str(tmp_path), "--listen", f"unix://{tmp_path / 'socket'}")
    result = subprocess.run(
        [sys.executable, "-c", code, *options],
        capture_output=True, text=True, timeout=START_S, check=False,
    )  # fmt: skip
    last = result.stderr.splitlines()[-1]
    assert (result.returncode, last.startswith("app-server: ModuleNotFoundError: ")) == (1, True)
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "socket").exists()


def test_the_home_is_chosen_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APP_SERVER_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert home.resolve_home(None).name == "app-server"
    monkeypatch.setenv("CODEX_HOME", "/codex")
    assert home.resolve_home(None) == Path("/codex")
    monkeypatch.setenv("APP_SERVER_HOME", "~/ours")
    assert home.resolve_home(None) == Path("~/ours").expanduser()
    assert home.resolve_home("relative") == Path("relative").absolute()


async def test_options_stand_where_launchers_put_them(tmp_path: Path) -> None:
    """`BIN --config k=v app-server --listen stdio://`, with the home in the environment."""
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE),
        *("--config", 'model="chosen"', "app-server", "--listen", "stdio://"),
        env=environment_without("APP_SERVER_HOME") | {"CODEX_HOME": str(tmp_path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    client = WireClient(LinePipe(process.stdout, process.stdin))
    assert (await client.initialize())["codexHome"] == str(tmp_path)
    assert (await client.call("thread/start", {}))["model"] == "chosen"
    await client.pipe.aclose()
    with anyio.fail_after(START_S):
        _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "listening on: stdio://\n")


def test_a_start_imports_nothing_heavy() -> None:
    """The SDK, httpx, uvicorn and psycopg are imported when they are first needed."""
    heavy = ("mcp", "httpx", "httpx2", "uvicorn", "starlette", "psycopg", "psycopg_pool")
    code = f"import sys, app_server.cli.serve; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout == "[]\n"
