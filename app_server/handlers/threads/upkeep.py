"""Changes of a thread that run no turn: its name, the archive, listeners, items for its model."""

from collections.abc import Sequence

from app_server.handlers.errors import no_rollout, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.threads.changes import ThreadChanges, not_for_ephemeral
from app_server.handlers.threads.shown import announce_unloaded
from app_server.models.prompt.response_items import first_problem
from app_server.rpc.context import RequestContext, Routes
from app_server.threads.failures import ThreadNotFound
from app_server.threads.log.state.thread import ThreadState
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.log.rollout import ArchivedChanged, NameChanged, Record
from protocol.threads.changes import (
    ThreadArchiveParams,
    ThreadArchiveResponse,
    ThreadInjectItemsParams,
    ThreadInjectItemsResponse,
    ThreadUnarchiveParams,
    ThreadUnarchiveResponse,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResponse,
)
from protocol.threads.metadata import ThreadSetNameParams, ThreadSetNameResponse
from protocol.threads.notifications import (
    ThreadArchivedNotification,
    ThreadNameUpdatedNotification,
    ThreadUnarchivedNotification,
)


class ThreadUpkeepHandlers:
    """Methods that change a thread and run no turn of it."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._sessions = services.sessions
        self._hub = services.hub
        self._clock = services.clock
        self._tasks = services.tasks
        self._changes = ThreadChanges(services)
        self.routes: Routes = {
            "thread/archive": self.archive,
            "thread/inject_items": self.inject_items,
            "thread/name/set": self.set_name,
            "thread/unarchive": self.unarchive,
            "thread/unsubscribe": self.unsubscribe,
        }

    async def unsubscribe(
        self, context: RequestContext, params: ThreadUnsubscribeParams
    ) -> ThreadUnsubscribeResponse:
        """Stop hearing of a thread, and let go of it if that is asked and nobody needs it."""
        if self._sessions.find(params.thread_id) is None:
            return ThreadUnsubscribeResponse(
                status="notLoaded", unloaded=True if params.unload else None
            )
        listened = self._hub.unsubscribe(context.connection_id, params.thread_id)
        unloaded = None
        if params.unload:
            await self._sessions.unloading.unload_quiet(params.thread_id)
            unloaded = self._sessions.find(params.thread_id) is None
        else:
            last_left = self._sessions.unloading.last_left
            context.after_answer(self._tasks.start_soon, last_left, params.thread_id)
        return ThreadUnsubscribeResponse(
            status="unsubscribed" if listened else "notSubscribed", unloaded=unloaded
        )

    async def set_name(
        self, context: RequestContext, params: ThreadSetNameParams
    ) -> ThreadSetNameResponse:
        """Name a thread, loaded or not."""
        name = params.name.strip()
        if not name:
            raise invalid_request("thread name must not be empty", "emptyName")
        record = NameChanged(at_ms=self._clock.now_ms(), name=name)

        def decide(state: ThreadState) -> Sequence[Record]:
            if state.archived:
                raise ThreadNotFound(params.thread_id)
            return [record]

        await self._changes.write(
            params.thread_id,
            decide,
            missing=no_rollout(params.thread_id),
            ephemeral=not_for_ephemeral("metadata updates", params.thread_id),
        )
        event = ThreadNameUpdatedNotification(thread_id=params.thread_id, thread_name=name)
        context.after_answer(self._hub.broadcast, event)
        return ThreadSetNameResponse()

    async def archive(
        self, context: RequestContext, params: ThreadArchiveParams
    ) -> ThreadArchiveResponse:
        """Unload a thread, ending its turn, and move it out of the default list."""
        thread_id = params.thread_id
        record = ArchivedChanged(at_ms=self._clock.now_ms(), archived=True)
        with thread_failures(thread_id, no_rollout(thread_id)):
            if await self._sessions.archive(thread_id, record):
                announce_unloaded(self._hub, thread_id)
        event = ThreadArchivedNotification(thread_id=thread_id)
        context.after_answer(self._hub.broadcast, event)
        return ThreadArchiveResponse()

    async def unarchive(
        self, context: RequestContext, params: ThreadUnarchiveParams
    ) -> ThreadUnarchiveResponse:
        """Bring an archived thread back into the default list."""
        thread_id = params.thread_id
        record = ArchivedChanged(at_ms=self._clock.now_ms(), archived=False)

        def decide(state: ThreadState) -> Sequence[Record]:
            if not state.archived:
                raise ThreadNotFound(thread_id)
            return [record]

        with thread_failures(thread_id, f"no archived rollout found for thread id {thread_id}"):
            if self._sessions.find(thread_id) is None:
                # One of Codex's that is not archived is not imported either.
                decide(await self._store.read(thread_id))
            state, _ = await self._sessions.change(thread_id, decide)
        event = ThreadUnarchivedNotification(thread_id=thread_id)
        context.after_answer(self._hub.broadcast, event)
        return ThreadUnarchiveResponse(thread=self._changes.show(state))

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
        with thread_failures(params.thread_id):
            session = await self._sessions.writable(params.thread_id)
            await session.input.inject(params.items)
        return ThreadInjectItemsResponse()
