"""The servers of a group: which there are, which writes a thread, whether this one may go on.

A server that keeps threads in files has no group.
Source: docs/scale.md, "Nodes".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import anyio

from app_server.config.store_url import LEASE_S
from app_server.threads.failures import Holder


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a server is to its group, for as long as it runs."""

    lease_s: int = LEASE_S
    """Seconds that its lease lasts."""
    address: str | None = None
    """URL for others, at which its group reaches it."""
    is_reached: bool = False
    """Whether its group does: then no two have one address."""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A server of the group, as the group sees it."""

    id: str
    """A new one with each start, and after it was taken for dead."""
    host: str
    holder: Holder
    """Its process, its start and its address."""
    version: str
    settings_digest: str
    """Differs between nodes whose settings differ; empty until it is known."""
    is_dead: bool
    """Whether its threads are anybody's, for good."""
    lease_left_s: float
    """Seconds by the store's clock; below 0 where it could not renew, or is not alive."""
    threads: int
    """Threads that it writes."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A server that lives and writes a thread."""

    node_id: str
    address: str | None
    """Where other nodes reach it; None: they do not."""


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """The lease of this server ended: so must what it does, as others may take over."""


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """The lease of this server is there again, and its threads are still its own."""


@dataclass(frozen=True, slots=True)
class ThreadsLost:
    """Others write threads that are loaded here, or may do so at any time.

    The logs of these say so (LiveThread.is_lost), and not those of threads that were taken since.
    """


LeaseNews: TypeAlias = LeaseEnded | LeaseRenewed | ThreadsLost


ALONE = NodeSettings()
"""A server that others need not find."""


class ThreadOwners(Protocol):
    """The servers that write the threads of a store."""

    @property
    def own_id(self) -> str:
        """The id that this server has now."""

    @property
    def next_death(self) -> anyio.Event:
        """An event that is set when the next server is known to be dead.

        Whoever finds a thread busy waits for the one that was there before the look.
        """

    def now_s(self) -> float:
        """Return the seconds of the store's clock, which all servers share; no I/O."""

    async def owner(self, thread_id: str) -> Owner | None:
        """Return the owner of a thread, this server included; None: none lives, or no such thread.

        Raises:
            OSError: the store cannot be asked.
        """


class Nodes(ThreadOwners, Protocol):
    """The servers that share a store, and the lease of this one."""

    @property
    def is_held(self) -> bool:
        """Whether this server has its lease: nobody else writes its threads."""

    async def all(self) -> Sequence[Node]:
        """Return the nodes, in the order in which they came; dead ones while they have threads.

        Raises:
            OSError: the store cannot be asked.
        """

    async def require_lease(self) -> None:
        """Wait for a renewal that is due, before something begins that must not begin twice.

        Raises:
            OwnershipLost: the lease has ended.
        """

    async def news(self) -> LeaseNews:
        """Wait for a change that this server must act upon; for one caller."""

    async def announce_settings(self, digest: str) -> None:
        """Show the digest of this server's settings to who compares those of nodes.

        Raises:
            OSError: the store cannot be asked.
        """

    async def loaded_elsewhere(self, after: str | None, limit: int) -> Sequence[str]:
        """Return threads that other servers of the group write, those begun first at first.

        `after` is a thread that is stored: those begun before it, and it, are left out.

        Raises:
            ThreadNotFound, InvalidThreadId: `after` is none.
            OSError: the store cannot be asked.
        """

    async def left_behind(self) -> Sequence[str]:
        """Return threads with an open turn or waiting input whose node is dead.

        Raises:
            OSError: the store cannot be asked.
        """
