"""A calendar: events are listed, and created. The latter changes something: it is asked about."""

from collections import deque
from dataclasses import replace

from app_server.clients.demo.hosted.tool import (
    READS,
    WRITES,
    Call,
    HostedConnector,
    HostedTool,
    JsonObject,
    listed,
    text_result,
)

MAX_EVENTS = 100
"""The oldest ones make room."""

DAY_URI = "ui://calendar/day"

_CALENDAR = HostedConnector("demo_calendar", "Calendar", "Events of one demonstration calendar.")


class Calendar:
    """The events of one account."""

    def __init__(self) -> None:
        self._events: deque[JsonObject] = deque(
            [{"day": "2030-01-01", "title": "New year"}], maxlen=MAX_EVENTS
        )

    def connector(self) -> HostedConnector:
        """Return the app with its tools."""
        text = {"type": "string"}
        events = listed(
            _CALENDAR,
            "list_events",
            "List the events of the calendar.",
            {},
            READS,
            meta={"ui": {"resourceUri": DAY_URI}},
        )
        create = listed(
            _CALENDAR,
            "create_event",
            "Put an event into the calendar.",
            {"day": {**text, "description": "Like 2030-01-31."}, "title": text},
            WRITES,
        )
        tools = (HostedTool(events, self._list), HostedTool(create, self._create))
        return replace(_CALENDAR, tools=tools)

    async def _list(self, call: Call) -> JsonObject:
        events = [{**event} for event in self._events]
        lines = [f"{event['day']}: {event['title']}" for event in events]
        return text_result("\n".join(lines), {"events": events})

    async def _create(self, call: Call) -> JsonObject:
        event = {key: str(call.arguments.get(key, ""))[:200] for key in ("day", "title")}
        self._events.append(event)
        return text_result(
            f"{event['title']} is in the calendar, on {event['day']}.", {"event": event}
        )
