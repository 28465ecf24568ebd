"""Which addresses of a host are connected to, and which ports are the server's own."""

import asyncio
import fcntl
import socket
import subprocess
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.host.proxy import upstream
from app_server.host.proxy.gate import Refused
from app_server.host.proxy.upstream import HostUnreachable, ProxyBounds, connect, is_own, own_ports
from app_server.permissions.network import NetworkPolicy, Target
from tests.support.harness import WAIT_S
from tests.support.host.origin import origin
from tests.support.host.proxies import answering
from tests.support.host.sandboxes import PYTHON


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every name have these addresses."""

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(0, 0, 0, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def refusal(policy: NetworkPolicy, host: str = "a.example", port: int = 1) -> str:
    with pytest.raises(Refused) as refused:
        await connect(Target(host, port, "https"), policy, ProxyBounds())
    return refused.value.why


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "fe80::1%eth0", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_to_a_local_address_is_refused_though_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    resolving(monkeypatch, "1.1.1.1", address)
    assert await refusal(NetworkPolicy(allowed=("a.example",))) == "not_allowed_local"


async def test_the_address_that_was_looked_at_is_the_one_that_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolving(monkeypatch, "2001:db8::1", "127.0.0.1")
    monkeypatch.setattr(upstream, "is_local", lambda address: False)
    connected: list[str] = []
    real = asyncio.open_connection

    async def open_connection(host: str, port: int, **more: Any) -> Any:
        connected.append(host)
        if ":" in host:
            raise OSError(101, "Network is unreachable")
        return await real(host, port, **more)

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    async with origin() as port:
        _, writer = await connect(
            Target("a.example", port, "https"), NetworkPolicy(), ProxyBounds()
        )
        writer.close()
    assert connected == ["2001:db8::1", "127.0.0.1"]


async def test_of_many_addresses_only_some_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, *(f"1.1.1.{n}" for n in range(20)))
    tried: list[str] = []

    async def open_connection(host: str, port: int, **_: Any) -> Any:
        tried.append(host)
        raise OSError(111, "Connection refused")

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    with pytest.raises(HostUnreachable, match="Connection refused"):
        await connect(Target("a.example", 1, "https"), NetworkPolicy(), ProxyBounds(addresses=3))
    assert tried == ["1.1.1.0", "1.1.1.1", "1.1.1.2"]


@pytest.fixture
def slow_name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a name that name servers say nothing of while the test runs."""
    over = threading.Event()
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **more: Any) -> list[Any]:
        if host == "slow.example":
            over.wait(WAIT_S)
            return []
        return real(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield "slow.example"
    over.set()


async def test_it_is_not_waited_for_an_answer_for_ever(slow_name: str) -> None:
    with pytest.raises(HostUnreachable, match=r"^no answer within 0\.01 s$"):
        await connect(Target(slow_name, 1, "http"), NetworkPolicy(), ProxyBounds(connect_s=0.01))


async def test_the_server_resolves_names_while_those_of_commands_take_long(slow_name: str) -> None:
    wanted = Target(slow_name, 1, "http")
    # More than a loop has threads.
    asked = [
        asyncio.create_task(connect(wanted, NetworkPolicy(), ProxyBounds())) for _ in range(40)
    ]
    await asyncio.sleep(0)
    with anyio.fail_after(WAIT_S / 2):
        found = await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    for task in asked:
        task.cancel()
    await asyncio.wait(asked)
    assert found


async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


def test_which_addresses_are_this_machines() -> None:
    ours = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::ffff:127.0.0.1"]
    assert all(is_own(ip_address(text)) for text in ours)
    assert not any(is_own(ip_address(text)) for text in ["192.0.2.1", "1.1.1.1", "2001:db8::1"])


async def test_a_public_address_of_this_machine_leads_to_its_ports_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolving(monkeypatch, "127.0.0.1")
    monkeypatch.setattr(upstream, "is_local", lambda address: False)
    async with answering(nothing) as port:
        assert await refusal(NetworkPolicy(), "a.example", port) == "not_allowed_local"


def test_to_look_for_own_ports_takes_no_lock_of_this_process(tmp_path: Path) -> None:
    take = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with (tmp_path / "locked").open("wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        own_ports()
        other = subprocess.run([*PYTHON, take, file.name], capture_output=True, timeout=WAIT_S)
    assert b"BlockingIOError" in other.stderr


async def test_ports_of_this_process_are_refused_whatever_is_allowed() -> None:
    everything = NetworkPolicy(allowed=("*", "127.0.0.1", "0.0.0.0"), reaches_local=True)
    async with answering(nothing) as port:
        for host in ("127.0.0.1", "0.0.0.0", "localhost"):
            assert await refusal(everything, host, port) == "not_allowed_local"
        assert port in own_ports()
    assert port not in own_ports()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        assert listener.getsockname()[1] in own_ports()
    async with origin() as other:
        assert other not in own_ports()
        _, writer = await connect(Target("127.0.0.1", other, "http"), everything, ProxyBounds())
        writer.close()
