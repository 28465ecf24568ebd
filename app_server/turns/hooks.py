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

from app_server.config.values import Config
from app_server.extensions.hooks.definition import WIRE, Event, Hook
from app_server.extensions.hooks.hook_files import read_hooks_of
from app_server.extensions.hooks.running import Outcome, together
from app_server.extensions.plugins.contributor import hooked_plugins
from app_server.threads.log.live import LiveThread
from app_server.turns.clients import ThreadClients
from app_server.turns.server_context import ServerContext
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

    log: LiveThread
    clients: ThreadClients
    server: ServerContext
    _hooks: Sequence[Hook] = field(default=(), init=False)
    _has_begun: bool = field(default=False, init=False)
    """Whether the hooks of the thread's start have run, since it was loaded."""

    async def read(self, config: Config) -> None:
        """Read the hooks; if the disk does not answer in time, the hooks read last stay."""
        settings, server = self.log.state.in_force, self.server
        folder = None if settings.without_environment else Path(settings.cwd)
        plugins = hooked_plugins(
            server.plugins.installed, server.home, config.document, self.log.id
        )
        found = await read_hooks_of(config, server.home, folder, plugins, server.folder_reads)
        if found is not None:
            self._hooks = [hook for hook in found if hook.runs]

    def listens(self, event: Event) -> bool:
        """Whether any hook runs on an event."""
        return any(hook.event == event for hook in self._hooks)

    async def begin(self, turn_id: str) -> Outcome:
        """Run the hooks of the thread's start, in its first turn since it was loaded."""
        if self._has_begun:
            return NOTHING
        self._has_begun = True
        source = "startup" if len(self.log.state.turns) == 1 else "resume"
        return await self.fire("SessionStart", turn_id, source, source=source)

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
        started_ms, begun = self.server.clock.now_ms(), time.monotonic()
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
        thread_id = self.log.id
        self.clients.emit(
            HookStartedNotification(thread_id=thread_id, turn_id=turn_id, run=summary)
        )
        outcome = Outcome("failed")
        try:
            outcome = await self.server.hook_runner.run(hook, payload, self.log.state.in_force.cwd)
        finally:
            ended = summary.model_copy(
                update={
                    "status": outcome.status,
                    "entries": list(outcome.entries),
                    "completed_at": self.server.clock.now_ms() // 1000,
                    "duration_ms": round((time.monotonic() - begun) * 1000),
                }
            )
            self.clients.emit(
                HookCompletedNotification(thread_id=thread_id, turn_id=turn_id, run=ended)
            )
        return outcome

    def _payload(self, event: Event, turn_id: str, members: Mapping[str, Any]) -> Mapping[str, Any]:
        settings = self.log.state.in_force
        turn = {} if event == "SessionStart" else {"turn_id": turn_id}
        return {
            "session_id": self.log.id,
            **turn,
            "transcript_path": self.server.store.shown_path(self.log.id),
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
