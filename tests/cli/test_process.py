"""The real executable: command line, transports, stopping, dying, and clients made by others."""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app_server.cli import entry, serve
from app_server.config import home
from app_server.server.settings import VERSION
from tests.support.harness import (
    WAIT_S,
    Gate,
    LinePipe,
    ScriptedModel,
    WireClient,
    calls,
    claim,
    environment_without,
    says,
    stdio_server,
    write_config,
)
from tests.support.paths import ROOT
from tests.support.processes import EXECUTABLE, START_S, Running, run_cli, running

pytestmark = pytest.mark.process


# The command line.


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
    for command in (*serve.LAZY_COMMANDS, *serve.COMMANDS, entry.RECEIVER):
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
    assert f'\nversion = "{VERSION}"\n' in (ROOT / "pyproject.toml").read_text()


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


async def test_requests_on_stdin_are_answered_though_it_ends_at_once(tmp_path: Path) -> None:
    info = {"clientInfo": {"name": "pipe", "version": "1"}}
    lines = [
        {"id": 1, "method": "initialize", "params": info},
        {"id": 2, "method": "thread/start", "params": {}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    result = await asyncio.to_thread(
        subprocess.run,
        [str(EXECUTABLE), "--home", str(tmp_path)],
        input=text,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=True,
        env=environment_without("OPENAI_API_KEY"),
    )
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["id"] for answer in answers if "id" in answer] == [1, 2]


# The transports.


@claim("process:transports")
async def test_a_turn_over_every_transport_of_one_process(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        listen = ("ws://127.0.0.1:0", f"unix://{tmp_path}/s/socket", "stdio://")
        async with running(tmp_path, *listen) as server:
            assert [url.split(":")[0] for url in server.urls] == ["ws", "unix", "stdio"]
            for url in server.urls[:2]:
                async with server.client(url) as client:
                    turn = await client.turn(await client.start_thread(), "hi")
                    assert turn["items"][0]["text"] == "ok"
            assert server.process.stdin is not None
            assert server.process.stdout is not None
            lines = WireClient(LinePipe(server.process.stdout, server.process.stdin))
            await lines.initialize()
            assert (await lines.turn(await lines.start_thread(), "hi"))["status"] == "completed"
            await lines.pipe.aclose()
            async with server.client() as client:
                # stdin has ended, the other listeners go on.
                assert len((await client.call("thread/list", {}))["data"]) == 3
            server.process.send_signal(signal.SIGTERM)
            assert await server.ended() == 0


# Stopping.


@claim("process:drain")
async def test_sigterm_lets_a_turn_end_and_refuses_new_ones(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        gate = Gate()
        script = says("to the end")
        model.scripts.append([*script[:2], gate, *script[2:]])
        async with running(tmp_path) as server, server.client() as client:
            busy, idle = await client.start_thread(), await client.start_thread()
            text = [{"type": "text", "text": "go"}]
            await client.call("turn/start", {"threadId": busy, "input": text})
            await gate.wait_until_reached()
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(OSError, match="Connect call failed"):
                while True:
                    with contextlib.suppress(InvalidStatus):
                        await (
                            await connect(server.urls[0], proxy=None, open_timeout=WAIT_S)
                        ).close()
            for method, params in (
                ("turn/start", {"threadId": idle, "input": text}),
                ("thread/start", {}),
            ):
                refused = await client.refusal(method, params)
                assert refused.data["code"] == "stopping"
            gate.opened.set()
            end = await client.wait_for("turn/completed")
            assert end["params"]["turn"]["items"][0]["text"] == "to the end"
            with pytest.raises(anyio.EndOfStream) as caught:
                while True:
                    await client.receive()
            closed = caught.value.__cause__
            assert isinstance(closed, ConnectionClosed)
            assert closed.rcvd is not None
            assert (closed.rcvd.code, closed.rcvd.reason) == (1001, "the server stops")
            assert await server.ended() == 0


@claim("process:second-signal")
async def test_a_second_sigterm_interrupts_and_the_end_is_in_the_log(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url, stdio_server("raw"))
        gate = Gate()
        model.scripts.append([*says("x")[:2], gate])
        async with running(tmp_path) as server, server.client() as client:
            result = await client.call("thread/start", {})
            thread = result["thread"]
            text = [{"type": "text", "text": "go"}]
            await client.call("turn/start", {"threadId": thread["id"], "input": text})
            await gate.wait_until_reached()
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGINT)
            end = await client.wait_for("turn/completed")
            assert end["params"]["turn"]["status"] == "interrupted"
            assert await server.ended() == 0
        gate.opened.set()
        lines = Path(thread["path"]).read_text().splitlines()
        assert json.loads(lines[-1])["type"] == "turnCompleted"
        assert not list((tmp_path / "locks").iterdir())


# Dying.


@claim("process:kill")
@pytest.mark.slow
async def test_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Rounds of injects and turns, each cut off by SIGKILL after a random number of messages."""
    chance = random.Random(7)
    acknowledged: list[str] = []
    completed: list[Any] = []
    thread_id = None
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        for number in range(8):
            async with running(tmp_path) as server, server.client() as client:
                if thread_id is None:
                    thread_id = await client.start_thread()
                else:
                    await client.call(
                        "thread/resume", {"threadId": thread_id, "excludeTurns": True}
                    )
                await _work_until_killed(
                    server, client, thread_id, number, chance, acknowledged, completed
                )
        async with running(tmp_path) as server, server.client() as client:
            listed = await client.call("thread/list", {})
            assert [thread["id"] for thread in listed["data"]] == [thread_id]
            stored = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            turns = stored["thread"]["turns"]
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            assert [turn["items"] for turn in resumed["thread"]["turns"]] == [
                turn["items"] for turn in turns
            ]
            assert {turn["status"] for turn in turns} <= {"completed", "interrupted"}
            items = [item for turn in turns for item in turn["items"]]
            assert [item for item in items if item in completed] == completed
            assert thread_id is not None
            await client.turn(thread_id, "the end")
            texts = [text for _, text in model.inputs()]
            assert [text for text in texts if text in acknowledged] == acknowledged
            assert len(acknowledged) > 20
            assert len(set(texts) & set(acknowledged)) == len(acknowledged)


async def _work_until_killed(
    server: Running,
    client: WireClient,
    thread_id: str,
    number: int,
    chance: random.Random,
    acknowledged: list[str],
    completed: list[Any],
) -> None:
    """Inject and run turns; kill the server after some messages; keep what it said was done."""
    pending: dict[int, str] = {}
    for step in range(20):
        text = f"inject {number}.{step}"
        item = {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": text}],
        }
        request = await client.request(
            "thread/inject_items", {"threadId": thread_id, "items": [item]}
        )
        pending[request] = text
        if step % 4 == 0:
            text = f"turn {number}.{step}"
            user_input = [{"type": "text", "text": text}]
            request = await client.request(
                "turn/start", {"threadId": thread_id, "input": user_input}
            )
            pending[request] = text
    kill_after = chance.randrange(5, 45)
    heard = 0
    try:
        while True:
            message = await client.receive()
            heard += 1
            if message.get("id") in pending and "result" in message:
                acknowledged.append(pending[message["id"]])
            elif message.get("method") == "item/completed":
                completed.append(message["params"]["item"])
            if heard == kill_after:
                server.process.send_signal(signal.SIGKILL)
    except anyio.EndOfStream:
        pass


@pytest.mark.slow
@claim("process:kill-in-call")
async def test_a_turn_that_was_cut_off_shows_as_interrupted_and_the_thread_goes_on(
    tmp_path: Path,
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url, stdio_server("raw"))
        slow = {"namespace": "mcp__raw", "name": "slow", "arguments": {}}
        model.scripts.append(calls(slow))
        async with running(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread()
            await client.wait_for(
                "mcpServer/startupStatus/updated", lambda p: p["status"] == "ready"
            )
            text = [{"type": "text", "text": "go"}]
            await client.call("turn/start", {"threadId": thread_id, "input": text})
            await client.wait_for("item/started", lambda p: p["item"]["type"] == "mcpToolCall")
            server.process.send_signal(signal.SIGKILL)
            await server.ended()
        async with running(tmp_path) as server, server.client() as client:
            read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            (turn,) = read["thread"]["turns"]
            assert (turn["status"], len(turn["items"])) == ("interrupted", 1)
            assert read["thread"]["status"] == {"type": "notLoaded"}
            await client.call("thread/resume", {"threadId": thread_id})
            assert (await client.turn(thread_id, "again"))["status"] == "completed"
            kinds = [item["type"] for item in model.items()]
            assert kinds == [
                "message",
                "function_call",
                "function_call_output",
                "message",
                "message",
            ]


# The demos.


@claim("process:demo", "apps:demo")
@pytest.mark.slow
def test_the_demo_of_apps_checks_every_step(tmp_path: Path) -> None:
    result = run_cli("demo", "--apps", TMPDIR=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert result.stdout.endswith("All 12 checks hold.\n")
    assert not list(tmp_path.iterdir())


@claim("process:demo", "signals:demo")
@pytest.mark.slow
def test_the_demo_of_signals_checks_every_step(tmp_path: Path) -> None:
    result = run_cli("demo", "--signals", TMPDIR=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert result.stdout.endswith("All 10 checks hold.\n")
    assert not list(tmp_path.iterdir())


@claim("process:demo", "tools:demo")
@pytest.mark.slow
def test_the_demo_of_tools_checks_every_step(tmp_path: Path) -> None:
    result = run_cli("demo", "--tools", TMPDIR=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert result.stdout.endswith("All 17 checks hold.\n")
    assert not list(tmp_path.iterdir())


def test_one_demo_is_shown_at_a_time() -> None:
    result = run_cli("demo", "--tools", "--apps")
    assert result.returncode == 2
    assert "demo shows one thing at a time: --apps or --signals or --tools" in result.stderr


@claim("process:demo")
@pytest.mark.slow
def test_the_demo_checks_every_step(tmp_path: Path) -> None:
    result = run_cli("demo", TMPDIR=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert "failed" not in result.stdout.replace("The build of main has failed.", "")
    assert result.stdout.endswith("All 15 checks hold.\n")
    assert "\033" not in result.stdout
    assert not list(tmp_path.iterdir())


def test_the_client_of_the_readme_works(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(code.splitlines()) <= 20
    script = textwrap.dedent(
        """
        import re, subprocess, sys
        server = subprocess.Popen(
            [sys.argv[1], "--home", sys.argv[2], "--listen", "ws://127.0.0.1:0"],
            stderr=subprocess.PIPE, text=True,
        )
        url = re.search(r"ws://\\S+", server.stderr.readline())[0]
        code = open(sys.argv[3]).read()
        assert "ws://127.0.0.1:4500" in code
        exec(compile(code.replace("ws://127.0.0.1:4500", url), "README", "exec"), {})
        server.terminate()
        server.communicate()
        """
    )
    (tmp_path / "code.py").write_text(code)
    result = subprocess.run(
        [
            *(sys.executable, "-c", script),
            *(str(EXECUTABLE), str(tmp_path / "home"), str(tmp_path / "code.py")),
        ],
        env=environment_without("OPENAI_API_KEY"),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "You said: Hello there." in result.stdout


def test_a_start_imports_nothing_heavy() -> None:
    """The SDK, httpx and uvicorn are imported when they are first needed."""
    code = (
        "import sys, app_server.cli.serve; "
        "print([m for m in ('mcp', 'httpx', 'httpx2', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout == "[]\n"
