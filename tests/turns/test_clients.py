"""turns: the clients of a thread, and what one that joins finds of open items."""

from app_server.turns.clients import OpenItems
from protocol.turns.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    ItemStartedNotification,
    KnownThreadItem,
    PlanDeltaNotification,
    PlanThreadItem,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
    ReasoningThreadItem,
)
from protocol.turns.notifications import TurnCompletedNotification
from protocol.turns.turn import Turn


def test_open_items_have_the_texts_that_clients_were_sent() -> None:
    items = OpenItems()
    message = AgentMessageThreadItem(id="m", text="", started_at_ms=1, completed_at_ms=None)
    plan = PlanThreadItem(id="p", text="", started_at_ms=1, completed_at_ms=None)
    reasoning = ReasoningThreadItem(id="r", started_at_ms=1, completed_at_ms=None)
    at = {"thread_id": "t", "turn_id": "t"}

    def begin(item: KnownThreadItem) -> None:
        items.follow(ItemStartedNotification(**at, item=item, started_at_ms=1))

    for item in (message, plan, reasoning):
        begin(item)
    for event in (
        AgentMessageDeltaNotification(**at, item_id="m", delta="Hel"),
        AgentMessageDeltaNotification(**at, item_id="none", delta="x"),
        PlanDeltaNotification(**at, item_id="p", delta="1."),
        ReasoningTextDeltaNotification(**at, item_id="r", delta="b", content_index=1),
        ReasoningTextDeltaNotification(**at, item_id="r", delta="c", content_index=1),
        ReasoningTextDeltaNotification(**at, item_id="r", delta="x", content_index=-1),
        ReasoningSummaryPartAddedNotification(**at, item_id="r", summary_index=0),
        ReasoningSummaryTextDeltaNotification(**at, item_id="r", delta="s", summary_index=0),
        ReasoningSummaryPartAddedNotification(**at, item_id="r", summary_index=1),
    ):
        items.follow(event)
    items.follow(AgentMessageDeltaNotification(**at, item_id="m", delta="l"), "o")
    assert items.snapshot() == [
        message.model_copy(update={"text": "Hello"}),
        plan.model_copy(update={"text": "1."}),
        reasoning.model_copy(update={"content": ["", "bc"], "summary": ["s", ""]}),
    ]
    items.end("p")
    items.end("none")
    assert items.snapshot() == [
        message.model_copy(update={"text": "Hello"}),
        reasoning.model_copy(update={"content": ["", "bc"], "summary": ["s", ""]}),
    ]
    # One that begins again begins without a text.
    begin(reasoning)
    assert items.snapshot()[1] == reasoning.model_copy(update={"content": [], "summary": []})
    begin(message)
    assert items.snapshot()[0] == message
    ended = Turn(id="t", items=[], status="completed")
    items.follow(TurnCompletedNotification(thread_id="t", turn=ended))
    assert items.snapshot() == []
