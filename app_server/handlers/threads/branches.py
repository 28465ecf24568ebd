"""thread/fork, thread/revert, thread/delete: copying, shortening and removing conversations.

Source: docs/wire.md, "History and search".
"""

from functools import partial

from app_server.handlers.errors import config_failures, no_rollout, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.threads.chosen.configured import settings_over, with_profile
from app_server.handlers.threads.chosen.settings import hold_places, thread_overrides
from app_server.handlers.threads.git_info import GitInfoReader
from app_server.handlers.threads.reading.history import refuse_ephemeral
from app_server.handlers.threads.shown import (
    announce_unloaded,
    notify_of_usage,
    shown_thread,
    shown_turns,
    thread_response,
    warn_of_config,
)
from app_server.handlers.views.first_pages import first_pages
from app_server.rpc.context import RequestContext, Routes
from app_server.sessions.session import ThreadSession
from app_server.threads.failures import ThreadArchived
from app_server.threads.log.forking import ForkPoint, TurnInProgress, TurnNotFound
from app_server.threads.log.state.thread import ThreadState
from protocol.jsonrpc.errors import RpcError, invalid_request
from protocol.log.rollout import ThreadCreated
from protocol.server.lifecycle import PROTOCOL_VERSION
from protocol.threads.changes import (
    ThreadDeleteParams,
    ThreadDeleteResponse,
    ThreadRevertParams,
    ThreadRevertResponse,
)
from protocol.threads.notifications import (
    ThreadDeletedNotification,
    ThreadRevertedNotification,
    ThreadStartedNotification,
)
from protocol.threads.start import ThreadForkParams, ThreadForkResponse
from protocol.threads.thread import Thread


class BranchHandlers:
    """The methods that make a thread's history another one."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store
        self._sessions = services.sessions
        self._hub = services.hub
        self._clock = services.clock
        self._git = GitInfoReader()
        self.routes: Routes = {
            "thread/delete": self.delete,
            "thread/fork": self.fork,
            "thread/revert": self.revert,
        }

    # Forking.

    async def fork(self, context: RequestContext, params: ThreadForkParams) -> ThreadForkResponse:
        """Copy the history of a thread into a new one, and subscribe the caller to that."""
        _refuse_two_ends(params)
        source_id = params.thread_id
        with config_failures(), thread_failures(source_id, no_rollout(source_id)):
            source, end = await self._source(source_id)
            params = await with_profile(self._services.configuration, params)
            overrides = await thread_overrides(self._services, params)
            thread_id = self._clock.new_id()
            config, settings, warnings = await settings_over(
                self._services, thread_id, source, params, overrides
            )
            created = ThreadCreated(
                at_ms=self._clock.now_ms(),
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
                dynamic_tools=source.created.dynamic_tools,
                git_info=await self._git.read(settings.cwd),
            )
            point = ForkPoint(params.last_turn_id, params.before_turn_id, end)
            try:
                session = await self._sessions.loading.fork(
                    created, config, source_id, point, source.name
                )
                await hold_places(self._services, overrides, settings)
            except TurnNotFound as exc:
                raise _turn_not_found(str(exc)) from exc
            except TurnInProgress as exc:
                raise invalid_request(
                    f"lastTurnId '{exc}' identifies an in-progress turn",
                    "turnInProgress",
                    turnId=str(exc),
                ) from exc
        thread = shown_thread(self._store, session.thread.state, session)
        shown = thread
        if not params.exclude_turns:
            with thread_failures(thread_id, no_rollout(thread_id)):
                turns = await shown_turns(self._store, session.thread.state, loaded=True)
            shown = thread.model_copy(update={"turns": turns})
        context.after_answer(self._announce_fork, context, session, thread)
        context.after_answer(warn_of_config, self._hub, context.connection_id, session, warnings)
        return thread_response(ThreadForkResponse, session, shown)

    async def _source(self, source_id: str) -> tuple[ThreadState, int | None]:
        """Return what is known of a source, and where its log ends if it is being written."""
        session = self._sessions.find(source_id)
        if session is None:
            state, end = await self._store.read(source_id), None
        elif session.thread.ephemeral:
            raise invalid_request(no_rollout(source_id), "ephemeralThread", threadId=source_id)
        else:
            state, end = session.thread.state, await session.thread.log_length()
        if state.archived:
            raise ThreadArchived(source_id)
        return state, end

    def _announce_fork(
        self, context: RequestContext, session: ThreadSession, thread: Thread
    ) -> None:
        state = session.thread.state
        self._hub.subscribe(context.connection_id, state.id)
        notify_of_usage(self._hub, context.connection_id, state)
        self._hub.broadcast(ThreadStartedNotification(thread=thread))
        session.publisher.begin()

    # Reverting.

    async def revert(
        self, context: RequestContext, params: ThreadRevertParams
    ) -> ThreadRevertResponse:
        """Drop a turn and all after it; a running turn is interrupted first."""
        thread_id, turn_id = params.thread_id, params.before_turn_id
        refuse_ephemeral(self._sessions, thread_id, context.method)
        with thread_failures(thread_id):
            session = self._sessions.get(thread_id)
            known = await self._store.history.ask(thread_id, lambda reader: reader.turn(turn_id))
            if known is None:
                raise _turn_not_found(turn_id)
            await session.revert(turn_id)
            places = await self._store.history.ask(thread_id, partial(first_pages, None))
        event = ThreadRevertedNotification(thread_id=thread_id)
        context.after_answer(self._hub.broadcast, event)
        return ThreadRevertResponse(
            thread=shown_thread(self._store, session.thread.state, session),
            turns_backwards_cursor=places["turns_backwards_cursor"],
            items_backwards_cursor=places["items_backwards_cursor"],
        )

    # Deleting.

    async def delete(
        self, context: RequestContext, params: ThreadDeleteParams
    ) -> ThreadDeleteResponse:
        """Remove a thread for good; a loaded one is stopped and unloaded first."""
        thread_id = params.thread_id
        session = self._sessions.find(thread_id)
        if session is not None and session.thread.ephemeral:
            raise invalid_request(
                f"thread is not persisted and cannot be deleted: {thread_id}",
                "ephemeralThread",
                threadId=thread_id,
            )
        with thread_failures(thread_id, no_rollout(thread_id)):
            if await self._sessions.delete(thread_id):
                announce_unloaded(self._hub, thread_id)
        event = ThreadDeletedNotification(thread_id=thread_id)
        context.after_answer(self._hub.broadcast, event)
        return ThreadDeleteResponse()


def _turn_not_found(turn_id: str) -> RpcError:
    return invalid_request(f"turn not found: {turn_id}", "turnNotFound", turnId=turn_id)


def _refuse_two_ends(params: ThreadForkParams) -> None:
    if params.last_turn_id is not None and params.before_turn_id is not None:
        raise invalid_request(
            "`beforeTurnId` cannot be combined with `lastTurnId`",
            "invalidParams",
            field="beforeTurnId",
            rule="cannot be combined with `lastTurnId`",
        )
