"""Lists of roots that were searched, kept for a while and brought up to date before they are used.

Source: docs/tools.md, "Host methods".
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from app_server.host.files.work import Stop
from app_server.host.search.listing import Listing
from app_server.host.search.tree import Tree

MAX_KEPT = 4
"""Roots whose lists are kept; the one that was searched least recently is dropped first."""

KEPT_S = 600.0
"""For which a list is kept after its last use."""

FIRST_PARTIAL_S = 0.01
PARTIAL_GROWTH = 4.0
"""A list that is made is shown after this long, and then each time this much later."""

OnPartial: TypeAlias = Callable[[Listing], None]
"""Takes what was found so far, in a worker thread."""


@dataclass(slots=True)
class _Partials:
    """Shows a list while it is made, ever more rarely."""

    show: Callable[[], None]
    wait_s: float = FIRST_PARTIAL_S
    began: float = field(default_factory=time.monotonic)

    def after_folder(self) -> None:
        """Show it if it is time."""
        if time.monotonic() - self.began >= self.wait_s:
            self.wait_s *= PARTIAL_GROWTH
            self.show()


class RootListing:
    """The list of one root."""

    def __init__(self, root: str) -> None:
        """Read nothing yet; `root` is how it is called in results."""
        self.root = root
        self.listing: Listing | None = None
        """As it was when it was looked at last; None before."""
        self._tree = Tree(Path(os.path.abspath(root)))  # noqa: PTH100
        self._reading = threading.Lock()

    def refresh(self, stop: Stop, on_partial: OnPartial | None = None) -> Listing:
        """Bring the list up to date and return it; blocks.

        `on_partial` is shown a first list while it is made.

        Raises:
            Stopped: nobody waits any more.
        """
        with self._reading:
            if self.listing is None and on_partial is not None:
                show = _Partials(lambda: on_partial(self._read()))
                changed = self._tree.refresh(stop, show.after_folder)
            else:
                changed = self._tree.refresh(stop)
            if changed or self.listing is None:
                self.listing = self._read()
            return self.listing

    def _read(self) -> Listing:
        return Listing(self.root, self._tree.folders())


class Listings:
    """The lists of one server. Used from its event loop."""

    def __init__(self) -> None:
        self._kept: dict[str, RootListing] = {}
        """The one that was used last is the last."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def of(self, roots: Sequence[str]) -> Sequence[RootListing]:
        """Return the lists of roots, each once; they may be out of date."""
        found = []
        for root in dict.fromkeys(roots):
            listing = self._kept.pop(root, None) or RootListing(root)
            self._kept[root] = listing
            found.append(listing)
            if root in self._timers:
                self._timers.pop(root).cancel()
            loop = asyncio.get_running_loop()
            self._timers[root] = loop.call_later(KEPT_S, self._drop, root)
        while len(self._kept) > MAX_KEPT:
            self._drop(next(iter(self._kept)))
        return found

    def close(self) -> None:
        """Forget all."""
        for root in list(self._kept):
            self._drop(root)

    def _drop(self, root: str) -> None:
        self._kept.pop(root, None)
        if (timer := self._timers.pop(root, None)) is not None:
            timer.cancel()
