"""A calendar: events are listed, and created. The latter changes something: it is asked about."""

from collections import deque
from dataclasses import replace

from app_server.clients.demo.hosted.tool import (
    READS,
    WRITES,
    Call,
    HostedConnector,
    JsonObject,
    text_result,
)

MAX_EVENTS = 100
"""The oldest ones make room."""

DAY_URI = "ui://calendar/day"

_CALENDAR = HostedConnector("demo_calendar", "Calendar", "Events of one demonstration calendar.")


def calendar() -> HostedConnector:
    """Return the app with its tools, and the events of one account."""
    events: deque[JsonObject] = deque(
        [{"day": "2030-01-01", "title": "New year"}], maxlen=MAX_EVENTS
    )

    async def list_events(call: Call) -> JsonObject:
        shown = [{**event} for event in events]
        lines = [f"{event['day']}: {event['title']}" for event in shown]
        return text_result("\n".join(lines), {"events": shown})

    async def create_event(call: Call) -> JsonObject:
        event = {key: str(call.arguments.get(key, ""))[:200] for key in ("day", "title")}
        events.append(event)
        return text_result(
            f"{event['title']} is in the calendar, on {event['day']}.", {"event": event}
        )

    text = {"type": "string"}
    listing = _CALENDAR.tool(
        "list_events",
        "List the events of the calendar.",
        {},
        READS,
        list_events,
        meta={"ui": {"resourceUri": DAY_URI}},
    )
    days = {"day": {**text, "description": "Like 2030-01-31."}, "title": text}
    creating = _CALENDAR.tool(
        "create_event", "Put an event into the calendar.", days, WRITES, create_event
    )
    return replace(_CALENDAR, tools=(listing, creating))
