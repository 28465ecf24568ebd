"""Lets those connections pass whose other end belongs to the user of this process.

Source: docs/listeners.md, "Other users".
"""

import os
import socket
import struct
import sys

import anyio
import anyio.to_thread

from app_server.transport.peer_user.diag import asked_owner
from app_server.transport.peer_user.errors import OtherUser, UserUnknown
from app_server.transport.peer_user.tables import SocketAddress, Tables, owner_in

CAN_LOOK = sys.platform == "linux"

LOOKS_AT_A_TIME = 2
"""Worker threads that read tables; connections above it wait."""

OVERFLOW_UID = 65534
"""Shown for every user whom the user namespace of this process does not know."""


_NOTED = struct.Struct("=iII")
"""Process, user, group (unix(7), `SO_PEERCRED`)."""


class OwnUser:
    """Tells our own user from others."""

    def __init__(self, tables: Tables | None = None) -> None:
        self._tables = tables or Tables()
        self._limiter = anyio.CapacityLimiter(LOOKS_AT_A_TIME)

    async def check_tcp(self, there: SocketAddress | None, here: SocketAddress | None) -> None:
        """Look at a connection from `there` to `here`; reads no table on the event loop.

        Root is another user as well: a process of root may stand for anybody (a relay), and one
        that wants to can become any user.

        Raises:
            OtherUser, UserUnknown
        """
        if there is None or here is None:
            raise UserUnknown("the connection has gone")
        uid = asked_owner(there, here)
        if uid is None:
            uid = await anyio.to_thread.run_sync(
                owner_in, self._tables, there, here, limiter=self._limiter
            )
        _require_own(uid)

    def check_unix(self, connection: socket.socket) -> None:
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


def _require_own(uid: int) -> None:
    if uid == OVERFLOW_UID:
        raise UserUnknown("its user is not one of this user namespace")
    if uid != os.geteuid():
        raise OtherUser(uid)
