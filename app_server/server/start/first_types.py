"""The wire types that the first turn of a process needs, built before it comes.

Validators are built at first use (protocol/model.py). Those with items of turns take 10 to 20 ms
each, which would be the event loop's.
"""


def build_first_types() -> None:
    """Import and build them; for the importer's thread."""
    from protocol.items import (
        AgentMessageThreadItem,
        ItemCompletedNotification,
        ItemStartedNotification,
        UserMessageThreadItem,
    )
    from protocol.mcp import McpServerStatusUpdatedNotification
    from protocol.methods import METHODS
    from protocol.rollout import ItemCompleted, Settings, ThreadCreated, TurnCompleted
    from protocol.threads import Thread
    from protocol.turns import Turn

    for wire_type in (
        Thread,
        Turn,
        UserMessageThreadItem,
        AgentMessageThreadItem,
        ItemStartedNotification,
        ItemCompletedNotification,
        McpServerStatusUpdatedNotification,
        ThreadCreated,
        Settings,
        ItemCompleted,
        TurnCompleted,
    ):
        wire_type.model_rebuild()
    for method in ("thread/start", "turn/start"):
        METHODS[method].build()
