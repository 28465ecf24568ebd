"""Loads what the first requests and turns will need, once clients can connect."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio

from app_server.accounts.accounts import Accounts
from app_server.config.effective import Configuration
from app_server.config.values import ConfigError
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.mcp.loading import load_client
from app_server.runtime.loader import RETRY_FIRST_S, RETRY_MOST_S
from app_server.server.garbage_collection import start_collecting

logger = logging.getLogger(__name__)


async def warm_up(parts: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Load the parts in their order, in the background.

    What fails is tried again, after RETRY_FIRST_S and then twice as long each time up to
    RETRY_MOST_S; whoever needs it sooner has it tried at once.
    """
    wait_s = RETRY_FIRST_S
    while parts := [part for part in parts if not await _succeeds(part)]:
        await anyio.sleep(wait_s)
        wait_s = min(2 * wait_s, RETRY_MOST_S)
    start_collecting()


async def load_client_if_used(accounts: Accounts, configuration: Configuration) -> None:
    """Import the client of MCP servers where some are configured."""
    try:
        await accounts.load()
        mcp = read_mcp_settings(await configuration.read())
    except ConfigError:
        # Whoever starts a thread gets the error.
        logger.debug("the configuration cannot be used yet")
        return
    if any(server.enabled for server in mcp.servers.values()):
        await load_client()


def build_first_types() -> None:
    """Build the wire types that the first turn needs; for the importer's thread.

    Validators are built at first use (protocol/model.py). Those with items of turns take 10 to 20
    ms each, which would be the event loop's.
    """
    from protocol.integrations.mcp import McpServerStatusUpdatedNotification
    from protocol.log.rollout import ItemCompleted, Settings, ThreadCreated, TurnCompleted
    from protocol.threads.thread import Thread
    from protocol.turns.items import (
        AgentMessageThreadItem,
        ItemCompletedNotification,
        ItemStartedNotification,
        UserMessageThreadItem,
    )
    from protocol.turns.turn import Turn

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


async def _succeeds(part: Callable[[], Awaitable[object]]) -> bool:
    try:
        await part()
    except Exception as exc:  # noqa: BLE001
        # Nothing of what is loaded ahead may end the server.
        logger.warning("something cannot be loaded yet: %s", exc)
        return False
    return True
