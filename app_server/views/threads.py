"""From stored and loaded threads to what the wire shows of them."""

from collections.abc import Mapping, Sequence

from pydantic_core import from_json

from app_server.threads.history.pages import HistoryReader, PagedTurn
from app_server.threads.index.rows import ThreadRow
from app_server.threads.log.state.metadata import ThreadMetadata, initial_read_state
from app_server.threads.log.state.thread import ThreadState, TurnState
from app_server.threads.organization.filing import FilingState
from protocol.items import ThreadItem
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.policy import (
    ActivePermissionProfile,
    DangerFullAccessSandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from protocol.rollout import Settings
from protocol.threads import (
    GitInfo,
    NotLoadedThreadStatus,
    Thread,
    ThreadEnvironment,
    ThreadReadState,
    ThreadSection,
    ThreadSettings,
    ThreadSettingsResponse,
    ThreadStatus,
)
from protocol.turns import Turn
from protocol.values import CollaborationMode
from protocol.values import Settings as CollaborationSettings

MAX_TURNS_CHARS = 900_000
"""Characters of all turns of one answer; a message to a client stays below 1 MiB."""
TURN_CHARS = 300
"""What a turn without items takes, about."""


def thread_of_state(
    state: ThreadState,
    status: ThreadStatus,
    path: str | None,
    *,
    turns: list[Turn] | None = None,
    filing: FilingState | None = None,
) -> Thread:
    """Show a thread whose state is at hand; `path` None means that it is in memory alone.

    `filing` says which projects and sections there are.
    """
    created, settings, metadata = state.created, state.settings, state.metadata
    section, project_id = _filed(metadata, filing)
    loaded = not isinstance(status, NotLoadedThreadStatus)
    return Thread(
        id=state.id,
        session_id=state.id,
        forked_from_id=created.forked_from_id,
        environments=_environments(settings) if loaded else None,
        preview=state.preview,
        ephemeral=created.ephemeral,
        section=section,
        section_entered_at=_entered_at(metadata, section),
        project_id=project_id,
        history_mode="paginated",
        model_provider=settings.model_provider,
        model=settings.model,
        reasoning_effort=settings.effort,
        created_at=created.at_ms // 1000,
        updated_at=state.updated_at_ms // 1000,
        recency_at=state.recency_at_ms // 1000,
        status=status,
        path=path,
        cwd=settings.cwd,
        cli_version=created.cli_version,
        originator=created.originator,
        source=created.source,
        can_accept_direct_input=True if loaded else None,
        thread_source=created.thread_source,
        git_info=metadata.git_info,
        name=state.name,
        daybreak_enabled=metadata.daybreak_enabled,
        turns=turns or [],
    )


def thread_of_row(
    row: ThreadRow, status: ThreadStatus, path: str, filing: FilingState | None = None
) -> Thread:
    """Show a thread from the index."""
    section, project_id = _filed(row, filing)
    return Thread(
        id=row.id,
        session_id=row.id,
        preview=row.preview,
        ephemeral=False,
        section=section,
        section_entered_at=_entered_at(row, section),
        project_id=project_id,
        history_mode="paginated",
        model_provider=row.model_provider,
        model=row.model,
        reasoning_effort=row.effort,
        created_at=row.created_at_ms // 1000,
        updated_at=row.updated_at_ms // 1000,
        recency_at=row.recency_at_ms // 1000,
        status=status,
        path=path,
        cwd=row.cwd,
        cli_version=row.cli_version or PROTOCOL_VERSION,
        originator=row.originator,
        source=from_json(row.source),
        thread_source=row.thread_source,
        git_info=None if row.git_info is None else GitInfo.model_validate_json(row.git_info),
        name=row.name,
        daybreak_enabled=row.daybreak_enabled,
        turns=[],
    )


def _filed(
    thread: ThreadMetadata | ThreadRow, filing: FilingState | None
) -> tuple[ThreadSection | None, str | None]:
    """Leave out what was deleted since the thread was put there."""
    if filing is None:
        return None, None
    section = None if thread.section_id is None else filing.sections.get(thread.section_id)
    return section, thread.project_id if thread.project_id in filing.projects else None


def _entered_at(thread: ThreadMetadata | ThreadRow, section: ThreadSection | None) -> int | None:
    at_ms = thread.section_entered_at_ms
    return None if section is None or at_ms is None else at_ms // 1000


def read_state_of(state: ThreadState) -> ThreadReadState | None:
    """Show how far a thread was read; None where that is not kept."""
    if state.created.ephemeral or not state.has_content:
        return None
    return state.metadata.read_state or initial_read_state(state.id)


def read_state_of_row(row: ThreadRow) -> ThreadReadState:
    """Show how far a thread of the index was read."""
    if row.read_state is None:
        return initial_read_state(row.id)
    return ThreadReadState.model_validate_json(row.read_state)


def turns_of_state(state: ThreadState, open_items: Sequence[ThreadItem] = ()) -> list[Turn]:
    """Show all turns, oldest first, as far as they fit into one message.

    `open_items` are those of the running turn that are not complete.

    The newest keep their items; older ones are there without items, the oldest may be missing.
    """
    wires = [turn_of_state(turn) for turn in state.turns]
    if wires and state.open_turn is not None:
        wires[-1].items.extend(open_items)
    return _fitting(wires)


def turns_with_items(turns: Sequence[Turn], newer: Mapping[str, ThreadItem]) -> list[Turn]:
    """Put newer versions of items, by id, in the place of older ones, as far as it fits."""
    if not newer:
        return list(turns)
    return _fitting(
        [
            turn.model_copy(
                update={"items": [newer.get(getattr(item, "id", ""), item) for item in turn.items]}
            )
            for turn in turns
        ]
    )


def turns_with_log(newest: Sequence[Turn], logged: Sequence[Turn]) -> list[Turn]:
    """Put together what memory and the log have of a loaded thread's turns, as far as it fits.

    Memory is ahead of the log that was read a moment ago, and has forgotten some of it. A turn that
    is over is as the log has it; of the running one the log's items come first.
    """
    known = {turn.id: turn for turn in logged}
    begun = {turn.id for turn in newest}
    turns = [turn for turn in logged if turn.id not in begun]
    for turn in newest:
        before = known.get(turn.id)
        if before is not None and before.status != "inProgress":
            turns.append(before)
        elif before is None or before.items_view != "full":
            turns.append(turn)
        else:
            ids = {getattr(item, "id", None) for item in before.items}
            rest = [item for item in turn.items if getattr(item, "id", None) not in ids]
            turns.append(turn.model_copy(update={"items": [*before.items, *rest]}))
    return _fitting(turns)


def _fitting(turns: Sequence[Turn]) -> list[Turn]:
    shown: list[Turn] = []
    left = MAX_TURNS_CHARS
    for turn in reversed(turns):
        wire = turn
        size = len(wire.model_dump_json())
        if size > left:
            wire = wire.model_copy(update={"items": [], "items_view": "notLoaded"})
            size = len(wire.model_dump_json())
        if size > left:
            break
        left -= size
        shown.append(wire)
    return shown[::-1]


def turn_of_state(turn: TurnState, open_items: Sequence[ThreadItem] = ()) -> Turn:
    """Show a turn, with items that are not complete behind those that are."""
    return Turn(
        id=turn.id,
        root_turn_id=turn.id,
        items=[*turn.items, *open_items],
        status=turn.status,
        error=turn.error,
        started_at=turn.started_at_ms // 1000,
        completed_at=None if turn.completed_at_ms is None else turn.completed_at_ms // 1000,
        duration_ms=turn.duration_ms,
    )


def turns_of_log(reader: HistoryReader, *, loaded: bool) -> list[Turn]:
    """Show all turns of a log as `turns_of_state` does; none can be running if not `loaded`."""
    shown: list[Turn] = []
    left = MAX_TURNS_CHARS
    for outline in reader.walk(None, ascending=False):
        places = list(outline.places())
        size = TURN_CHARS + sum(place.length for place in places)
        fits = size <= left
        left -= size if fits else TURN_CHARS
        if left < 0:
            break
        items = [item for item in map(reader.item, places) if item is not None] if fits else []
        paged = PagedTurn(outline, "full" if fits else "notLoaded", items)
        shown.append(turn_of_page(paged, None if loaded else reader.facts.at_ms))
    return shown[::-1]


def turn_of_page(paged: PagedTurn, given_up_at_ms: int | None) -> Turn:
    """Show a turn; one that never ended counts as interrupted if `given_up_at_ms` is given."""
    outline = paged.outline
    status, completed_at_ms = outline.status, outline.completed_at_ms
    if status == "inProgress" and given_up_at_ms is not None:
        status, completed_at_ms = "interrupted", given_up_at_ms
    return Turn(
        id=outline.id,
        root_turn_id=outline.id,
        items=list(paged.items),
        items_view=paged.view,
        status=status,
        error=outline.error,
        started_at=outline.started_at_ms // 1000,
        completed_at=None if completed_at_ms is None else completed_at_ms // 1000,
        duration_ms=outline.duration_ms,
    )


def started_turn(turn_id: str) -> Turn:
    """Show a turn that was accepted a moment ago."""
    return Turn(
        id=turn_id, root_turn_id=turn_id, items=[], items_view="notLoaded", status="inProgress"
    )


def settings_response(
    settings: Settings, thread: Thread, instruction_sources: list[str]
) -> dict[str, object]:
    """Collect the members that answers to start, resume and fork share."""
    return dict(
        ThreadSettingsResponse(
            thread=thread,
            model=settings.model,
            model_provider=settings.model_provider,
            service_tier=settings.service_tier,
            disabled_plugin_ids=settings.disabled_plugin_ids,
            cwd=settings.cwd,
            runtime_workspace_roots=_first_roots(settings),
            instruction_sources=instruction_sources,
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
        disabled_plugin_ids=settings.disabled_plugin_ids,
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
            mode=settings.mode or "default",
            settings=CollaborationSettings(
                model=settings.model,
                reasoning_effort=settings.effort,
                developer_instructions=settings.mode_instructions,
            ),
        ),
        personality=settings.personality,
    )


def _profile(settings: Settings) -> ActivePermissionProfile | None:
    if (own := settings.profile_in_force) is not None:
        return ActivePermissionProfile(id=own.id, extends=own.extends)
    match settings.sandbox_policy:
        case DangerFullAccessSandboxPolicy():
            return None
        case WorkspaceWriteSandboxPolicy():
            return ActivePermissionProfile(id=":workspace")
    return ActivePermissionProfile(id=":read-only")


def _environments(settings: Settings) -> list[ThreadEnvironment]:
    return [
        ThreadEnvironment(
            environment_id=folder.environment_id,
            cwd=folder.cwd,
            runtime_workspace_roots=folder.roots,
        )
        for folder in settings.working_folders
    ]


def _first_roots(settings: Settings) -> list[str]:
    return next((folder.roots for folder in settings.working_folders), [])
