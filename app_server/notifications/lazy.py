"""Notifications, loaded once the settings have a receiver.

Source: docs/notifications.md.
"""

import logging
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.to_thread

from app_server.config.values import ConfigError
from app_server.notifications.ports import NotificationPorts
from app_server.observability.log_context import start_apart
from app_server.rpc.hub import Hub
from app_server.runtime.loader import Lazy, LoadFailed, load
from app_server.threads.outbox import STATES, NotificationOutbox, OutboxStore

if TYPE_CHECKING:
    from app_server.notifications.service import Notifications
    from app_server.notifications.settings import NotificationSettings

logger = logging.getLogger(__name__)

KEYS = ("notify", "notifications")
"""Settings without which nothing is loaded."""

LOOK_S = 30.0
"""Seconds until an outbox that could not be opened, or a bad entry, is tried again."""


class LazyNotifications:
    """The notifications of a server that may have no receiver."""

    def __init__(
        self,
        store: OutboxStore,
        tasks: anyio.abc.TaskGroup,
        hub: Hub,
        ports: NotificationPorts,
    ) -> None:
        """`tasks` owns the work."""
        self._store = store
        self._tasks = tasks
        self._hub = hub
        self._ports = ports
        self._outbox = Lazy("the outbox of notifications", store.open)
        self._service: Notifications | None = None
        self._stirred = anyio.Event()

    async def resume(self) -> None:
        """Begin with the receivers of the settings, and follow what changes in them."""
        self._ports.configuration.on_change(self._stir)
        look_s = await self._follow()
        start_apart(self._tasks, self._keep_following, look_s)

    def _stir(self) -> None:
        self._stirred.set()

    async def _keep_following(self, look_s: float) -> None:
        while True:
            with anyio.move_on_after(look_s):
                await self._stirred.wait()
            self._stirred = anyio.Event()
            look_s = await self._follow()

    async def _follow(self) -> float:
        """Take the settings as they are; return the seconds until they are to be read again."""
        try:
            settings = await self._read()
            if settings is None:
                return float("inf")
            if self._service is not None:
                self._service.take_settings(settings)
            elif settings.targets:
                await self._begin(settings)
        except ConfigError:
            # Clients are warned by whoever checks the settings; receivers stay as they are.
            return float("inf")
        except (OSError, LoadFailed) as exc:
            logger.error("notifications cannot be sent, and are tried again: %s", exc)
            return LOOK_S
        return LOOK_S if settings.errors else float("inf")

    async def _read(self) -> "NotificationSettings | None":
        """Read the receivers; None while there never was one."""
        config = await self._ports.configuration.read()
        if self._service is None and not any(key in config.document for key in KEYS):
            return None
        read = (await load(_settings)).read_notifications
        found: NotificationSettings = await anyio.to_thread.run_sync(read, config)
        return found

    async def _begin(self, settings: "NotificationSettings") -> None:
        notifications = await load(_notifications)
        service = notifications(await self._outbox.get(), self._ports, settings)
        self._service = service
        self._hub.observers.append(service)
        start_apart(self._tasks, _keep_running, service)

    async def outbox(self) -> NotificationOutbox | None:
        """Return the outbox of the store; None if no server has begun one.

        Raises:
            OSError: it cannot be used.
            LoadFailed: its code cannot be imported now.
        """
        if self._outbox.value is None and not await self._store.exists():
            return None
        return await self._outbox.get()

    async def counts(self) -> Mapping[str, int]:
        """Count the entries of the outbox by state, and events that are not in it yet.

        Nothing is counted by a server that has no receiver.

        Raises:
            OSError: the outbox cannot be read.
        """
        if self._service is None or self._outbox.value is None:
            return {}
        counts = await anyio.to_thread.run_sync(self._outbox.value.counts)
        return {**{state: counts.get(state, 0) for state in STATES}, "unwritten": self.unwritten}

    @property
    def unwritten(self) -> int:
        """Number of events that are not in the outbox yet."""
        return 0 if self._service is None else self._service.unwritten

    async def aclose(self) -> None:
        """Close the outbox and connections, once nothing works on them any more."""
        await self._ports.senders.aclose()
        outbox = await self._outbox.close()
        if outbox is not None:
            await anyio.to_thread.run_sync(outbox.close)


async def _keep_running(service: "Notifications") -> None:
    """Run notifications until cancelled; whatever fails in them, the server goes on."""
    while True:
        try:
            await service.run()
        except Exception:
            logger.exception("notifications failed, and begin again")
        await anyio.sleep(LOOK_S)


def _settings() -> ModuleType:
    from app_server.notifications import settings

    return settings


def _notifications() -> "type[Notifications]":
    from app_server.notifications.service import Notifications

    return Notifications
