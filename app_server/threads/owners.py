"""Owners of threads: which server of a group writes each, and where the others reach it.

Source: docs/scale.md, "How nodes reach one another".
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Owner:
    """A server that lives and writes a thread."""

    node_id: str
    address: str | None
    """Where other nodes reach it; None: they do not."""


class ThreadOwners(Protocol):
    """Owners of the threads of a database, seen by one of its servers."""

    @property
    def node_id(self) -> str:
        """Id of this server."""

    def now_s(self) -> float:
        """Return the seconds of the database's clock, which all its servers share; no I/O."""

    async def owner(self, thread_id: str) -> Owner | None:
        """Return the owner of a thread, this server included; None: none lives, or no such thread.

        Raises:
            OSError: the database cannot be asked.
        """
