"""What all that begins, runs and ends the turns of one loaded thread works with."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app_server.config.requirements import Requirements
from app_server.extensions.contract.hooks import Hooks
from app_server.runtime.clock import Clock
from app_server.sessions.goals.goals import Goals
from app_server.sessions.managed_policy import with_required
from app_server.sessions.ports import SessionPorts
from app_server.sessions.publisher import Publisher
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.status import SessionStatus
from app_server.threads.log.live import LiveThread
from app_server.turns.ports import ClientPort
from app_server.turns.recorder import TurnRecorder
from protocol.log.rollout import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadContext:
    """One loaded thread, its slot for turns, and what is to know of them."""

    thread: LiveThread
    slot: TurnSlot
    status: SessionStatus
    publisher: Publisher
    goals: Goals
    hooks: Hooks
    """Those of extensions."""
    clients: ClientPort
    clock: Clock
    requirements: Callable[[], Awaitable[Requirements]]
    """What an administrator demands of turns that no request begins."""

    def recorder(self, turn_id: str) -> TurnRecorder:
        """Return what writes and publishes the items of a turn."""
        return TurnRecorder(self.thread, turn_id, self.clients, self.clock)

    async def allowed_settings(self) -> tuple[Settings, Sequence[str]]:
        """Return the thread's settings as far as they are allowed, and what was replaced in them.

        Raises:
            ConfigError: an administrator's demands cannot be read.
        """
        return with_required(self.thread.state.settings, await self.requirements())


def thread_context(thread: LiveThread, ports: SessionPorts) -> ThreadContext:
    """Make the parts of a thread that has just been loaded."""
    clients, clock, slot = ports.clients, ports.clock, TurnSlot()
    publisher = Publisher(thread, clients, clock)
    return ThreadContext(
        thread=thread,
        slot=slot,
        status=SessionStatus(slot, publisher),
        publisher=publisher,
        goals=Goals(thread, clients, clock),
        hooks=ports.extensions.hooks,
        clients=clients,
        clock=clock,
        requirements=ports.requirements,
    )
