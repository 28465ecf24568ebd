"""Compaction: a model sums a thread up, and the summary takes the place of the history.

The history is replaced in one record, once the summary is whole; until then, and after a failure or
an interrupt, it is what it was. Turns and items that clients see are not touched.
Source: docs/compaction.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app_server.models.catalogue.models import ModelFeatures, ModelInForce
from app_server.models.interface import (
    ItemDone,
    LimitsReported,
    ModelEvent,
    ModelFailure,
    Provider,
    ResponseCompleted,
)
from app_server.models.prompt.context import (
    compacted,
    estimated_tokens,
    kept_tokens,
    split_unseen,
    without_oldest,
    worth_compacting,
)
from app_server.models.prompt.request import message, request_body
from app_server.turns.model_requests import ModelRequests
from app_server.turns.recorder import TurnRecorder
from app_server.turns.response import texts_of
from app_server.turns.tools import ToolTable
from protocol.log.rollout import HistoryCompacted, ItemCompleted, TokensUsed
from protocol.model import Json, JsonObject
from protocol.server.account import RateLimitSnapshot
from protocol.turns.items import ContextCompactionThreadItem
from protocol.turns.turn import TokenUsageBreakdown

PROMPT = """\
This conversation is about to be condensed: everything in it will be replaced by what you write \
now. Write the hand-over for the model that goes on with the work, in plain text, as short as it \
can be without losing anything that is still needed:

1. what the user wants, with every constraint and preference;
2. what was done and decided, and why;
3. names, paths, identifiers and values that will be needed again, exactly as they are;
4. what is unfinished, and the next step.

Leave out what no longer matters. Call no tools, and do not speak to the user."""

REQUEST_KIND = {"request_kind": "compaction"}
"""Entry of `client_metadata` by which a provider can recognise these requests."""

MAX_TRIMS = 8
"""Times that the oldest quarter is left out of a history too long even for its compaction."""

MAX_IN_A_ROW = 3
"""Automatic compactions with one response between them; then the turn fails."""


def is_too_long(failure: ModelFailure) -> bool:
    """Whether the model refused a request because it does not fit its context."""
    return failure.info == "contextWindowExceeded" and not failure.sends_again


@dataclass(frozen=True, slots=True)
class Compactor:
    """Makes room in one turn's thread."""

    recorder: TurnRecorder
    requests: ModelRequests
    tools: ToolTable
    """Tools of the next request."""
    prompt: str | None
    """None means PROMPT."""

    @property
    def may_help(self) -> bool:
        """Whether there is anything that a compaction would replace."""
        return worth_compacting(split_unseen(self.recorder.log.state.history)[0])

    async def compact_for_request(self, model: ModelInForce) -> None:
        """Compact what the model has seen; what it has not seen yet stays as it is, behind it.

        Raises:
            ModelFailure: it was announced; the history is what it was.
            OSError: the disk refused.
        """
        await self._compact(*split_unseen(self.recorder.log.state.history), model)

    async def compact_all(self, model: ModelInForce) -> None:
        """Compact the whole history; one without anything new stays as it is.

        Raises:
            ModelFailure, OSError: see `compact_for_request`.
        """
        await self._compact(list(self.recorder.log.state.history), [], model)

    async def _compact(
        self, seen: list[JsonObject], unseen: list[JsonObject], model: ModelInForce
    ) -> None:
        recorder, requests = self.recorder, self.requests
        item = ContextCompactionThreadItem(id=recorder.clock.new_id())
        recorder.started(item)
        if not worth_compacting(seen):
            await recorder.completed(item)
            return
        summary = await self._sum_up(seen, model)
        history = compacted(seen, summary, unseen, kept_tokens(model.compact_at))
        account = requests.measured(self._size_of(history, model.features), model)
        at_ms = item.completed_at_ms = recorder.clock.now_ms()
        await recorder.log.append(
            HistoryCompacted(at_ms=at_ms, turn_id=recorder.turn_id, items=history),
            TokensUsed(at_ms=at_ms, usage=account),
            ItemCompleted(at_ms=at_ms, turn_id=recorder.turn_id, item=item),
            sync=False,
        )
        requests.emit_usage(account)
        recorder.announce_completed(item)

    async def _sum_up(self, seen: Sequence[JsonObject], model: ModelInForce) -> str:
        requests, shown, trims = self.requests, list(seen), 0
        attempts = requests.attempts(model)
        while True:
            try:
                summary = await self._ask(shown, attempts.provider, model)
            except ModelFailure as failure:
                if is_too_long(failure) and trims < MAX_TRIMS and len(shown) > 1:
                    requests.emit_limits(failure.limits)
                    shown, trims = without_oldest(shown), trims + 1
                    attempts = requests.attempts(model)
                else:
                    await attempts.wait(failure)
            else:
                break
        requests.emit_limits(summary.limits)
        return summary.text

    async def _ask(
        self, shown: Sequence[JsonObject], provider: Provider, model: ModelInForce
    ) -> "_Summary":
        body = request_body(
            self.recorder.log.state,
            model.features,
            (),
            None,
            REQUEST_KIND,
            self.tools.notes(),
            history=[*shown, message("user", self.prompt or PROMPT)],
        )
        summary = _Summary()
        async with self.requests.recorded("compaction", model, body) as sent:
            try:
                async with self.requests.client.stream(provider, body) as batches:
                    async for batch in batches:
                        for event in batch:
                            summary.take(event)
            finally:
                sent.usage = summary.usage
            if not summary.text.strip():
                raise ModelFailure("the model wrote no summary")
        return summary

    def _size_of(self, history: Sequence[JsonObject], features: ModelFeatures) -> int:
        state = self.recorder.log.state
        tools, notes = self.tools.declarations(features), self.tools.notes()
        body = request_body(state, features, tools, None, None, notes, history=history)
        parts: list[Json] = [body["instructions"], body["tools"], body["input"]]
        return estimated_tokens(parts)


@dataclass(slots=True)
class _Summary:
    """Summary from the response: its last message counts, and nothing of it is shown."""

    text: str = ""
    usage: TokenUsageBreakdown | None = None
    limits: Sequence[RateLimitSnapshot] = ()

    def take(self, event: ModelEvent) -> None:
        match event:
            case ItemDone() if event.item.get("type") == "message":
                self.text = "".join(texts_of(event.item.get("content")))
            case LimitsReported():
                self.limits = event.limits
            case ResponseCompleted():
                self.usage = event.usage
