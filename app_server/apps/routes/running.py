"""What runs in a generation, so that all of it can be ended together.

Source: docs/apps.md, "Local routes".
"""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

ENDED = "these app servers have been shut down"


class Running:
    """The pieces of work that are under way."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._ended = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count the context as work.

        Raises:
            MCPError: -32603, all work was ended before or meanwhile.
        """
        if self._ended:
            raise MCPError(INTERNAL_ERROR, ENDED)
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise MCPError(INTERNAL_ERROR, ENDED)

    def end(self) -> None:
        """Cancel all work, and let none begin."""
        self._ended = True
        for scope in self._scopes:
            scope.cancel()
