"""Asks the reviewer's model for a verdict, again where that may help.

Source: docs/mcp.md, "Reviewer".
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from app_server.models.interface import ItemDone, Model, ModelFailure, ModelRequest
from app_server.models.provider import Provider
from app_server.threads.log.live import LiveThread
from app_server.turns.response.reader import texts_of
from app_server.turns.review.verdict import (
    MAX_ANSWER_BYTES,
    Assessment,
    UnreadableVerdict,
    parse_assessment,
    review_body,
)
from protocol.model import JsonObject

MAX_ATTEMPTS = 3
"""For one verdict, the first one included; within each a provider is asked as for any request."""

RETRY_BASE_S = 0.2
"""Before the second attempt, and twice that before the third, unless the provider wants more."""


@dataclass(frozen=True, slots=True)
class VerdictCalls:
    """The calls to the model that reviews for one thread."""

    thread: LiveThread
    model: Model
    providers: Mapping[str, Provider]

    async def ask(self, evidence: JsonObject) -> Assessment:
        """Get a verdict; the caller bounds the time.

        An attempt whose answer cannot be read is followed by one that says so, and one that failed
        in a way that may pass is made again.

        Raises:
            NoVerdict: the last attempt had none.
            ModelFailure: it failed, or an earlier one failed for good.
        """
        was_unreadable = False
        for attempt in range(1, MAX_ATTEMPTS):
            wait_s = RETRY_BASE_S * 2 ** (attempt - 1)
            try:
                return await self._once(evidence, was_unreadable)
            except UnreadableVerdict:
                was_unreadable = True
            except ModelFailure as failure:
                if failure.retry_after_s is None:
                    raise
                wait_s = max(wait_s, failure.retry_after_s)
            await anyio.sleep(wait_s * random.uniform(0.9, 1.1))
        return await self._once(evidence, was_unreadable)

    async def _once(self, evidence: JsonObject, was_unreadable: bool) -> Assessment:
        state = self.thread.state
        # The turn has asked it already.
        provider = self.providers[state.in_force.model_provider]
        answer = ""
        request = ModelRequest(
            provider, review_body(state, evidence, was_unreadable=was_unreadable)
        )
        async with self.model.stream(request) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, ItemDone) and event.item["type"] == "message":
                        answer += "".join(texts_of(event.item.get("content")))
                if len(answer) > MAX_ANSWER_BYTES:
                    break
        return parse_assessment(answer)
