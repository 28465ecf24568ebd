"""Permissions granted by a user beyond the sandbox, within those asked for. No I/O.

Source: docs/tools.md, "Permissions".
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from app_server.permissions.sandbox.paths import is_in
from app_server.permissions.sandbox.policy import PROTECTED_NAMES, EffectivePolicy
from protocol.turns.policy import (
    AdditionalFileSystemPermissions,
    AdditionalNetworkPermissions,
    PathFileSystemPath,
)

MAX_GRANTED_PATHS = 256
"""Of one thread, for reading and for writing each; with more, the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Paths and the network, granted beyond the sandbox; paths are absolute."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it is none."""
        return self == Grant()

    def within(self, asked: "Grant") -> "Grant":
        """Return the intersection with a request; paths below a requested one are in it.

        Whoever asked to write a place may be granted to read it.
        """
        return Grant(
            read=_within(self.read, (*asked.read, *asked.write)),
            write=_within(self.write, asked.write),
            network=self.network and asked.network,
        )

    def joined(self, other: "Grant") -> "Grant":
        """Return both together, each place once."""
        return Grant(
            read=_newest((*self.read, *other.read)),
            write=_newest((*self.write, *other.write)),
            network=self.network or other.network,
        )

    def widened(self, sandbox_policy: EffectivePolicy) -> EffectivePolicy:
        """Return a sandbox policy widened by the grant; its denials stay.

        In a folder to write in, what other programs run stays protected.
        """
        if not sandbox_policy.is_restricted or self.is_empty:
            return sandbox_policy
        readable, writable = sandbox_policy.readable, sandbox_policy.writable
        protected = (str(PurePosixPath(r, n)) for r in self.write for n in PROTECTED_NAMES)
        return replace(
            sandbox_policy,
            readable=None if readable is None else (*readable, *self.read, *self.write),
            writable=None if writable is None else (*writable, *self.write),
            protected=(*sandbox_policy.protected, *protected),
            # Whoever has the proxy has a network: what it keeps away was kept away on purpose.
            network=sandbox_policy.network or (self.network and sandbox_policy.proxy is None),
        )


def granted(
    files: AdditionalFileSystemPermissions | None, network: AdditionalNetworkPermissions | None
) -> Grant:
    """Read a grant as the wire has it; entries for patterns and special places are left out."""
    read, write = [], []
    if files is not None:
        read += files.read or []
        write += files.write or []
        for entry in files.entries or ():
            if isinstance(entry.path, PathFileSystemPath) and entry.access != "deny":
                (write if entry.access == "write" else read).append(entry.path.path)
    return Grant(
        read=_newest(map(_plain, read)),
        write=_newest(map(_plain, write)),
        network=network is not None and network.enabled is True,
    )


def _within(places: Iterable[str], named: Iterable[str]) -> tuple[str, ...]:
    folders = tuple(named)
    return tuple(place for place in places if any(is_in(place, folder) for folder in folders))


def _newest(places: Iterable[str]) -> tuple[str, ...]:
    absolute = (place for place in places if place.startswith("/") and ".." not in place.split("/"))
    return tuple(dict.fromkeys(absolute))[-MAX_GRANTED_PATHS:]


def _plain(path: str) -> str:
    return str(PurePosixPath(path))
