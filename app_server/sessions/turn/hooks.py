"""What hooks do at the beginning and at the end of a turn.

Source: docs/hooks.md, "Events".
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape

from app_server.models.prompt.request import message
from app_server.sessions.turn.context import ThreadContext
from app_server.turns.hooks import ThreadHooks
from protocol.log.rollout import HistoryCompacted
from protocol.model import JsonObject
from protocol.turns.items import (
    AgentMessageThreadItem,
    HookPromptFragment,
    HookPromptThreadItem,
    UserMessageThreadItem,
    text_of_input,
)

MAX_TIMES_STOPPED = 10
"""How often hooks may have one turn go on; then it ends."""


@dataclass(slots=True)
class UserHooks:
    """The hooks of the user around the turns of one loaded thread."""

    context: ThreadContext
    hooks: ThreadHooks
    _has_begun: bool = field(default=False, init=False)
    """Whether the hooks of the thread's start have run, since it was loaded."""
    _prompts: dict[str, int] = field(default_factory=dict, init=False)
    """How often the running turn was made to go on, by its id."""

    async def begin(
        self,
        turn_id: str,
        user_message: UserMessageThreadItem | None,
        given: Sequence[JsonObject],
    ) -> bool:
        """Run the hooks before the first request; False if one wants no request.

        `given`, the input of the turn, is then taken out of what the model is sent.

        Raises:
            OSError: the log cannot be written.
        """
        await self.hooks.read(self.context.thread.state.in_force)
        outcomes = []
        if not self._has_begun:
            self._has_begun = True
            source = "startup" if len(self.context.thread.state.turns) == 1 else "resume"
            fired = await self.hooks.fire("SessionStart", turn_id, source, source=source)
            outcomes.append(fired)
        if user_message is not None:
            prompt = text_of_input(user_message.content)
            outcomes.append(await self.hooks.fire("UserPromptSubmit", turn_id, prompt=prompt))
        context = [message("developer", text) for each in outcomes for text in each.context]
        await self.context.recorder(turn_id).remember(*context)
        if all(outcome.blocked is None for outcome in outcomes):
            return True
        await self._take_out(turn_id, given)
        return False

    async def stop(self, turn_id: str, last_message: AgentMessageThreadItem | None) -> bool:
        """Run the hooks before the end of a turn; True if one has the turn go on.

        Raises:
            OSError: the log cannot be written.
        """
        times = self._prompts.get(turn_id, 0)
        if times >= MAX_TIMES_STOPPED or not self.hooks.listens("Stop"):
            return False
        if self.context.thread.state.queued:
            # The turn goes on for other reasons.
            return False
        said = None if last_message is None else last_message.text
        outcome = await self.hooks.fire(
            "Stop", turn_id, stop_hook_active=times > 0, last_assistant_message=said
        )
        if outcome.blocked is None or outcome.stops:
            return False
        self._prompts = {turn_id: times + 1}
        run_id = self.hooks.run_id("Stop")
        recorder = self.context.recorder(turn_id)
        item = HookPromptThreadItem(
            id=recorder.new_id(),
            fragments=[HookPromptFragment(text=outcome.blocked, hook_run_id=run_id)],
        )
        recorder.started(item)
        text = (
            f'<hook_prompt hook_run_id="{escape(run_id)}">{escape(outcome.blocked)}</hook_prompt>'
        )
        await recorder.completed(item, [message("user", text)])
        return True

    async def _take_out(self, turn_id: str, given: Sequence[JsonObject]) -> None:
        newest_first = self.context.thread.state.history[::-1]
        for item in reversed(given):
            with suppress(ValueError):
                newest_first.remove(item)
        history = newest_first[::-1]
        record = HistoryCompacted(at_ms=self.context.clock.now_ms(), turn_id=turn_id, items=history)
        await self.context.thread.append(record, sync=False)
