"""Questions that a server puts to the user, and the clocks that stop while one is open.

Source: MCP 2025-06-18, "Elicitation"; docs/mcp.md, "Questions of servers".
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio
from pydantic_core import to_json

from app_server.mcp_wire.errors import BadQuestion
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


class RunningCall:
    """One call that runs: its deadline counts only the time in which no question is open."""

    def __init__(self, turn_id: str | None, timeout_s: float, now: Callable[[], float]) -> None:
        self.turn_id = turn_id
        self.scope = anyio.CancelScope(deadline=now() + timeout_s)
        self._now = now
        self._left_s = timeout_s

    def pause(self) -> None:
        """Stop the clock."""
        self._left_s = self.scope.deadline - self._now()
        self.scope.deadline = float("inf")

    def resume(self) -> None:
        """Resume the timeout."""
        self.scope.deadline = self._now() + self._left_s


class RunningCalls:
    """The calls of one server, and how many questions of it are open."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        self._now = now
        self._calls: list[RunningCall] = []
        self._open_questions = 0
        self._pauses = 0

    @contextmanager
    def run(self, turn_id: str | None, timeout_s: float) -> Iterator[RunningCall]:
        """Count a call as running for as long as the context lasts."""
        call = RunningCall(turn_id, timeout_s, self._now)
        self._calls.append(call)
        if self._pauses:
            call.pause()
        try:
            yield call
        finally:
            self._calls.remove(call)

    @property
    def newest_turn_id(self) -> str | None:
        """Turn of the newest running call; None without a turn or a call."""
        return self._calls[-1].turn_id if self._calls else None

    @property
    def may_ask(self) -> bool:
        """Whether one more question may be open."""
        return self._open_questions < MAX_OPEN_QUESTIONS

    @contextmanager
    def question(self) -> Iterator[None]:
        """Pause the timeouts of all running calls for as long as the context lasts."""
        self._open_questions += 1
        self.pause()
        try:
            yield
        finally:
            self._open_questions -= 1
            self.resume()

    def pause(self) -> None:
        """Pause the timeouts; as many `resume` let them go on."""
        self._pauses += 1
        if self._pauses == 1:
            for call in self._calls:
                call.pause()

    def resume(self) -> None:
        """Take one `pause` back."""
        self._pauses -= 1
        if not self._pauses:
            for call in self._calls:
                call.resume()
