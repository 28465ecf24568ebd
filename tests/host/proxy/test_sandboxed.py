"""Commands in a real sandbox whose only network is the proxy."""

import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from app_server.host.commands.local_commands import CommandLaunch, LocalCommands, TerminalSize
from app_server.host.sandbox.linux.sandbox import Bubblewrap
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.macos import SandboxExec
from app_server.host.sandbox.proxied import PORT, proxy_variables
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.permissions.network import NetworkPolicy
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.runtime.loader import Lazy
from tests.support.harness import WAIT_S, claim
from tests.support.host.commands import Printed, sh
from tests.support.host.fetching import fetch_line
from tests.support.host.origin import origin
from tests.support.host.sandboxes import PYTHON, working_sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="networks of their own are Linux's")

LOCAL = NetworkPolicy(allowed=("127.0.0.1",))


@pytest.fixture
async def machine() -> AsyncIterator[LocalCommands]:
    working_sandbox()
    commands = LocalCommands()
    yield commands
    await commands.aclose()


def confined(policy: NetworkPolicy) -> EffectivePolicy:
    return EffectivePolicy(writable=(), network=False, proxy=policy)


async def printed(
    machine: LocalCommands, launch: CommandLaunch, policy: NetworkPolicy = LOCAL
) -> str:
    """Run a command whose network is the proxy; gives what it printed."""
    output = Printed()
    command = await machine.start(launch, confined(policy), output.take)
    with anyio.fail_after(WAIT_S):
        await command.finished.wait()
        await command.gone.wait()
    return output.of("stdout").decode()


@claim("network:proxy")
async def test_a_command_reaches_what_is_allowed_and_nothing_else(machine: LocalCommands) -> None:
    async with origin() as port:
        line = fetch_line(
            f"http://127.0.0.1:{port}/",
            f"socks=http://127.0.0.1:{port}/",
            f"http://127.0.0.2:{port}/",
            "http://a.example/",
            # Without the proxy there is no way out, not even to this machine.
            f"direct=http://127.0.0.1:{port}/",
        )
        assert await printed(machine, sh(line)) == "200 200 403 403 Connection refused "


@claim("network:proxy")
async def test_no_other_sockets_lead_out(machine: LocalCommands, tmp_path: Path) -> None:
    attempts = """
import os, socket
inherited = []
for number in range(3, 256):
    try: os.fstat(number)
    except OSError: continue
    inherited.append(number)
print(inherited)
def attempt(*arguments):
    try: socket.socket(*arguments)
    except OSError as exc: return exc.strerror
    return "made"
print(attempt(socket.AF_UNIX), attempt(socket.AF_NETLINK, socket.SOCK_RAW), attempt(socket.AF_INET))
for before in (lambda one, other: None, lambda one, other: other.close(),
               lambda one, other: one.shutdown(socket.SHUT_RDWR)):
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        one, other = socket.socketpair(socket.AF_UNIX, kind)
        before(one, other)
        try: one.connect(f"{PATH}.{kind}")
        except OSError as exc: print(exc.strerror)
        else: print("reached", kind)
server = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(server.getsockname()): print("own")
"""
    path = str(tmp_path / "service")
    with ExitStack() as services:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            service = services.enter_context(socket.socket(socket.AF_UNIX, kind))
            service.bind(f"{path}.{kind}")
            service.listen()
        script = f"PATH = {path!r}\n{attempts}"
        launch = CommandLaunch((*PYTHON, script), {"PATH": os.environ["PATH"]}, "/")
        told = await printed(machine, launch)
    refused = "Operation not permitted"
    assert told.splitlines() == [
        "[]",
        f"{refused} {refused} made",
        *(6 * ["Transport endpoint is already connected"]),
        "own",
    ]


async def test_a_command_has_what_others_have_too(machine: LocalCommands) -> None:
    # What the program before it is given, and what Python changes for itself, does not show.
    line = "env | grep -ciE '^(LC_|PYTHON)'; grep Sig /proc/self/status"
    direct = Printed()
    command = await machine.start(sh(line), EffectivePolicy(writable=()), direct.take)
    with anyio.fail_after(WAIT_S):
        await command.gone.wait()
    assert await printed(machine, sh(line)) == direct.of("stdout").decode()
    at_terminal = sh("test -t 0 && echo terminal; echo $HTTP_PROXY", terminal=TerminalSize())
    told = await printed(machine, at_terminal)
    assert told.split() == ["terminal", f"http://127.0.0.1:{PORT}"]


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo broken >&2; exit 1", "broken\n"),
        (
            """echo '{"child-pid": 99999999}' >/proc/self/fd/$2; exec sleep 1000""",
            "the sandbox of the command cannot be made: [Errno 2] No such file or directory: "
            "'/proc/99999999/ns/net'\n",
        ),
        (
            "echo '{}}' >/proc/self/fd/$2; exec sleep 1000",
            "the sandbox of the command cannot be made: "
            "invalid literal for int() with base 10: b''\n",
        ),
    ],
)
async def test_a_command_without_the_proxy_is_not_started(
    machine: LocalCommands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    does: str,
    said: str,
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)

    async def made() -> MachineSandbox:
        return MachineSandbox(Bubblewrap(str(program)))

    monkeypatch.setattr(machine, "_sandbox", Lazy("the sandbox", made))
    output = Printed()
    command = await machine.start(sh("echo started"), confined(LOCAL), output.take)
    with anyio.fail_after(WAIT_S):
        await command.gone.wait()
    assert output.of("stdout").decode() == said
    assert command.returncode != 0


def test_where_the_variables_lead() -> None:
    plain = dict(proxy_variables(NetworkPolicy()))
    assert plain["HTTP_PROXY"] == plain["https_proxy"] == f"http://127.0.0.1:{PORT}"
    assert plain["ALL_PROXY"] == f"socks5h://127.0.0.1:{PORT}"
    assert plain["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert plain["CODEX_NETWORK_ALLOW_LOCAL_BINDING"] == "0"
    local = dict(proxy_variables(NetworkPolicy(reaches_local=True, has_socks=False)))
    assert local["ALL_PROXY"] == f"http://127.0.0.1:{PORT}"
    assert (local["NO_PROXY"], local["CODEX_NETWORK_ALLOW_LOCAL_BINDING"]) == ("", "1")
    # What is allowed by name has to be reached by the proxy, too.
    assert dict(proxy_variables(LOCAL))["no_proxy"] == ""


def test_on_macos_there_is_no_proxy() -> None:
    with pytest.raises(SandboxUnavailable, match="on Linux alone"):
        SandboxExec("/usr/bin/sandbox-exec").wrap(("true",), "/", confined(LOCAL), tty=False)
