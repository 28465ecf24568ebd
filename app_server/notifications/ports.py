"""Dependencies of notifications on other packages."""

from dataclasses import dataclass

from app_server.config.effective import Configuration
from app_server.notifications.sending import Senders
from app_server.runtime.clock import Clock
from app_server.sessions.registry import Sessions
from app_server.threads.store import ThreadStore


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationPorts:
    """The store, sessions, settings and senders of a server."""

    store: ThreadStore
    sessions: Sessions
    clock: Clock
    configuration: Configuration
    senders: Senders
