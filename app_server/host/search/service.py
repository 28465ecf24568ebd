"""File searches: single ones, and sessions that follow the typing of a user.

Source: docs/tools.md, "Host methods".
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TypeAlias

import anyio
import anyio.abc

from app_server.host.files.work import FileWork, PathRefused, Stop, Stopped
from app_server.host.search.listing import Listing, Listings, RootListing
from app_server.host.search.ranking import Match, rank
from app_server.observability.log_context import start_apart

logger = logging.getLogger(__name__)

MAX_SESSIONS = 16
"""Of one owner."""

MAX_ROOTS = 32
"""Of one search."""

Owner: TypeAlias = Hashable
Matches: TypeAlias = Sequence[Match]
OnMatches: TypeAlias = Callable[[str, Matches], None]
"""Takes a query and what fits it so far."""


class SearchSession:
    """One search that goes on while a user types."""

    def __init__(
        self,
        roots: Sequence[RootListing],
        on_matches: OnMatches,
        on_complete: Callable[[], None],
    ) -> None:
        """Search `roots`; `run` does the work."""
        self._roots = roots
        self._on_matches, self._on_complete = on_matches, on_complete
        self._loop = asyncio.get_running_loop()
        self._query = ""
        self._changed = anyio.Event()
        self._changed.set()
        self._stop = Stop()
        self._scope = anyio.CancelScope()

    def update(self, query: str) -> None:
        """Search for something else from now on; never waits."""
        self._query = query
        self._stop.set()
        self._changed.set()

    def end(self) -> None:
        """Stop the search and its notifications."""
        self._scope.cancel()

    async def run(self, work: FileWork) -> None:
        """Search until the session is ended."""
        with self._scope:
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                self._stop = Stop()
                await self._search(work, self._query)

    async def _search(self, work: FileWork, query: str) -> None:
        try:
            await work.run(partial(self._work, query, self._stop))
        except Stopped:
            return
        except Exception:
            # One search must not end the server; the session goes on with its next query.
            logger.exception("a search failed")
        if query == self._query:
            self._on_complete()

    def _work(self, query: str, superseded: Stop, ended: Stop) -> None:
        stop = _Either(superseded, ended)
        listings = [root.listing for root in self._roots]
        shown: Matches | None = None
        if None not in listings:
            shown = self._rank(query, listings, stop)
            self._notify(query, shown)
            if not query:
                return
        # A first list is made to its end, also for the queries to come.
        fresh = [
            root.refresh(ended if listing is None else stop, partial(self._show, ended))
            for root, listing in zip(self._roots, listings, strict=True)
        ]
        if fresh != listings or shown is None:
            found = self._rank(query, fresh, stop)
            if found != shown:
                self._notify(query, found)

    def _show(self, stop: Stop, listing: Listing) -> None:
        query = self._query
        if query and (found := rank(query, [listing], stop)):
            self._notify(query, found)

    def _rank(self, query: str, listings: Sequence[Listing | None], stop: Stop) -> Matches:
        present = [listing for listing in listings if listing is not None]
        return rank(query, present, stop) if query else ()

    def _notify(self, query: str, matches: Matches) -> None:
        self._loop.call_soon_threadsafe(self._on_loop, query, matches)

    def _on_loop(self, query: str, matches: Matches) -> None:
        if query == self._query and not self._scope.cancel_called:
            self._on_matches(query, matches)


class _Either(Stop):
    """Is set when one of two is."""

    def __init__(self, one: Stop, other: Stop) -> None:
        super().__init__()
        self._both = one, other

    def check(self) -> None:
        """Go on, or raise Stopped."""
        for stop in self._both:
            stop.check()


class FileSearch:
    """All searches of one server."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        """`tasks` owns the sessions."""
        self._tasks = tasks
        self._work = FileWork()
        self._listings = Listings()
        self._sessions: dict[Owner, dict[str, SearchSession]] = {}
        self._singles: dict[tuple[Owner, str], Stop] = {}

    async def search(
        self, query: str, roots: Sequence[str], owner: Owner, token: str | None
    ) -> Matches:
        """Search once; an earlier search of the same owner and token ends without results.

        Raises:
            PathRefused: there are too many roots.
        """
        _check(roots)
        superseded = Stop()
        if token is not None:
            if (earlier := self._singles.get((owner, token))) is not None:
                earlier.set()
            self._singles[owner, token] = superseded
        try:
            found = self._listings.of(roots)

            def work(ended: Stop) -> Matches:
                stop = _Either(superseded, ended)
                fresh = [root.refresh(stop) for root in found]
                return rank(query, fresh, stop)

            return await self._work.run(work) if query else ()
        except Stopped:
            return ()
        finally:
            if token is not None and self._singles.get((owner, token)) is superseded:
                del self._singles[owner, token]

    def start(
        self,
        owner: Owner,
        session_id: str,
        roots: Sequence[str],
        on_matches: OnMatches,
        on_complete: Callable[[], None],
    ) -> None:
        """Begin a session, in place of the owner's one of this id.

        Raises:
            PathRefused: there are too many roots or sessions.
        """
        _check(roots)
        self.stop(owner, session_id)
        of_owner = self._sessions.setdefault(owner, {})
        if len(of_owner) >= MAX_SESSIONS:
            raise PathRefused(f"a connection has at most {MAX_SESSIONS} search sessions")
        found = self._listings.of(roots)
        session = SearchSession(found, on_matches, on_complete)
        of_owner[session_id] = session
        start_apart(self._tasks, session.run, self._work)

    def update(self, owner: Owner, session_id: str, query: str) -> bool:
        """Search for something else in a session; False if there is none of this id."""
        session = self._sessions.get(owner, {}).get(session_id)
        if session is not None:
            session.update(query)
        return session is not None

    def stop(self, owner: Owner, session_id: str) -> None:
        """End a session; there may be none of this id."""
        of_owner = self._sessions.get(owner, {})
        if (session := of_owner.pop(session_id, None)) is not None:
            session.end()
        if not of_owner:
            self._sessions.pop(owner, None)

    def stop_all(self, owner: Owner) -> None:
        """End all sessions of an owner."""
        for session in self._sessions.pop(owner, {}).values():
            session.end()

    @property
    def sessions(self) -> int:
        """Sessions of all clients."""
        return sum(map(len, self._sessions.values()))


def _check(roots: Sequence[str]) -> None:
    if len(roots) > MAX_ROOTS:
        raise PathRefused(f"a search has at most {MAX_ROOTS} roots")
