"""Wire of one API of models: the body of requests, and the reader of the event stream."""

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
        """End reading with the body, and return the events that complete the response.

        Raises:
            ModelFailure: the response is not complete.
        """


class Wire(Protocol):
    """One API."""

    @property
    def path(self) -> str:
        """Path of requests, behind the base URL of a provider."""

    def begin(self, body: JsonObject) -> tuple[JsonObject, EventReader]:
        """Translate a body of the Responses API; gives what is sent, and who reads the answer."""
