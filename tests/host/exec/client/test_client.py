"""host: the client of an exec server, frame by frame."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from app_server.host.exec.client import client as client_module
from app_server.host.exec.client.client import ExecConnection, open_exec_connection
from app_server.host.exec.client.environment import RemoteEnvironment
from app_server.host.exec.client.starts import process_start
from app_server.runtime.launch import Launch
from tests.support.harness import WAIT_S, claim
from tests.support.host.exec_conversations import listening
from tests.support.host.played_exec_server import address_of, connected, playing, welcome
from tests.support.large import Case, made


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


async def test_an_exec_server_that_does_not_read_is_left() -> None:
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
        connection.send_s = 0.2
        with anyio.fail_after(WAIT_S):
            async with AsyncExitStack() as stack:
                running = [
                    await stack.enter_async_context(connection.start(process_start(Launch("x"))))
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
            async with connection.start(process_start(Launch("x"))) as process:
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
        (lambda: b"\2\0\0\0\1" + b"x" * (1024 * 1024 - 5), "more output than was credited"),
        ('{"method": "process/exited", "params": {}}', "bad parameters of process/exited"),
        (
            '{"method": "process/credit", "params": {"processId": 1, "stream": "stdin", '
            '"bytes": 1}}',
            "credit for more than was sent",
        ),
    ],
)
async def test_an_exec_server_that_breaks_the_protocol_is_left(
    said: Case[Any], reason: str
) -> None:
    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        started = json.loads(await socket.recv())
        await socket.send(json.dumps({"id": started["id"], "result": {"pid": 1}}))
        # What is said of processes that nobody knows is late, and nothing else.
        await socket.send(b"\1\0\0\0\7x")
        for _ in range(2):
            await socket.send(made(said))
        await socket.wait_closed()

    async with playing(play) as url, connected(url) as connection:
        with anyio.fail_after(WAIT_S):
            async with connection.start(
                process_start(Launch("x", read_limit_bytes=1000))
            ) as process:
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
        connection.start(process_start(launch)) as process,
    ):
        with anyio.fail_after(WAIT_S):
            while (await connection.info()).cwd != str(6 * half):
                pass
            # Twice the limit and a window: credit for more would have come before this question.
            assert (await connection.info()).cwd == str(6 * half)
            await process.stdout.readexactly(6 * half)
            while (await connection.info()).cwd != str(12 * half):
                pass


async def test_an_exec_server_that_does_not_answer_is_not_waited_for_forever() -> None:
    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        await socket.wait_closed()

    async with playing(play) as url, connected(url) as connection:
        connection.answer_s = 0.05
        with pytest.raises(ConnectionError, match=r"^no answer to environment/info in 0.05 s$"):
            await connection.info()


async def test_a_start_that_does_not_fit_a_frame_is_refused_here() -> None:
    async with listening() as url, connected(url) as connection:
        with pytest.raises(OSError, match="needs more than 1048576 bytes"):
            async with connection.start(process_start(Launch("x", ["ä" * 600_000]))):
                raise AssertionError
        assert (await connection.info()).cwd == str(Path.cwd())
