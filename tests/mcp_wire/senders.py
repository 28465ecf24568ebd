"""A sender of HTTP requests that writes down what it is to send, and answers from a list."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app_server.mcp_wire.http.exchange import HttpRequest


@dataclass
class Response:
    """A response, which says how much of it was read, and whether its connection was given back."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    closed: int = 0

    @property
    def at_end(self) -> bool:
        return not self.pieces

    async def receive(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    async def aclose(self) -> None:
        self.closed += 1


@dataclass
class Sender:
    """Answers each request with the next response."""

    responses: list[Response]
    sent: list[HttpRequest] = field(default_factory=list)

    async def send(self, request: HttpRequest) -> Response:
        self.sent.append(request)
        return self.responses[len(self.sent) - 1]
