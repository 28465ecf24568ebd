"""Notifications of a server in this process, with bounds that tests choose."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from app_server.config.values import Config
from app_server.notifications.ports import NotificationPorts
from app_server.notifications.sending import Senders
from app_server.notifications.service import Notifications
from app_server.notifications.settings import read_notifications
from app_server.threads.outbox import NotificationOutbox
from tests.support.harness import WAIT_S, Served

FAST_S = (0.01,)


def ports_of(served: Served, **bounds: Any) -> NotificationPorts:
    """Return what notifications need of a server; `bounds` are of programs."""
    services = served.services
    senders = Senders(services.commands, services.clock, str(served.home), _variables, **bounds)
    return NotificationPorts(
        store=services.store,
        sessions=services.sessions,
        clock=services.clock,
        configuration=services.configuration,
        senders=senders,
    )


@asynccontextmanager
async def notifying(
    served: Served,
    document: dict[str, Any],
    outbox: NotificationOutbox,
    ports: NotificationPorts | None = None,
    **bounds: Any,
) -> AsyncIterator[Notifications]:
    """Send a server's notifications while the context lasts; leaving it is a stop."""
    settings = read_notifications(Config(document))
    assert settings.errors == []
    ports = ports or ports_of(served)
    notifications = Notifications(outbox, ports, settings, **{"retry_s": FAST_S, **bounds})
    served.services.hub.observers.append(notifications)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(notifications.run)
            yield notifications
            tasks.cancel_scope.cancel()
    finally:
        served.services.hub.observers.remove(notifications)
        await ports.senders.aclose()


async def settled(outbox: NotificationOutbox, **counts: int) -> None:
    """Wait until the outbox counts its entries so."""
    with anyio.fail_after(WAIT_S):
        while await anyio.to_thread.run_sync(outbox.counts) != counts:
            await anyio.lowlevel.checkpoint()


def _variables() -> dict[str, str]:
    return {"PATH": os.environ["PATH"]}
