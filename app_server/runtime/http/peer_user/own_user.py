"""Lets those connections pass whose other end belongs to the user of this process.

Everything of ours that listens asks here, before it reads what a connection wants of it, or at the
latest before it does that.
Source: docs/listeners.md, "Other users".
"""

import logging
import os
import socket
import struct
import sys
from asyncio.trsock import TransportSocket
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from app_server.runtime.counted_warnings import warn_counted
from app_server.runtime.http.loopback_address import is_loopback_address
from app_server.runtime.http.peer_user.diag import asked_owner
from app_server.runtime.http.peer_user.errors import OtherUser, UserUnknown
from app_server.runtime.http.peer_user.tables import SYSTEM_TABLES, SocketAddress, Tables, owner_in

logger = logging.getLogger(__name__)

CAN_LOOK = sys.platform == "linux"

LOOKS_AT_A_TIME = 2
"""Worker threads that read tables; connections above it wait."""

OVERFLOW_UID = 65534
"""Shown for every user whom the user namespace of this process does not know."""

UID_MAP = Path("/proc/self/uid_map")
EVERY_USER = "0 0 4294967295"
"""The map of a user namespace that knows all users."""

HOW_TO_LET_IN = (
    "It talks to its own user alone, unless its config.toml has refuse_other_users = false."
)


class OthersLetIn:
    """Whether this process lets others in: no context, since work that begins apart has none."""

    def __init__(self) -> None:
        self._is_set = False

    def get(self) -> bool:
        """Say what was set last."""
        return self._is_set

    def set(self, value: bool) -> bool:
        """Set it; gives what it was before, for `reset`."""
        before, self._is_set = self._is_set, value
        return before

    def reset(self, before: bool) -> None:
        """Set it back."""
        self._is_set = before


others_are_let_in = OthersLetIn()
"""Set once by a server, for all that it serves; see `refuse_other_users` in docs/config.md."""

_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("looks at tables")

_NOTED = struct.Struct("=iII")
"""Process, user, group (unix(7), `SO_PEERCRED`)."""


async def refusal_of_stranger(
    connection: TransportSocket | socket.socket, how_to_let_in: str = HOW_TO_LET_IN
) -> str | None:
    """Say why an accepted connection is refused, in one line; None for one of our own user's.

    None too where others are let in, where the system does not tell, and for a connection of
    another machine: its users are that machine's, and it comes only where a token is wanted.
    """
    if not CAN_LOOK or others_are_let_in.get():
        return None
    try:
        if connection.family == socket.AF_UNIX:
            check_unix(connection)
        else:
            there, here = _ends(connection)
            if is_loopback_address(there[0]):
                await check_tcp(there, here)
    except OtherUser as exc:
        warn_counted(logger, "refused a connection of user %d", exc.uid)
        return f"This server belongs to another user of this machine. {how_to_let_in}\n"
    except UserUnknown as exc:
        # A check that lets pass what it cannot see is passed by hiding.
        warn_counted(logger, "refused a connection whose user is unknown: %s", exc)
        return f"This server cannot tell which user connects: {exc}. {how_to_let_in}\n"
    return None


async def check_tcp(
    there: SocketAddress, here: SocketAddress, tables: Tables = SYSTEM_TABLES
) -> None:
    """Look at a connection from `there` to `here`; reads no table on the event loop.

    Root is another user as well: a process of root may stand for anybody (a relay), and one
    that wants to can become any user.

    Raises:
        OtherUser, UserUnknown
    """
    uid = asked_owner(there, here)
    if uid is None:
        limiter = _limiter.get(None)
        if limiter is None:
            _limiter.set(limiter := anyio.CapacityLimiter(LOOKS_AT_A_TIME))
        uid = await anyio.to_thread.run_sync(owner_in, tables, there, here, limiter=limiter)
    _require_own(uid)


def check_unix(connection: TransportSocket | socket.socket) -> None:
    """Look at a connection that a Unix socket accepted.

    The kernel noted the user when the connection was made, whoever has the other end since.

    Raises:
        OtherUser, UserUnknown
    """
    try:
        noted = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _NOTED.size)
        _, uid, _ = _NOTED.unpack(noted)
    except (OSError, struct.error) as exc:
        raise UserUnknown("the kernel does not name its user") from exc
    _require_own(uid)


def _ends(connection: TransportSocket | socket.socket) -> tuple[SocketAddress, SocketAddress]:
    try:
        return connection.getpeername(), connection.getsockname()
    except OSError as exc:
        raise UserUnknown("the connection has gone") from exc


def _require_own(uid: int) -> None:
    if uid == OVERFLOW_UID and not _knows_every_user():
        raise UserUnknown("its user is not one of this user namespace")
    if uid != os.geteuid():
        raise OtherUser(uid)


def _knows_every_user() -> bool:
    """Whether each number is one user, OVERFLOW_UID too, as where there is no user namespace."""
    try:
        return UID_MAP.read_text().split() == EVERY_USER.split()
    except OSError:
        return False
