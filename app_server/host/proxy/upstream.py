"""A connection to a host that may be reached: its name resolved, its addresses looked at.

The address that was looked at is the one that is connected to, so that a second answer of the name
servers cannot lead elsewhere.
Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from typing import TypeAlias

import anyio.to_thread

from app_server.host.proxy.bounds import ProxyBounds
from app_server.host.proxy.gate import Refused
from app_server.host.proxy.own_ports import leads_here
from app_server.permissions.network.policy import NetworkPolicy
from app_server.permissions.network.target import Address, Target, is_local

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MAX_LOOKUPS = 16
"""Names that are resolved at a time, of all commands; others wait, within `connect_s`."""

# The threads of the loop resolve what the server itself connects to, such as models. Commands can
# ask for many names whose name servers take long, so theirs have threads of their own.
_RESOLVERS = ThreadPoolExecutor(MAX_LOOKUPS, "proxy-lookup")


class HostUnreachable(Exception):
    """A host that may be reached, and is not; the text says why."""


async def connect(target: Target, policy: NetworkPolicy, bounds: ProxyBounds) -> Streams:
    """Connect to a target that was allowed.

    Raises:
        Refused: its name leads to a local address, or it is a port of this server.
        HostUnreachable: it has no address, none answers, or it takes longer than `connect_s`.
    """
    try:
        async with asyncio.timeout(bounds.connect_s):
            addresses = await _resolve(target)
            await _check(addresses, target, policy)
            return await _first(addresses[: bounds.addresses], target.port, bounds)
    except TimeoutError:
        raise HostUnreachable(f"no answer within {bounds.connect_s:g} s") from None
    except OSError as exc:
        raise HostUnreachable(exc.strerror or "it cannot be reached") from exc


async def _resolve(target: Target) -> Sequence[Address]:
    look_up = partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, look_up)
    # A zone says which interface is meant; what needs one is local.
    return [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


async def _check(addresses: Sequence[Address], target: Target, policy: NetworkPolicy) -> None:
    """Refuse a host of which any address must not be reached."""
    if any(map(is_local, addresses)) and not policy.may_be_local(target.host):
        raise Refused("not_allowed_local")
    if await anyio.to_thread.run_sync(leads_here, addresses, target.port):
        raise Refused("not_allowed_local")


async def _first(addresses: Sequence[Address], port: int, bounds: ProxyBounds) -> Streams:
    failure = OSError(0, "it has no address")
    for address in addresses:
        try:
            return await asyncio.open_connection(str(address), port, limit=bounds.piece_bytes)
        except OSError as exc:
            failure = exc
    raise failure
