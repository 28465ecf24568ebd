"""The app-server of an agent where no variable names it: that which runs the receiver, or a socket.

A server starts receivers as MCP servers of its threads. So that of a receiver is above it.
Source: docs/receiver.md, "The app-server". Everything here blocks.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from app_server.clients.address import ServerAddress
from app_server.server.running_servers import servers_of

MAX_ANCESTORS = 4
"""Processes that are looked at: between a server and its receiver is a shell or a launcher."""


def found_server(home: Path, token_file: Path | None) -> ServerAddress | None:
    """Look for a server that nobody named: the one that started this process, or that of the home.

    `token_file` is what the environment says, which is stronger.

    Raises:
        OSError: the list of running servers cannot be read.
    """
    if (above := _server_above(home)) is not None:
        return above if token_file is None else replace(above, token_file=token_file)
    path = home / "app-server.sock"
    return ServerAddress(f"unix://{path}", token_file) if path.is_socket() else None


def _server_above(home: Path) -> ServerAddress | None:
    """Return the server with this home that this process runs in, as one of its MCP servers.

    Only on Linux a process between the two is looked through.
    """
    running = {found.entry.pid: found.entry for found in servers_of(home) if found.is_running}
    for above in _ancestors():
        if above in running and (found := running[above].for_clients) is not None:
            url, token_file = found
            return ServerAddress(url, None if token_file is None else Path(token_file), above)
    return None


def _ancestors() -> Iterator[int]:
    parent = os.getppid()
    for _ in range(MAX_ANCESTORS):
        if parent <= 1:
            return
        yield parent
        parent = _parent_of(parent)


def _parent_of(pid: int) -> int:
    """Return the process that a process runs in; 0 where that is not known."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The name before it may hold anything, parentheses too.
        return int(status.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
