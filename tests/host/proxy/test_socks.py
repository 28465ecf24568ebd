"""SOCKS5 through the proxy, over real sockets."""

import asyncio
import ipaddress

import anyio
import pytest

from app_server.host.proxy import upstream
from app_server.permissions.network import NetworkPolicy, Target
from tests.support.harness import WAIT_S
from tests.support.host.proxies import answering, proxy

LOCAL = NetworkPolicy(allowed=("127.0.0.1", "localhost"))
HELLO = b"\x05\x02\x02\x00"


def named(host: str, port: int, command: int = 1) -> bytes:
    return bytes((5, command, 0, 3, len(host))) + host.encode() + port.to_bytes(2, "big")


def numbered(address: str, port: int) -> bytes:
    packed = ipaddress.ip_address(address).packed
    return bytes((5, 1, 0, 1 if len(packed) == 4 else 4)) + packed + port.to_bytes(2, "big")


def reply(word: int) -> bytes:
    return b"\x05\x00" + bytes((5, word, 0, 1, 0, 0, 0, 0, 0, 0))


@pytest.fixture(autouse=True)
def no_own_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "leads_here", lambda addresses, port: False)


async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.readexactly(3)).upper())
    await writer.drain()


@pytest.mark.parametrize("by_name", [True, False])
async def test_a_connection_by_name_and_by_address(by_name: bool) -> None:
    async with answering(upper) as port, proxy(LOCAL) as used:
        wanted = named("Localhost", port) if by_name else numbered("127.0.0.1", port)
        assert await used.exchange(HELLO + wanted + b"abc") == reply(0) + b"ABC"
        host = "localhost" if by_name else "127.0.0.1"
        assert used.gate.asked == [Target(host, port, "socks5Tcp")]


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (HELLO + named("a.example", 80), reply(2)),
        (HELLO + numbered("10.0.0.1", 80), reply(2)),
        (HELLO + numbered("::1", 80), reply(2)),
        (HELLO + named("a.example", 80, 2), reply(7)),
        (HELLO + named("a.example", 80, 3), reply(7)),
        (HELLO + named("a/b", 80), reply(8)),
        (HELLO + b"\x05\x01\x00\x09", reply(8)),
        # Only with a sign-in.
        (b"\x05\x01\x02", b"\x05\xff"),
        (b"\x05", b""),
        (HELLO + b"\x05\x01", b"\x05\x00"),
    ],
    ids=repr,
)
async def test_what_is_refused_or_makes_no_sense(sent: bytes, received: bytes) -> None:
    async with proxy(LOCAL) as used:
        reader, writer = await used.connect()
        writer.write(sent)
        writer.write_eof()
        with anyio.fail_after(WAIT_S):
            assert await reader.read() == received
        writer.close()


async def test_a_host_that_cannot_be_reached() -> None:
    async with answering(upper) as port:
        pass
    async with proxy(LOCAL) as used:
        assert await used.exchange(HELLO + numbered("127.0.0.1", port)) == reply(4)


async def test_settings_may_leave_socks_out() -> None:
    async with proxy(NetworkPolicy(allowed=("*",), has_socks=False)) as used:
        assert await used.exchange(HELLO + named("a.example", 80)) == reply(2)
        assert used.gate.asked == []
