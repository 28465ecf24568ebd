"""thread/start and thread/resume: a thread is made, or loaded, and its client joins it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio.to_thread

from app_server.config.requirements import requirements_of
from app_server.config.values import Config
from app_server.handlers.errors import (
    config_failures,
    no_rollout,
    thread_failures,
)
from app_server.handlers.idempotency import chosen_id, digest_of
from app_server.handlers.services import Services
from app_server.handlers.threads.chosen.configured import config_for, with_profile
from app_server.handlers.threads.chosen.settings import (
    members_without_effect,
    profile_config,
    thread_overrides,
)
from app_server.handlers.threads.git_info import GitInfoReader
from app_server.handlers.threads.shown import logged_turns, path_of
from app_server.handlers.threads.subscribing import Joining, join, known_position
from app_server.permissions.trust import project_trust, says_something
from app_server.plugins.contributor import roots_of
from app_server.rpc.context import Handler, RequestContext
from app_server.sessions.loaded.loading import Start
from app_server.sessions.managed_policy import with_required
from app_server.sessions.session import ThreadSession
from app_server.sessions.settings import Overrides, initial_settings, with_overrides
from app_server.threads.log.state.thread import ThreadState
from app_server.threads.store import ThreadArchived
from app_server.tools.dynamic.specs import BadSpec, checked_specs
from app_server.views.first_pages import first_pages
from app_server.views.threads import (
    settings_response,
    thread_of_state,
)
from protocol.errors import invalid_member, invalid_params, invalid_request
from protocol.lifecycle import (
    PROTOCOL_VERSION,
    ConfigWarningNotification,
    WarningNotification,
)
from protocol.model import JsonObject
from protocol.rollout import Settings, ThreadCreated
from protocol.thread_facts import ThreadGoalUpdatedNotification
from protocol.threads import (
    Thread,
    ThreadResumeParams,
    ThreadResumeResponse,
    ThreadStartedNotification,
    ThreadStartParams,
    ThreadStartResponse,
    ThreadStatusChangedNotification,
)
from protocol.turns import ThreadTokenUsageUpdatedNotification, Turn

SOURCE = "vscode"
"""The kind of source that clients of an app-server list when they do not choose one."""


class ThreadHandlers:
    """The methods that load threads."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._sessions = services.sessions
        self._hub = services.hub
        self._configuration = services.configuration
        self._clock = services.clock
        self._plugins = services.plugins
        self._environments = services.environments
        self._git = GitInfoReader()

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {
            "thread/start": self.start,
            "thread/resume": self.resume,
        }

    async def start(
        self, context: RequestContext, params: ThreadStartParams
    ) -> ThreadStartResponse:
        """Begin a conversation and subscribe the caller."""
        chosen = None if params.thread_id is None else chosen_id(params.thread_id)
        thread_id = self._clock.new_id() if chosen is None else chosen
        with config_failures(), thread_failures(thread_id, "thread not found"):
            params = await with_profile(self._configuration, params)
            profiles = await profile_config(self._configuration, params.permissions, params.config)
            overrides = thread_overrides(
                params, self._configuration.resolve, self._environments.has, profiles
            )
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
        thread = self._thread(session)
        joining = join(self._hub, context.connection_id, session, None, (), with_turns=False)
        announce = partial(self._announce_start, context, session, thread, params, outcome)
        context.after_answer(announce)
        warnings = (*of_project, *requirements.warnings, *replaced, *problems)
        context.after_answer(self._warn, context, session, warnings)
        context.after_answer(self._notify_of_loading, context, session)
        return ThreadStartResponse(**_members(session, thread, joining))

    async def _check_start(self, params: ThreadStartParams) -> None:
        if params.daybreak_enabled is not None and params.ephemeral:
            raise invalid_request(
                "daybreakEnabled is not supported for ephemeral threads", "ephemeralThread"
            )
        if params.project_id is None:
            return
        if not params.project_id:
            raise invalid_request("projectId must not be empty", "projectNotFound")
        if params.project_id not in (await self._store.organization.refresh()).projects:
            raise invalid_request(
                f"project not found: {params.project_id}",
                "projectNotFound",
                projectId=params.project_id,
            )

    def _announce_start(
        self,
        context: RequestContext,
        session: ThreadSession,
        thread: Thread,
        params: ThreadStartParams,
        outcome: Start,
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

    def _warn(
        self, context: RequestContext, session: ThreadSession, warnings: Sequence[str]
    ) -> None:
        for warning in warnings:
            self._hub.notify(context.connection_id, ConfigWarningNotification(summary=warning))
            session.publisher.warning(warning)

    async def resume(
        self, context: RequestContext, params: ThreadResumeParams
    ) -> ThreadResumeResponse:
        """Load a thread, or join a loaded one, and subscribe the caller."""
        thread_id, known = params.thread_id, known_position(params)
        self._check_running(params)
        warnings: list[str] = []
        is_loaded = True

        async def configure(state: ThreadState) -> tuple[Config, Settings]:
            if state.archived:
                raise ThreadArchived(thread_id)
            nonlocal is_loaded
            is_loaded = False
            folder = overrides.cwd or state.settings.cwd
            config, of_project = await config_for(self._configuration, params.config, folder)
            settings = with_overrides(state.settings, overrides, config.view())
            requirements = requirements_of(config)
            settings, replaced = with_required(settings, requirements)
            roots = roots_of(state.created.selected_capability_roots or ())
            problems = await self._plugins.select(thread_id, roots)
            warnings.extend((*of_project, *requirements.warnings, *replaced, *problems))
            return config, settings

        with (
            config_failures(),
            thread_failures(thread_id, no_rollout(thread_id)),
        ):
            params = await with_profile(self._configuration, params)
            profiles = await profile_config(self._configuration, params.permissions, params.config)
            overrides = replace(
                thread_overrides(
                    params, self._configuration.resolve, self._environments.has, profiles
                ),
                base_instructions=params.base_instructions,
                developer_instructions=params.developer_instructions,
            )
            self._check_path(params)
            async with self._sessions.loading.loaded(thread_id, configure) as session:
                if is_loaded:
                    self._warn_of_ignored(context, params, overrides, session)
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
        thread = self._thread(session, joining.turns)
        context.after_answer(self._announce_resume, context, session, joining)
        context.after_answer(self._warn, context, session, warnings)
        context.after_answer(self._notify_of_loading, context, session)
        if joining.page is not None:
            history["initial_turns_page"] = joining.page
        return ThreadResumeResponse(**_members(session, thread, joining), **history)

    def _warn_of_ignored(
        self,
        context: RequestContext,
        params: ThreadResumeParams,
        overrides: Overrides,
        session: ThreadSession,
    ) -> None:
        ignored = members_without_effect(params, overrides, session.thread.state, session.config)
        if ignored:
            warning = WarningNotification(thread_id=session.thread.id, message=_ignored(ignored))
            context.after_answer(self._hub.notify, context.connection_id, warning)

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
        for text in (
            *session.thread.take_warnings(),
            *session.instructions.take_warnings(),
        ):
            self._hub.notify(
                context.connection_id,
                WarningNotification(thread_id=session.thread.id, message=text),
            )

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
        if state.usage is not None and state.turns and not joining.is_replay:
            self._hub.notify(
                context.connection_id,
                ThreadTokenUsageUpdatedNotification(
                    thread_id=state.id, turn_id=state.turns[-1].id, token_usage=state.usage
                ),
            )
        session.resumed()
        if state.metadata.goal is not None:
            self._hub.broadcast(
                ThreadGoalUpdatedNotification(thread_id=state.id, goal=state.metadata.goal)
            )
            session.wake_goal()

    def _thread(self, session: ThreadSession, turns: list[Turn] | None = None) -> Thread:
        return thread_of_state(
            session.thread.state,
            session.status,
            path_of(self._store, session),
            turns=turns,
            filing=self._store.organization.state,
        )


def _members(session: ThreadSession, thread: Thread, joining: Joining) -> dict[str, Any]:
    shown = settings_response(session.thread.state.settings, thread, session.instructions.sources)
    members = cast(dict[str, Any], shown)
    return {**members, **joining.members}


def _dynamic_tools(params: ThreadStartParams) -> list[JsonObject]:
    try:
        return checked_specs(params.dynamic_tools or ())
    except BadSpec as exc:
        text = f"Invalid params: `{exc.field}` {exc.rule}"
        raise invalid_params(text, field=exc.field, rule=exc.rule) from exc


def _ignored(members: Sequence[str]) -> str:
    names = ", ".join(f"`{name}`" for name in members)
    return (
        f"the thread is loaded already, so {names} of thread/resume changed nothing; "
        "thread/settings/update changes settings"
    )
