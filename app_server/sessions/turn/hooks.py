"""What hooks do at the beginning and at the end of a turn.

Source: docs/hooks.md, "Events".
"""

from contextlib import suppress
from dataclasses import dataclass, field
from html import escape

from app_server.sessions.turn.parts import ThreadParts
from app_server.turns.hooks import ThreadHooks
from app_server.turns.model.prompt.request import message
from app_server.turns.named_by_input import NOTHING_NAMED
from app_server.turns.run import TurnRun
from protocol.log.rollout import HistoryCompacted
from protocol.turns.items import (
    HookPromptFragment,
    HookPromptThreadItem,
    UserMessageThreadItem,
    text_of_input,
)

MAX_TIMES_STOPPED = 10
"""How often hooks may have one turn go on; then it ends."""


@dataclass(slots=True)
class TurnHooks:
    """Runs the hooks of a thread's turns."""

    parts: ThreadParts
    hooks: ThreadHooks
    _has_begun: bool = field(default=False, init=False)
    """Whether the hooks of the thread's start have run, since it was loaded."""
    _prompts: dict[str, int] = field(default_factory=dict, init=False)
    """How often the running turn was made to go on, by its id."""

    async def begin(self, run: TurnRun, user_message: UserMessageThreadItem | None) -> bool:
        """Run what comes before the first request; False if a hook wants no request.

        What the user sent is then taken out of what the model is sent.

        Raises:
            OSError: the log cannot be written.
        """
        await self.hooks.read(self.parts.thread.state.in_force)
        outcomes = []
        if not self._has_begun:
            self._has_begun = True
            source = "startup" if len(self.parts.thread.state.turns) == 1 else "resume"
            fired = await self.hooks.fire("SessionStart", run.id, source, source=source)
            outcomes.append(fired)
        if user_message is not None:
            prompt = text_of_input(user_message.content)
            outcomes.append(await self.hooks.fire("UserPromptSubmit", run.id, prompt=prompt))
        context = [message("developer", text) for each in outcomes for text in each.context]
        await self.parts.recorder(run.id).remember(*context)
        if all(outcome.blocked is None for outcome in outcomes):
            return True
        await self._take_out(run)
        # What it named goes with it; input that is queued may have the turn go on.
        run.named, run.needed_servers = NOTHING_NAMED, ()
        return False

    async def stop(self, run: TurnRun) -> bool:
        """Run what comes before the end of a turn; True if a hook has the turn go on.

        Raises:
            OSError: the log cannot be written.
        """
        times = self._prompts.get(run.id, 0)
        if times >= MAX_TIMES_STOPPED or not self.hooks.listens("Stop"):
            return False
        if self.parts.thread.state.queued:
            # The turn goes on for other reasons.
            return False
        said = None if run.last_message is None else run.last_message.text
        outcome = await self.hooks.fire(
            "Stop", run.id, stop_hook_active=times > 0, last_assistant_message=said
        )
        if outcome.blocked is None or outcome.stops:
            return False
        self._prompts = {run.id: times + 1}
        run_id = self.hooks.run_id("Stop")
        recorder = self.parts.recorder(run.id)
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

    async def _take_out(self, run: TurnRun) -> None:
        newest_first = self.parts.thread.state.history[::-1]
        for item in reversed(run.given):
            with suppress(ValueError):
                newest_first.remove(item)
        history = newest_first[::-1]
        record = HistoryCompacted(at_ms=self.parts.clock.now_ms(), turn_id=run.id, items=history)
        await self.parts.thread.append(record, sync=False)
