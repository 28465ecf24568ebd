"""thread/*: starting, finding, reading and putting away conversations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from app_server.clock import Clock
from app_server.config import Config
from app_server.handlers.configuration import Configuration
from app_server.handlers.failures import (
    archived,
    config_failures,
    cursor_failures,
    thread_failures,
)
from app_server.handlers.first_pages import first_pages
from app_server.handlers.thread_view import (
    settings_response,
    thread_of_row,
    thread_of_state,
    turns_of_log,
    turns_of_state,
)
from app_server.plugins.contributor import Plugins, roots_of
from app_server.requirements import requirements_of
from app_server.rpc.context import Handler, RequestContext
from app_server.rpc.hub import Hub
from app_server.threads.index import SortKey, ThreadQuery, ThreadRow
from app_server.threads.state import ThreadState
from app_server.threads.store import ThreadNotFound, ThreadStore
from app_server.turns.required import with_required
from app_server.turns.response_items import first_problem
from app_server.turns.session import ThreadSession
from app_server.turns.sessions import Sessions
from app_server.turns.settings import Overrides, initial_settings, with_overrides
from protocol.errors import invalid_params, invalid_request
from protocol.lifecycle import (
    PROTOCOL_VERSION,
    ConfigWarningNotification,
    WarningNotification,
)
from protocol.rollout import ArchivedChanged, NameChanged, Settings, ThreadCreated
from protocol.threads import (
    NotLoadedThreadStatus,
    Thread,
    ThreadArchivedNotification,
    ThreadArchiveParams,
    ThreadArchiveResponse,
    ThreadInjectItemsParams,
    ThreadInjectItemsResponse,
    ThreadListParams,
    ThreadListResponse,
    ThreadLoadedListParams,
    ThreadLoadedListResponse,
    ThreadNameUpdatedNotification,
    ThreadOverrides,
    ThreadReadParams,
    ThreadReadResponse,
    ThreadResumeParams,
    ThreadResumeResponse,
    ThreadSetNameParams,
    ThreadSetNameResponse,
    ThreadStartedNotification,
    ThreadStartParams,
    ThreadStartResponse,
    ThreadStatus,
    ThreadStatusChangedNotification,
    ThreadUnarchivedNotification,
    ThreadUnarchiveParams,
    ThreadUnarchiveResponse,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResponse,
)
from protocol.turns import ThreadTokenUsageUpdatedNotification, Turn

DEFAULT_PAGE = 25
MAX_PAGE = 100
SOURCE = "vscode"
"""The kind of source that clients of an app-server list when they do not choose one."""

_SORT_KEYS: Mapping[str | None, SortKey] = {
    None: "created_at_ms",
    "created_at": "created_at_ms",
    "updated_at": "updated_at_ms",
    "recency_at": "recency_at_ms",
    # There are no sections yet, so there is no position to sort by.
    "section_position": "created_at_ms",
}


@dataclass(frozen=True, slots=True)
class ThreadPorts:
    """What these handlers work with."""

    store: ThreadStore
    sessions: Sessions
    hub: Hub
    configuration: Configuration
    clock: Clock
    plugins: Plugins


class ThreadHandlers:
    """The thread/* methods."""

    def __init__(self, ports: ThreadPorts) -> None:
        self._store = ports.store
        self._sessions = ports.sessions
        self._hub = ports.hub
        self._configuration = ports.configuration
        self._clock = ports.clock
        self._plugins = ports.plugins

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {
            "thread/start": self.start,
            "thread/resume": self.resume,
            "thread/read": self.read,
            "thread/list": self.list_page,
            "thread/loaded/list": self.list_loaded,
            "thread/unsubscribe": self.unsubscribe,
            "thread/name/set": self.set_name,
            "thread/archive": self.archive,
            "thread/unarchive": self.unarchive,
            "thread/inject_items": self.inject_items,
        }

    async def start(
        self, context: RequestContext, params: ThreadStartParams
    ) -> ThreadStartResponse:
        """Begin a conversation and subscribe the caller."""
        with config_failures(), thread_failures("", "thread not found"):
            config = await self._configuration.read(params.config)
            cwd = self._configuration.resolve(params.cwd)
            requirements = requirements_of(config)
            settings, replaced = with_required(
                initial_settings(config, cwd, overrides_of(params, cwd)), requirements
            )
            thread_id = self._clock.new_id()
            chosen = [
                root.model_dump(mode="json") for root in params.selected_capability_roots or ()
            ]
            problems = await self._plugins.select(thread_id, roots_of(chosen))
            session = await self._sessions.start(
                ThreadCreated(
                    at_ms=self._clock.now_ms(),
                    thread_id=thread_id,
                    settings=settings,
                    source=SOURCE,
                    cli_version=PROTOCOL_VERSION,
                    originator=context.client.info.name,
                    thread_source=params.thread_source,
                    base_instructions=params.base_instructions,
                    developer_instructions=params.developer_instructions,
                    ephemeral=params.ephemeral is True,
                    selected_capability_roots=chosen or None,
                ),
                config,
            )
        thread = self._thread(session)
        context.after_answer(partial(self._announce_start, context, session, thread, params))
        warnings = (*requirements.warnings, *replaced, *problems)
        context.after_answer(partial(self._warn, context, session, warnings))
        return ThreadStartResponse(**_members(session, thread))

    def _announce_start(
        self,
        context: RequestContext,
        session: ThreadSession,
        thread: Thread,
        params: ThreadStartParams,
    ) -> None:
        self._hub.subscribe(context.connection_id, thread.id)
        self._hub.broadcast(ThreadStartedNotification(thread=thread))
        session.announcer.begin()
        if params.dynamic_tools:
            warning = "dynamicTools are not supported by this server and were ignored"
            self._hub.tell(
                context.connection_id, WarningNotification(thread_id=thread.id, message=warning)
            )

    def _warn(
        self, context: RequestContext, session: ThreadSession, warnings: Sequence[str]
    ) -> None:
        for warning in warnings:
            self._hub.tell(context.connection_id, ConfigWarningNotification(summary=warning))
            session.announcer.warning(warning)

    async def resume(
        self, context: RequestContext, params: ThreadResumeParams
    ) -> ThreadResumeResponse:
        """Load a thread, or join a loaded one, and subscribe the caller."""
        thread_id = params.thread_id
        warnings: list[str] = []

        async def configure(state: ThreadState) -> tuple[Config, Settings]:
            if state.archived:
                raise archived(thread_id)
            config = await self._configuration.read(params.config)
            cwd = None if params.cwd is None else self._configuration.resolve(params.cwd)
            settings = with_overrides(state.settings, overrides_of(params, cwd), config.view())
            requirements = requirements_of(config)
            settings, replaced = with_required(settings, requirements)
            roots = roots_of(state.created.selected_capability_roots or ())
            problems = await self._plugins.select(thread_id, roots)
            warnings.extend((*requirements.warnings, *replaced, *problems))
            return config, settings

        with (
            config_failures(),
            thread_failures(thread_id, f"no rollout found for thread id {thread_id}"),
        ):
            session = await self._sessions.load(thread_id, configure)
        state = session.thread.state
        turns = []
        if not params.exclude_turns:
            turns = await shown_turns(self._store, state, loaded=True)
        thread = thread_of_state(state, session.status, self._path(session), turns=turns)
        history = await self._history(params, state)
        context.after_answer(partial(self._announce_resume, context, session))
        context.after_answer(partial(self._warn, context, session, warnings))
        return ThreadResumeResponse(**_members(session, thread), **history)

    async def _history(self, params: ThreadResumeParams, state: ThreadState) -> dict[str, Any]:
        """Return where the pages of a thread begin, and the first one if it was asked for."""
        if state.created.ephemeral:
            return {}
        return await self._store.ask(state.id, partial(first_pages, params.initial_turns_page))

    def _announce_resume(self, context: RequestContext, session: ThreadSession) -> None:
        state = session.thread.state
        self._hub.subscribe(context.connection_id, state.id)
        if not session.announcer.began:
            self._hub.broadcast(
                ThreadStatusChangedNotification(thread_id=state.id, status=session.status)
            )
            session.announcer.begin()
        if state.usage is not None and state.turns:
            self._hub.tell(
                context.connection_id,
                ThreadTokenUsageUpdatedNotification(
                    thread_id=state.id, turn_id=state.turns[-1].id, token_usage=state.usage
                ),
            )
        session.resumed()

    async def read(self, context: RequestContext, params: ThreadReadParams) -> ThreadReadResponse:
        """Look at a thread without loading it."""
        session = self._sessions.find(params.thread_id)
        if session is None:
            with thread_failures(params.thread_id, f"thread not loaded: {params.thread_id}"):
                state = await self._store.read(params.thread_id)
                state.give_up_open_turn(state.updated_at_ms)
                path: Path | None = self._store.path_of(params.thread_id)
            status: ThreadStatus = NotLoadedThreadStatus()
        else:
            state, status, path = session.thread.state, session.status, self._path(session)
        if params.include_turns and state.created.ephemeral:
            raise invalid_request(
                "ephemeral threads do not support includeTurns",
                "ephemeralThread",
                threadId=params.thread_id,
            )
        turns = []
        if params.include_turns:
            turns = await shown_turns(self._store, state, loaded=session is not None)
        return ThreadReadResponse(thread=thread_of_state(state, status, path, turns=turns))

    async def list_page(
        self, context: RequestContext, params: ThreadListParams
    ) -> ThreadListResponse:
        """Page through stored threads."""
        if _asks_for_what_is_not(params):
            return ThreadListResponse(data=[])
        with cursor_failures():
            page = await self._store.list_page(self._query(params))
        return ThreadListResponse(
            data=[self._row(row) for row in page.rows],
            next_cursor=page.next_cursor,
            backwards_cursor=page.backwards_cursor,
        )

    def _query(self, params: ThreadListParams) -> ThreadQuery:
        cwds = [params.cwd] if isinstance(params.cwd, str) else params.cwd or []
        return ThreadQuery(
            limit=min(max(DEFAULT_PAGE if params.limit is None else params.limit, 1), MAX_PAGE),
            cursor=params.cursor,
            sort_key=_SORT_KEYS[params.sort_key],
            ascending=params.sort_direction == "asc",
            archived=params.archived is True,
            model_providers=params.model_providers or (),
            source_kinds=params.source_kinds or (),
            originators=params.originators or (),
            cwds=[self._configuration.resolve(cwd) for cwd in cwds],
            excluded=params.excluded_thread_ids or (),
            search=params.search_term,
        )

    def _row(self, row: ThreadRow) -> Thread:
        session = self._sessions.find(row.id)
        status = NotLoadedThreadStatus() if session is None else session.status
        return thread_of_row(row, status, self._store.path_of(row.id))

    async def list_loaded(
        self, context: RequestContext, params: ThreadLoadedListParams
    ) -> ThreadLoadedListResponse:
        """Page through the ids of loaded threads."""
        ids = [session.thread.id for session in self._sessions]
        if params.cursor is not None:
            if params.cursor not in ids:
                raise invalid_request(
                    f"invalid cursor: {params.cursor}", "invalidCursor", cursor=params.cursor
                )
            ids = ids[ids.index(params.cursor) + 1 :]
        limit = len(ids) if params.limit is None else max(params.limit, 1)
        page = ids[:limit]
        return ThreadLoadedListResponse(
            data=page, next_cursor=page[-1] if len(ids) > limit else None
        )

    async def unsubscribe(
        self, context: RequestContext, params: ThreadUnsubscribeParams
    ) -> ThreadUnsubscribeResponse:
        """Stop hearing of a thread."""
        if self._sessions.find(params.thread_id) is None:
            return ThreadUnsubscribeResponse(status="notLoaded")
        listened = self._hub.unsubscribe(context.connection_id, params.thread_id)
        return ThreadUnsubscribeResponse(status="unsubscribed" if listened else "notSubscribed")

    async def set_name(
        self, context: RequestContext, params: ThreadSetNameParams
    ) -> ThreadSetNameResponse:
        """Name a thread, loaded or not."""
        name = params.name.strip()
        if not name:
            raise invalid_request("thread name must not be empty", "emptyName")
        record = NameChanged(at_ms=self._clock.now_ms(), name=name)
        session = self._sessions.find(params.thread_id)
        with thread_failures(params.thread_id, _no_rollout(params.thread_id)):
            if session is None:
                await self._store.change(params.thread_id, record)
            elif session.thread.ephemeral:
                raise invalid_request(
                    f"ephemeral thread does not support metadata updates: {params.thread_id}",
                    "ephemeralThread",
                    threadId=params.thread_id,
                )
            else:
                await session.thread.append(record)
        event = ThreadNameUpdatedNotification(thread_id=params.thread_id, thread_name=name)
        context.after_answer(partial(self._hub.broadcast, event))
        return ThreadSetNameResponse()

    async def archive(
        self, context: RequestContext, params: ThreadArchiveParams
    ) -> ThreadArchiveResponse:
        """Unload a thread, ending its turn, and move it out of the default list."""
        thread_id = params.thread_id
        session = self._sessions.find(thread_id)
        with thread_failures(thread_id, _no_rollout(thread_id)):
            if session is not None and session.thread.ephemeral:
                raise ThreadNotFound(thread_id)
            if await self._sessions.unload(thread_id):
                self._hub.broadcast(
                    ThreadStatusChangedNotification(
                        thread_id=thread_id, status=NotLoadedThreadStatus()
                    )
                )
            await self._store.change(
                thread_id, ArchivedChanged(at_ms=self._clock.now_ms(), archived=True)
            )
        event = ThreadArchivedNotification(thread_id=thread_id)
        context.after_answer(partial(self._hub.broadcast, event))
        return ThreadArchiveResponse()

    async def unarchive(
        self, context: RequestContext, params: ThreadUnarchiveParams
    ) -> ThreadUnarchiveResponse:
        """Bring an archived thread back into the default list."""
        thread_id = params.thread_id
        with thread_failures(thread_id, f"no archived rollout found for thread id {thread_id}"):
            if not (await self._store.read(thread_id)).archived:
                raise ThreadNotFound(thread_id)
            state = await self._store.change(
                thread_id, ArchivedChanged(at_ms=self._clock.now_ms(), archived=False)
            )
        event = ThreadUnarchivedNotification(thread_id=thread_id)
        context.after_answer(partial(self._hub.broadcast, event))
        path = self._store.path_of(thread_id)
        return ThreadUnarchiveResponse(thread=thread_of_state(state, NotLoadedThreadStatus(), path))

    async def inject_items(
        self, context: RequestContext, params: ThreadInjectItemsParams
    ) -> ThreadInjectItemsResponse:
        """Append raw items to what the model sees; answered when they are on disk."""
        if not params.items:
            raise invalid_request("items must not be empty", "emptyItems")
        problem = first_problem(params.items)
        if problem is not None:
            index, rule = problem
            field = f"items[{index}]"
            raise invalid_params(f"Invalid params: `{field}`: {rule}", field=field, rule=rule)
        with thread_failures(params.thread_id, f"thread not found: {params.thread_id}"):
            await self._sessions.get(params.thread_id).inject(params.items)
        return ThreadInjectItemsResponse()

    def _thread(self, session: ThreadSession) -> Thread:
        return thread_of_state(session.thread.state, session.status, self._path(session))

    def _path(self, session: ThreadSession) -> Path | None:
        return None if session.thread.ephemeral else self._store.path_of(session.thread.id)


async def shown_turns(store: ThreadStore, state: ThreadState, *, loaded: bool) -> list[Turn]:
    """Return the turns of an answer: from memory if they are all there, else from the log."""
    if state.is_whole or state.created.ephemeral:
        return turns_of_state(state)
    return await store.ask(state.id, partial(turns_of_log, loaded=loaded))


def overrides_of(params: ThreadOverrides, cwd: str | None) -> Overrides:
    """Collect what a client chose; `cwd` is absolute."""
    return Overrides(
        model=params.model,
        model_provider=params.model_provider,
        cwd=cwd,
        approval_policy=params.approval_policy,
        approvals_reviewer=params.approvals_reviewer,
        sandbox_mode=params.sandbox,
        service_tier=params.service_tier,
        personality=getattr(params, "personality", None),
    )


def _members(session: ThreadSession, thread: Thread) -> dict[str, Any]:
    return cast(dict[str, Any], settings_response(session.thread.state.settings, thread))


def _no_rollout(thread_id: str) -> str:
    return f"no rollout found for thread id {thread_id}"


def _asks_for_what_is_not(params: ThreadListParams) -> bool:
    """Whether a filter asks for sections, projects, or threads that hang on other threads."""
    return any(
        value is not None
        for value in (
            params.section_id,
            params.ancestor_thread_id,
            params.attached_to_thread_id,
            params.parent_thread_id,
            params.project_id,
        )
    )
