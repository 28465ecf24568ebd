"""Input into a loaded thread: of clients, of its inbox of signals, of its queue.

Knows: the log of a thread, and the slot that orders everything a thread accepts. Whatever is
accepted is in the log before it is answered. Does not know: how a turn runs, the ledger of signals.
Source: docs/wire.md, "Turns", "Sending again"; docs/mcp.md, "Calls"; docs/signals.md, "Order";
docs/queue.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic_core import to_json

from app_server.models.prompt.user_input import TurnInput
from app_server.sessions.turn import InputWork, ThreadTurns, Turn, name_records, user_message_item
from app_server.threads.log.state import Plan, QueueRefusal, QueueState, Result, ThreadState
from app_server.threads.wakes import SOURCE
from app_server.turns.context import ThreadContext
from app_server.turns.slot import (
    MAX_META_BYTES,
    EmptyInput,
    InputIdTaken,
    McpMetaTooLarge,
    OutputSchemaDiffers,
    RunningTurn,
    SessionClosed,
    TurnIdMismatch,
    TurnNotSteerable,
    TurnOptions,
)
from protocol.log.rollout import (
    HistoryAppended,
    InputQueued,
    Record,
    Settings,
    SettingsChanged,
    SignalMark,
    SignalRecalled,
    UsageOrigin,
)
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
        self,
        user_input: TurnInput,
        settings: Settings,
        options: TurnOptions,
        client_metadata: ClientMetadata,
    ) -> AcceptedInput:
        """Accept input: for a new turn, or for the one that runs.

        When this returns, the input is on disk; `AcceptedInput.run_soon` must follow. The same
        input again gives the turn that took it. A turn that runs keeps its settings; the thread has
        `settings` from its next turn on. Of `options` it takes what `steer` takes.

        Raises:
            InputIdTaken: another input has the same name.
            EmptyInput: a turn runs, and is given nothing.
            OutputSchemaDiffers: a turn runs, and has not the same one.
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
                if options.output_schema not in (None, turn.options.output_schema):
                    raise OutputSchemaDiffers
                return await self._steer(
                    turn, user_input, options.mcp_meta, client_metadata, settings
                )
            if self.context.slot.draining:
                raise SessionClosed
            options.client_metadata = client_metadata.over(None)
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
            return await self._steer(
                turn, user_input, mcp_meta, client_metadata, self.context.log.state.settings
            )

    async def _steer(
        self,
        turn: RunningTurn,
        user_input: TurnInput,
        mcp_meta: McpMetaByServer,
        client_metadata: ClientMetadata,
        settings: Settings,
    ) -> AcceptedInput:
        if not user_input.content and not mcp_meta:
            raise EmptyInput
        check_mcp_meta(turn.options.mcp_meta, mcp_meta)
        at_ms = self.context.clock.now_ms()
        records = name_records(user_input, turn.id, at_ms)
        if settings != self.context.log.state.settings:
            records.append(SettingsChanged(at_ms=at_ms, settings=settings))
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
        turn.options.client_metadata = client_metadata.over(turn.options.client_metadata)
        return AcceptedInput(turn_id=turn.id, steered=turn)

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


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """One message, as the model will see it."""

    mark: SignalMark
    item: JsonObject
    sender: str
    """Messages of one source and sender keep their order."""
    wakes: bool = False
    steers: bool = False
    """Whether a turn that runs takes it, although it wakes."""


def without_own_turn(messages: Sequence[InboxMessage]) -> list[InboxMessage]:
    """Choose what a running turn can take; a sender's messages stay behind the first that waits."""
    waiting: set[tuple[str, str]] = set()
    taken = []
    for message in messages:
        sender = message.mark.source, message.sender
        if sender in waiting or (message.wakes and not message.steers):
            waiting.add(sender)
        else:
            taken.append(message)
    return taken


@dataclass(frozen=True, slots=True)
class SignalInbox:
    """The signals that enter one loaded thread."""

    context: ThreadContext
    turns: ThreadTurns

    async def receive(self, messages: Sequence[InboxMessage]) -> Turn | None:
        """Take in messages, as far as that is possible now; return the turn that they begin.

        `Turn.run_soon` must follow.

        An idle thread takes all, and begins one turn if any of them wakes. A running turn takes
        those that need no turn of their own, but never one ahead of another of its sender. When
        this returns, what was taken is on disk.

        Raises:
            SessionClosed: nothing was taken.
            OSError: the disk refused; nothing was taken.
        """
        async with self.context.slot.reserve():
            if self.context.slot.turn is not None:
                await self._into_turn(messages)
                return None
            items = [message.item for message in messages]
            if any(message.wakes for message in messages):
                marks = [
                    message.mark.model_copy(update={"woke": message.wakes}) for message in messages
                ]
                settings = self.context.log.state.settings
                sources = {message.mark.source for message in messages if message.wakes}
                origin: UsageOrigin = "wake" if sources == {SOURCE} else "signal"
                return await self.turns.begin(
                    InputWork(TurnInput((), items, signals=marks), settings, origin=origin)
                )
            marks = [message.mark for message in messages]
            at_ms = self.context.clock.now_ms()
            await self.context.log.append(HistoryAppended(at_ms=at_ms, items=items, signals=marks))
            return None

    async def _into_turn(self, messages: Sequence[InboxMessage]) -> None:
        taken = without_own_turn(messages)
        at_ms = self.context.clock.now_ms()
        await self.context.log.append(
            *(
                InputQueued(
                    at_ms=at_ms,
                    input_id=message.mark.item_id,
                    items=[message.item],
                    signal=message.mark,
                    steers=message.steers or None,
                )
                for message in taken
            )
        )

    async def withdraw(self, source: str, signal_id: str) -> bool:
        """Take a signal back; False when a model has seen it, or is being asked with it.

        Raises:
            SessionClosed
            OSError: the disk refused; the signal is still there.
        """
        async with self.context.slot.changing():
            place = self.context.log.state.signals.find((source, signal_id))
            if place is None or place.stage not in ("queued", "visible"):
                return False
            if place.stage == "visible" and self.context.slot.awaits_model:
                return False
            at_ms = self.context.clock.now_ms()
            await self.context.log.append(SignalRecalled(at_ms=at_ms, source=source, id=signal_id))
            return True


@dataclass(frozen=True, slots=True)
class ThreadQueue:
    """One loaded thread's queue."""

    context: ThreadContext
    turns: ThreadTurns

    @property
    def state(self) -> QueueState:
        """State of the queue of input."""
        return self.context.log.state.queue

    async def change(self, plan: Plan[Result]) -> tuple[Result, bool]:
        """Change the queue; gives what the plan gives, and whether anything changed.

        When this returns, the change is on disk. `ThreadClients.queue_changed` and
        `ThreadTurns.run_next` follow.

        Raises:
            QueueRefusal, SessionClosed
            OSError: the disk refused; nothing was changed.
        """
        async with self.context.slot.changing():
            records, result = plan(self.state)
            if records:
                await self.context.log.append(*records)
        return result, bool(records)

    async def start(self, submission_id: str | None) -> Turn:
        """Begin a turn with an entry, or with the first one, also while the queue is paused.

        When this returns, the start of the turn is on disk. `ThreadClients.queue_changed` and
        `Turn.run_soon` follow, once the client has been answered.

        Raises:
            QueueRefusal: no such entry, nothing queued, or a turn runs.
            ConfigError: an administrator's demands cannot be read.
            SessionClosed, OSError
        """
        async with self.context.slot.reserve():
            if submission_id is not None:
                entry = self.state.find(submission_id)
            elif self.state.entries:
                entry = self.state.entries[0]
            else:
                raise QueueRefusal("queue is empty", "queueEmpty")
            if self.context.slot.turn is not None:
                raise QueueRefusal("thread already has an active or pending turn", "turnActive")
            return await self.turns.begin_queued(entry)
