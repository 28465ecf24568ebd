"""A connection to a host that may be reached, and the bytes between it and the command's.

Its name is resolved, its addresses are looked at; the address that was looked at is the one that is
connected to, so that a second answer of the name servers cannot lead elsewhere. Bytes go both ways
until both directions have ended or nothing moves any more.
Source: docs/tools.md, "Network through a proxy".
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

import anyio.to_thread

from app_server.host.proxy.gate import Refused
from app_server.permissions.network import Address, NetworkPolicy, Target, is_local, is_this_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyBounds:
    """The bounds of one command's proxy; times are seconds."""

    connections: int = 256
    """At a time; further ones are closed."""
    head_bytes: int = 65_536
    """Of the first lines of a request, and of a response."""
    head_s: float = 30.0
    """For a client to say where it wants to go."""
    connect_s: float = 30.0
    """For resolving a name and reaching one of its addresses."""
    idle_s: float = 900.0
    """Without a byte in either direction, and at the end until what waits is taken; then it is
    closed."""
    piece_bytes: int = 65_536
    """Bytes of one read, which are written before the next one."""
    addresses: int = 8
    """Of one name that are tried."""


BOUNDS = ProxyBounds()

DESCRIPTORS = Path("/proc/self/fd")


def leads_here(addresses: Sequence[Address], port: int) -> bool:
    """Whether any of the addresses is this machine's, and the port one that this process serves.

    Blocks for some ms.

    Raises:
        OSError: the system does not say which descriptors there are.
    """
    return any(map(is_own, addresses)) and port in own_ports()


def is_own(address: Address) -> bool:
    """Whether connecting to an address reaches this machine: then a socket can be bound to it."""
    if is_this_machine(address):
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def own_ports() -> set[int]:
    """Return the TCP ports of all listeners of this process. Blocks for some ms.

    Raises:
        OSError: the system does not say which descriptors there are.
    """
    ports: set[int] = set()
    for entry in DESCRIPTORS.iterdir():
        # It may be no socket, or be closed and its number used again, at any moment.
        with suppress(OSError):
            ports |= _listens_on(int(entry.name))
    return ports


def _listens_on(fd: int) -> set[int]:
    """Return the port of a listening socket, which stays open.

    To close as much as a copy of a descriptor would take the locks of this process from its file
    (fcntl(2)), such as those of SQLite.

    Raises:
        OSError: it is no socket.
    """
    found = socket.socket(fileno=fd)
    try:
        if found.family not in (socket.AF_INET, socket.AF_INET6):
            return set()
        if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return set()
        return {found.getsockname()[1]}
    finally:
        found.detach()


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


@asynccontextmanager
async def until_idle(limit_s: float) -> AsyncIterator[Callable[[], None]]:
    """Yield a callback that restarts the idle timer; not to be called after the context.

    Raises:
        TimeoutError: nothing has moved for `limit_s` seconds.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(limit_s) as idle:

        def moved() -> None:
            # What moves while this task is being cancelled comes too late.
            if not idle.expired():
                idle.reschedule(loop.time() + limit_s)

        yield moved


async def relay(one: Streams, other: Streams, bounds: ProxyBounds) -> None:
    """Copy in both directions; the end of one direction is passed on, and the other goes on.

    Returns when both have ended, one is broken, or nothing came for `idle_s`. What is not taken is
    not read: a slow side slows the other down.
    """
    try:
        async with until_idle(bounds.idle_s) as moved, asyncio.TaskGroup() as tasks:
            for (reader, _), (_, writer) in ((one, other), (other, one)):
                tasks.create_task(_copy(reader, writer, bounds.piece_bytes, moved))
    except* TimeoutError:
        # What still waits is not taken either.
        for _, writer in (one, other):
            _drop(writer)
    except* OSError:
        # It is broken, and so over.
        pass


@asynccontextmanager
async def closing(writer: asyncio.StreamWriter, bounds: ProxyBounds) -> AsyncIterator[None]:
    """Close a connection at the end, once its buffer is sent, or no progress for `idle_s`.

    Whoever is cancelled waits for nobody: the command has gone, and nothing of it stays behind.
    """
    try:
        yield
    except asyncio.CancelledError:
        _drop(writer)
        raise
    finally:
        await _close(writer, bounds.idle_s)


async def _close(writer: asyncio.StreamWriter, limit_s: float) -> None:
    writer.close()
    try:
        async with asyncio.timeout(limit_s):
            await writer.wait_closed()
    except OSError:
        # Broken, or not taken in time.
        _drop(writer)
    except asyncio.CancelledError:
        _drop(writer)
        raise


def _drop(writer: asyncio.StreamWriter) -> None:
    """Abort a connection, dropping its buffer; Python 3.11 fails on a closed one."""
    transport = writer.transport
    if not transport.is_closing() or transport.get_write_buffer_size():
        transport.abort()


async def _copy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    piece_bytes: int,
    moved: Callable[[], None],
) -> None:
    while piece := await reader.read(piece_bytes):
        moved()
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
