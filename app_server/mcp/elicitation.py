"""Questions that a server puts to the user, and the clocks that stop while one is open.

Source: MCP 2025-06-18, "Elicitation"; docs/mcp.md, "Questions of servers".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio
from pydantic_core import to_json

from app_server.mcp_wire.errors import BadQuestion
from app_server.runtime.pausable_timeouts import PausableTimeouts
from protocol.model import JsonObject

MAX_OPEN_QUESTIONS = 16
"""Of one server; what it asks beyond that is cancelled at once."""

MAX_QUESTION_BYTES = 256 * 1024
"""Of one question as JSON; so many can be open that together they still fit into a client."""

CANCELLED: JsonObject = {"action": "cancel"}
DECLINED: JsonObject = {"action": "decline"}


def check_size(params: JsonObject) -> None:
    """Refuse a question that is larger than any form is.

    Raises:
        BadQuestion: it has more than MAX_QUESTION_BYTES.
    """
    if len(to_json(params, inf_nan_mode="null")) > MAX_QUESTION_BYTES:
        raise BadQuestion(f"a question may have at most {MAX_QUESTION_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """One `elicitation/create` request."""

    server: str
    params: JsonObject
    """As the server sent them."""
    turn_id: str | None
    """Of the call that led to it, or of the newest that runs; None without a turn or a call."""


class ElicitationPort(Protocol):
    """The port that brings elicitations to the user."""

    async def elicit(self, question: ServerQuestion) -> JsonObject:
        """Ask, and return the result for the server: `action`, perhaps `content` and `_meta`.

        Waits without limit. Cancelling withdraws the question.

        Raises:
            BadQuestion: it makes no sense.
        """


class RunningCalls:
    """The calls of one server, their timeouts, and how many questions of it are open."""

    def __init__(self) -> None:
        self.timeouts = PausableTimeouts()
        self._turn_ids: dict[anyio.CancelScope, str | None] = {}
        """Turns of the calls that run, in the order in which they began."""
        self._open_questions = 0

    @contextmanager
    def run(self, turn_id: str | None, timeout_s: float) -> Iterator[anyio.CancelScope]:
        """Count a call as running, until the context ends or its time is over.

        Only the time counts in which no question is open.
        """
        scope = self.timeouts.begin(timeout_s)
        self._turn_ids[scope] = turn_id
        try:
            with scope:
                yield scope
        finally:
            del self._turn_ids[scope]
            self.timeouts.end(scope)

    @property
    def newest_turn_id(self) -> str | None:
        """Turn of the newest running call; None without a turn or a call."""
        return next(reversed(self._turn_ids.values()), None)

    @property
    def may_ask(self) -> bool:
        """Whether one more question may be open."""
        return self._open_questions < MAX_OPEN_QUESTIONS

    @contextmanager
    def question(self) -> Iterator[None]:
        """Pause the timeouts of all running calls for as long as the context lasts."""
        self._open_questions += 1
        self.timeouts.pause()
        try:
            yield
        finally:
            self._open_questions -= 1
            self.timeouts.resume()
