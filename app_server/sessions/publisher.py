"""What the clients of a thread are notified of: status, turns, messages of the user, MCP servers.

Events of MCP servers wait until the thread itself has been announced.
Source: docs/wire.md, "Turns".
"""

from typing import Literal, TypeAlias

from app_server.mcp.servers.server import StartupStep
from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state.thread import TurnState
from app_server.turns.ports import ClientPort
from app_server.turns.recorder import TurnRecorder
from protocol.host.environments import EnvironmentConnectionNotification
from protocol.integrations.mcp import McpServerStatusUpdatedNotification
from protocol.model import WireModel
from protocol.server.lifecycle import WarningNotification
from protocol.threads.notifications import ThreadStatusChangedNotification
from protocol.threads.queue import ThreadQueueChangedNotification
from protocol.threads.thread import ThreadStatus
from protocol.turns.items import AgentMessageThreadItem, UserMessageThreadItem
from protocol.turns.notifications import (
    ErrorNotification,
    TurnCompletedNotification,
    TurnStartedNotification,
)
from protocol.turns.turn import Turn, TurnError

TurnEnd: TypeAlias = Literal["completed", "interrupted", "failed"]


class Publisher:
    """What is published of one thread."""

    def __init__(self, thread: LiveThread, clients: ClientPort, clock: Clock) -> None:
        self._thread = thread
        self._clients = clients
        self._clock = clock
        self._waiting: list[tuple[WireModel, str | None]] | None = []

    @property
    def began(self) -> bool:
        """Whether the thread was announced to a client since it was loaded."""
        return self._waiting is None

    def begin(self) -> None:
        """Let events of MCP servers out, from now on and those so far."""
        waiting, self._waiting = self._waiting or [], None
        for event, method in waiting:
            self._emit(event, method)

    def status(self, status: ThreadStatus) -> None:
        """Send every client the thread's status."""
        self._clients.broadcast(
            ThreadStatusChangedNotification(thread_id=self._thread.id, status=status)
        )

    def server_step(
        self, name: str, step: StartupStep, error: str | None, *, sign_in_again: bool
    ) -> None:
        """Send how far the start of an MCP server has come."""
        self._publish_later(
            McpServerStatusUpdatedNotification(
                thread_id=self._thread.id,
                name=name,
                status=step,
                error=error,
                failure_reason="reauthenticationRequired" if sign_in_again else None,
            )
        )

    def warning(self, text: str) -> None:
        """Warn of the thread's settings or MCP servers."""
        self._publish_later(WarningNotification(thread_id=self._thread.id, message=text))

    def environment(self, environment_id: str, *, connected: bool) -> None:
        """Send that an environment of the thread's MCP servers came or went."""
        self._publish_later(
            EnvironmentConnectionNotification(
                thread_id=self._thread.id, environment_id=environment_id
            ),
            f"thread/environment/{'connected' if connected else 'disconnected'}",
        )

    def _publish_later(self, event: WireModel, method: str | None = None) -> None:
        if self._waiting is None:
            self._emit(event, method)
        else:
            self._waiting.append((event, method))

    def _emit(self, event: WireModel, method: str | None = None) -> None:
        self._clients.emit(self._thread.id, event, method)

    def turn_started(self, turn_id: str, started_at_ms: int) -> None:
        """Send that a turn runs."""
        turn = Turn(
            id=turn_id,
            root_turn_id=turn_id,
            items=[],
            items_view="notLoaded",
            status="inProgress",
            started_at=started_at_ms // 1000,
        )
        self._emit(TurnStartedNotification(thread_id=self._thread.id, turn=turn))

    def turn_completed(
        self,
        state: TurnState,
        end: TurnEnd,
        error: TurnError | None,
        last_message: AgentMessageThreadItem | None,
    ) -> None:
        """Send that a turn is over; one that went well shows its last message."""
        shown = [last_message] if end == "completed" and last_message is not None else []
        turn = Turn(
            id=state.id,
            root_turn_id=state.id,
            items=list(shown),
            items_view="summary" if shown else "notLoaded",
            status=end,
            error=error,
            started_at=state.started_at_ms // 1000,
            completed_at=(state.completed_at_ms or self._clock.now_ms()) // 1000,
            duration_ms=state.duration_ms,
        )
        self._emit(TurnCompletedNotification(thread_id=self._thread.id, turn=turn))

    def user_message(self, turn_id: str, item: UserMessageThreadItem) -> None:
        """Send what the user said, as an item that began and ended."""
        recorder = TurnRecorder(self._thread, turn_id, self._clients, self._clock)
        recorder.announce_started(item.model_copy(update={"completed_at_ms": None}))
        recorder.announce_completed(item)

    def queue_changed(self) -> None:
        """Send that the queue should be read again."""
        self._emit(ThreadQueueChangedNotification(thread_id=self._thread.id))

    def failure(self, turn_id: str, reason: str) -> TurnError:
        """Send that a turn fails for a reason that is not the model's."""
        error = TurnError(message=reason, codex_error_info="other")
        self._emit(
            ErrorNotification(
                error=error, will_retry=False, thread_id=self._thread.id, turn_id=turn_id
            )
        )
        return error
