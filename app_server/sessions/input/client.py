"""Input of clients: for a new turn, for the one that runs, or for the model's history alone.

Whatever is accepted is in the log before the client is answered.
Source: docs/wire.md, "Turns", "Sending again".
"""

from collections.abc import Callable, Sequence

from app_server.extension.hooks import Hooks
from app_server.runtime.clock import Clock
from app_server.sessions.errors import SessionClosed, TurnIdMismatch, TurnNotSteerable
from app_server.sessions.input.idempotency import name_records, turn_that_took
from app_server.sessions.input.mcp_meta import check_mcp_meta
from app_server.sessions.turn.records import user_message_item
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.starter import TurnStarter
from app_server.threads.log.live import LiveThread
from app_server.turns.model.prompt.user_input import TurnInput
from app_server.turns.run import TurnOptions, TurnRun
from protocol.model import JsonObject
from protocol.rollout import HistoryAppended, InputQueued, Record, Settings
from protocol.turns import McpMetaByServer


class ClientInput:
    """The input of clients into one loaded thread."""

    def __init__(
        self,
        thread: LiveThread,
        slot: TurnSlot,
        starter: TurnStarter,
        hooks: Hooks,
        clock: Clock,
    ) -> None:
        self._thread = thread
        self._slot = slot
        self._starter = starter
        self._hooks = hooks
        self._clock = clock

    async def start(
        self, user_input: TurnInput, settings: Settings, options: TurnOptions
    ) -> tuple[str, Callable[[], None]]:
        """Accept input: for a new turn, or for the one that runs.

        When this returns, the input is on disk. Gives the id of the turn and what lets it begin;
        that must be called, once the caller has been answered. The same input again gives the turn
        that took it.

        Raises:
            InputIdTaken: another input has the same name.
            McpMetaTooLarge: with this there would be too much of it.
            SessionClosed: nothing is accepted any more.
            OSError: the disk refused; nothing was accepted.
        """
        async with self._slot.reserve(while_draining=True):
            name = user_input.client_id, user_input.digest
            if (taken_by := turn_that_took(self._thread.state, *name)) is not None:
                return taken_by, _nothing
            if self._slot.run is None:
                check_mcp_meta({}, options.mcp_meta)
            else:
                await self._queue(self._slot.run, user_input, options.mcp_meta)
                return self._slot.run.id, _nothing
            if self._slot.draining:
                raise SessionClosed
            return await self._starter.start(user_input, settings, options)

    async def steer(
        self,
        expected_turn_id: str,
        user_input: TurnInput,
        mcp_meta: McpMetaByServer,
        client_metadata: Callable[[dict[str, str] | None], dict[str, str] | None],
    ) -> None:
        """Give the running turn more input; when this returns, it is on disk.

        `client_metadata` makes the entries from then on of those so far.

        Raises:
            NoActiveTurn, TurnIdMismatch, TurnNotSteerable, McpMetaTooLarge, SessionClosed
            OSError: the disk refused; nothing was accepted.
        """
        async with self._slot.changing():
            run = self._slot.run
            if run is not None and expected_turn_id != run.id:
                raise TurnIdMismatch(expected_turn_id, run.id)
            run = self._slot.require_active(expected_turn_id)
            if run.is_compaction:
                raise TurnNotSteerable("compact")
            if run.review is not None:
                raise TurnNotSteerable("review")
            await self._queue(run, user_input, mcp_meta)
            run.options.client_metadata = client_metadata(run.options.client_metadata)

    async def _queue(self, run: TurnRun, user_input: TurnInput, mcp_meta: McpMetaByServer) -> None:
        check_mcp_meta(run.options.mcp_meta, mcp_meta)
        at_ms = self._clock.now_ms()
        records = name_records(user_input.client_id, user_input.digest, run.id, at_ms)
        if user_input.items:
            records.append(
                InputQueued(
                    at_ms=at_ms,
                    input_id=self._clock.new_id(),
                    items=list(user_input.items),
                    message=user_message_item(user_input, self._clock, at_ms),
                )
            )
        if records:
            await self._thread.append(*records)
        self._hooks.input_taken(self._thread.id, run.id, user_input.content)
        run.options.mcp_meta.update(mcp_meta)

    async def inject(self, items: Sequence[JsonObject]) -> None:
        """Append raw items to what the model sees; when this returns, they are on disk.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was appended.
        """
        async with self._slot.changing():
            at_ms = self._clock.now_ms()
            if self._slot.run is None:
                record: Record = HistoryAppended(at_ms=at_ms, items=list(items))
            else:
                # The model may be in the middle of an answer: behind it, not inside it.
                record = InputQueued(at_ms=at_ms, input_id=self._clock.new_id(), items=list(items))
            await self._thread.append(record)


def _nothing() -> None:
    pass
