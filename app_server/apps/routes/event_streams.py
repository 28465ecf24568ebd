"""The streams on which clients listen for what the server asks: one for each MCP session.

Source: MCP 2025-06-18, "Listening for Messages from the Server".
"""

import anyio


class OpenStreams:
    """Which sessions have a stream open."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._changed = anyio.Event()

    def opened(self, session_id: str) -> None:
        """Note that a session listens."""
        self._open.add(session_id)
        self._changed.set()
        self._changed = anyio.Event()

    def closed(self, session_id: str) -> None:
        """Note that it does not any more."""
        self._open.discard(session_id)

    async def wait_for(self, session_id: str) -> None:
        """Wait until a session listens; without a time limit."""
        while session_id not in self._open:
            await self._changed.wait()
