"""The servers that run with a store: their entries, and the door to the list of them.

Source: docs/operations.md, "Which servers run".
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

EVERY_ADDRESS = {"ws://0.0.0.0:": "ws://127.0.0.1:", "ws://[::]:": "ws://[::1]:"}
"""Loopback address for each wildcard address, as URL prefixes."""


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """Entry of a running server: its process, version, addresses and token file."""

    pid: int
    version: str
    started_at: int
    """Unix seconds of the start of the process."""
    addresses: Sequence[str]
    """URLs for clients; none for a server that is part of another program."""
    token_file: str | None = None
    """Has the token that clients of `ws://` addresses need."""

    @property
    def for_clients(self) -> tuple[str, str | None] | None:
        """The address for clients on this machine, a Unix socket first, and its token file.

        None for a server without an address; no file where none is wanted, or another made it.
        """
        for address in self.addresses:
            if address.startswith("unix://"):
                # It wants no token.
                return address, None
        for address in self.addresses:
            if address.startswith("ws://"):
                for every, here in EVERY_ADDRESS.items():
                    address = address.replace(every, here, 1)
                return address, self.token_file
        return None


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A file of a server."""

    entry: ServerEntry
    is_running: bool
    """False: it was killed."""


class RunningServers(Protocol):
    """The list of servers that run with a store. Blocks."""

    def announced(self, entry: ServerEntry) -> AbstractContextManager[None]:
        """Keep the entry of a server while it runs."""

    def all(self) -> Sequence[FoundServer]:
        """Return the servers, running ones first, then by their start.

        Raises:
            OSError: the list cannot be read.
        """
