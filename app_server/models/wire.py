"""What tells one API of models from another: what is sent, and how the stream is read."""

from collections.abc import Sequence
from typing import Protocol

from app_server.models.interface import ModelEvent
from app_server.runtime.http.event_stream import SseEvent
from protocol.model import JsonObject


class EventReader(Protocol):
    """Reads the stream of one response."""

    def read(self, sse: SseEvent) -> Sequence[ModelEvent]:
        """Read one event; ResponseCompleted comes last of all.

        Raises:
            ModelFailure: the event reports one, or makes no sense.
        """

    def end(self) -> Sequence[ModelEvent]:
        """Take note that the body has ended, and return what completes the response.

        Raises:
            ModelFailure: the response is not complete.
        """


class Wire(Protocol):
    """One API."""

    @property
    def path(self) -> str:
        """Where requests go, behind the base URL of a provider."""

    def begin(self, body: JsonObject) -> tuple[JsonObject, EventReader]:
        """Translate a body of the Responses API; gives what is sent, and who reads the answer."""
