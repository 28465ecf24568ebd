"""The inspector's port, over real sockets: files for browsers, and the relay to a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.typing import Origin, Subprotocol

from app_server.clients.inspector.run import MAX_PAGES, Inspector, serve_inspector
from app_server.peer.address import ServerAddress
from app_server.transport.address import UnixAddress
from app_server.transport.guards import ListenerGuards
from protocol.contract.methods import METHODS
from tests.support.harness import WAIT_S, serve

NOWHERE = ServerAddress("ws://127.0.0.1:9")
"""The discard service, which nobody runs."""


async def get(inspector: Inspector, path: str, **header: str) -> tuple[HTTPResponse, bytes]:
    """Ask for a file as a browser does."""

    def ask() -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection("127.0.0.1", inspector.port, timeout=WAIT_S)
        connection.request("GET", path, headers=header)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response, content

    return await asyncio.to_thread(ask)


@asynccontextmanager
async def page_socket(inspector: Inspector, **options: Any) -> AsyncIterator[ClientConnection]:
    """Open the socket that the page opens; `token` and `origin` may be others."""
    token = options.pop("token", inspector.token)
    origin = options.pop("origin", f"http://127.0.0.1:{inspector.port}")
    async with connect(
        f"ws://127.0.0.1:{inspector.port}{options.pop('path', '/wire')}",
        origin=Origin(origin),
        subprotocols=[Subprotocol("app-server-inspector"), Subprotocol(f"token.{token}")],
        proxy=None,
        max_size=None,
        open_timeout=WAIT_S,
        ping_interval=None,
        **options,
    ) as socket:
        yield socket


async def closed(socket: ClientConnection) -> tuple[int, str]:
    """Wait until the inspector closes a socket, and return its code and reason."""
    with anyio.fail_after(WAIT_S), pytest.raises(ConnectionClosed) as caught:
        while True:
            await socket.recv()
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


async def test_the_page_is_served_and_confined() -> None:
    async with serve_inspector(NOWHERE) as inspector:
        response, content = await get(inspector, "/")
        script, _ = await get(inspector, "/js/main.js")
        style, _ = await get(inspector, "/style/tokens.css?reload")
    assert response.status == 200
    assert content.startswith(b"<!doctype html>")
    port = inspector.port
    assert dict(response.getheaders()) == {
        "Cache-Control": "no-store",
        "Connection": "close",
        "Content-Length": str(len(content)),
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        f"img-src 'self' data:; connect-src 'self' ws://127.0.0.1:{port} ws://localhost:{port}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
        "Content-Type": "text/html; charset=utf-8",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    assert script.getheader("Content-Type") == "text/javascript; charset=utf-8"
    assert style.getheader("Content-Type") == "text/css; charset=utf-8"
    assert inspector.url == f"http://127.0.0.1:{port}/#token={inspector.token}"


async def test_the_page_can_complete_the_names_of_methods() -> None:
    async with serve_inspector(NOWHERE) as inspector:
        response, content = await get(inspector, "/methods.json")
    assert response.getheader("Content-Type") == "application/json"
    assert json.loads(content) == sorted(METHODS)


@pytest.mark.parametrize(
    "path", ["/none", "/js", "/../run.py", "/%2e%2e/run.py", "//etc/passwd", "//["]
)
async def test_nothing_else_is_served(path: str) -> None:
    async with serve_inspector(NOWHERE) as inspector:
        response, content = await get(inspector, path)
    assert (response.status, content) == (404, b"Not Found\n")


@pytest.mark.parametrize("path", ["/", "/wire"])
async def test_the_name_of_another_site_gets_nothing(path: str) -> None:
    async with serve_inspector(NOWHERE) as inspector:
        response, content = await get(inspector, path, Host=f"attacker.example:{inspector.port}")
    assert (response.status, content) == (403, b"Forbidden\n")


@pytest.mark.parametrize(
    "options", [{"token": "guess"}, {"origin": "http://attacker.example"}, {"path": "/wire?x"}]
)
async def test_a_socket_without_token_or_origin_is_refused(options: dict[str, str]) -> None:
    is_ours = "path" in options
    async with serve_inspector(NOWHERE) as inspector:
        if is_ours:
            async with page_socket(inspector, **options) as socket:
                assert (await closed(socket))[0] == 4001
            return
        with pytest.raises(InvalidStatus) as caught:
            async with page_socket(inspector, **options):
                pass
    assert caught.value.response.status_code == 403


async def test_messages_go_through_whole_and_in_order(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        serve_inspector(ServerAddress(served.urls[0])) as inspector,
        page_socket(inspector) as socket,
    ):
        assert socket.subprotocol == "app-server-inspector"
        params = {"clientInfo": {"name": "page", "version": "1"}}
        await socket.send(json.dumps({"id": 1, "method": "initialize", "params": params}))
        assert json.loads(await socket.recv())["result"]["codexHome"] == str(tmp_path)
        await socket.send(json.dumps({"method": "initialized"}))
        for number in range(2, 50):
            await socket.send(json.dumps({"id": number, "method": "thread/loaded/list"}))
        answers = [json.loads(await socket.recv()) for _ in range(2, 50)]
        assert [answer["id"] for answer in answers] == list(range(2, 50))


async def test_a_server_on_a_unix_socket_is_reached(tmp_path: Path) -> None:
    address = UnixAddress(tmp_path / "s")
    async with (
        serve(tmp_path / "home", listen=[address]) as served,
        serve_inspector(ServerAddress(served.urls[0])) as inspector,
        page_socket(inspector) as socket,
    ):
        await socket.send(json.dumps({"id": 1, "method": "thread/list"}))
        assert json.loads(await socket.recv())["error"]["message"] == "Not initialized"


async def test_a_message_of_ten_megabytes_passes() -> None:
    async def echo(socket: ServerConnection) -> None:
        await socket.send(await socket.recv())

    async with serve_sockets(echo, "127.0.0.1", 0, max_size=None, compression=None) as server:
        upstream = ServerAddress(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with serve_inspector(upstream) as inspector, page_socket(inspector) as socket:
            text = "ä" * 5_000_000
            await socket.send(text)
            assert await socket.recv() == text


async def test_the_close_code_says_that_no_server_answers() -> None:
    async with serve_inspector(NOWHERE) as inspector, page_socket(inspector) as socket:
        assert await closed(socket) == (4001, "no server answers")


async def test_the_close_code_says_that_the_server_has_gone() -> None:
    async def leave(socket: ServerConnection) -> None:
        await socket.close(1001, "the server stops")

    async with serve_sockets(leave, "127.0.0.1", 0) as server:
        upstream = ServerAddress(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with serve_inspector(upstream) as inspector, page_socket(inspector) as socket:
            assert await closed(socket) == (4002, "1001 the server stops")


async def test_the_close_code_says_that_the_server_refuses() -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(401, "no\n")

    async def never(socket: ServerConnection) -> None:
        raise AssertionError

    async with serve_sockets(never, "127.0.0.1", 0, process_request=refuse) as server:
        upstream = ServerAddress(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with serve_inspector(upstream) as inspector, page_socket(inspector) as socket:
            assert await closed(socket) == (4003, "the server answers with HTTP 401")


async def test_the_token_is_read_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    url = ""
    async with serve(tmp_path / "home", guards=ListenerGuards(token_file=file)) as served:
        url = served.urls[0]
        async with (
            serve_inspector(ServerAddress(url, file)) as inspector,
            page_socket(inspector) as socket,
        ):
            await socket.send(json.dumps({"id": 1, "method": "thread/list"}))
            assert json.loads(await socket.recv())["error"]["message"] == "Not initialized"
        async with (
            serve_inspector(ServerAddress(url)) as inspector,
            page_socket(inspector) as socket,
        ):
            assert await closed(socket) == (4003, "the server answers with HTTP 401")
    async with (
        serve_inspector(ServerAddress(url, file)) as inspector,
        page_socket(inspector) as socket,
    ):
        code, reason = await closed(socket)
    assert (code, reason.partition(": ")[0]) == (4003, "the token file cannot be read")


async def test_a_page_that_leaves_takes_its_connection_along() -> None:
    gone = asyncio.Event()

    async def wait(socket: ServerConnection) -> None:
        await socket.wait_closed()
        gone.set()

    async with serve_sockets(wait, "127.0.0.1", 0) as server:
        upstream = ServerAddress(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with serve_inspector(upstream) as inspector:
            async with page_socket(inspector):
                pass
            with anyio.fail_after(WAIT_S):
                await gone.wait()


async def test_only_so_many_pages_are_served_at_a_time() -> None:
    async def stay(socket: ServerConnection) -> None:
        await socket.send("here")
        await socket.wait_closed()

    async with serve_sockets(stay, "127.0.0.1", 0) as server:
        upstream = ServerAddress(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with serve_inspector(upstream) as inspector, AsyncExitStack() as stack:
            for _ in range(MAX_PAGES):
                socket = await stack.enter_async_context(page_socket(inspector))
                assert await socket.recv() == "here"
            with pytest.raises(InvalidStatus) as caught:
                async with page_socket(inspector):
                    pass
            assert caught.value.response.status_code == 503


async def test_pages_that_come_at_once_are_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handshake, come_in = ServerConnection.handshake, asyncio.Barrier(MAX_PAGES + 4)

    async def wait_for_all(connection: ServerConnection, *arguments: Any, **options: Any) -> None:
        """Shake hands with all of them before the first one is served."""
        await handshake(connection, *arguments, **options)
        await come_in.wait()

    monkeypatch.setattr("app_server.clients.inspector.run._Connection.handshake", wait_for_all)

    async def stay(socket: ServerConnection) -> None:
        await socket.send("here")
        await socket.wait_closed()

    async with serve_sockets(stay, "127.0.0.1", 0) as server:
        upstream = ServerAddress(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with serve_inspector(upstream) as inspector, AsyncExitStack() as stack:

            async def come() -> str | int:
                socket = await stack.enter_async_context(page_socket(inspector))
                try:
                    return str(await socket.recv())
                except ConnectionClosed as exc:
                    return exc.rcvd.code if exc.rcvd else 0

            with anyio.fail_after(WAIT_S):
                came = await asyncio.gather(*(come() for _ in range(MAX_PAGES + 4)))
        refused = [answer for answer in came if answer != "here"]
        assert refused == [CloseCode.TRY_AGAIN_LATER] * 4


async def test_sockets_have_a_bound_whatever_they_ask_for() -> None:
    async with serve_inspector(NOWHERE, max_sockets=2) as inspector:
        # They ask for nothing, for as long as a request may take to come.
        held = [await asyncio.open_connection("127.0.0.1", inspector.port) for _ in range(2)]
        with pytest.raises(ConnectionError):
            await get(inspector, "/")
        for _, writer in held:
            writer.close()
        for reader, _ in held:
            with anyio.fail_after(WAIT_S):
                assert await reader.read() == b""
        with anyio.fail_after(WAIT_S):
            while True:
                # The inspector may not have seen yet that they are gone.
                with suppress(ConnectionError):
                    assert (await get(inspector, "/"))[0].status == 200
                    break
