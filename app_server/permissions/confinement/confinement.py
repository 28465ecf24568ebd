"""Confinement of a process, or of a tool that touches files for the model: one value for all.

Source: docs/tools.md, "Sandbox".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app_server.permissions.confinement.paths import depth_of, expression, folded, is_in
from app_server.permissions.confinement.pinned_places import Identity, PinnedPlaces
from app_server.permissions.network.policy import NetworkPolicy

Access: TypeAlias = Literal["write", "read", "none"]
"""Access to a place: `write` includes reading, `none` is neither."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """Absolute paths, without symbolic links; a folder stands for all that is in it.

    Of the places that a path is in, the deepest decides. Of two entries for the same place the
    first of denied, protected, writable, readable does.
    """

    readable: tuple[str, ...] | None = None
    """None: everything that the user may read."""
    writable: tuple[str, ...] | None = None
    """None: everything that the user may write."""
    protected: tuple[str, ...] = ()
    """Inside of writable folders, and yet only readable; it may be that nothing is there."""
    denied: tuple[str, ...] = ()
    """Neither readable nor writable."""
    denied_patterns: tuple[str, ...] = ()
    """Globs of denied places and all that is in them, whatever lies deeper; `*`, `**` and `?` as
    in `expression`, from the root."""
    scratch: tuple[str, ...] = ()
    """Folders that a process gets empty and to itself; what it writes there ends with it."""
    network: bool = True
    """Whether the network is reached as by any other process."""
    proxy: NetworkPolicy | None = None
    """Without `network`: the hosts that are reached through the server's proxy; None: none."""
    pinned: PinnedPlaces = field(default_factory=PinnedPlaces, compare=False, repr=False)
    """Places of its folders, pinned as they were when they were named."""
    identities: Mapping[str, Identity] = field(default_factory=dict, compare=False, repr=False)
    """Of a resolved one: what its folders are, by path."""

    @property
    def is_confined(self) -> bool:
        """Whether there is anything that it keeps from a process."""
        return self != UNCONFINED

    def access(self, path: str) -> Access:
        """Say what may be done with a path that is absolute and has no links, `.` or `..`."""
        return Ruling(self).access(path)


UNCONFINED = Confinement()
"""Confinement to nothing: all that the user of the server may do."""


class Ruling:
    """A confinement that many paths are asked about; it is prepared once."""

    def __init__(self, confinement: Confinement) -> None:
        self.confinement = confinement
        self._patterns = [expression(one) for one in confinement.denied_patterns]
        everywhere = ("/",)
        self._places: Sequence[tuple[Sequence[str], Access]] = (
            (confinement.denied, "none"),
            (confinement.protected, "read"),
            (everywhere if confinement.writable is None else confinement.writable, "write"),
            (everywhere if confinement.readable is None else confinement.readable, "read"),
        )

    def access(self, path: str) -> Access:
        """Say what may be done with a path that is absolute and has no links, `.` or `..`."""
        if self._patterns and any(
            pattern.fullmatch(above) for above in _ways(folded(path)) for pattern in self._patterns
        ):
            return "none"
        found: Access = "none"
        depth = -1
        for rank, (places, access) in enumerate(self._places):
            # Where names differ in case alone a prohibition is for both.
            looked_at = folded(path) if rank < 2 else path
            for place in places:
                there = folded(place) if rank < 2 else place
                if is_in(looked_at, there) and depth_of(place) > depth:
                    found, depth = access, depth_of(place)
        return found


def _ways(path: str) -> Iterator[str]:
    yield path
    end = len(path)
    while (end := path.rfind("/", 0, end)) > 0:
        yield path[:end]
