"""What signals work with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from app_server.config.values import Config
from app_server.runtime.clock import Clock
from app_server.sessions.registry import Sessions
from app_server.signals.entries import Announce
from app_server.signals.ledger import Ledger
from app_server.threads.log.state.thread import ThreadState
from app_server.threads.store import ThreadStore
from protocol.rollout import Settings

Configure: TypeAlias = Callable[[ThreadState], Awaitable[tuple[Config, Settings]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalPorts:
    """The ledger, and what other packages give."""

    ledger: Ledger
    store: ThreadStore
    sessions: Sessions
    clock: Clock
    announce: Announce
    configure: Configure
    """Gives the settings for a thread that has to be loaded."""
