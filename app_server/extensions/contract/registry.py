"""The contributors of a process, asked whenever a thread resolves its servers.

A contributor that fails contributes nothing and hurts nobody else.
Source: docs/extensions.md, "Contributors".
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import anyio

from app_server.extensions.contract.registration import (
    ApprovalPersistence,
    ContributionContext,
    Contributor,
    LateContributor,
    Registration,
)
from app_server.extensions.contract.turns import InstallCheck, TurnExtension, TurnExtensions

logger = logging.getLogger(__name__)

MAX_REGISTRATIONS = 1024
"""Of one contributor; those behind them are dropped."""

REFRESH_S = 45.0
"""For all contributors to look anew; what they have then is what counts."""

PersistApproval: TypeAlias = Callable[[Sequence[str]], Awaitable[None]]
"""Writes down that the tool at a path may run without asking; raises OSError if it cannot."""


class UnknownTarget(Exception):
    """No extension has registered the target of an approval."""


@dataclass(frozen=True, slots=True)
class Contributions:
    """Registrations of all contributors, with the revisions that they are of."""

    revisions: tuple[int, ...]
    registrations: Sequence[Registration]
    """In the order of the contributors; of two in one tier with one name the later one counts."""


class ExtensionRegistry:
    """Registry of extensions, in their order: contributors, parts in turns, checks of installs.

    Who writes down lasting approvals is known by target.
    """

    def __init__(
        self,
        contributors: Sequence[Contributor] = (),
        persisters: Mapping[str, PersistApproval] = MappingProxyType({}),
        in_turns: Sequence[TurnExtension] = (),
        install_checks: Sequence[InstallCheck] = (),
        late: Sequence[LateContributor] = (),
    ) -> None:
        """Register contributors; ids must differ. Those of `late` join when they run."""
        if len({contributor.id for contributor in contributors}) != len(contributors):
            raise ValueError("two contributors have one id")
        self._contributors = tuple(contributors)
        self._late = tuple(late)
        self._joins = 0
        self._persisters = dict(persisters)
        self._install_checks = tuple(install_checks)
        self.in_turns = TurnExtensions(in_turns)

    @contextmanager
    def joined(self, contributor: Contributor, in_turns: TurnExtension) -> Iterator[None]:
        """Ask a contributor and its part in turns too, behind all others, while the context lasts.

        Raises:
            ValueError: another contributor has its id.
        """
        if contributor.id in {one.id for one in self._contributors}:
            raise ValueError("two contributors have one id")
        self._contributors = (*self._contributors, contributor)
        self._joins += 1
        try:
            with self.in_turns.joined(in_turns):
                yield
        finally:
            self._contributors = tuple(one for one in self._contributors if one is not contributor)

    def revisions(self) -> tuple[int, ...]:
        """Return the count of joins, then the revision of each contributor."""
        return self._joins, *map(_revision, self._contributors)

    def contributions(self, context: ContributionContext) -> Contributions:
        """Ask every contributor; never waits.

        Revisions are taken first: whoever publishes meanwhile is asked again the next time.
        """
        revisions = self.revisions()
        registrations: list[Registration] = []
        for contributor in self._contributors:
            try:
                contributed = list(contributor.contribute(context))
            except Exception:
                logger.exception("contributor %s failed", contributor.id)
                continue
            if len(contributed) > MAX_REGISTRATIONS:
                dropped = len(contributed) - MAX_REGISTRATIONS
                logger.warning("contributor %s: %d servers too many", contributor.id, dropped)
            registrations += contributed[:MAX_REGISTRATIONS]
        return Contributions(revisions, registrations)

    async def discovered(self, context: ContributionContext) -> None:
        """Wait until every contributor knows its servers for a thread; the caller bounds it."""
        late_ids = {late.id for late in self._late}
        async with anyio.create_task_group() as tasks:
            for contributor in self._contributors:
                if contributor.id not in late_ids:
                    tasks.start_soon(_discovered, contributor, context)
            for late in self._late:
                tasks.start_soon(self._discovered_late, late, context)

    async def _discovered_late(self, late: LateContributor, context: ContributionContext) -> None:
        try:
            # First: what it finds out may change what the contributor has.
            await late.join(context)
        except Exception:
            logger.exception("contributor %s cannot be started", late.id)
        for contributor in self._contributors:
            if contributor.id == late.id:
                await _discovered(contributor, context)

    def looking_since(self, context: ContributionContext) -> float | None:
        """Return the start, in loop seconds, of the newest look that still runs; None: no look."""
        began = (_looking_since(contributor, context) for contributor in self._contributors)
        return max((since for since in began if since is not None), default=None)

    async def refresh(self, context: ContributionContext, *, refresh_s: float = REFRESH_S) -> None:
        """Refresh every contributor, side by side, for at most `refresh_s`."""
        with anyio.move_on_after(refresh_s) as limit:
            async with anyio.create_task_group() as tasks:
                for contributor in self._contributors:
                    tasks.start_soon(_refresh, contributor, context)
        if limit.cancelled_caught:
            logger.warning("contributors did not look anew within %g s", refresh_s)

    async def verify_install(self, app_ids: Sequence[str], context: ContributionContext) -> bool:
        """Whether no check misses an app that a plugin declares.

        A check that fails counts as one that misses something.
        """
        for check in self._install_checks:
            try:
                if await check.verify_install(app_ids, context) is False:
                    return False
            except Exception:
                logger.exception("an install could not be verified")
                return False
        return True

    async def persist_approval(self, where: ApprovalPersistence) -> None:
        """Write down that a tool may run without asking.

        Raises:
            UnknownTarget: nobody has registered for it.
            OSError: it cannot be written.
        """
        persist = self._persisters.get(where.target)
        if persist is None:
            raise UnknownTarget(where.target)
        await persist(where.path)


def _revision(contributor: Contributor) -> int:
    try:
        return contributor.revision()
    except Exception:
        logger.exception("contributor %s does not know its revision", contributor.id)
        return 0


async def _discovered(contributor: Contributor, context: ContributionContext) -> None:
    try:
        await contributor.discovered(context)
    except Exception:
        logger.exception("contributor %s failed", contributor.id)


def _looking_since(contributor: Contributor, context: ContributionContext) -> float | None:
    try:
        return contributor.looking_since(context)
    except Exception:
        logger.exception("contributor %s does not know since when it looks", contributor.id)
        return None


async def _refresh(contributor: Contributor, context: ContributionContext) -> None:
    try:
        await contributor.refresh(context)
    except Exception:
        logger.exception("contributor %s could not look anew", contributor.id)
