"""An extension for tests: servers that are put on a shelf, and generations that own them."""

from collections.abc import Sequence

from app_server.extensions.contract.registration import (
    ContributionContext,
    Lease,
    Owner,
    Registration,
)


class Shelf:
    """A contributor that registers what it is given, and notes what it is asked."""

    def __init__(self, id_: str = "shelf", *registrations: Registration) -> None:
        self.id = id_
        self.registrations: Sequence[Registration] = registrations
        self.asked: list[ContributionContext] = []
        self.refreshed: list[ContributionContext] = []
        self._revision = 0

    def publish(self, *registrations: Registration) -> None:
        """Put others in the place of what there is."""
        self.registrations = registrations
        self._revision += 1

    def revision(self) -> int:
        """Return how often there was something new."""
        return self._revision

    def contribute(self, context: ContributionContext) -> Sequence[Registration]:
        """Return what is on the shelf."""
        self.asked.append(context)
        return self.registrations

    async def discovered(self, context: ContributionContext) -> None:
        """Return at once."""

    def looking_since(self, context: ContributionContext) -> float | None:
        """Return None: no look takes time."""
        return None

    async def refresh(self, context: ContributionContext) -> None:
        """Note the question."""
        self.refreshed.append(context)


class Generation(Owner):
    """An owner that counts its leases."""

    def __init__(self, id_: str) -> None:
        super().__init__(id_)
        self.leases = 0
        self.taken = 0

    def lease(self) -> Lease:
        """Count one more."""
        self.leases += 1
        self.taken += 1
        return _Lease(self)


class _Lease:
    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def release(self) -> None:
        self._generation.leases -= 1
