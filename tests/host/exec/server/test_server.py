"""host: the exec server, frame by frame."""

import asyncio
import contextlib
import errno
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage, InvalidStatus

from tests.support.files.fifos import open_fifo_to_write
from tests.support.harness import WAIT_S
from tests.support.host.exec_conversations import PYTHON, listening
from tests.support.host.exec_peer import HELLO, HOLD, ExecClient, Holders, exec_client


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


async def test_the_end_of_a_stream_is_sent_while_its_process_runs() -> None:
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
async def test_who_breaks_the_protocol_is_disconnected_with_the_reason(
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
    monkeypatch.setattr("app_server.host.exec.server.server.DRAIN_S", 0.05)
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
        assert await client.call("connection/open", processId=1, host="", port=1) == {
            "error": {"code": -32602, "message": "bad parameters of connection/open: host"}
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
        go = tmp_path / "go"
        os.mkfifo(go)
        wait = f"os.open({str(go)!r}, os.O_RDONLY); "
        arguments = ["-c", HOLD + wait + "[os.write(1, b'x' * 65536) for _ in iter(int, 1)]"]
        for number in range(1, count + 1):
            await client.request(
                "process/start",
                processId=number,
                command=PYTHON,
                args=[*arguments, str(holders.path)],
            )
        await holders.held(count)
        # The client is disconnected soon after the first of them prints.
        descriptor = await open_fifo_to_write(go)
        await holders.ended()
        os.close(descriptor)


async def test_sockets_that_are_no_clients_yet_have_a_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits: dict[str, Any] = {"max_connections": 1, "max_opening": 2, "hello_s": 10 * WAIT_S}
    async with listening(**limits) as url, exec_client(url) as client:
        port = int(url.rpartition(":")[2])
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with anyio.fail_after(WAIT_S), contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert (await start(client, 1, "pass"))["result"]["pid"] > 0
        for _, other in waiting:
            other.close()
            await other.wait_closed()
        with anyio.fail_after(WAIT_S):
            while True:
                # The server may not have seen yet that they are gone.
                with contextlib.suppress(ConnectionError, InvalidMessage):
                    with pytest.raises(InvalidStatus) as refused:
                        await connect(url, proxy=None)
                    break
        assert refused.value.response.status_code == 503
    assert caplog.messages == ["cut a connection off: there are 3"]
