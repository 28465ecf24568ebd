"""From stored and loaded threads to what the wire shows of them."""

from collections.abc import Sequence
from pathlib import Path

from pydantic_core import from_json

from app_server.threads.index import ThreadRow
from app_server.threads.state import ThreadState, TurnState
from protocol.items import ThreadItem
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.policy import (
    ActivePermissionProfile,
    DangerFullAccessSandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from protocol.rollout import Settings
from protocol.threads import (
    NotLoadedThreadStatus,
    Thread,
    ThreadEnvironment,
    ThreadSettings,
    ThreadSettingsResponse,
    ThreadStatus,
)
from protocol.turns import Turn
from protocol.values import CollaborationMode
from protocol.values import Settings as CollaborationSettings

MAX_TURNS_CHARS = 900_000
"""Characters of all turns of one answer; a message to a client stays below 1 MiB."""


def thread_of_state(
    state: ThreadState,
    status: ThreadStatus,
    path: Path | None,
    *,
    turns: list[Turn] | None = None,
) -> Thread:
    """Show a thread whose state is at hand; `path` None means that it is in memory alone."""
    created, settings = state.created, state.settings
    loaded = not isinstance(status, NotLoadedThreadStatus)
    return Thread(
        id=state.id,
        session_id=state.id,
        environments=_environments(settings) if loaded else None,
        preview=state.preview,
        ephemeral=created.ephemeral,
        project_id=None,
        history_mode="paginated",
        model_provider=settings.model_provider,
        model=settings.model,
        reasoning_effort=settings.effort,
        created_at=created.at_ms // 1000,
        updated_at=state.updated_at_ms // 1000,
        recency_at=state.recency_at_ms // 1000,
        status=status,
        path=None if path is None else str(path),
        cwd=settings.cwd,
        cli_version=created.cli_version,
        originator=created.originator,
        source=created.source,
        can_accept_direct_input=True if loaded else None,
        thread_source=created.thread_source,
        name=state.name,
        turns=turns or [],
    )


def thread_of_row(row: ThreadRow, status: ThreadStatus, path: Path) -> Thread:
    """Show a thread from the index."""
    return Thread(
        id=row.id,
        session_id=row.id,
        preview=row.preview,
        ephemeral=False,
        project_id=None,
        history_mode="paginated",
        model_provider=row.model_provider,
        model=row.model,
        reasoning_effort=row.effort,
        created_at=row.created_at_ms // 1000,
        updated_at=row.updated_at_ms // 1000,
        recency_at=row.recency_at_ms // 1000,
        status=status,
        path=str(path),
        cwd=row.cwd,
        cli_version=row.cli_version or PROTOCOL_VERSION,
        originator=row.originator,
        source=from_json(row.source),
        thread_source=row.thread_source,
        name=row.name,
        turns=[],
    )


def turns_of_state(state: ThreadState, open_items: Sequence[ThreadItem] = ()) -> list[Turn]:
    """Show all turns, oldest first, as far as they fit into one message.

    `open_items` are those of the running turn that are not complete.

    The newest keep their items; older ones are there without items, the oldest may be missing.
    """
    shown: list[Turn] = []
    left = MAX_TURNS_CHARS
    for turn in reversed(state.turns):
        wire = _turn(turn)
        if turn is state.open_turn:
            wire.items.extend(open_items)
        size = len(wire.model_dump_json())
        if size > left:
            wire = wire.model_copy(update={"items": [], "items_view": "notLoaded"})
            size = len(wire.model_dump_json())
        if size > left:
            break
        left -= size
        shown.append(wire)
    return shown[::-1]


def _turn(turn: TurnState) -> Turn:
    return Turn(
        id=turn.id,
        root_turn_id=turn.id,
        items=list(turn.items),
        status=turn.status,
        error=turn.error,
        started_at=turn.started_at_ms // 1000,
        completed_at=None if turn.completed_at_ms is None else turn.completed_at_ms // 1000,
        duration_ms=turn.duration_ms,
    )


def started_turn(turn_id: str) -> Turn:
    """Show a turn that was accepted a moment ago."""
    return Turn(
        id=turn_id, root_turn_id=turn_id, items=[], items_view="notLoaded", status="inProgress"
    )


def settings_response(settings: Settings, thread: Thread) -> dict[str, object]:
    """Collect the members that answers to start and resume share."""
    return dict(
        ThreadSettingsResponse(
            thread=thread,
            model=settings.model,
            model_provider=settings.model_provider,
            service_tier=settings.service_tier,
            cwd=settings.cwd,
            runtime_workspace_roots=[settings.cwd],
            approval_policy=settings.approval_policy,
            approvals_reviewer=settings.approvals_reviewer,
            sandbox=settings.sandbox_policy,
            active_permission_profile=_profile(settings),
            reasoning_effort=settings.effort,
        )
    )


def thread_settings(settings: Settings) -> ThreadSettings:
    """Show the settings in force."""
    return ThreadSettings(
        cwd=settings.cwd,
        environments=_environments(settings),
        approval_policy=settings.approval_policy,
        approvals_reviewer=settings.approvals_reviewer,
        sandbox_policy=settings.sandbox_policy,
        active_permission_profile=_profile(settings),
        model=settings.model,
        model_provider=settings.model_provider,
        service_tier=settings.service_tier,
        effort=settings.effort,
        summary=settings.summary,
        collaboration_mode=CollaborationMode(
            mode="default",
            settings=CollaborationSettings(model=settings.model, reasoning_effort=settings.effort),
        ),
        personality=settings.personality,
    )


def _profile(settings: Settings) -> ActivePermissionProfile | None:
    match settings.sandbox_policy:
        case DangerFullAccessSandboxPolicy():
            return None
        case WorkspaceWriteSandboxPolicy():
            return ActivePermissionProfile(id=":workspace")
    return ActivePermissionProfile(id=":read-only")


def _environments(settings: Settings) -> list[ThreadEnvironment]:
    return [
        ThreadEnvironment(
            environment_id="local", cwd=settings.cwd, runtime_workspace_roots=[settings.cwd]
        )
    ]
