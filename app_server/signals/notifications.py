"""Dependencies of signals, and the sender of receipts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app_server.config.effective import Configuration
from app_server.config.requirements import Requirements, requirements_of
from app_server.config.values import Config
from app_server.rpc.context import ConnectionId
from app_server.rpc.hub import Hub
from app_server.runtime.clock import Clock
from app_server.runtime.loader import load
from app_server.sessions.registry import Sessions
from app_server.threads.failures import Holder
from app_server.threads.log.state import ThreadState
from app_server.threads.store import ThreadStore
from protocol.log.rollout import Settings
from protocol.model import JsonObject, WireModel
from protocol.signals.delivery import OPEN_STAGES, SignalReceipt, SignalUpdatedNotification

PEER_NAME = "app-server-peer"
"""`clientInfo.name` of a server that calls another one of the home."""


class Peers(Protocol):
    """The other servers of the home, or of the group."""

    async def call(
        self, thread_id: str, holder: Holder, method: str, params: WireModel
    ) -> JsonObject | None:
        """Call a method of the server that holds a thread, and return its result.

        None: it cannot be reached, does not answer in time, or does not have the method; what was
        asked may have been done all the same.

        Raises:
            RpcError: it refuses.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalPorts:
    """Dependencies of signals on other packages."""

    store: ThreadStore
    sessions: Sessions
    clock: Clock
    notifier: "SignalNotifier"
    configuration: Configuration
    """For threads that have to be loaded."""
    peers: Peers


class SignalNotifier:
    """Sender of receipts to subscribers of the thread and to the delivering connection."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._origins: dict[tuple[str, str], ConnectionId] = {}
        self.followers: list[Callable[[SignalReceipt], None]] = []
        """Called with every receipt."""

    def emit(self, thread_id: str, event: WireModel) -> None:
        """Send an event to the subscribers of a thread; never waits."""
        self._hub.emit(thread_id, event)

    def came_from(self, receipt: SignalReceipt, connection_id: ConnectionId) -> None:
        """Note which connection gets the receipts of a signal: the last one that delivered it."""
        if receipt.stage in OPEN_STAGES:
            self._origins[receipt.source, receipt.signal_id] = connection_id

    def announce(self, receipt: SignalReceipt) -> None:
        """Send how far a signal has come; never waits."""
        event = SignalUpdatedNotification(receipt=receipt)
        self._hub.emit(receipt.thread_id, event)
        key = receipt.source, receipt.signal_id
        origin = self._origins.get(key)
        if origin is not None and not self._hub.is_subscribed(origin, receipt.thread_id):
            self._hub.notify(origin, event)
        if receipt.stage not in OPEN_STAGES:
            self._origins.pop(key, None)
        for follower in self.followers:
            follower(receipt)


async def settings_as_stored(
    configuration: Configuration, state: ThreadState
) -> tuple[Config, Settings]:
    """Return the configuration, and a thread's own settings as far as an administrator allows.

    Raises:
        ConfigError: the configuration cannot be used.
        LoadFailed: what knows the demands cannot be imported now.
    """
    config = await configuration.read()
    demand = await load(_with_required)
    settings, _ = demand(state.settings, requirements_of(config))
    return config, settings


def _with_required() -> "Callable[[Settings, Requirements], tuple[Settings, Sequence[str]]]":
    from app_server.sessions.settings import with_required

    return with_required
