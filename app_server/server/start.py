"""What is done once clients can connect: loading ahead, and the schedule of the garbage collector.

What the first requests and turns will need is loaded in the background. A collection stops every
thread. One of young objects is short, as they are few; one of all objects takes 50 ms and more once
lists of thousands of tools are loaded. Most of what the server lets go of is in no cycle, and is
freed without any. So it runs in small steps, and in whole while there is no work.
Source: https://docs.python.org/3/library/gc.html#gc.set_threshold
"""

import gc
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio

from app_server.accounts.accounts import Accounts
from app_server.config.effective import Configuration
from app_server.config.values import ConfigError
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.mcp.loading import load_client
from app_server.runtime.loader import RETRY_FIRST_S, RETRY_MOST_S
from protocol.contract.specs import build_types
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

logger = logging.getLogger(__name__)

YOUNG = 1_000
"""New objects before the youngest are looked at: less than 1 ms."""

MIDDLE = 10
"""Collections of the youngest before one of the middle generation: less than 5 ms."""

NEVER = 2**31 - 1

LOOK_S = 10.0
"""Between two looks whether a collection of everything is due."""

IDLE_SHARE = 0.02
"""Of a core: a process that used less since the last look has no work."""

DUE = 20
"""Looks at the middle generation, after which one is due without work: 220,000 objects."""

OVERDUE = 100
"""The same for one that waits for nothing: 1,100,000 objects, about 100 MB."""


def start_collecting() -> None:
    """Look at what there is for the last time, and at what comes in small steps.

    Modules and types live as long as the process. Done once, also where it runs several servers.
    """
    if gc.get_threshold()[2] == NEVER:
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


async def collect_when_idle(look_s: float = LOOK_S) -> None:
    """Collect everything now and then, if possible while there is no work; until cancelled."""
    while True:
        used_s, now_s = time.process_time(), time.monotonic()
        await anyio.sleep(look_s)
        share = (time.process_time() - used_s) / max(time.monotonic() - now_s, 1e-3)
        if is_due(gc.get_count()[2], is_idle=share < IDLE_SHARE):
            gc.collect()


def is_due(looks: int, *, is_idle: bool) -> bool:
    """Whether everything is to be collected after so many looks at the middle generation."""
    return looks >= (DUE if is_idle else OVERDUE)


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
    build_types(
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
    )


async def _succeeds(part: Callable[[], Awaitable[object]]) -> bool:
    try:
        await part()
    except Exception as exc:  # noqa: BLE001
        # Nothing of what is loaded ahead may end the server.
        logger.warning("something cannot be loaded yet: %s", exc)
        return False
    return True
