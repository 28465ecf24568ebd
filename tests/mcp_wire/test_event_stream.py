"""mcp: the events of one response."""

from collections.abc import Mapping

import pytest

from app_server.mcp_wire.http.transport import EventStream, Inbox
from app_server.runtime.loop_share import LoopShare
from tests.support.event_loop.turns import counted_turns


class Received:
    """A response whose body came as one piece."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, body: bytes) -> None:
        self._pieces = [body, b""]

    @property
    def at_end(self) -> bool:
        return not self._pieces

    async def receive(self) -> bytes:
        return self._pieces.pop(0)

    async def aclose(self) -> None:
        """Give nothing back."""


@pytest.mark.parametrize(
    ("event", "events"),
    [(b"event:a\ndata:b\n\n", 30_000), (b"data:{}\n\n", 5_000), (b"\n", 300_000)],
)
async def test_others_run_while_very_many_events_are_read(event: bytes, events: int) -> None:
    stream = EventStream(Inbox(), LoopShare())
    response = Received(event * events)
    async with counted_turns() as turns:
        is_answered = await stream.relay(response)
    assert (is_answered, response.at_end, turns.count > 10) == (False, True, True)
