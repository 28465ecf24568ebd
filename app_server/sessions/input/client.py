"""Input of clients: for a new turn, for the one that runs, or for the model's history alone.

Whatever is accepted is in the log before the client is answered.
Source: docs/wire.md, "Turns", "Sending again"; docs/mcp.md, "Calls".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic_core import to_json

from app_server.models.prompt.user_input import TurnInput
from app_server.sessions.turn.turn import (
    InputWork,
    ThreadTurns,
    Turn,
    name_records,
    user_message_item,
)
from app_server.threads.log.state.thread import ThreadState
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn, TurnOptions
from app_server.turns.thread_errors import (
    MAX_META_BYTES,
    EmptyInput,
    InputIdTaken,
    McpMetaTooLarge,
    SessionClosed,
    TurnIdMismatch,
    TurnNotSteerable,
)
from protocol.log.rollout import HistoryAppended, InputQueued, Record, Settings
from protocol.model import Json, JsonObject
from protocol.turns.requests import McpMetaByServer


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedInput:
    """Input that is on disk, with the turn that took it."""

    turn_id: str
    begun: Turn | None = None
    """The turn, if the input begins it."""
    steered: RunningTurn | None = None
    """The turn, if it ran already. Both are None where an earlier request had the same input."""

    def run_soon(self) -> None:
        """Start the turn, or cut off the request of one that ran already; never waits.

        To be called once the client has been answered.
        """
        if self.begun is not None:
            self.begun.run_soon()
        elif self.steered is not None:
            self.steered.cut_off()


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """A request's entries of `client_metadata` of the model's API."""

    entries: Mapping[str, str] | None = None
    """All of them; None keeps those of before."""
    patch: Mapping[str, str] | None = None
    """Entries to add or to replace."""

    def over(self, before: Mapping[str, str] | None) -> dict[str, str] | None:
        """Return the entries from now on; None if there were none, and none came."""
        entries = before if self.entries is None else self.entries
        if entries is None and self.patch is None:
            return None
        return {**(entries or {}), **(self.patch or {})}


@dataclass(frozen=True, slots=True)
class ClientInput:
    """The input of clients into one loaded thread."""

    context: ThreadContext
    turns: ThreadTurns

    async def start(
        self, user_input: TurnInput, settings: Settings, options: TurnOptions
    ) -> AcceptedInput:
        """Accept input: for a new turn, or for the one that runs.

        When this returns, the input is on disk; `AcceptedInput.run_soon` must follow. The same
        input again gives the turn that took it.

        Raises:
            InputIdTaken: another input has the same name.
            McpMetaTooLarge: with this there would be too much of it.
            SessionClosed: nothing is accepted any more.
            OSError: the disk refused; nothing was accepted.
        """
        async with self.context.slot.reserve(while_draining=True):
            if (taken_by := _turn_that_took(self.context.log.state, user_input)) is not None:
                return AcceptedInput(turn_id=taken_by)
            if self.context.slot.turn is None:
                check_mcp_meta({}, options.mcp_meta)
            else:
                turn = self.context.slot.turn
                await self._queue(turn, user_input, options.mcp_meta)
                return AcceptedInput(turn_id=turn.id, steered=turn)
            if self.context.slot.draining:
                raise SessionClosed
            begun = await self.turns.begin(InputWork(user_input, settings), options)
            return AcceptedInput(turn_id=begun.id, begun=begun)

    async def steer(
        self,
        expected_turn_id: str,
        user_input: TurnInput,
        mcp_meta: McpMetaByServer,
        client_metadata: ClientMetadata,
    ) -> AcceptedInput:
        """Give the running turn more input.

        When this returns, the input is on disk; `AcceptedInput.run_soon` must follow. The same
        input again gives the turn that took it.

        Raises:
            InputIdTaken: another input has the same name.
            NoActiveTurn, TurnIdMismatch, TurnNotSteerable, EmptyInput, McpMetaTooLarge
            SessionClosed
            OSError: the disk refused; nothing was accepted.
        """
        async with self.context.slot.changing():
            if (taken_by := _turn_that_took(self.context.log.state, user_input)) is not None:
                return AcceptedInput(turn_id=taken_by)
            turn = self.context.slot.turn
            if turn is not None and expected_turn_id != turn.id:
                raise TurnIdMismatch(expected_turn_id, turn.id)
            turn = self.context.slot.require_active(expected_turn_id)
            if turn.kind is not None:
                raise TurnNotSteerable(turn.kind)
            await self._queue(turn, user_input, mcp_meta)
            turn.options.client_metadata = client_metadata.over(turn.options.client_metadata)
            return AcceptedInput(turn_id=turn.id, steered=turn)

    async def _queue(
        self, turn: RunningTurn, user_input: TurnInput, mcp_meta: McpMetaByServer
    ) -> None:
        if not user_input.content and not mcp_meta:
            raise EmptyInput
        check_mcp_meta(turn.options.mcp_meta, mcp_meta)
        at_ms = self.context.clock.now_ms()
        records = name_records(user_input, turn.id, at_ms)
        if user_input.items:
            records.append(
                InputQueued(
                    at_ms=at_ms,
                    input_id=self.context.clock.new_id(),
                    items=list(user_input.items),
                    message=user_message_item(user_input, self.context.clock, at_ms),
                )
            )
        if records:
            await self.context.log.append(*records)
        self.context.extensions.in_turns.input_taken(
            self.context.log.id, turn.id, user_input.content
        )
        turn.options.mcp_meta.update(mcp_meta)

    async def inject(self, items: Sequence[JsonObject]) -> None:
        """Append raw items to what the model sees; when this returns, they are on disk.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was appended.
        """
        async with self.context.slot.changing():
            at_ms = self.context.clock.now_ms()
            if self.context.slot.turn is None:
                record: Record = HistoryAppended(at_ms=at_ms, items=list(items))
            else:
                # The model may be in the middle of an answer: behind it, not inside it.
                record = InputQueued(
                    at_ms=at_ms, input_id=self.context.clock.new_id(), items=list(items)
                )
            await self.context.log.append(record)


def _turn_that_took(state: ThreadState, user_input: TurnInput) -> str | None:
    """Return the turn that took this input before; None for new input, or without a name."""
    client_id, digest = user_input.client_id, user_input.digest
    if client_id is None or digest is None:
        return None
    if (accepted := state.accepted.find(client_id)) is not None:
        if accepted.digest != digest:
            raise InputIdTaken(client_id, turnId=accepted.turn_id)
        return accepted.turn_id
    if (submission_id := state.queue.submission_named(client_id)) is not None:
        raise InputIdTaken(client_id, queuedSubmissionId=submission_id)
    return None


def check_mcp_meta(known: McpMetaByServer, more: McpMetaByServer) -> None:
    """Check that a turn can take `more`, which replaces what is known for the same servers.

    Raises:
        McpMetaTooLarge: together they would be too large.
    """
    if not more:
        return
    merged = {**known, **more}
    # Counted roughly first: what is far too large is not written out.
    if _chars(merged, MAX_META_BYTES) > MAX_META_BYTES or len(to_json(merged)) > MAX_META_BYTES:
        raise McpMetaTooLarge


def _chars(value: Json, enough: int) -> int:
    """Count the characters of texts and keys; stops soon after `enough`."""
    match value:
        case str():
            return len(value)
        case dict():
            parts = [*value.items()]
            chars = sum(len(key) for key, _ in parts)
            inner = [each for _, each in parts]
        case list():
            chars, inner = 0, value
        case _:
            return 0
    for each in inner:
        if chars > enough:
            break
        chars += _chars(each, enough)
    return chars
