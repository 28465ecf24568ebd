"""thread/start, thread/resume, thread/fork: a thread is made or loaded, and its client joins it.

Source: docs/wire.md, "Sending again", "Replay", "Joining a running turn"; docs/threads.md, "Git".
"""

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from app_server.config.requirements import requirements_of
from app_server.extensions.plugins.selected_roots import roots_of
from app_server.handlers.errors import (
    config_failures,
    known_filing,
    no_rollout,
    thread_failures,
    turn_not_found,
)
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.budget import check_limits
from app_server.handlers.threads.configured import config_for, settings_over, with_profile
from app_server.handlers.threads.overrides import ignored_text, pin_roots, thread_overrides
from app_server.handlers.threads.shown import (
    logged_turns,
    notify_of_usage,
    shown_thread,
    shown_turns,
    thread_response,
    warn_of_config,
)
from app_server.handlers.views.turns import (
    first_pages,
    turn_of_state,
    turns_of_state,
    turns_with_items,
    turns_with_log,
)
from app_server.host.folder_reads import FolderReads
from app_server.host.repository import read_repository
from app_server.permissions.trust import project_trust, says_something
from app_server.rpc.context import ConnectionId
from app_server.rpc.hub import Hub
from app_server.rpc.replay import Position
from app_server.sessions.loading import Start
from app_server.sessions.session import ThreadSession
from app_server.sessions.settings import initial_settings, with_required
from app_server.threads.failures import ThreadArchived, TurnInProgress, TurnNotFound
from app_server.threads.log.live import LogEnd
from app_server.threads.log.reading import ForkPoint
from app_server.threads.log.state import ThreadState, digest_of
from app_server.threads.operations import made_id, operation_made_id
from app_server.tools.dynamic_tools import BadSpec, checked_specs
from protocol.jsonrpc.errors import RpcError, invalid_member, invalid_params, invalid_request
from protocol.log.rollout import NameChanged, ThreadCreated
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION, WarningNotification
from protocol.threads.notifications import (
    ThreadGoalUpdatedNotification,
    ThreadStartedNotification,
    ThreadStatusChangedNotification,
)
from protocol.threads.start import (
    ThreadForkParams,
    ThreadForkResponse,
    ThreadResumeParams,
    ThreadResumeResponse,
    ThreadStartParams,
    ThreadStartResponse,
    TurnsPage,
)
from protocol.threads.thread import GitInfo, Thread
from protocol.turns.items import ThreadItem
from protocol.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class Joining:
    """One client's way in; it is sent nothing before `Hub.release`."""

    position: Position
    """Position in the stream; later events follow the answer."""
    turns: list[Turn]
    resync_required: bool | None
    """None if the client did not ask for what it missed."""
    page: TurnsPage | None = None
    """The page of turns that was asked for."""

    @property
    def is_replay(self) -> bool:
        """Whether the client is sent what it missed."""
        return self.resync_required is False

    @property
    def members(self) -> dict[str, Any]:
        """The members of the answer that say so."""
        return {
            "stream_id": self.position.stream_id,
            "seq": self.position.seq,
            "resync_required": self.resync_required,
        }


def known_position(params: ThreadResumeParams) -> Position | None:
    """Read how far a client knows the stream; None if it does not say.

    Raises:
        RpcError: the number is there, and what it counts in is not.
    """
    if params.after_seq is None:
        return None
    if params.stream_id is None:
        rule = "`afterSeq` needs the `streamId` that it counts in"
        raise invalid_params(f"Invalid params: {rule}", field="streamId", rule=rule)
    return Position(params.stream_id, params.after_seq)


def join(
    hub: Hub,
    connection_id: ConnectionId,
    session: ThreadSession,
    known: Position | None,
    logged: Sequence[Turn],
    *,
    with_turns: bool,
    page: TurnsPage | None = None,
) -> Joining:
    """Subscribe a client, held, so that what it is shown and what it is sent later fit together.

    Never waits: what is shown is the state at the position, to the event. `logged` are the turns
    that the log had a moment ago, where memory does not have them all, and `page` is some of them.
    """
    stream = hub.streams.find(session.log.id)
    assert stream is not None, "a loaded thread has a stream"
    if known is not None and stream.can_go_on(known):
        joining = Joining(known, [], resync_required=False, page=page)
    else:
        resync = None if known is None else True
        turns: list[Turn] = []
        # Before the position: it may tell others what has been printed.
        running = session.commands.snapshot() if with_turns or resync or page else {}
        if with_turns or resync:
            turns = turns_with_items(_shown_turns(session, logged), running)
        if page is not None:
            page = _page_now(session, page, running)
        joining = Joining(stream.position, turns, resync, page)
    hub.hold(connection_id, session.log.id, joining.position)
    return joining


def _page_now(
    session: ThreadSession, page: TurnsPage, running: Mapping[str, ThreadItem]
) -> TurnsPage:
    """Put what is not in the log yet into a page of it: items that are not complete, and output."""
    state, begun = session.log.state, session.clients.open_items.snapshot()
    data = []
    for turn in page.data:
        now = turn
        if state.open_turn is not None and turn.id == state.turns[-1].id:
            (now,) = turns_with_log([turn_of_state(state.turns[-1], begun)], [turn])
        (now,) = turns_with_items([now], running)
        data.append(now if turn.items_view == "full" else turn)
    return page.model_copy(update={"data": data})


def _shown_turns(session: ThreadSession, logged: Sequence[Turn]) -> list[Turn]:
    """Show the turns that were announced to clients, and what there is of the running one."""
    turns = turns_of_state(session.log.state, session.clients.open_items.snapshot())
    if logged:
        turns = turns_with_log(turns, logged)
    # A turn that was accepted a moment ago is published from its beginning.
    return [turn for turn in turns if turn.id != session.slot.unpublished_turn_id]


class GitInfoReader:
    """Reads repositories beside the event loop."""

    def __init__(self, reads: FolderReads) -> None:
        self._reads = reads

    async def read(self, cwd: str) -> GitInfo | None:
        """Say where the repository that a folder is in stands; None when nothing is known in 2 s.

        A read that hangs is left to itself.
        """
        state = await self._reads.read(partial(read_repository, Path(cwd)))
        if state is None:
            return None
        return GitInfo(sha=state.sha, branch=state.branch, origin_url=state.origin_url)


def _git(_: Services) -> GitInfoReader:
    return GitInfoReader(FolderReads())


def chosen_id(thread_id: str) -> str:
    """Return the id that a client chose for a thread.

    Raises:
        RpcError: it is not a UUID in its usual form.
    """
    try:
        if str(uuid.UUID(thread_id)) == thread_id:
            return thread_id
    except ValueError:
        pass
    rule = "must be a UUID in small letters, with hyphens"
    raise invalid_member("threadId", rule)


SOURCE = "vscode"
"""The kind of source that clients of an app-server list when they do not choose one."""


@serves("thread/start")
async def start_thread(context: RequestContext, params: ThreadStartParams) -> ThreadStartResponse:
    """Create a thread and subscribe the caller."""
    chosen = operation_made_id() if params.thread_id is None else chosen_id(params.thread_id)
    thread_id = context.services.clock.new_id() if chosen is None else chosen
    with config_failures(), thread_failures(thread_id, "thread not found"):
        params, profile = await with_profile(context.services.configuration, params)
        overrides = await thread_overrides(context.services, params)
        cwd = overrides.cwd or context.services.configuration.resolve(None)
        config, of_project = await config_for(
            context.services.configuration, params.config, cwd, profile
        )
        requirements = requirements_of(config)
        trust = None
        if says_something(config):
            trust = await anyio.to_thread.run_sync(project_trust, config, cwd)
        settings, replaced = with_required(
            initial_settings(config, cwd, overrides, trust), requirements
        )
        await _check_start(context.services, params)
        check_limits(params.budget)
        dynamic_tools = _dynamic_tools(params) or None
        selected = [root.model_dump(mode="json") for root in params.selected_capability_roots or ()]
        problems = await context.services.plugins.select(thread_id, roots_of(selected))
        session, outcome = await context.services.sessions.loading.start_once(
            ThreadCreated(
                at_ms=context.services.clock.now_ms(),
                thread_id=thread_id,
                settings=settings,
                source=SOURCE,
                cli_version=PROTOCOL_VERSION,
                originator=context.client.info.name,
                thread_source=params.thread_source,
                base_instructions=params.base_instructions,
                developer_instructions=params.developer_instructions,
                ephemeral=params.ephemeral is True,
                selected_capability_roots=selected or None,
                budget=params.budget,
                dynamic_tools=dynamic_tools,
                git_info=await context.services.part(_git).read(cwd),
                project_id=params.project_id,
                daybreak_enabled=params.daybreak_enabled,
                request_digest=None if chosen is None else digest_of(params),
            ),
            config,
        )
    _keep_for(context.services, session, params.unload_after_secs)
    thread = shown_thread(context.services.store, session.log.state, session)
    joining = join(context.services.hub, context.connection_id, session, None, (), with_turns=False)
    context.after_answer(_announce_start, context, session, thread, outcome)
    warnings = (*of_project, *requirements.warnings, *replaced, *problems)
    context.after_answer(
        warn_of_config, context.services.hub, context.connection_id, session, warnings
    )
    context.after_answer(_notify_of_loading, context, session)
    return thread_response(ThreadStartResponse, session, thread, **joining.members)


async def _check_start(services: Services, params: ThreadStartParams) -> None:
    if params.daybreak_enabled is not None and params.ephemeral:
        raise invalid_request(
            "daybreakEnabled is not supported for ephemeral threads", "ephemeralThread"
        )
    if params.project_id is None:
        return
    if not params.project_id:
        raise invalid_request("projectId must not be empty", "projectNotFound")
    filing = await known_filing(services.store.organization, is_asked_for=True)
    if params.project_id not in filing.projects:
        raise invalid_request(
            f"project not found: {params.project_id}",
            "projectNotFound",
            projectId=params.project_id,
        )


def _announce_start(
    context: RequestContext, session: ThreadSession, thread: Thread, outcome: Start
) -> None:
    context.services.hub.release(context.connection_id, thread.id)
    started = ThreadStartedNotification(thread=thread)
    if outcome is Start.CREATED:
        context.services.hub.broadcast(started)
        session.clients.begin()
    elif session.clients.began:
        context.services.hub.notify(context.connection_id, started)
    elif outcome is Start.LOADED:
        context.services.hub.notify(context.connection_id, started)
        session.clients.status(session.status)
        session.clients.begin()


@serves("thread/resume")
async def resume_thread(
    context: RequestContext, params: ThreadResumeParams
) -> ThreadResumeResponse:
    """Load a thread, or join a loaded one, and subscribe the caller."""
    thread_id, known = params.thread_id, known_position(params)
    _check_running(context.services, params)
    warnings: Sequence[str] = ()
    loading = context.services.sessions.loading
    with config_failures(), thread_failures(thread_id, no_rollout(thread_id)):
        params, profile = await with_profile(context.services.configuration, params)
        overrides = replace(
            await thread_overrides(context.services, params),
            base_instructions=params.base_instructions,
            developer_instructions=params.developer_instructions,
        )
        _check_path(context.services, params)
        async with loading.locked(thread_id) as found:
            session = found.session
            if session is None:
                if found.state.archived:
                    raise ThreadArchived(thread_id)
                config, settings, warnings = await settings_over(
                    context.services, thread_id, found.state, params, overrides, profile
                )
                session = await loading.load(found, config, settings)
                await pin_roots(context.services, overrides, session.log.state.settings)
            elif ignored := ignored_text(params, overrides, session):
                warning = WarningNotification(thread_id=thread_id, message=ignored)
                context.after_answer(context.services.hub.notify, context.connection_id, warning)
            _keep_for(context.services, session, params.unload_after_secs)
            state = session.log.state
            logged: Sequence[Turn] = ()
            if known is not None or not params.exclude_turns:
                logged = await logged_turns(context.services.store, state)
            history = await _history(context.services, params, state)
            joining = join(
                context.services.hub,
                context.connection_id,
                session,
                known,
                logged,
                with_turns=not params.exclude_turns,
                page=history.get("initial_turns_page"),
            )
    thread = shown_thread(context.services.store, session.log.state, session, joining.turns)
    context.after_answer(_announce_resume, context, session, joining)
    context.after_answer(
        warn_of_config, context.services.hub, context.connection_id, session, warnings
    )
    context.after_answer(_notify_of_loading, context, session)
    if joining.page is not None:
        history["initial_turns_page"] = joining.page
    return thread_response(ThreadResumeResponse, session, thread, **joining.members, **history)


def _check_path(services: Services, params: ThreadResumeParams) -> None:
    """Refuse the path of a file that is not the thread's own."""
    thread_id = params.thread_id
    if params.path and services.store.shown_path(thread_id) is None:
        raise _path_not_used(thread_id)
    if params.path and not services.store.is_path_of(thread_id, params.path):
        rule = "is not supported by this server, but for the thread's own file"
        raise invalid_member("path", rule)


def _path_not_used(thread_id: str) -> RpcError:
    return invalid_request(
        "threads of this server have no files: leave out `path`",
        "pathNotUsed",
        threadId=thread_id,
        field="path",
    )


def _check_running(services: Services, params: ThreadResumeParams) -> None:
    """Refuse to make another thread of one that is loaded."""
    thread_id = params.thread_id
    if services.sessions.find(thread_id) is None:
        return
    if params.history is not None:
        raise invalid_request(
            f"cannot resume thread {thread_id} with history while it is already running",
            "threadRunning",
            threadId=thread_id,
        )
    own = services.store.shown_path(thread_id)
    if params.path and own is None:
        raise _path_not_used(thread_id)
    if params.path and not services.store.is_path_of(thread_id, params.path):
        raise invalid_request(
            f"cannot resume running thread {thread_id} with stale path: requested "
            f"`{params.path}`, active `{own}`",
            "threadRunning",
            threadId=thread_id,
        )


def _notify_of_loading(context: RequestContext, session: ThreadSession) -> None:
    for text in (*session.log.take_warnings(), *session.instructions.take_warnings()):
        warning = WarningNotification(thread_id=session.log.id, message=text)
        context.services.hub.notify(context.connection_id, warning)


async def _history(
    services: Services, params: ThreadResumeParams, state: ThreadState
) -> dict[str, Any]:
    """Return where the pages of a thread begin, and the first one if it was asked for."""
    if state.created.ephemeral:
        return {}
    return await services.store.history.ask(state.id, first_pages, params.initial_turns_page)


def _keep_for(services: Services, session: ThreadSession, unload_after_s: int | None) -> None:
    if unload_after_s is not None:
        services.sessions.unloading.set_delay(session.log.id, unload_after_s)


def _announce_resume(context: RequestContext, session: ThreadSession, joining: Joining) -> None:
    state = session.log.state
    context.services.hub.release(context.connection_id, state.id)
    if not session.clients.began:
        context.services.hub.broadcast(
            ThreadStatusChangedNotification(thread_id=state.id, status=session.status)
        )
        session.clients.begin()
    if not joining.is_replay:
        notify_of_usage(context.services.hub, context.connection_id, state)
    session.resumed()
    if state.metadata.goal is not None:
        context.services.hub.broadcast(
            ThreadGoalUpdatedNotification(thread_id=state.id, goal=state.metadata.goal)
        )


def _dynamic_tools(params: ThreadStartParams) -> list[JsonObject]:
    try:
        return checked_specs(params.dynamic_tools or ())
    except BadSpec as exc:
        raise invalid_member(exc.field, exc.rule) from exc


@serves("thread/fork")
async def fork_thread(context: RequestContext, params: ThreadForkParams) -> ThreadForkResponse:
    """Copy the history of a thread into a new one, and subscribe the caller to that."""
    _refuse_two_ends(params)
    check_limits(params.budget)
    source_id = params.thread_id
    with config_failures(), thread_failures(source_id, no_rollout(source_id)):
        source, end = await _source(context.services, source_id)
        params, profile = await with_profile(context.services.configuration, params)
        overrides = await thread_overrides(context.services, params)
        thread_id = made_id(context.services.clock)
        config, settings, warnings = await settings_over(
            context.services, thread_id, source, params, overrides, profile
        )
        created = ThreadCreated(
            at_ms=context.services.clock.now_ms(),
            thread_id=thread_id,
            settings=settings,
            source=source.created.source,
            cli_version=PROTOCOL_VERSION,
            originator=context.client.info.name,
            thread_source=params.thread_source,
            base_instructions=params.base_instructions or source.created.base_instructions,
            developer_instructions=params.developer_instructions
            or source.created.developer_instructions,
            ephemeral=params.ephemeral,
            forked_from_id=source_id,
            selected_capability_roots=source.created.selected_capability_roots,
            budget=params.budget,
            dynamic_tools=source.created.dynamic_tools,
            git_info=await context.services.part(_git).read(settings.cwd),
        )
        point = ForkPoint(params.last_turn_id, params.before_turn_id, end)
        try:
            session = await context.services.sessions.loading.fork(
                created, config, source_id, point, source.name, anew=overrides.names_places
            )
        except TurnNotFound as exc:
            raise turn_not_found(str(exc)) from exc
        except TurnInProgress as exc:
            raise invalid_request(
                f"lastTurnId '{exc}' identifies an in-progress turn",
                "turnInProgress",
                turnId=str(exc),
            ) from exc
    context.after_answer(
        warn_of_config, context.services.hub, context.connection_id, session, warnings
    )
    return await _fork_response(context, params, session)


async def _fork_response(
    context: RequestContext, params: ThreadForkParams, session: ThreadSession
) -> ThreadForkResponse:
    thread = shown_thread(context.services.store, session.log.state, session)
    shown = thread
    if not params.exclude_turns:
        with thread_failures(thread.id, no_rollout(thread.id)):
            turns = await shown_turns(context.services.store, session.log.state, loaded=True)
        shown = thread.model_copy(update={"turns": turns})
    context.after_answer(_announce_fork, context, session, thread)
    return thread_response(ThreadForkResponse, session, shown)


async def fork_again(
    context: RequestContext, params: ThreadForkParams, thread_id: str
) -> ThreadForkResponse | None:
    """Load the fork that the same request has made before it was cut off; None: it has not.

    Raises:
        RpcError: it cannot be loaded.
    """
    services = context.services
    with config_failures(), thread_failures(thread_id, no_rollout(thread_id)):
        if services.sessions.find(thread_id) is None and not await services.store.exists(thread_id):
            return None
        params, profile = await with_profile(services.configuration, params)
        overrides = await thread_overrides(services, params)
        async with services.sessions.loading.locked(thread_id) as found:
            session = found.session
            if session is None:
                config, settings, _ = await settings_over(
                    services, thread_id, found.state, params, overrides, profile
                )
                session = await services.sessions.loading.load(found, config, settings)
        if session.log.state.name is None:
            # What is appended to a fork comes after its copy, and may be missing.
            with contextlib.suppress(RpcError):
                source, _ = await _source(services, params.thread_id)
                if source.name is not None:
                    now_ms = services.clock.now_ms()
                    await session.log.append(NameChanged(at_ms=now_ms, name=source.name))
    return await _fork_response(context, params, session)


async def _source(services: Services, source_id: str) -> tuple[ThreadState, LogEnd | None]:
    """Return what is known of a source, and where its log ends if it is being written."""
    session = services.sessions.find(source_id)
    if session is None:
        state, end = await services.store.read(source_id), None
    elif session.log.ephemeral:
        raise invalid_request(no_rollout(source_id), "ephemeralThread", threadId=source_id)
    else:
        state, end = session.log.state, await session.log.log_end()
    if state.archived:
        raise ThreadArchived(source_id)
    return state, end


def _announce_fork(context: RequestContext, session: ThreadSession, thread: Thread) -> None:
    state = session.log.state
    context.services.hub.subscribe(context.connection_id, state.id)
    notify_of_usage(context.services.hub, context.connection_id, state)
    context.services.hub.broadcast(ThreadStartedNotification(thread=thread))
    session.clients.begin()


def _refuse_two_ends(params: ThreadForkParams) -> None:
    if params.last_turn_id is not None and params.before_turn_id is not None:
        raise invalid_request(
            "`beforeTurnId` cannot be combined with `lastTurnId`",
            "invalidParams",
            field="beforeTurnId",
            rule="cannot be combined with `lastTurnId`",
        )
