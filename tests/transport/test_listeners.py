"""transport: listeners, their addresses and their bounds."""

import asyncio
import contextlib
import json
import os
import socket
import urllib.request
from contextlib import AsyncExitStack, closing
from pathlib import Path

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app_server.rpc.message_stream import MessageStream
from app_server.transport.address import (
    Address,
    StdioAddress,
    TcpAddress,
    UnixAddress,
    parse_address,
)
from app_server.transport.stdio import _Pipe, open_stdio
from app_server.transport.websocket import WebSocketLimits, listen_tcp
from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.wire.conversations import (
    LOOPBACK,
    stdio_pipes,
)
from tests.support.wire.handshakes import UPGRADE, handshake

ASKS_FOR_UPGRADE = "".join(
    f"{line}\r\n"
    for line in (
        "GET / HTTP/1.1",
        "Host: localhost",
        *(f"{name}: {value}" for name, value in UPGRADE),
        "",
    )
).encode()


def http_status(url: str, path: str, **headers: str) -> tuple[int, str]:
    """Make a plain HTTP request."""
    target = urllib.request.Request(url.replace("ws://", "http://") + path, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with closing(opener.open(target, timeout=WAIT_S)) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


@claim("listener:health", "listener:origin")
async def test_health_is_answered_and_web_pages_are_not(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        (url,) = served.urls

        async def get(path: str, **headers: str) -> tuple[int, str]:
            return await asyncio.to_thread(http_status, url, path, **headers)

        assert await get("/readyz") == (200, "ok\n")
        assert await get("/healthz") == (200, "ok\n")
        assert (await get("/readyz", Origin="http://x"))[0] == 403
        assert (await get("/other"))[0] == 426
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url, origin="http://127.0.0.1", proxy=None, open_timeout=WAIT_S):  # type: ignore[arg-type]
                pass
        assert caught.value.response.status_code == 403


@claim("bounds:incoming")
async def test_a_message_above_the_bound_closes_its_socket_and_no_other(tmp_path: Path) -> None:
    limits = WebSocketLimits(max_message_bytes=1000)
    async with (
        serve(tmp_path, websocket=limits) as served,
        served.client() as other,
        served.pipe() as pipe,
    ):
        await pipe.send("x" * 1001)
        with pytest.raises(ConnectionClosed) as caught:
            await pipe.socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009
        assert "1000" in caught.value.rcvd.reason
        assert await other.call("thread/loaded/list", {}) == {"data": [], "nextCursor": None}


async def test_one_client_too_many_is_turned_away(tmp_path: Path) -> None:
    limits = WebSocketLimits(max_connections=1)
    async with serve(tmp_path, websocket=limits) as served, served.client():
        with pytest.raises(InvalidStatus) as caught:
            async with served.pipe():
                pass
        assert caught.value.response.status_code == 503


async def test_sockets_that_are_no_clients_yet_have_a_bound_too(tmp_path: Path) -> None:
    limits = WebSocketLimits(max_connections=1, max_opening=2, open_s=10 * WAIT_S)
    async with serve(tmp_path, websocket=limits) as served, served.client() as client:
        port = int(served.urls[0].rpartition(":")[2])
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with anyio.fail_after(WAIT_S), contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert await client.call("thread/loaded/list", {}) == {"data": [], "nextCursor": None}
        for _, other in waiting:
            other.close()
            await other.wait_closed()
        with anyio.fail_after(WAIT_S):
            # Who is told that there is no room has become a request.
            while await _status(port) != b"HTTP/1.1 503 Service Unavailable":
                await asyncio.sleep(0)


async def test_connections_that_are_cut_off_or_refused_are_one_line_of_the_log_each_kind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = WebSocketLimits(max_connections=1, max_opening=8, open_s=10 * WAIT_S)
    async with serve(tmp_path, websocket=limits) as served:
        for _ in range(50):
            assert (await handshake(served.urls[0], host="evil.example")).status == 403
            assert (await handshake(served.urls[0], ("Origin", "null"))).status == 403
        async with served.client():
            port = int(served.urls[0].rpartition(":")[2])
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
            for _ in range(50):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with anyio.fail_after(WAIT_S), contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
            for _, each in held:
                each.close()
    assert sorted(caplog.messages) == [
        "cut a connection off: there are 9",
        "refused a request whose Host header is not of this machine",
        "refused a request with an Origin header",
    ]


async def test_a_client_that_does_not_answer_the_close_holds_up_no_other() -> None:
    async def still_loading(_: MessageStream) -> None:
        await anyio.sleep_forever()

    limits = WebSocketLimits(close_s=10 * WAIT_S)
    address = TcpAddress("127.0.0.1", 0)
    silent = []
    async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
        listener = await stack.enter_async_context(listen_tcp(address, still_loading, limits))
        for _ in range(3):
            port = int(listener.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(ASKS_FOR_UPGRADE)
            await reader.readuntil(b"\r\n\r\n")
            silent.append((reader, writer))
        tasks.start_soon(stack.aclose)
        with anyio.fail_after(WAIT_S):
            for reader, _ in silent:
                frame = await reader.readexactly(20)
                assert frame == b"\x88\x12\x03\xe9the server stops"
        tasks.cancel_scope.cancel()
    for _, writer in silent:
        writer.close()


async def _status(port: int) -> bytes:
    """Ask for an upgrade; gives the first line of the answer, or nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(ASKS_FOR_UPGRADE)
        return (await reader.readline()).rstrip()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_binary_frames_and_broken_text_get_an_answer(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.pipe() as pipe:
        await pipe.socket.send(b"\x00\xff")
        answer = json.loads(await pipe.receive())
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        await pipe.socket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as caught:
            await pipe.socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1007


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ws://localhost:1", "does not appear to be an IPv4 or IPv6 address"),
        ("ws://127.0.0.1", "the port is missing; 0 picks a free one"),
        ("ws://127.0.0.1:99999", "Port out of range"),
        ("ws://[", "Invalid IPv6 URL; use ws://127.0.0.1:PORT"),
        ("ws://127.0.0.1:1/path", "nothing may follow the port"),
        ("http://127.0.0.1:1", "use ws://127.0.0.1:PORT, unix://PATH, stdio:// or off"),
    ],
)
def test_an_address_that_cannot_be_used_says_why(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"^cannot listen on") as caught:
        parse_address(text, Path("/s"))
    assert complaint in str(caught.value)


def test_addresses_are_read() -> None:
    socket_path = Path("/home/app-server.sock")
    expected: dict[str, Address | None] = {
        "off": None,
        "stdio://": StdioAddress(),
        "unix://": UnixAddress(socket_path),
        "unix:///tmp/s": UnixAddress(Path("/tmp/s")),
        "ws://127.0.0.1:0": TcpAddress("127.0.0.1", 0),
        "ws://[::1]:8080": TcpAddress("::1", 8080),
    }
    assert {text: parse_address(text, socket_path) for text in expected} == expected


async def test_several_listeners_serve_one_set_of_threads(tmp_path: Path) -> None:
    listen: list[Address] = [LOOPBACK, UnixAddress(tmp_path / "socket"), TcpAddress("::1", 0)]
    async with serve(tmp_path, listen=listen) as served:
        assert [url.split(":")[0] for url in served.urls] == ["ws", "unix", "ws"]
        assert os.stat(tmp_path / "socket").st_mode & 0o777 == 0o600
        async with served.pipe(served.urls[0]) as first, served.pipe(served.urls[1]) as second:
            one, two = WireClient(first), WireClient(second)
            await one.initialize()
            await two.initialize()
            thread_id = await one.start_thread()
            started = await two.wait_for("thread/started")
            assert started["params"]["thread"]["id"] == thread_id
    assert not (tmp_path / "socket").exists()


async def test_a_socket_that_a_dead_server_left_is_replaced_and_a_live_one_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with serve(tmp_path, listen=[UnixAddress(path)]):
        with pytest.raises(OSError, match="another server listens on this socket"):
            async with serve(tmp_path / "b", listen=[UnixAddress(path)]):
                pass
    path.write_text("not a socket")
    with pytest.raises(OSError, match="exists and is not a socket"):
        async with serve(tmp_path, listen=[UnixAddress(path)]):
            pass


async def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="address already in use"):
            async with serve(tmp_path, listen=[TcpAddress("127.0.0.1", port)]):
                pass


async def test_a_line_above_the_bound_ends_a_conversation_on_stdio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stdio_pipes(monkeypatch) as client:
        stream = await open_stdio(max_line_bytes=100)
        await client.send("\n" + "x" * 50)
        assert await stream.receive() == "x" * 50 + "\n"
        await client.send("x" * 1000)
        with pytest.raises(anyio.EndOfStream, match="longer than 100 bytes"):
            await stream.receive()
        await stream.send("hello")
        assert await client.receive() == "hello\n"
        await stream.aclose()
        # A client that goes on sees that nobody reads any more.
        with pytest.raises((BrokenPipeError, ConnectionResetError)), anyio.fail_after(WAIT_S):
            while True:
                await client.send("more")
                await anyio.lowlevel.checkpoint()


async def test_what_was_sent_on_stdio_is_in_the_pipe_and_cannot_be_lost_with_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # More than a pipe holds, by less than asyncio leaves in memory unless it is told not to.
    texts = ["x" * 4000 for _ in range(25)]
    async with stdio_pipes(monkeypatch) as client:
        stream = await open_stdio()

        async def send() -> None:
            await stream.send(*texts)
            output = stream._output
            assert isinstance(output, _Pipe)
            assert output._writer.transport.get_write_buffer_size() == 0
            await stream.aclose()
            await stream.aclose()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            assert [(await client.receive()).rstrip() for _ in texts] == texts


@claim("fuzz:answers")
@pytest.mark.slow
async def test_a_thousand_invalid_frames_disturb_no_other_connection(tmp_path: Path) -> None:
    frames = [
        "{", "[", '"', "nul", "5", "null", '{"id":1}', '{"id":null,"method":"x"}',
        '{"id":1.5,"method":"x"}', '{"id":[],"method":"x"}', "[" * 300, "[]", "[[]]", "[1,2]",
        '{"id":1,"method":"thread/list","params":{"limit":1e999}}',
        '{"id":1,"method":"thread/list","params":{"limit":99999999999999999999999}}',
        '{"id":1,"method":"thread/list","params":"text"}',
        '{"id":1,"method":"thread/list","params":{"cursor":"\\u0000"}}',
        '{"id":1,"method":"thread/read","params":{"threadId":"../../etc/passwd"}}',
        '{"id":1,"method":"turn/start","params":{"threadId":"x","input":[{"type":"nonsense"}]}}',
        '{"id":1,"method":"thread/start","params":{"config":{"":{"":[]}}}}',
        '{"id":1,"method":"thread/start","params":{"cwd":"\\u0000"}}',
        '{"id":1,"method":"thread/start","params":{"config":{"mcp_servers":7}}}',
        '{"id":1,"method":"mcpServerStatus/list","params":{"cursor":"-1"}}',
        '{"id":1,"method":"\\ud83d\\ude00"}', '{"id":"' + "x" * 5000 + '","method":"x"}',
    ]  # fmt: skip
    async with serve(tmp_path) as served, served.client() as other, served.client() as client:
        for frame in frames * 40:
            await client.send(frame)
            answer = await client.receive()
            while "method" in answer:
                answer = await client.receive()
            for one in answer if isinstance(answer, list) else [answer]:
                assert one.get("error", {}).get("message") != "Internal error", frame
        assert await other.call("thread/loaded/list", {"limit": 1}) is not None
