"""SOCKS5 as a proxy speaks it: CONNECT without a sign-in, by name or by address.

Source: docs/tools.md, "Network through a proxy"; RFC 1928.
"""

import asyncio
from ipaddress import IPv4Address, IPv6Address

from app_server.host.proxy.gate import Gate, Refused
from app_server.host.proxy.upstream import (
    HostUnreachable,
    ProxyBounds,
    Streams,
    closing,
    connect,
    relay,
)
from app_server.permissions.network import BadHost, Target, plain_host

VERSION = 5

_NO_SIGN_IN = 0
_NO_METHOD = 0xFF
_CONNECT = 1
_NAME = 3
_ADDRESSES = {1: (4, IPv4Address), 4: (16, IPv6Address)}
"""By kind: bytes, and what they are."""

SUCCEEDED = 0
NOT_ALLOWED = 2
HOST_UNREACHABLE = 4
NO_SUCH_COMMAND = 7
NO_SUCH_ADDRESS = 8


async def serve_socks(streams: Streams, gate: Gate, bounds: ProxyBounds) -> None:
    """Serve one connection whose first byte, the version, was read; the caller closes it.

    Raises:
        OSError: the connection is broken, or the client did not say in time what it wants.
    """
    reader, writer = streams
    try:
        async with asyncio.timeout(bounds.head_s):
            target = await _wanted(reader, writer)
    except asyncio.IncompleteReadError:
        return
    if isinstance(target, int):
        _reply(writer, target)
        return
    try:
        refusal = await gate.decide(target) if gate.policy.has_socks else "not_allowed"
        if refusal is not None:
            _reply(writer, NOT_ALLOWED)
            return
        upstream = await connect(target, gate.policy, bounds)
    except Refused as exc:
        await gate.refused(target, exc.why)
        _reply(writer, NOT_ALLOWED)
        return
    except HostUnreachable:
        _reply(writer, HOST_UNREACHABLE)
        return
    async with closing(upstream[1], bounds):
        _reply(writer, SUCCEEDED)
        await relay(streams, upstream, bounds)


async def _wanted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Target | int:
    """Negotiate no authentication, and return the destination, or the number of a refusal."""
    methods = await reader.readexactly((await reader.readexactly(1))[0])
    has_method = _NO_SIGN_IN in methods
    writer.write(bytes((VERSION, _NO_SIGN_IN if has_method else _NO_METHOD)))
    await writer.drain()
    if not has_method:
        raise asyncio.IncompleteReadError(b"", None)
    version, command, _, kind = await reader.readexactly(4)
    if kind == _NAME:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("latin-1")
    elif kind in _ADDRESSES:
        size, read = _ADDRESSES[kind]
        host = str(read(await reader.readexactly(size)))
    else:
        return NO_SUCH_ADDRESS
    port = int.from_bytes(await reader.readexactly(2), "big")
    if version != VERSION or command != _CONNECT:
        return NO_SUCH_COMMAND
    try:
        return Target(plain_host(host), port, "socks5Tcp")
    except BadHost:
        return NO_SUCH_ADDRESS


def _reply(writer: asyncio.StreamWriter, word: int) -> None:
    """Answer; the address that it could name is of no use to a client."""
    writer.write(bytes((VERSION, word, 0, 1, 0, 0, 0, 0, 0, 0)))
