"""No descriptor is left for what a proxy wants to take: it is tried again, and logged once.

Source: docs/tools.md, "Network through a proxy".
"""

import logging

import anyio

from app_server.runtime.open_files import limit

logger = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Between tries."""


class Shortage:
    """What waits, for as long as its command runs."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_logged = False

    async def pause(self, why: str) -> None:
        """Wait for the next try; the first one is logged."""
        if not self._is_logged:
            self._is_logged = True
            bound = limit()
            allowed = "any number of" if bound is None else bound
            logger.warning(
                "%s: %s; this process may have %s files and sockets open (ulimit -n)",
                self._what,
                why,
                allowed,
            )
        await anyio.sleep(PAUSE_S)
