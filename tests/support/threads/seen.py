"""What clients saw of a thread, in a form in which it can be compared."""

from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def numbered(messages: Iterable[Event]) -> list[Event]:
    """Keep the events that stand in a stream."""
    return [message for message in messages if "seq" in message]


def merged(messages: Iterable[Event]) -> list[tuple[str, Event]]:
    """Give method and params of events, with pieces of one text that follow each other joined."""
    events: list[tuple[str, Event]] = []
    for message in messages:
        method, params = message["method"], dict(message["params"])
        if events and "delta" in params and _whose(*events[-1]) == _whose(method, params):
            params["delta"] = events[-1][1]["delta"] + params["delta"]
            events.pop()
        events.append((method, params))
    return events


def _whose(method: str, params: Event) -> tuple[str, Event]:
    return method, {name: value for name, value in params.items() if name != "delta"}


def deltas(messages: Iterable[Event]) -> str:
    """Join all texts of messages of the model."""
    return "".join(
        message["params"]["delta"]
        for message in messages
        if message.get("method") == "item/agentMessage/delta"
    )
