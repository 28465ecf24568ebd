"""thread/backgroundTerminals/*: commands that go on running behind a thread's turns.

Source: docs/tools.md, "Commands".
"""

from app_server.handlers.errors import loaded_thread
from app_server.handlers.services import Services
from app_server.handlers.views.pages import cursor_number
from app_server.rpc.context import RequestContext, Routes
from app_server.turns.commands.run import CommandRun
from app_server.turns.commands.terminals import Terminals
from protocol.cursors import is_offset
from protocol.host.terminals import (
    ThreadBackgroundTerminal,
    ThreadBackgroundTerminalsCleanParams,
    ThreadBackgroundTerminalsCleanResponse,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
)
from protocol.jsonrpc.errors import invalid_request


class BackgroundTerminalHandlers:
    """The methods about background terminals."""

    def __init__(self, services: Services) -> None:
        self._sessions = services.sessions
        self.routes: Routes = {
            "thread/backgroundTerminals/clean": self.clean,
            "thread/backgroundTerminals/list": self.list_terminals,
            "thread/backgroundTerminals/terminate": self.terminate,
        }

    async def list_terminals(
        self, context: RequestContext, params: ThreadBackgroundTerminalsListParams
    ) -> ThreadBackgroundTerminalsListResponse:
        """List what runs behind the turns of a loaded thread, the oldest first."""
        terminals = self._terminals(params.thread_id)
        after = 0 if params.cursor is None else cursor_number(params.cursor)
        rows = [run for run in terminals.background() if run.number > after]
        limit = len(rows) if params.limit is None else max(params.limit, 1)
        more = len(rows) > limit
        return ThreadBackgroundTerminalsListResponse(
            data=[_shown(run) for run in rows[:limit]],
            next_cursor=str(rows[limit - 1].number) if more else None,
        )

    async def terminate(
        self, context: RequestContext, params: ThreadBackgroundTerminalsTerminateParams
    ) -> ThreadBackgroundTerminalsTerminateResponse:
        """End one command; answered once it has ended and its item is complete."""
        terminals = self._terminals(params.thread_id)
        if not is_offset(params.process_id):
            raise invalid_request(
                f"invalid background terminal process id: {params.process_id}",
                "invalidProcessId",
                processId=params.process_id,
            )
        run = terminals.find(params.process_id)
        if run is None or run.completed.is_set():
            return ThreadBackgroundTerminalsTerminateResponse(terminated=False)
        await run.stop()
        return ThreadBackgroundTerminalsTerminateResponse(terminated=True)

    async def clean(
        self, context: RequestContext, params: ThreadBackgroundTerminalsCleanParams
    ) -> ThreadBackgroundTerminalsCleanResponse:
        """End all commands behind the turns; answered once their items are complete."""
        await self._terminals(params.thread_id).end_background()
        return ThreadBackgroundTerminalsCleanResponse()

    def _terminals(self, thread_id: str) -> Terminals:
        return loaded_thread(self._sessions, thread_id).terminals


def _shown(run: CommandRun) -> ThreadBackgroundTerminal:
    return ThreadBackgroundTerminal(
        item_id=run.item.id,
        process_id=run.session_id,
        command=run.line,
        cwd=run.item.cwd,
        os_pid=(run.process.pid or None) if run.process is not None else None,
    )
