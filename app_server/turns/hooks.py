"""The hooks of one loaded thread, and what becomes of an event.

Source: docs/hooks.md.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio

from app_server.extensions.hooks.definition import WIRE, Event, Hook
from app_server.extensions.hooks.outcome import Outcome, together
from app_server.extensions.hooks.running import HookRunner
from app_server.extensions.hooks.source import HookSource
from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from app_server.turns.ports import ClientPort
from protocol.integrations.skills import (
    HookCompletedNotification,
    HookRunSummary,
    HookStartedNotification,
)
from protocol.log.rollout import Settings
from protocol.turns.policy import DangerFullAccessSandboxPolicy

NOTHING = Outcome("completed")


@dataclass(slots=True)
class ThreadHooks:
    """Runs the hooks of a thread that the user trusts."""

    thread: LiveThread
    source: HookSource
    transcript: str
    """The path of the thread's log."""
    runner: HookRunner
    clients: ClientPort
    clock: Clock
    _hooks: Sequence[Hook] = field(default=(), init=False)

    async def read(self, settings: Settings) -> None:
        """Read the hooks; if the disk does not answer in time, those that were read last stay."""
        folder = None if settings.without_environment else Path(settings.cwd)
        found = await self.source.read(folder)
        if found is not None:
            self._hooks = [hook for hook in found if hook.runs]

    def listens(self, event: Event) -> bool:
        """Whether any hook runs on an event."""
        return any(hook.event == event for hook in self._hooks)

    async def fire(
        self,
        event: Event,
        turn_id: str,
        subject: str = "",
        call_id: str | None = None,
        **members: Any,
    ) -> Outcome:
        """Run the hooks of an event at the same time, and join what comes of them.

        `subject` is what matchers are compared with. Clients are notified of each run. Cancelling
        ends the hooks.
        """
        hooks = [hook for hook in self._hooks if hook.event == event and hook.matches(subject)]
        if not hooks:
            return NOTHING
        payload = self._payload(event, turn_id, members)
        outcomes: dict[int, Outcome] = {}

        async def run(hook: Hook) -> None:
            outcomes[hook.order] = await self._run(hook, turn_id, call_id, payload)

        async with anyio.create_task_group() as tasks:
            for hook in hooks:
                tasks.start_soon(run, hook)
        return together([outcomes[order] for order in sorted(outcomes)])

    def run_id(self, event: Event) -> str:
        """Return the id of the run of an event's first hook."""
        hook = next(hook for hook in self._hooks if hook.event == event)
        return _run_id(hook, None)

    async def _run(
        self, hook: Hook, turn_id: str, call_id: str | None, payload: Mapping[str, Any]
    ) -> Outcome:
        started_ms, begun = self.clock.now_ms(), time.monotonic()
        scope: Literal["thread", "turn"] = "thread" if hook.event == "SessionStart" else "turn"
        summary = HookRunSummary(
            id=_run_id(hook, call_id),
            event_name=WIRE[hook.event],
            handler_type="command",
            execution_mode="sync",
            scope=scope,
            source_path=str(hook.file),
            source=hook.source,
            display_order=hook.order,
            status="running",
            status_message=hook.status_message,
            started_at=started_ms // 1000,
            entries=[],
        )
        thread_id = self.thread.id
        self.clients.emit(
            thread_id, HookStartedNotification(thread_id=thread_id, turn_id=turn_id, run=summary)
        )
        outcome = Outcome("failed")
        try:
            outcome = await self.runner.run(hook, payload, self.thread.state.in_force.cwd)
        finally:
            ended = summary.model_copy(
                update={
                    "status": outcome.status,
                    "entries": list(outcome.entries),
                    "completed_at": self.clock.now_ms() // 1000,
                    "duration_ms": round((time.monotonic() - begun) * 1000),
                }
            )
            self.clients.emit(
                thread_id,
                HookCompletedNotification(thread_id=thread_id, turn_id=turn_id, run=ended),
            )
        return outcome

    def _payload(self, event: Event, turn_id: str, members: Mapping[str, Any]) -> Mapping[str, Any]:
        settings = self.thread.state.in_force
        turn = {} if event == "SessionStart" else {"turn_id": turn_id}
        return {
            "session_id": self.thread.id,
            **turn,
            "transcript_path": self.transcript,
            "cwd": settings.cwd,
            "hook_event_name": event,
            "model": settings.model,
            "permission_mode": _mode(settings),
            **members,
        }


def _run_id(hook: Hook, call_id: str | None) -> str:
    name = re.sub(r"(?<=.)(?=[A-Z])", "-", hook.event).lower()
    end = "" if call_id is None else f":{call_id}"
    return f"{name}:{hook.order}:{hook.file}{end}"


def _mode(settings: Settings) -> str:
    is_open = isinstance(settings.sandbox_policy, DangerFullAccessSandboxPolicy)
    return "bypassPermissions" if is_open and settings.approval_policy == "never" else "default"
