"""A loaded thread's slot for a turn: which turn runs, and who may begin, change or end one.

The errors with which a thread refuses requests stand first; handlers translate them once.
Knows: the order of whatever a thread accepts, whether it still accepts anything, and the status
that clients are shown of it. Does not know: how a turn runs.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeAlias

import anyio
import anyio.lowlevel

from app_server.models.prompt.request import INTERRUPTED, STOPPED_BY_REVIEWER
from app_server.runtime.clock import Clock
from app_server.turns.clients import ThreadClients
from app_server.turns.recorder import TurnRecorder
from protocol.log.rollout import Settings, UsageOrigin
from protocol.model import Json
from protocol.threads.thread import (
    ActiveThreadStatus,
    IdleThreadStatus,
    SystemErrorThreadStatus,
    ThreadActiveFlag,
    ThreadStatus,
)
from protocol.turns.requests import McpMetaByServer

MAX_META_BYTES = 256 * 1024
"""Of all entries of `mcpMetaByServer` of a turn, as JSON without blanks."""


class NoActiveTurn(Exception):
    """No turn is running."""


class TurnIdMismatch(Exception):
    """Another turn is running than the caller believes."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected active turn id `{expected}` but found `{found}`")
        self.expected = expected
        self.found = found


class TurnNotSteerable(Exception):
    """The running turn takes no directions; `kind` says what it does."""

    def __init__(self, kind: Literal["compact", "review"]) -> None:
        super().__init__(f"cannot steer a {kind} turn")
        self.kind = kind


class EmptyInput(Exception):
    """A running turn was given nothing."""


class OutputSchemaDiffers(Exception):
    """Input for a running turn came with an output schema that is not the turn's."""


class McpMetaTooLarge(Exception):
    """A turn's metadata for MCP servers would be larger than MAX_META_BYTES."""


class TurnActive(Exception):
    """A turn runs, or is about to."""


class SessionClosed(Exception):
    """The server is stopping."""


class SessionUnloading(SessionClosed):
    """The thread is leaving memory; the server goes on."""


class NotLoaded(Exception):
    """The thread is not in memory."""


class InputIdTaken(Exception):
    """Another input was accepted under this name; docs/wire.md, "Sending again".

    `facts` name what has it: `turnId`, or `queuedSubmissionId`.
    """

    def __init__(self, client_id: str, **facts: str) -> None:
        super().__init__(client_id)
        self.client_id = client_id
        self.facts = facts


class ThreadIdTaken(Exception):
    """The client chose an id under which another thread was started."""


TurnKind: TypeAlias = Literal["compact", "review"]
"""The first step of a turn that takes no directions meanwhile."""


@dataclass(slots=True)
class TurnOptions:
    """Options of one turn alone."""

    output_schema: Json = None
    client_metadata: dict[str, str] | None = None
    """Changes when the turn is steered."""
    mcp_meta: McpMetaByServer = field(default_factory=dict)
    """Changes when the turn is steered."""
    service_tier: str | None = None
    """Takes the place of the thread's; `default` means none."""
    trigger: str | None = None
    """Client's word for the cause of the turn."""
    parent_turn_id: str | None = None
    """The turn that caused this one."""


class RunningTurn:
    """A turn that runs, as its tools and the requests of clients see it."""

    def __init__(self, recorder: TurnRecorder, kind: TurnKind | None, options: TurnOptions) -> None:
        self.id = recorder.turn_id
        self.recorder = recorder
        self.kind = kind
        """None once that step is done."""
        self.options = options
        self.scope = anyio.CancelScope()
        """Cancelled by an interrupt."""
        self.interruption = INTERRUPTED
        """Text for the model about an interrupt."""
        self.is_interrupted = False
        """Whether the user stopped it: queued input then waits for somebody to start it."""
        self.user_was_asked = False
        """Whether a question was put to the user in this turn."""
        self.awaits_model = False
        """Whether a request to the thread's model is being made, or its response read."""
        self.rests = False
        """Whether it ends behind the calls that run, as its model waits to be woken."""
        self.request: anyio.CancelScope | None = None
        """Of the request that is under way."""
        self.origin: UsageOrigin = "user"
        """What began the turn."""

    @property
    def settings(self) -> Settings:
        """The settings in force; they may change while the turn runs."""
        return self.recorder.log.state.in_force

    @property
    def is_directed(self) -> bool:
        """Whether a user has said something that the model was not sent yet."""
        if self.recorder.has_own_history:
            return False
        return any(entry.message is not None for entry in self.recorder.log.state.pending_input)

    def cut_off(self) -> None:
        """Cut off the request that is under way, if a user has said something since it was made.

        What the model has completed is kept, and what it has begun is dropped. Compactions and
        reviews go on.
        """
        if self.request is not None and self.is_directed:
            self.request.cancel()

    def interrupt(self) -> None:
        """Stop the turn for the user; queued input then waits for somebody to start it."""
        self.is_interrupted = True
        self.scope.cancel()

    async def interrupt_here(self) -> NoReturn:
        """End the turn as interrupted, for a user who cancelled a call.

        The caller is cancelled: what must be written is written before.
        """
        self.interrupt()
        await anyio.lowlevel.checkpoint()
        raise AssertionError("called outside of the turn, or shielded from it")


class TurnSlot:
    """Holds at most one running turn."""

    def __init__(self) -> None:
        self.turn: RunningTurn | None = None
        """The running turn, if there is one."""
        self.unpublished_turn_id: str | None = None
        """The turn that was accepted and that was not announced yet."""
        self.idle = anyio.Event()
        """Set while no turn runs."""
        self.idle.set()
        self.emptied_s = float("-inf")
        """Event loop time in seconds at which the last turn ended."""
        self.compaction_waits = False
        """Whether a compaction begins when the thread is idle."""
        self.closed = False
        """Whether the thread is leaving memory; changed under `exclusive`."""
        self.draining = False
        """Whether no turn begins any more; the running one goes on."""
        self.exclusive = anyio.Lock()
        """Keeps anything else from being accepted, and turns from ending."""
        self._beginning = anyio.Lock()
        """Lock to begin turns, taken before `exclusive`; its holder keeps an idle thread idle."""

    @property
    def active_turn_id(self) -> str | None:
        """The running turn, if there is one."""
        return None if self.turn is None else self.turn.id

    @property
    def awaits_model(self) -> bool:
        """Whether a request of the running turn to its model is under way."""
        return self.turn is not None and self.turn.awaits_model

    def require_active(self, turn_id: str) -> RunningTurn:
        """Return the running turn if it is the one that is meant; "" means any.

        Raises:
            NoActiveTurn, TurnIdMismatch
        """
        if self.turn is None:
            raise NoActiveTurn
        if turn_id not in ("", self.turn.id):
            raise TurnIdMismatch(turn_id, self.turn.id)
        return self.turn

    # Who may change what.

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Be `exclusive` in a thread that is open.

        Raises:
            SessionClosed: nothing is accepted any more.
        """
        async with self.exclusive:
            self._require_open()
            yield

    @asynccontextmanager
    async def reserve(self, *, while_draining: bool = False) -> AsyncIterator[None]:
        """Keep turns from beginning or ending elsewhere in the context, so that one may begin here.

        `while_draining` is for input that a running turn may take, or has taken: whoever sets it
        looks at `draining` before a turn begins.

        Raises:
            SessionClosed: no turn begins any more.
        """
        async with self._beginning, self.exclusive:
            self._require_open()
            if self.draining and not while_draining:
                raise SessionClosed
            yield

    @asynccontextmanager
    async def emptied(self) -> AsyncIterator[None]:
        """Stop the running turn, and let none begin while the context lasts.

        Raises:
            SessionClosed: nothing is accepted any more.
        """
        async with self._beginning:
            self.cancel()
            await self.idle.wait()
            async with self.exclusive:
                self._require_open()
                yield

    def _require_open(self) -> None:
        if self.closed:
            raise SessionClosed if self.draining else SessionUnloading

    # Filling and emptying.

    def fill(self, turn: RunningTurn) -> None:
        """Put a turn in that is in the log; to be called under `reserve`."""
        self.turn = turn
        self.unpublished_turn_id = turn.id
        self.idle = anyio.Event()

    def clear(self) -> None:
        """Take the turn out whose end is in the log; to be called under `exclusive`."""
        self.turn = None
        self.emptied_s = anyio.current_time()
        self.idle.set()

    def cancel(self) -> None:
        """Stop the running turn, if there is one; queued input goes on after it."""
        if self.turn is not None:
            self.turn.scope.cancel()

    def interrupt(self, turn_id: str) -> None:
        """Stop the running turn for the user; its end arrives as `turn/completed`.

        Raises:
            NoActiveTurn, TurnIdMismatch
        """
        self.require_active(turn_id).interrupt()

    def stop_denied_turn(self, turn_id: str) -> None:
        """Interrupt the running turn for the reviewer, if it is the one that is meant."""
        if self.turn is not None and self.turn.id == turn_id:
            self.turn.interruption = STOPPED_BY_REVIEWER
            self.turn.interrupt()


class SessionStatus:
    """Follows the turn's slot and the questions that wait for the user."""

    def __init__(self, slot: TurnSlot, clients: ThreadClients, clock: Clock) -> None:
        self._slot = slot
        self._clock = clock
        self._clients = clients
        self._waiting: Counter[ThreadActiveFlag] = Counter()
        self._waited_ms = 0
        self._waiting_since_ms = 0
        self.has_failed = False
        """Whether the last turn failed, or its end could not be written."""

    @property
    def current(self) -> ThreadStatus:
        """The status, as the wire has it."""
        if self._slot.turn is not None:
            return ActiveThreadStatus(active_flags=sorted(+self._waiting))
        return SystemErrorThreadStatus() if self.has_failed else IdleThreadStatus()

    @property
    def waited_ms(self) -> int:
        """Milliseconds so far in which the user was asked something."""
        if not self._waiting.total():
            return self._waited_ms
        return self._waited_ms + self._clock.monotonic_ms() - self._waiting_since_ms

    def publish(self) -> None:
        """Send the status to every client."""
        self._clients.status(self.current)

    @contextmanager
    def waiting_on(self, flag: ThreadActiveFlag) -> Iterator[None]:
        """Show for as long as the context lasts that the user is asked something."""
        if not self._waiting.total():
            self._waiting_since_ms = self._clock.monotonic_ms()
        self._waiting[flag] += 1
        if self._slot.turn is not None:
            self._slot.turn.user_was_asked = True
            self.publish()
        try:
            yield
        finally:
            waited_ms = self.waited_ms
            self._waiting[flag] -= 1
            if not self._waiting.total():
                self._waited_ms = waited_ms
            if self._slot.turn is not None and not self._slot.turn.scope.cancel_called:
                self.publish()
