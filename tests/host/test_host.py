"""host: processes here, the watchdog, the exec server and its client, frame by frame."""

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request, Response

from app_server.cli import exec_server as exec_cli
from app_server.host.exec import client as client_module
from app_server.host.exec.address import BadAddress, ExecAddress, parse_exec_address
from app_server.host.exec.client import ExecConnection
from app_server.host.exec.connect import open_exec_connection
from app_server.host.exec.environment import RemoteEnvironment
from app_server.host.exec.protocol import ProtocolBroken, unpack
from app_server.host.exec.server import ExecLimits, ExecServer, ExecSettings
from app_server.host.processes import LocalProcesses
from app_server.host.watchdog import read_groups
from app_server.runtime.launch import Launch
from tests.support.exec_peer import HELLO, HOLD, ExecClient, Holders, exec_client
from tests.support.harness import WAIT_S, claim

PYTHON = sys.executable


def python(code: str, *arguments: str, **more: Any) -> Launch:
    return Launch(PYTHON, ["-c", code, *arguments], inherited=["PATH"], **more)


@asynccontextmanager
async def processes() -> AsyncIterator[LocalProcesses]:
    local = LocalProcesses()
    try:
        yield local
    finally:
        await local.aclose()


# Processes here.


async def test_a_process_has_pipes_a_folder_and_the_variables_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED", "ours")
    monkeypatch.setenv("HIDDEN", "ours")
    code = (
        "import os, sys; sys.stderr.write('e'); "
        "print(sys.stdin.readline().strip(), os.getcwd(), os.getpgrp() == os.getpid(), "
        "[os.environ.get(name) for name in ('PASSED', 'HIDDEN', 'GIVEN')])"
    )
    launch = Launch(
        PYTHON, ["-c", code], {"GIVEN": "g"}, ["PATH", "PASSED", "GIVEN"], str(tmp_path)
    )
    async with processes() as local, local.run(launch) as child:
        child.write(b"in\n")
        await child.drain()
        with anyio.fail_after(WAIT_S):
            said = (await child.stdout.read()).decode()
            assert await child.stderr.read() == b"e"
            await child.ended.wait()
        assert said == f"in {tmp_path} True ['ours', None, 'g']\n"
        assert child.returncode == 0


async def test_a_process_that_ignores_everything_is_killed_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.host.processes.TERMINATE_S", 0.05)
    code = (
        "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); "
        + HOLD
        + "[signal.pause() for _ in iter(int, 1)]"
    )
    async with processes() as local, Holders(tmp_path).watch() as holders:
        async with local.run(python(code, str(holders.path))) as child:
            await holders.held(2)
        assert child.returncode == -signal.SIGKILL
        await holders.ended()


async def test_pipes_that_somebody_else_holds_do_not_keep_us(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = (
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); held = open(sys.argv[1]); os.write(1, b'x'); held.read()\n"
    )
    async with processes() as local:
        with anyio.fail_after(WAIT_S):
            async with local.run(python(code, str(fifo))) as child:
                let_go = await anyio.to_thread.run_sync(os.open, fifo, os.O_WRONLY)
                assert await child.stdout.readexactly(1) == b"x"
                await child.ended.wait()
        assert child.returncode == 0
        os.close(let_go)


async def test_what_cannot_be_started_says_why() -> None:
    async with processes() as local:
        with pytest.raises(FileNotFoundError) as caught:
            async with local.run(Launch("/no/such")):
                raise AssertionError
        assert caught.value.errno == errno.ENOENT
        assert local.reaper.groups == set()


# The watchdog.


def test_the_watchdog_knows_the_groups_that_are_left() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"+10\n+11\n-10\n+1")
    os.write(writer, b"2\n-99\n+13")
    os.close(writer)
    assert read_groups(reader) == {11, 12}
    os.close(reader)


async def test_a_group_that_has_ended_is_not_watched_any_more() -> None:
    async with processes() as local:
        async with local.run(python("input()")) as child:
            assert local.reaper.groups == {child.pid}
            child.write(b"\n")
            with anyio.fail_after(WAIT_S):
                await child.ended.wait()
                while local.reaper.groups:
                    await anyio.lowlevel.checkpoint()
            assert child.group_is_gone
        async with local.run(python("input()")) as child:
            assert local.reaper.groups == {child.pid}
        assert local.reaper.groups == set()


async def test_a_watchdog_that_died_is_replaced_and_knows_all_groups() -> None:
    async with processes() as local, local.run(python("input()")) as first:
        before = local.reaper.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        with anyio.fail_after(WAIT_S):
            while local.reaper.pid is not None:
                await anyio.lowlevel.checkpoint()
        async with local.run(python("input()")) as second:
            assert local.reaper.pid not in (None, before)
            # It ends what it knows when its pipe ends, as it would at our death.
            with anyio.fail_after(WAIT_S):
                await local.reaper.aclose()
                await first.ended.wait()
                await second.ended.wait()
            assert (first.returncode, second.returncode) == (-signal.SIGTERM, -signal.SIGTERM)


async def test_children_start_without_a_watchdog_where_there_can_be_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app_server.host.reaper.sys.executable", "/no/such")
    async with processes() as local, local.run(Launch("true", inherited=["PATH"])) as child:
        with anyio.fail_after(WAIT_S):
            await child.ended.wait()
        assert local.reaper.pid is None
    assert "no watchdog" in caplog.text


# The exec server.


@asynccontextmanager
async def listening(token: str | None = None, **limits: Any) -> AsyncIterator[str]:
    settings = ExecSettings("127.0.0.1", 0, token, ExecLimits(**limits))
    async with ExecServer(settings).listen() as url:
        yield url


async def start(client: ExecClient, process_id: int, code: str, *arguments: str) -> Any:
    return await client.call(
        "process/start", processId=process_id, command=PYTHON, args=["-c", code, *arguments]
    )


async def collect(client: ExecClient, process_id: int) -> tuple[bytes, bytes, Any]:
    """Read until the end of a process, crediting nothing: stdout, stderr, how it ended."""
    streams = {1: b"", 2: b""}
    while True:
        message = await client.receive()
        if isinstance(message, dict):
            assert message["method"] == "process/exited"
            assert message["params"].pop("processId") == process_id
            return streams[1], streams[2], message["params"]
        assert message[1] == process_id
        streams[message[0]] += message[2]


async def test_a_process_gets_input_and_its_output_ends_with_its_exit() -> None:
    code = "import sys; d = sys.stdin.buffer.read(); sys.stderr.write('e'); print(d); sys.exit(3)"
    async with listening() as url, exec_client(url) as client:
        answer = await start(client, 1, code)
        assert answer["result"]["pid"] > 0
        await client.write(1, b"one ")
        await client.write(1, b"two")
        await client.send("process/closeStdin", processId=1)
        assert await collect(client, 1) == (
            b"b'one two'\n",
            b"e",
            {"exitCode": 3, "signal": None},
        )


async def test_a_process_that_is_killed_says_by_which_signal() -> None:
    async with listening() as url, exec_client(url) as client:
        await start(client, 7, "import signal; signal.pause()")
        await client.send("process/kill", processId=7)
        assert await collect(client, 7) == (b"", b"", {"exitCode": None, "signal": 15})
        # A late word about a process that has ended is nobody's fault.
        await client.send("process/kill", processId=7)
        await client.write(7, b"late")
        assert "result" in await client.call("environment/info")


async def test_a_stream_that_ends_before_its_process_is_told() -> None:
    code = "import os, signal; os.write(1, b'x'); os.close(1); signal.pause()"
    async with listening() as url, exec_client(url) as client:
        await start(client, 1, code)
        assert [await client.receive() for _ in range(2)] == [(1, 1, b"x"), (1, 1, b"")]


async def test_output_that_is_not_credited_waits_and_holds_up_nobody() -> None:
    much = "import os; os.write(1, b'x' * 3_000_000)"
    async with listening() as url, exec_client(url) as client:
        await start(client, 1, much)
        got = 0
        while got < 1024 * 1024:
            _, process_id, data = await client.receive()
            assert process_id == 1
            got += len(data)
        assert got == 1024 * 1024
        await start(client, 2, "print('other')")
        assert await collect(client, 2) == (b"other\n", b"", {"exitCode": 0, "signal": None})
        await client.send("process/credit", processId=1, stream="stdout", bytes=1024 * 1024)
        while got < 2 * 1024 * 1024:
            got += len((await client.receive())[2])
        await client.send("process/credit", processId=1, stream="stdout", bytes=1024 * 1024)
        rest, _, end = await collect(client, 1)
        assert (got + len(rest), end) == (3_000_000, {"exitCode": 0, "signal": None})


async def test_input_is_credited_when_it_has_been_taken() -> None:
    half = 512 * 1024
    code = "import sys; print(len(sys.stdin.buffer.read()))"
    async with listening() as url, exec_client(url) as client:
        await start(client, 1, code)
        for _ in range(4):
            await client.write(1, b"x" * half)
            credit = await client.receive()
            assert credit == {
                "method": "process/credit",
                "params": {"processId": 1, "stream": "stdin", "bytes": half},
            }
        await client.send("process/closeStdin", processId=1)
        assert (await collect(client, 1))[0] == f"{4 * half}\n".encode()


DEAF = "import signal; signal.pause()"


async def too_much_input(client: ExecClient) -> None:
    await start(client, 1, DEAF)
    for _ in range(3):
        await client.write(1, b"x" * 512 * 1024)


async def too_much_credit(client: ExecClient) -> None:
    await start(client, 1, DEAF)
    await client.send("process/credit", processId=1, stream="stdout", bytes=1)


async def credit_for_input(client: ExecClient) -> None:
    await start(client, 1, DEAF)
    await client.send("process/credit", processId=1, stream="stdin", bytes=1)


async def early_input(client: ExecClient) -> None:
    await client.request("process/start", processId=1, command=PYTHON, args=["-c", DEAF])
    await client.write(1, b"x")


async def a_number_twice(client: ExecClient) -> None:
    await start(client, 2, DEAF)
    await client.request("process/start", processId=2, command=PYTHON)


@pytest.mark.parametrize(
    ("breaking", "code", "reason"),
    [
        (too_much_input, 1008, "more input than was credited"),
        (too_much_credit, 1008, "credit for more than was sent"),
        (credit_for_input, 1008, "credit for input"),
        (early_input, 1008, "input for a process that has not started"),
        (a_number_twice, 1008, "process numbers must rise"),
        (lambda c: c.socket.send("{"), 1008, "a text frame that is no message"),
        (lambda c: c.socket.send(b"\0"), 1008, "a binary frame without a head"),
        (lambda c: c.socket.send(b"\7\0\0\0\1"), 1008, "a binary frame of stream 7"),
        (lambda c: c.socket.send(b"\1\0\0\0\1x"), 1008, "stdout from a client"),
        (lambda c: c.send("process/kill"), 1008, "bad parameters of process/kill"),
        (lambda c: c.write(1, b"x" * 1024 * 1024), 1009, ""),
    ],
)
async def test_who_breaks_the_protocol_is_disconnected_and_told_why(
    breaking: Callable[[ExecClient], Awaitable[None]], code: int, reason: str
) -> None:
    async with listening() as url, exec_client(url) as client:
        await breaking(client)
        closed_with, said = await client.closed()
        assert closed_with == code
        assert said == reason or code == 1009


async def test_what_a_process_left_behind_is_kept_until_it_is_credited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.host.exec.relay.DRAIN_S", 0.05)
    much = HOLD + "os.write(1, b'x' * 1_100_000)"
    held_open = "import os, signal\nif os.fork() == 0: signal.pause()"
    async with (
        Holders(tmp_path).watch() as holders,
        listening() as url,
        exec_client(url) as client,
    ):
        await start(client, 1, much, str(holders.path))
        got = 0
        while got < 1024 * 1024:
            got += len((await client.receive())[2])
        await holders.held(1)
        await holders.ended()
        # Its child holds its pipes: that it is told to have ended means that the wait is over.
        await start(client, 2, held_open)
        assert await collect(client, 2) == (b"", b"", {"exitCode": 0, "signal": None})
        await client.send("process/credit", processId=1, stream="stdout", bytes=1024 * 1024)
        rest, _, end = await collect(client, 1)
        assert (got + len(rest), end) == (1_100_000, {"exitCode": 0, "signal": None})


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ({"id": 1, "method": "environment/info"}, "the first message is not initialize"),
        (
            {"id": 1, "method": "initialize", "params": {**HELLO, "protocolVersion": 2}},
            "version 2; this is 1",
        ),
        ({"id": 1, "method": "initialize"}, "bad parameters of initialize"),
        (b"x", "the first message is not initialize"),
    ],
)
async def test_a_conversation_begins_with_the_version(first: Any, reason: str) -> None:
    async with listening() as url, exec_client(url, hello=False) as client:
        await client.socket.send(first if isinstance(first, bytes) else json.dumps(first))
        assert await client.closed() == (1008, reason)


async def test_who_says_nothing_is_disconnected() -> None:
    async with listening(hello_s=0.05) as url, exec_client(url, hello=False) as client:
        assert (await client.closed())[0] == 1000


async def test_requests_that_make_no_sense_are_refused_and_change_nothing() -> None:
    async with listening(max_processes=1) as url, exec_client(url) as client:
        assert await client.call("process/list") == {
            "error": {"code": -32601, "message": "no such method: process/list"}
        }
        assert await client.call("process/start", processId=0, command="x") == {
            "error": {"code": -32602, "message": "bad parameters of process/start: processId"}
        }
        assert await client.call("process/start", processId=1, command="/no/such") == {
            "error": {
                "code": -32000,
                "message": "No such file or directory",
                "data": {"errno": errno.ENOENT},
            }
        }
        nul = await client.call("process/start", processId=2, command="true", args=["\0"])
        assert nul["error"]["code"] == -32000
        await start(client, 3, DEAF)
        assert await client.call("process/start", processId=4, command="true") == {
            "error": {"code": -32001, "message": "too many processes"}
        }
        await client.send("process/kill", processId=3)
        assert (await collect(client, 3))[2] == {"exitCode": None, "signal": 15}
        assert "result" in await start(client, 5, "")


async def test_an_exec_server_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/zsh")
    async with listening() as url, exec_client(url) as client:
        assert await client.call("environment/info") == {
            "result": {"shell": {"name": "zsh", "path": "/bin/zsh"}, "cwd": str(Path.cwd())}
        }
        monkeypatch.delenv("SHELL")
        shell = (await client.call("environment/info"))["result"]["shell"]
        assert shell["name"] == Path(shell["path"]).name != ""


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        (None, {"Origin": "http://127.0.0.1"}, 403),
        ("right", {}, 401),
        ("right", {"Authorization": "Bearer wrong"}, 401),
        ("right", {"Authorization": "right"}, 401),
        ("right", {"Authorization": "Bearer right", "Origin": "null"}, 403),
    ],
)
async def test_web_pages_and_strangers_are_not_let_in(
    token: str | None, headers: dict[str, str], status: int
) -> None:
    async with listening(token) as url:
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url, proxy=None, open_timeout=WAIT_S, additional_headers=headers):
                raise AssertionError
        assert caught.value.response.status_code == status


async def test_the_token_opens_the_door_and_connections_are_bounded() -> None:
    headers = {"Authorization": "Bearer right"}
    async with (
        listening("right", max_connections=1) as url,
        exec_client(url, additional_headers=headers),
    ):
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url, proxy=None, open_timeout=WAIT_S, additional_headers=headers):
                raise AssertionError
        assert caught.value.response.status_code == 503


async def test_processes_end_with_their_connection_and_no_other(tmp_path: Path) -> None:
    async with (
        Holders(tmp_path).watch() as holders,
        listening() as url,
        exec_client(url) as stays,
    ):
        await start(stays, 1, "input()")
        async with exec_client(url) as goes:
            await start(goes, 1, HOLD + "import signal; signal.pause()", str(holders.path))
            await holders.held(1)
        await holders.ended()
        await stays.write(1, b"\n")
        assert await collect(stays, 1) == (b"", b"", {"exitCode": 0, "signal": None})


async def test_a_client_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    count = 16
    async with (
        Holders(tmp_path).watch() as holders,
        listening(send_s=0.2) as url,
        exec_client(url, max_queue=1, close_timeout=0.1) as client,
    ):
        arguments = ["-c", HOLD + "[os.write(1, b'x' * 65536) for _ in iter(int, 1)]"]
        for number in range(1, count + 1):
            await client.request(
                "process/start",
                processId=number,
                command=PYTHON,
                args=[*arguments, str(holders.path)],
            )
        await holders.held(count)
        await holders.ended()


# Addresses and the command line.


def shown(url: str, **more: Any) -> str:
    given = {"token": None, "request_id": None, "connect_ms": None, **more}
    return parse_exec_address(url, **given).shown


@claim("environment:add-refused")
@pytest.mark.parametrize(
    ("url", "more", "reason"),
    [
        ("", {}, "remote environment requires an exec-server url"),
        ("none", {}, "remote environment cannot use disabled exec-server url"),
        *(
            (url, {}, "exec-server url must be ws://HOST:PORT or wss://HOST:PORT")
            for url in (
                *("nonsense", "http://127.0.0.1:1", "ws://", "wss://x y", "ws://h:99999"),
                *("ws://h#f", "ws://[::1"),
            )
        ),
        ("ws://h/" + "x" * 8192, {}, "exec-server url must have at most 8192 characters"),
        (
            "ws://user:secret@127.0.0.1:1",
            {},
            "exec-server url must not hold credentials; use authBearerToken",
        ),
        *(
            (
                "ws://192.0.2.1:1",
                more,
                "exec-server WebSocket headers require wss:// or a loopback destination",
            )
            for more in ({"token": "secret"}, {"request_id": "r"})
        ),
        (
            "ws://127.0.0.1:1",
            {"token": "a\nsecret"},
            "invalid value for exec-server WebSocket header `authorization`",
        ),
        (
            "wss://h",
            {"request_id": "x" * 8193},
            "invalid value for exec-server WebSocket header `x-request-id`",
        ),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(
    url: str, more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadAddress) as caught:
        shown(url, **more)
    assert str(caught.value) == reason


def test_headers_go_to_secure_and_loopback_addresses() -> None:
    for url in ("ws://127.0.0.1:1", "ws://localhost:1", "ws://[::1]:1", "wss://192.0.2.1/a"):
        assert shown(f" {url} ", token="t", request_id="r") == url
    address = parse_exec_address("wss://h/a?key=secret", "t", "r", 0)
    assert (address.shown, address.is_loopback, address.connect_s) == ("wss://h/a", False, 0.001)
    assert address.headers == {"Authorization": "Bearer t", "X-Request-ID": "r"}
    assert "secret" not in repr(address) + repr(parse_exec_address("wss://h", "secret", None, 1))
    assert parse_exec_address("ws://h:1", None, None, None).connect_s == 10.0
    assert parse_exec_address("ws://h:1", None, None, 10**18).connect_s == 300.0


def test_a_frame_without_sense_is_refused() -> None:
    with pytest.raises(ProtocolBroken):
        unpack(b"\0\0\0\0")
    assert unpack(b"\2\0\0\1\0data") == ("stderr", 256, b"data")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen", "ws://0.0.0.0:1"], "refusing to listen on 0.0.0.0 without a token"),
        (["--listen", "http://127.0.0.1:1"], "use ws://IP:PORT"),
        (["--listen", "ws://localhost:1"], "use ws://IP:PORT"),
        (["--listen", "ws://127.0.0.1"], "the port is missing"),
        (["--listen", "ws://127.0.0.1:1/path"], "use ws://IP:PORT"),
        (["--token-file", "/no/such"], "cannot read the token: No such file or directory"),
        (["nonsense"], "unrecognized arguments"),
    ],
)
def test_a_wrong_call_of_the_exec_server_says_what_would_be_right(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        exec_cli.main(arguments)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_token_is_read_from_the_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(" from the file \n")
    monkeypatch.setenv(exec_cli.TOKEN_VARIABLE, "from the environment")
    assert exec_cli.read_token(file) == "from the file"
    assert exec_cli.TOKEN_VARIABLE not in os.environ
    assert exec_cli.read_token(None) is None
    monkeypatch.setenv(exec_cli.TOKEN_VARIABLE, "from the environment")
    assert exec_cli.read_token(None) == "from the environment"
    exec_cli.require_token("0.0.0.0", "t")
    for wrong in ("", "a\nb", "ä", "x" * 4097):
        file.write_text(wrong)
        with pytest.raises(ValueError, match="printable ASCII"):
            exec_cli.read_token(file)


# The client.


@asynccontextmanager
async def playing(
    play: Callable[[ServerConnection], Awaitable[None]], **options: Any
) -> AsyncIterator[str]:
    """Be an exec server that is as badly behaved as told."""
    async with serve(play, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def address_of(url: str, connect_ms: int | None = None) -> ExecAddress:
    return parse_exec_address(url, None, None, connect_ms)


async def welcome(socket: ServerConnection, version: int = 1) -> None:
    message = json.loads(await socket.recv())
    assert message["method"] == "initialize"
    result = {"protocolVersion": version}
    await socket.send(json.dumps({"id": message["id"], "result": result}))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[ExecConnection]:
    async with (
        open_exec_connection(address_of(url)) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(connection.run)
        yield connection
        connection.close("the test is over")


async def _speaks_version_2(socket: ServerConnection) -> None:
    await welcome(socket, 2)
    await socket.wait_closed()


async def _says_nothing(socket: ServerConnection) -> None:
    await socket.wait_closed()


async def _leaves(socket: ServerConnection) -> None:
    await socket.recv()


async def _answers_nonsense(socket: ServerConnection) -> None:
    await socket.recv()
    await socket.send('{"id": 0, "result": {"protocolVersion": "1"}}')
    await socket.wait_closed()


async def _refuses(socket: ServerConnection) -> None:
    await socket.recv()
    await socket.send('{"id": 0, "error": {"code": -32601, "message": "what?"}}')
    await socket.wait_closed()


def _status(status: int, **headers: str) -> Any:
    def respond(socket: ServerConnection, request: Request) -> Response:
        response = socket.respond(status, "no\n")
        response.headers.update(headers)
        return response

    return respond


@claim("environment:unavailable")
@pytest.mark.parametrize(
    ("play", "options", "kind", "reason"),
    [
        (_speaks_version_2, {}, PermissionError, "it speaks version 2, not 1"),
        (_answers_nonsense, {}, PermissionError, "it does not speak this exec protocol"),
        (_refuses, {}, PermissionError, "it does not speak this exec protocol"),
        (_leaves, {}, ConnectionError, "received 1000 (OK); then sent 1000 (OK)"),
        (_says_nothing, {}, TimeoutError, "timed out after 0.3 s"),
        (_leaves, {"process_request": _status(401)}, PermissionError, "HTTP status 401"),
        (_leaves, {"process_request": _status(503)}, ConnectionError, "HTTP status 503"),
        (
            _leaves,
            {"process_request": _status(302, Location="ws://127.0.0.1:1/")},
            ConnectionError,
            "HTTP status 302",
        ),
    ],
)
async def test_what_is_no_exec_server_for_us_says_why(
    play: Any, options: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    async with playing(play, **options) as url:
        with pytest.raises(kind) as caught:
            async with open_exec_connection(address_of(url, 300)):
                raise AssertionError
    text = f"failed to connect to exec-server websocket `{url}`: {reason}"
    assert (type(caught.value), str(caught.value)) == (kind, text)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ws://127.0.0.1:1", "connection refused"),
        ("ws://localhost:1", "connection refused"),
        (f"ws://{'a' * 64}.localhost:1", "no such host name"),
    ],
)
async def test_nobody_there_is_a_failed_connection(url: str, reason: str) -> None:
    with pytest.raises(ConnectionError) as caught:
        async with open_exec_connection(address_of(f"{url}?key=secret")):
            raise AssertionError
    said = f"failed to connect to exec-server websocket `{url}`: {reason}"
    assert str(caught.value) == said


async def test_a_server_that_is_no_web_server_is_a_failed_connection() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectionError, match=r"no answer in HTTP$"):
            async with open_exec_connection(address_of(url)):
                raise AssertionError


async def test_an_environment_that_is_replaced_while_it_connects_is_not_used() -> None:
    asked, may_answer = anyio.Event(), anyio.Event()
    told: list[bool] = []

    async def play(socket: ServerConnection) -> None:
        asked.set()
        await may_answer.wait()
        await welcome(socket)
        await socket.wait_closed()

    async with playing(play) as url, anyio.create_task_group() as tasks:
        place = RemoteEnvironment(address_of(url), tasks, told.append)
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as connecting:
                connecting.start_soon(place.connect)
                await asked.wait()
                assert place.status == "pending"
                place.replace()
                may_answer.set()
        with pytest.raises(ConnectionError, match=r"^the environment was replaced$"):
            await place.info()
    assert told == [True, False]


async def test_an_attempt_that_is_given_up_leaves_the_environment_disconnected() -> None:
    asked = anyio.Event()

    async def play(socket: ServerConnection) -> None:
        if asked.is_set():
            await welcome(socket)
        asked.set()
        await socket.wait_closed()

    async with playing(play) as url, anyio.create_task_group() as tasks:
        place = RemoteEnvironment(address_of(url), tasks, lambda connected: None)
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as connecting:
                connecting.start_soon(place.connect)
                await asked.wait()
                connecting.cancel_scope.cancel()
            assert (place.status, place.error) == (
                "disconnected",
                "exec-server connection attempt failed: it was given up",
            )
            await place.connect()
        assert place.status == "ready"
        place.replace()


@pytest.mark.parametrize(
    ("broken", "said", "error"),
    [
        ("run", "the connection to its exec server broke", client_module.CLOSED),
        (
            "__init__",
            "connecting to its exec server broke",
            "exec-server connection attempt failed: it was given up",
        ),
    ],
)
async def test_a_fault_of_ours_in_one_environment_reaches_nobody_else(
    broken: str,
    said: str,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> None:
        raise LookupError

    monkeypatch.setattr(ExecConnection, broken, fail)

    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        await socket.wait_closed()

    async with playing(play) as url:
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                place = RemoteEnvironment(address_of(url), tasks, lambda connected: None)
                await place.connect()
    assert said in caplog.text
    assert (place.status, place.error) == ("disconnected", error)


async def test_an_exec_server_that_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SEND_S", 0.2)
    count = 24

    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        for _ in range(count):
            started = json.loads(await socket.recv())
            await socket.send(json.dumps({"id": started["id"], "result": {"pid": 1}}))
        await left.wait()
        socket.transport.abort()

    left = anyio.Event()
    async with playing(play, max_queue=1) as url, connected(url) as connection:
        with anyio.fail_after(WAIT_S):
            async with AsyncExitStack() as stack:
                running = [
                    await stack.enter_async_context(connection.run_process(Launch("x")))
                    for _ in range(count)
                ]
                for process in running:
                    process.write(b"x" * 1024 * 1024)
                await connection.closed.wait()
                left.set()
        assert connection.loss == "the exec server does not read"


async def test_those_who_wait_for_a_connection_share_what_becomes_of_it() -> None:
    attempts: list[ServerConnection] = []
    all_wait = anyio.Event()

    async def play(socket: ServerConnection) -> None:
        attempts.append(socket)
        await all_wait.wait()

    failures: list[str] = []

    async def want(place: RemoteEnvironment) -> None:
        with pytest.raises(ConnectionError) as caught:
            await place.info()
        failures.append(str(caught.value))

    async with playing(play) as url, anyio.create_task_group() as tasks:
        place = RemoteEnvironment(address_of(url), tasks, lambda connected: None)
        async with anyio.create_task_group() as wanting:
            for _ in range(3):
                wanting.start_soon(want, place)
            with anyio.fail_after(WAIT_S):
                while not attempts:
                    await anyio.lowlevel.checkpoint()
            all_wait.set()
        assert (len(attempts), len(set(failures)), len(failures)) == (1, 1, 3)
        assert (place.status, place.error) == ("disconnected", failures[0])
        with pytest.raises(ConnectionError):
            await place.info()
        assert len(attempts) == 2


@claim("environment:disconnect")
async def test_everything_that_waits_fails_when_the_connection_is_lost() -> None:
    asked = anyio.Event()

    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        started = json.loads(await socket.recv())
        await socket.send(json.dumps({"id": started["id"], "result": {"pid": 1}}))
        while not isinstance(await socket.recv(), str):
            pass
        asked.set()
        socket.transport.abort()

    failed: list[str] = []

    async def ask(connection: ExecConnection) -> None:
        with pytest.raises(ConnectionError) as caught:
            await connection.info()
        failed.append(str(caught.value))

    async with playing(play) as url, connected(url) as connection:
        with anyio.fail_after(WAIT_S):
            async with connection.run_process(Launch("x")) as process:
                process.write(b"x" * 2_000_000)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ask, connection)
                    with pytest.raises(ConnectionResetError):
                        await process.drain()
                assert await process.stdout.read() == b""
                assert (process.returncode, process.unsent_bytes) == (None, 0)
                process.write(b"late")
                assert process.unsent_bytes == 0
            await ask(connection)
    assert asked.is_set()
    assert failed == [connection.loss] * 2
    assert connection.loss.startswith("the connection to the exec server was lost: ")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("{", "a text frame that is no message"),
        (b"\1", "a binary frame without a head"),
        (b"\0\0\0\0\1", "input from an exec server"),
        (b"\2\0\0\0\1" + b"x" * (1024 * 1024 - 5), "more output than was credited"),
        ('{"method": "process/exited", "params": {}}', "bad parameters of process/exited"),
        (
            '{"method": "process/credit", "params": {"processId": 1, "stream": "stdin", '
            '"bytes": 1}}',
            "credit for more than was sent",
        ),
    ],
)
async def test_an_exec_server_that_breaks_the_protocol_is_left(
    said: str | bytes, reason: str
) -> None:
    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        started = json.loads(await socket.recv())
        await socket.send(json.dumps({"id": started["id"], "result": {"pid": 1}}))
        # What is said of processes that nobody knows is late, and nothing else.
        await socket.send(b"\1\0\0\0\7x")
        for _ in range(2):
            await socket.send(said)
        await socket.wait_closed()

    async with playing(play) as url, connected(url) as connection:
        with anyio.fail_after(WAIT_S):
            async with connection.run_process(Launch("x", read_limit_bytes=1000)) as process:
                await process.ended.wait()
        assert connection.loss == f"the exec server broke the protocol: {reason}"


async def test_output_that_nobody_reads_is_not_credited() -> None:
    half = 512 * 1024

    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        started = json.loads(await socket.recv())
        await socket.send(json.dumps({"id": started["id"], "result": {"pid": 1}}))
        window, sent = 2 * half, 0
        while True:
            while window >= half:
                await socket.send(b"\1\0\0\0\1" + b"x" * half)
                window, sent = window - half, sent + half
            message = json.loads(await socket.recv())
            if message["method"] == "process/credit":
                window += message["params"]["bytes"]
            elif message["method"] == "process/kill":
                break
            else:
                info = {"shell": {"name": "sh", "path": "sh"}, "cwd": str(sent)}
                await socket.send(json.dumps({"id": message["id"], "result": info}))
        ended = {"processId": 1, "exitCode": 0, "signal": None}
        await socket.send(json.dumps({"method": "process/exited", "params": ended}))
        await socket.wait_closed()

    launch = Launch("x", read_limit_bytes=2 * half)
    async with (
        playing(play) as url,
        connected(url) as connection,
        connection.run_process(launch) as process,
    ):
        with anyio.fail_after(WAIT_S):
            while (await connection.info()).cwd != str(6 * half):
                pass
            # Twice the limit and a window: credit for more would have come before this question.
            assert (await connection.info()).cwd == str(6 * half)
            await process.stdout.readexactly(6 * half)
            while (await connection.info()).cwd != str(12 * half):
                pass


async def test_an_exec_server_that_does_not_answer_is_not_waited_for_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_S", 0.05)

    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        await socket.wait_closed()

    async with playing(play) as url, connected(url) as connection:
        with pytest.raises(ConnectionError, match=r"^no answer to environment/info in 0.05 s$"):
            await connection.info()


async def test_a_start_that_does_not_fit_a_frame_is_refused_here() -> None:
    async with listening() as url, connected(url) as connection:
        with pytest.raises(OSError, match="needs more than 1048576 bytes"):
            async with connection.run_process(Launch("x", ["ä" * 600_000])):
                raise AssertionError
        assert (await connection.info()).cwd == str(Path.cwd())
