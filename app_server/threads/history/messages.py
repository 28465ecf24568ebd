"""What users and models said, out of the lines of a log. No I/O."""

from protocol.log.rollout import (
    InputQueued,
    ItemCompleted,
    ItemEnded,
    ItemLeftRunning,
    parse_record,
)
from protocol.turns.items import (
    AgentMessageThreadItem,
    ThreadItem,
    UserMessageThreadItem,
    text_of_input,
)


def item_in(line: bytes) -> ThreadItem | None:
    """Return the item that a line holds, as its own or as queued input."""
    match parse_record(line):
        case ItemCompleted(item=item) | ItemLeftRunning(item=item) | ItemEnded(item=item):
            return item
        case InputQueued(message=message):
            return message
    return None


def text_of(item: ThreadItem | None) -> str:
    """Return what was said in an item; empty if it is no message."""
    match item:
        case UserMessageThreadItem(content=content):
            return text_of_input(content)
        case AgentMessageThreadItem(text=text):
            return text
    return ""


def message_text(line: bytes) -> str:
    """Return what was said in the item of a line."""
    return text_of(item_in(line))
