"""What all that begins, runs and ends the turns of one loaded thread works with."""

from dataclasses import dataclass

from app_server.extension.hooks import Hooks
from app_server.runtime.clock import Clock
from app_server.sessions.goals.goals import Goals
from app_server.sessions.publisher import Publisher
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.status import SessionStatus
from app_server.threads.log.live import LiveThread


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadParts:
    """One loaded thread, its slot for turns, and what is to know of them."""

    thread: LiveThread
    slot: TurnSlot
    status: SessionStatus
    publisher: Publisher
    goals: Goals
    hooks: Hooks
    """Those of extensions."""
    clock: Clock
