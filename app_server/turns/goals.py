"""Goal of a thread: its cost, its end, and the turns that the thread begins by itself.

A goal that is active lets the thread begin another turn whenever it is idle, until the model says
that it is reached or stuck, a budget is spent, a turn fails, or the user stops a turn.
Source: docs/threads.md, "Goals".
"""

from collections.abc import Sequence

from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import ThreadState, unread_from
from app_server.turns.clients import ThreadClients
from protocol.log.metadata import GoalChanged, MetadataRecord, ReadStateChanged
from protocol.log.rollout import Record
from protocol.threads.notifications import (
    ThreadGoalUpdatedNotification,
    ThreadReadStateChangedNotification,
)
from protocol.threads.thread import ThreadGoal, ThreadGoalStatus, ThreadReadState
from protocol.turns.turn import TokenUsageBreakdown, TurnError

MAX_OBJECTIVE_CHARS = 4_000

MAX_TURNS_ALONE = 100
"""Turns in a row that no request began; then the goal is blocked until the user says more."""


class Goals:
    """The goal of one loaded thread."""

    def __init__(self, log: LiveThread, clients: ThreadClients, clock: Clock) -> None:
        self._log = log
        self._clients = clients
        self._clock = clock
        self._counted_to_ms = clock.monotonic_ms()
        """Time of turns before this is in the goal; in monotonic milliseconds."""
        self._held = False
        """The user stopped a turn: nothing goes on by itself before they start one."""
        self._began_alone = False
        self._turns_alone = 0
        self.max_turns_alone = MAX_TURNS_ALONE
        """Turns in a row that no request begins; then the goal is blocked."""

    @property
    def goal(self) -> ThreadGoal | None:
        """The thread's goal."""
        return self._log.state.metadata.goal

    @property
    def may_be_created(self) -> bool:
        """Whether the thread can have goals: those in memory alone cannot."""
        return not self._log.ephemeral

    async def create(self, turn_id: str, objective: str, token_budget: int | None) -> bool:
        """Give the thread a goal, and publish it; False if it has one that is unfinished.

        Raises:
            OSError: the log cannot be written.
        """
        at_ms = self._clock.now_ms()
        now_s = at_ms // 1000
        goal = ThreadGoal(
            thread_id=self._log.id,
            objective=objective,
            status="active",
            token_budget=token_budget,
            tokens_used=0,
            time_used_seconds=0,
            created_at=now_s,
            updated_at=now_s,
        )

        def decide(state: ThreadState) -> Sequence[Record]:
            before = state.metadata.goal
            if before is not None and before.status != "complete":
                return []
            return [GoalChanged(at_ms=at_ms, goal=goal)]

        added = await self._log.change(decide)
        if added:
            self._counted_to_ms = self._clock.monotonic_ms()
            self.user_changed()
            self.publish(turn_id, added)
        return bool(added)

    async def set_status(self, turn_id: str | None, status: ThreadGoalStatus) -> None:
        """Write how the goal stands, and publish it.

        Raises:
            OSError: the log cannot be written.
        """
        at_ms = self._clock.now_ms()

        def decide(state: ThreadState) -> Sequence[Record]:
            goal = state.metadata.goal
            if goal is None:
                return []
            changed = goal.model_copy(update={"status": status, "updated_at": at_ms // 1000})
            return [GoalChanged(at_ms=at_ms, goal=within_budget(changed))]

        self.publish(turn_id, await self._log.change(decide))

    # What turns cost.

    def turn_begins(self) -> None:
        """Count time from here on."""
        self._counted_to_ms = self._clock.monotonic_ms()

    async def spend(self, turn_id: str, usage: TokenUsageBreakdown | None) -> None:
        """Add what a response has cost, and stop when the budget is spent.

        Raises:
            OSError: the disk refused.
        """
        if usage is None or not is_active(self.goal):
            return
        tokens = max(usage.input_tokens - usage.cached_input_tokens + usage.output_tokens, 0)
        at_ms = self._clock.now_ms()
        seconds = self._seconds()

        def decide(state: ThreadState) -> Sequence[Record]:
            goal = state.metadata.goal
            if goal is None or not is_active(goal):
                return []
            return [GoalChanged(at_ms=at_ms, goal=_after(goal, tokens, seconds, at_ms))]

        self.publish(turn_id, await self._log.change(decide, sync=False))

    def _seconds(self) -> int:
        """Take whole seconds out of the time that is not counted yet."""
        seconds = (self._clock.monotonic_ms() - self._counted_to_ms) // 1000
        self._counted_to_ms += seconds * 1000
        return seconds

    # What the end of a turn changes.

    def marks_of_end(
        self, state: ThreadState, turn_id: str, end: str, error: TurnError | None
    ) -> Sequence[MetadataRecord]:
        """Say what becomes of the goal, and whether there is something to read."""
        if state.created.ephemeral:
            return []
        if not self._began_alone:
            self._turns_alone = 0
        self._began_alone = False
        self._held = end == "interrupted"
        at_ms = self._clock.now_ms()
        marks: list[MetadataRecord] = []
        goal = state.metadata.goal
        if goal is not None and is_active(goal):
            changed = _ended(_after(goal, 0, self._seconds(), at_ms), end, error)
            if end != "completed":
                marks.append(GoalChanged(at_ms=at_ms, goal=changed))
            goal = changed
        if end != "interrupted" and not is_active(goal):
            marks.append(unread_from(state.metadata.read_state, turn_id, at_ms))
        return marks

    def publish(self, turn_id: str | None, records: Sequence[Record]) -> None:
        """Send clients the goals and read states among records."""
        for record in records:
            if isinstance(record, GoalChanged) and record.goal is not None:
                self._clients.port.broadcast(
                    ThreadGoalUpdatedNotification(
                        thread_id=self._log.id, turn_id=turn_id, goal=record.goal
                    )
                )
            if isinstance(record, ReadStateChanged):
                read_state = ThreadReadState(
                    first_unread=record.first_unread, revision=record.revision
                )
                self._clients.emit(
                    ThreadReadStateChangedNotification(
                        thread_id=self._log.id, read_state=read_state
                    )
                )

    # Going on.

    def user_changed(self) -> None:
        """Go on even if the user had stopped a turn: they have just spoken of the goal."""
        self._held = False
        self._turns_alone = 0

    async def next_instruction(self) -> str | None:
        """Return the model's instruction for a turn that the goal begins; None: no turn begins.

        Raises:
            OSError: the disk refused.
        """
        goal = self.goal
        if goal is None or not is_active(goal) or self._held:
            return None
        if self._turns_alone >= self.max_turns_alone:
            await self.set_status(None, "blocked")
            return None
        return _continue_text(goal)

    def turn_began_alone(self) -> None:
        """Count a turn that the goal has begun, and no user."""
        self._turns_alone += 1
        self._began_alone = True


def within_budget(goal: ThreadGoal) -> ThreadGoal:
    """Hold a goal up when its budget is spent."""
    budget = goal.token_budget
    spent = budget is not None and goal.tokens_used >= budget
    if spent and goal.status in ("active", "paused"):
        return goal.model_copy(update={"status": "budgetLimited"})
    return goal


def is_active(goal: ThreadGoal | None) -> bool:
    """Whether there is a goal to work on."""
    return goal is not None and goal.status == "active"


def _after(goal: ThreadGoal, tokens: int, seconds: int, at_ms: int) -> ThreadGoal:
    spent = {
        "tokens_used": goal.tokens_used + tokens,
        "time_used_seconds": goal.time_used_seconds + seconds,
        "updated_at": at_ms // 1000,
    }
    return within_budget(goal.model_copy(update=spent))


def _ended(goal: ThreadGoal, end: str, error: TurnError | None) -> ThreadGoal:
    if end != "failed" or not is_active(goal):
        return goal
    limited = error is not None and error.codex_error_info == "usageLimitExceeded"
    return goal.model_copy(update={"status": "usageLimited" if limited else "blocked"})


def _continue_text(goal: ThreadGoal) -> str:
    budget = "none" if goal.token_budget is None else str(goal.token_budget)
    return (
        "This thread has a goal, and nobody has said anything since the last turn: go on with it. "
        "The user set the objective below; it says what to work on and changes no other rule.\n\n"
        f"<objective>\n{goal.objective}\n</objective>\n\n"
        f"Tokens used: {goal.tokens_used}. Token budget: {budget}. The objective stays whole, "
        "however many turns it takes. When it is reached and checked, call update_goal with "
        "`complete`. When the same obstacle has stopped you three turns in a row, call it with "
        "`blocked`. Otherwise do the next piece of work now."
    )
