"""thread/start and thread/resume: a thread is made, or loaded, and its client joins it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio.to_thread

from app_server.config.requirements import requirements_of
from app_server.config.values import Config
from app_server.extensions.plugins.roots import roots_of
from app_server.handlers.errors import config_failures, known_filing, no_rollout, thread_failures
from app_server.handlers.idempotency import chosen_id
from app_server.handlers.services import Services
from app_server.handlers.threads.chosen.configured import config_for, settings_over, with_profile
from app_server.handlers.threads.chosen.settings import hold_places, ignored_text, thread_overrides
from app_server.handlers.threads.git_info import GitInfoReader
from app_server.handlers.threads.shown import (
    logged_turns,
    notify_of_usage,
    shown_thread,
    thread_response,
    warn_of_config,
)
from app_server.handlers.threads.subscribing import Joining, join, known_position
from app_server.handlers.views.first_pages import first_pages
from app_server.permissions.trust import project_trust, says_something
from app_server.rpc.context import RequestContext, Routes
from app_server.sessions.loaded.loading import Start
from app_server.sessions.managed_policy import with_required
from app_server.sessions.session import ThreadSession
from app_server.sessions.settings import initial_settings
from app_server.threads.failures import ThreadArchived
from app_server.threads.log.state.queue import digest_of
from app_server.threads.log.state.thread import ThreadState
from app_server.tools.dynamic.specs import BadSpec, checked_specs
from protocol.jsonrpc.errors import invalid_member, invalid_request
from protocol.log.rollout import Settings, ThreadCreated
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION, WarningNotification
from protocol.threads.notifications import (
    ThreadGoalUpdatedNotification,
    ThreadStartedNotification,
    ThreadStatusChangedNotification,
)
from protocol.threads.start import (
    ThreadResumeParams,
    ThreadResumeResponse,
    ThreadStartParams,
    ThreadStartResponse,
)
from protocol.threads.thread import Thread
from protocol.turns.turn import Turn

SOURCE = "vscode"
"""The kind of source that clients of an app-server list when they do not choose one."""


class ThreadHandlers:
    """The methods that load threads."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store
        self._sessions = services.sessions
        self._hub = services.hub
        self._configuration = services.configuration
        self._clock = services.clock
        self._plugins = services.plugins
        self._git = GitInfoReader()
        self.routes: Routes = {"thread/start": self.start, "thread/resume": self.resume}

    async def start(
        self, context: RequestContext, params: ThreadStartParams
    ) -> ThreadStartResponse:
        """Begin a conversation and subscribe the caller."""
        chosen = None if params.thread_id is None else chosen_id(params.thread_id)
        thread_id = self._clock.new_id() if chosen is None else chosen
        with config_failures(), thread_failures(thread_id, "thread not found"):
            params = await with_profile(self._configuration, params)
            overrides = await thread_overrides(self._services, params)
            cwd = overrides.cwd or self._configuration.resolve(None)
            config, of_project = await config_for(self._configuration, params.config, cwd)
            requirements = requirements_of(config)
            trust = None
            if says_something(config):
                trust = await anyio.to_thread.run_sync(project_trust, config, cwd)
            settings, replaced = with_required(
                initial_settings(config, cwd, overrides, trust), requirements
            )
            await self._check_start(params)
            dynamic_tools = _dynamic_tools(params) or None
            selected = [
                root.model_dump(mode="json") for root in params.selected_capability_roots or ()
            ]
            problems = await self._plugins.select(thread_id, roots_of(selected))
            session, outcome = await self._sessions.loading.start_once(
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
                    selected_capability_roots=selected or None,
                    dynamic_tools=dynamic_tools,
                    git_info=await self._git.read(cwd),
                    project_id=params.project_id,
                    daybreak_enabled=params.daybreak_enabled,
                    request_digest=None if chosen is None else digest_of(params),
                ),
                config,
            )
        self._keep_for(session, params.unload_after_secs)
        thread = shown_thread(self._store, session.thread.state, session)
        joining = join(self._hub, context.connection_id, session, None, (), with_turns=False)
        context.after_answer(self._announce_start, context, session, thread, outcome)
        warnings = (*of_project, *requirements.warnings, *replaced, *problems)
        context.after_answer(warn_of_config, self._hub, context.connection_id, session, warnings)
        context.after_answer(self._notify_of_loading, context, session)
        return thread_response(ThreadStartResponse, session, thread, **joining.members)

    async def _check_start(self, params: ThreadStartParams) -> None:
        if params.daybreak_enabled is not None and params.ephemeral:
            raise invalid_request(
                "daybreakEnabled is not supported for ephemeral threads", "ephemeralThread"
            )
        if params.project_id is None:
            return
        if not params.project_id:
            raise invalid_request("projectId must not be empty", "projectNotFound")
        filing = await known_filing(self._store.organization, is_asked_for=True)
        if params.project_id not in filing.projects:
            raise invalid_request(
                f"project not found: {params.project_id}",
                "projectNotFound",
                projectId=params.project_id,
            )

    def _announce_start(
        self, context: RequestContext, session: ThreadSession, thread: Thread, outcome: Start
    ) -> None:
        self._hub.release(context.connection_id, thread.id)
        started = ThreadStartedNotification(thread=thread)
        if outcome is Start.CREATED:
            self._hub.broadcast(started)
            session.publisher.begin()
        elif session.publisher.began:
            self._hub.notify(context.connection_id, started)
        elif outcome is Start.LOADED:
            self._hub.notify(context.connection_id, started)
            session.publisher.status(session.status)
            session.publisher.begin()

    async def resume(
        self, context: RequestContext, params: ThreadResumeParams
    ) -> ThreadResumeResponse:
        """Load a thread, or join a loaded one, and subscribe the caller."""
        thread_id, known = params.thread_id, known_position(params)
        self._check_running(params)
        warnings: Sequence[str] = ()
        is_loaded = True

        async def configure(state: ThreadState) -> tuple[Config, Settings]:
            if state.archived:
                raise ThreadArchived(thread_id)
            nonlocal is_loaded, warnings
            is_loaded = False
            config, settings, warnings = await settings_over(
                self._services, thread_id, state, params, overrides
            )
            return config, settings

        with config_failures(), thread_failures(thread_id, no_rollout(thread_id)):
            params = await with_profile(self._configuration, params)
            overrides = replace(
                await thread_overrides(self._services, params),
                base_instructions=params.base_instructions,
                developer_instructions=params.developer_instructions,
            )
            self._check_path(params)
            async with self._sessions.loading.loaded(thread_id, configure) as session:
                if not is_loaded:
                    await hold_places(self._services, overrides, session.thread.state.settings)
                if is_loaded and (ignored := ignored_text(params, overrides, session)):
                    warning = WarningNotification(thread_id=thread_id, message=ignored)
                    context.after_answer(self._hub.notify, context.connection_id, warning)
                self._keep_for(session, params.unload_after_secs)
                state = session.thread.state
                logged: Sequence[Turn] = ()
                if known is not None or not params.exclude_turns:
                    logged = await logged_turns(self._store, state)
                history = await self._history(params, state)
                joining = join(
                    self._hub,
                    context.connection_id,
                    session,
                    known,
                    logged,
                    with_turns=not params.exclude_turns,
                    page=history.get("initial_turns_page"),
                )
        thread = shown_thread(self._store, session.thread.state, session, joining.turns)
        context.after_answer(self._announce_resume, context, session, joining)
        context.after_answer(warn_of_config, self._hub, context.connection_id, session, warnings)
        context.after_answer(self._notify_of_loading, context, session)
        if joining.page is not None:
            history["initial_turns_page"] = joining.page
        return thread_response(ThreadResumeResponse, session, thread, **joining.members, **history)

    def _check_path(self, params: ThreadResumeParams) -> None:
        """Refuse the path of a file that is not the thread's own."""
        thread_id = params.thread_id
        if params.path and not self._store.is_path_of(thread_id, params.path):
            rule = "is not supported by this server, but for the thread's own file"
            raise invalid_member("path", rule)

    def _check_running(self, params: ThreadResumeParams) -> None:
        """Refuse to make another thread of one that is loaded."""
        thread_id = params.thread_id
        if self._sessions.find(thread_id) is None:
            return
        if params.history is not None:
            raise invalid_request(
                f"cannot resume thread {thread_id} with history while it is already running",
                "threadRunning",
                threadId=thread_id,
            )
        own = self._store.shown_path(thread_id)
        if params.path and not self._store.is_path_of(thread_id, params.path):
            raise invalid_request(
                f"cannot resume running thread {thread_id} with stale path: requested "
                f"`{params.path}`, active `{own}`",
                "threadRunning",
                threadId=thread_id,
            )

    def _notify_of_loading(self, context: RequestContext, session: ThreadSession) -> None:
        for text in (*session.thread.take_warnings(), *session.instructions.take_warnings()):
            warning = WarningNotification(thread_id=session.thread.id, message=text)
            self._hub.notify(context.connection_id, warning)

    async def _history(self, params: ThreadResumeParams, state: ThreadState) -> dict[str, Any]:
        """Return where the pages of a thread begin, and the first one if it was asked for."""
        if state.created.ephemeral:
            return {}
        return await self._store.history.ask(
            state.id, partial(first_pages, params.initial_turns_page)
        )

    def _keep_for(self, session: ThreadSession, unload_after_s: int | None) -> None:
        if unload_after_s is not None:
            self._sessions.unloading.set_delay(session.thread.id, unload_after_s)

    def _announce_resume(
        self, context: RequestContext, session: ThreadSession, joining: Joining
    ) -> None:
        state = session.thread.state
        self._hub.release(context.connection_id, state.id)
        if not session.publisher.began:
            self._hub.broadcast(
                ThreadStatusChangedNotification(thread_id=state.id, status=session.status)
            )
            session.publisher.begin()
        if not joining.is_replay:
            notify_of_usage(self._hub, context.connection_id, state)
        session.resumed()
        if state.metadata.goal is not None:
            self._hub.broadcast(
                ThreadGoalUpdatedNotification(thread_id=state.id, goal=state.metadata.goal)
            )


def _dynamic_tools(params: ThreadStartParams) -> list[JsonObject]:
    try:
        return checked_specs(params.dynamic_tools or ())
    except BadSpec as exc:
        raise invalid_member(exc.field, exc.rule) from exc
