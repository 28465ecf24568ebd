"""The review that a turn does: its requests and calls, and the two items that frame it.

However it ends, clients are notified; only cancelling, a model that failed for good and a disk that
refuses come through.
Source: docs/tools.md, "Reviews".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from app_server.models.interface import ModelFailure
from app_server.models.prompt.request import message
from app_server.turns.code_review.texts import (
    FAILED,
    STOPPED,
    hint,
    request,
    review_for_model,
    shown_review,
)
from app_server.turns.model_exchange import ModelExchange
from app_server.turns.recorder import TurnRecorder
from protocol.model import JsonObject
from protocol.turns.code_review import ReviewTarget
from protocol.turns.items import (
    AgentMessageThreadItem,
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
)
from protocol.turns.turn import TokenUsageBreakdown

MAX_REQUESTS = 200
"""Requests to the model of one review."""


@dataclass(frozen=True, slots=True)
class CodeReview:
    """One review, in a turn of its own."""

    target: ReviewTarget
    recorder: TurnRecorder
    """Of the turn, and of `reviewer`."""
    reviewer: ModelExchange
    environment: Sequence[JsonObject]
    """Are sent to the reviewer first."""

    async def run(self) -> AgentMessageThreadItem:
        """Do the review; returns the message that the thread keeps of it.

        Raises:
            ModelFailure: the model failed for good; it was announced.
            OSError: the disk refused.
        """
        recorder = self.recorder
        entered = EnteredReviewModeThreadItem(id=recorder.new_id(), review=hint(self.target))
        used = recorder.log.state.usage
        last = None if used is None else used.last
        recorder.started(entered)
        try:
            await recorder.completed(entered)
            review = await self._review()
        except ModelFailure as failure:
            await self._exit(FAILED.format(failure.message), last)
            raise
        except BaseException:
            await self._exit(STOPPED, last)
            raise
        return await self._exit(shown_review(review), last)

    async def _review(self) -> str:
        """Ask the reviewer until it calls no more tools; returns its last message."""
        reviewer, asked = self.reviewer, message("user", request(self.target))
        with self.recorder.own_history([*self.environment, asked]):
            for _ in range(MAX_REQUESTS):
                response = await reviewer.respond()
                await reviewer.make_calls(response)
                if not response.calls:
                    said = reviewer.last_message
                    return "" if said is None else said.text
            raise reviewer.requests.announced(
                ModelFailure(f"the model made {MAX_REQUESTS} requests in one review")
            )

    async def _exit(self, text: str, last: TokenUsageBreakdown | None) -> AgentMessageThreadItem:
        """Leave the review mode, also where the turn is cut off meanwhile."""
        recorder = self.recorder
        with anyio.CancelScope(shield=True):
            await self.reviewer.requests.recount(last)
            exited = ExitedReviewModeThreadItem(id=recorder.new_id(), review=text)
            recorder.started(exited)
            outcome = message("user", review_for_model(text))
            await recorder.completed(exited, [outcome])
            said = AgentMessageThreadItem(id=f"msg_{recorder.new_id()}", text=text)
            recorder.started(said)
            item: JsonObject = {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": text}],
            }
            await recorder.completed(said, [item])
        return said
