"""Everything of ours that listens refuses other users of the machine.

The sockets are not listed here: they are found in the system's tables, so that one that somebody
adds is met by this test too.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest

from app_server.clients.inspector.run import serve_inspector
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.sandbox.proxied import PORT
from app_server.peer.address import ServerAddress
from app_server.permissions.network import NetworkPolicy
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.runtime.http.peer_user import HOW_TO_LET_IN
from app_server.transport.address import TcpAddress, UnixAddress
from tests.support.accounts.account import call_back, callback_of
from tests.support.accounts.issuer_peer import IssuerPeer
from tests.support.apps.demo_apps import DEMO, thread_with_apps
from tests.support.harness import claim, serve
from tests.support.host.commands import Printed, sh
from tests.support.host.exec_conversations import listening
from tests.support.host.sandboxes import working_sandbox
from tests.support.listening_sockets import Listening, listening_sockets
from tests.support.mcp_peers.oauth_peer import OAuthPeer
from tests.support.mcp_peers.sign_in import table
from tests.support.other_user import done_as, exchanged, network_opened, other_user
from tests.support.receiver.peer import KEY
from tests.support.receiver.routers import router

OTHERS = "403 This server belongs to another user of this machine."
REFUSED = f"{OTHERS} {HOW_TO_LET_IN}"
LOOPBACK = "loopback server"


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@asynccontextmanager
async def command_with_a_network() -> AsyncIterator[None]:
    """Run a command whose only network is the proxy."""
    working_sandbox()
    machine, printed = LocalCommands(), Printed()
    policy = NetworkPolicy(allowed=("127.0.0.1",))
    try:
        sandbox_policy = EffectivePolicy(writable=(), network=False, proxy=policy)
        await machine.start(sh("echo runs; exec sleep 600"), sandbox_policy, printed.take)
        await printed.until(b"runs")
        yield
    finally:
        await machine.aclose()


@contextmanager
def bench_model() -> Iterator[int]:
    """Run the model of the bench; gives its port."""
    command = [sys.executable, "-m", "app_server.clients.bench.model"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def plain(path: str, *headers: str) -> bytes:
    """Render a request, and what every client says."""
    lines = [f"GET {path} HTTP/1.1", *headers]
    if not any(line.startswith("Host: ") for line in headers):
        lines.append("Host: localhost")
    return "\r\n".join([*lines, "", ""]).encode()


def upgrade(path: str, *headers: str) -> bytes:
    """Render a request that becomes a WebSocket."""
    return plain(
        path,
        *headers,
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )


def told(answer: str) -> str:
    """Shorten an answer to its status and what it says."""
    head, _, body = answer.partition("\r\n\r\n")
    if not head.startswith("HTTP/1.1 "):
        return answer.replace("ConnectionResetError 104", "closed")
    text = body.partition("<p>")[2].partition("</p>")[0] if "<p>" in body else body
    return f"{head.split(' ', 2)[1]} {text}".strip()


async def answers_to_another_user(
    home: Path, monkeypatch: pytest.MonkeyPatch, config: str = ""
) -> dict[str, list[str]]:
    """Run all of ours that listens; give what each socket says to another user."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        unix = folder / "socket"
        issuer = await enter(IssuerPeer().serve())
        issuer.use(monkeypatch)
        oauth = await enter(OAuthPeer().serve())
        # Peers of this test; the scripted model is one more.
        before = listening_sockets(os.getpid())
        served = await enter(
            serve(
                home,
                config=f"{config}{DEMO}{table(oauth)}",
                with_apps=True,
                listen=[TcpAddress("127.0.0.1", 0), TcpAddress("::1", 0), UnixAddress(unix)],
            )
        )
        # The kernel looks at the file's mode first.
        unix.chmod(0o666)
        call_back(served, 0)
        client = await enter(served.client())
        await thread_with_apps(client)
        offline = await client.call("thread/start", {"modelProvider": "offline"})
        await client.turn(offline["thread"]["id"], "hello")
        login = await client.call("account/login/start", {"type": "chatgpt"})
        sign_in = await client.call("mcpServer/oauth/login", {"name": "web"})
        await enter(command_with_a_network())
        exec_server = await enter(listening())
        inspector = await enter(serve_inspector(ServerAddress(served.urls[0])))
        demo_router = await enter(router(home))
        names = {
            port_of(served.urls[0]): "listener",
            port_of(served.urls[1]): "listener of IPv6",
            str(unix): "listener on a Unix socket",
            port_of(callback_of(login["authUrl"])): "sign-in to the account",
            port_of(callback_of(sign_in["authorizationUrl"])): "sign-in to an MCP server",
            port_of(exec_server): "exec server",
            inspector.port: "inspector",
            port_of(demo_router): "demo router",
            stack.enter_context(bench_model()): "model of the bench",
            PORT: "proxy of a command",
            # It stays the test's.
            port_of(served.model.url): "",
        }
        token = inspector.url.partition("#token=")[2]
        requests = {
            "demo router": upgrade("/sessions/Texi/stream", f"Authorization: Bearer {KEY}"),
            "sign-in to the account": plain("/cancel"),
            LOOPBACK: plain("/v1/responses", "Connection: close"),
        }
        requests["inspector"] = upgrade(
            "/wire",
            f"Host: 127.0.0.1:{inspector.port}",
            f"Origin: http://127.0.0.1:{inspector.port}",
            f"Sec-WebSocket-Protocol: app-server-inspector, token.{token}",
        )
        stranger = other_user(monkeypatch)
        answers: dict[str, list[str]] = {}
        for each in await anyio.to_thread.run_sync(listening_sockets, os.getpid()):
            key = each.address if each.family == socket.AF_UNIX else each.address[1]
            if each not in before and (name := names.get(key, LOOPBACK)):
                request = requests.get(name, upgrade("/"))
                answer = await anyio.to_thread.run_sync(answer_to, stranger, each, request)
                answers.setdefault(name, []).append(told(answer))
    return answers


def answer_to(stranger: int, found: Listening, request: bytes) -> str:
    """Return what another user gets there."""
    if found.is_here:
        return done_as(stranger, partial(exchanged, found.family, found.address, request))
    return done_as(stranger, partial(network_opened, found.process))


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell users apart")
@claim("listener:own-user", "environment:own-user")
async def test_no_socket_of_ours_serves_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await answers_to_another_user(tmp_path, monkeypatch) == {
        "listener": [REFUSED],
        "listener of IPv6": [REFUSED],
        "listener on a Unix socket": [REFUSED],
        "sign-in to the account": [REFUSED],
        "sign-in to an MCP server": [REFUSED],
        "exec server": [f"{OTHERS} It talks to its own user alone, unless it has a token."],
        "inspector": [REFUSED],
        "demo router": [f"{OTHERS} It talks to its own user alone."],
        "model of the bench": ["closed"],
        # The demo's endpoint, its apps, the offline model.
        LOOPBACK: [REFUSED] * 3,
        # Only the command is in that network, and only its user may enter it.
        "proxy of a command": ["PermissionError 13" if os.getuid() == 0 else "opened"],
    }


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell users apart")
@claim("listener:own-user")
async def test_a_server_that_lets_others_in_does_so_on_all_its_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser beyond a relay comes back from a sign-in, too."""
    config = "refuse_other_users = false\n\n"
    answers = await answers_to_another_user(tmp_path, monkeypatch, config)
    programs = {"exec server", "inspector", "demo router", "model of the bench"}
    shown = {name: sorted(all_) for name, all_ in answers.items() if name not in programs}
    del shown["proxy of a command"]
    assert shown == {
        "listener": ["101"],
        "listener of IPv6": ["101"],
        "listener on a Unix socket": ["101"],
        "sign-in to the account": ["200 Login cancelled"],
        "sign-in to an MCP server": ["404 There is nothing here."],
        # Without a bearer.
        LOOPBACK: ["403", "404 Not Found", "405 Method Not Allowed"],
    }


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell users apart")
@claim("environment:own-user", "environment:token")
async def test_the_token_of_an_exec_server_decides_where_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What puts TLS in front of it may run as another user."""
    answers = []
    async with listening("a-token") as url:
        stranger = other_user(monkeypatch)
        found = Listening(socket.AF_INET, ("127.0.0.1", port_of(url)), os.getpid(), is_here=True)
        for headers in ((), ("Authorization: Bearer a-token",)):
            request = upgrade("/", *headers)
            answer = await anyio.to_thread.run_sync(answer_to, stranger, found, request)
            answers.append(told(answer))
    assert answers == ["401 A bearer token is needed.", "101"]
