"""The hosted endpoint of the demo with somebody who sees every request first."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app_server.clients.demo.hosted.endpoint import (
    MAX_REQUEST_BYTES,
    HostedConnector,
    HostedEndpoint,
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request before it is looked at."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)
    """Names are in lower case."""
    body: bytes = field(repr=False)
    """Empty unless it is JSON."""


Hook = Callable[[Arrival], Awaitable[Response | None]]
"""Sees every request first; may wait, and may answer in place of the endpoint."""


class HookedEndpoint(HostedEndpoint):
    """The endpoint, behind a hook."""

    def __init__(self, connectors: Sequence[HostedConnector] | None, hook: Hook) -> None:
        super().__init__(connectors)
        self.hook = hook

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        receive, body = await _read_ahead(scope, receive)
        answer = await self.hook(_arrival(scope, body))
        await (answer or super().__call__)(scope, receive, send)


def _arrival(scope: Scope, body: bytes) -> Arrival:
    return Arrival(
        scope["method"],
        scope["path"],
        scope["query_string"].decode("latin-1"),
        {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        body,
    )


async def _read_ahead(scope: Scope, receive: Receive) -> tuple[Receive, bytes]:
    """Read a JSON body, and return it with what receives it once more."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if not kind.startswith(b"application/json"):
        return receive, b""
    messages: list[Message] = []
    body = b""
    while len(body) <= MAX_REQUEST_BYTES:
        message = await receive()
        messages.append(message)
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return again, body
