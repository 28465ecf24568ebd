"""What a bridge is beside its ledger: a name, a stream to the router, a surface.

Source: docs/receiver.md, "Tools".
"""

from collections.abc import Callable

from app_server.clients.receiver.agent.surface import CodexSurface
from app_server.clients.receiver.router.envelope import Envelope
from app_server.clients.receiver.router.session_stream import NotSent, SessionStream
from protocol.model import JsonObject


class BridgeSession:
    """One session's place."""

    def __init__(
        self,
        session: str,
        stream: SessionStream | None,
        surface: CodexSurface,
        now: Callable[[], int],
    ) -> None:
        """Without a stream there is no router. `now` gives Unix seconds."""
        self.session = session
        self.now = now
        self._stream = stream
        self._surface = surface
        self.is_in_charge = False
        """Whether this process has the session; others of the same session only show signals."""

    def tools_were_listed(self) -> None:
        """Hear that the agent has the receiver's tools."""
        self._surface.tools_were_listed()

    async def send(self, envelope: Envelope) -> None:
        """Send a signal to another session.

        Raises:
            NotSent
        """
        if self._stream is None:
            raise NotSent("no router is configured")
        if not self.is_in_charge:
            raise NotSent("another receiver has this session")
        await self._stream.send(envelope)

    def status(self) -> JsonObject:
        """Say how it stands; no keys, no addresses."""
        if self._stream is None:
            router = "none"
        elif not self.is_in_charge:
            router = "standby"
        else:
            router = "connected" if self._stream.is_open else "unreachable"
        return {
            "session": self.session,
            "router": router,
            "app_server": "connected" if self._surface.is_connected else "none",
            "thread_id": self._surface.thread_id,
        }
