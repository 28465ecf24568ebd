"""Hooks of extensions in turns: texts for the model, facts for items, and work after a call.

Nothing here waits. A hook that fails adds nothing, and that is logged.
Source: docs/extensions.md, "Hooks".
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from app_server.extensions.contract.registration import ContributionContext
from protocol.turns.items import McpToolCallAppContext, UserInput

logger = logging.getLogger(__name__)

MAX_INSTRUCTIONS_BYTES = 16 * 1024
"""UTF-8 bytes of what one hook adds for the model; a longer text is left out."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a model makes, by raw names."""

    thread_id: str
    turn_id: str
    item_id: str
    server: str
    tool: str


@dataclass(frozen=True, slots=True)
class Presentation:
    """App and user interface of a tool, for the item of its call; fixed when the call begins."""

    app_context: McpToolCallAppContext | None = None
    resource_uri: str | None = None
    """Of the user interface of the tool."""


class TurnHooks(Protocol):
    """One extension's part in turns; one that derives from it inherits hooks that do nothing."""

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> str | None:
        """Return what the model is shown before the history, of the tools it has in this request.

        `tools` are raw names of server and tool. The text is a message of the developer.
        """

    def present(self, call: ToolCall) -> Presentation | None:
        """Return what the item shows; asked once, before `item/started`."""

    def input_taken(self, thread_id: str, turn_id: str, content: Sequence[UserInput]) -> None:
        """Take what the user sent, at the start of a turn or in the middle of it."""
        return

    def call_ended(self, call: ToolCall, status: Literal["completed", "failed"]) -> None:
        """Note that a call was made and is over; one that was not approved was not made."""
        return

    def turn_ended(self, thread_id: str, turn_id: str) -> None:
        """Note that nothing more will come of a turn."""
        return


class Hooks:
    """The hooks of all extensions, in their order."""

    def __init__(self, hooks: Sequence[TurnHooks] = ()) -> None:
        self._hooks = tuple(hooks)

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> list[str]:
        """Collect what the model is shown."""
        texts = self._ask(lambda hook: hook.instructions(context, tools))
        return [text for text in texts if text and len(text.encode()) <= MAX_INSTRUCTIONS_BYTES]

    def present(self, call: ToolCall) -> Presentation:
        """Put together what an item shows: of contexts the last counts, of resources the first."""
        found = [shown for shown in self._ask(lambda hook: hook.present(call)) if shown]
        contexts = [shown.app_context for shown in found if shown.app_context is not None]
        uris = [shown.resource_uri for shown in found if shown.resource_uri is not None]
        return Presentation(contexts[-1] if contexts else None, uris[0] if uris else None)

    def input_taken(self, thread_id: str, turn_id: str, content: Sequence[UserInput]) -> None:
        """Notify every extension of what the user sent."""
        self._ask(lambda hook: hook.input_taken(thread_id, turn_id, content))

    def call_ended(self, call: ToolCall, status: Literal["completed", "failed"]) -> None:
        """Notify every extension of the end of a call."""
        self._ask(lambda hook: hook.call_ended(call, status))

    def turn_ended(self, thread_id: str, turn_id: str) -> None:
        """Notify every extension of the end of a turn."""
        self._ask(lambda hook: hook.turn_ended(thread_id, turn_id))

    def _ask(self, question: Callable[[TurnHooks], Answer]) -> list[Answer]:
        answers = []
        for hook in self._hooks:
            try:
                answers.append(question(hook))
            except Exception:
                logger.exception("a hook failed")
        return answers
