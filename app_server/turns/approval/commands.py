"""Whether a command of the model's may run: policy and rules first, then the user or the reviewer.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app_server.permissions.confinement import Confinement
from app_server.permissions.decision import Ask, CommandFacts, Decision
from protocol.items import CommandAction


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """A command that may need somebody's word."""

    turn_id: str
    item_id: str
    facts: CommandFacts
    command: str
    """The whole line, with the shell that runs it, as clients are shown it."""
    cwd: str
    actions: Sequence[CommandAction]
    confinement: Confinement
    """What confines it, if it runs in the sandbox."""


class CommandGate:
    """The approvals of one thread's commands; what was allowed for the session is kept here."""

    async def decide(self, request: CommandRequest) -> Decision:
        """Say what becomes of a command: it runs, `ask` has to be called first, or it is refused.

        Asks nobody, and takes as long as it takes to look at the files of rules.
        """
        raise NotImplementedError

    async def ask(self, request: CommandRequest, ask: Ask) -> None:
        """Ask the user or the reviewer; returns when the command may run as `ask` says.

        The item must have been announced. Waits as long as the settings say, without limit by
        default; cancelling withdraws the question.

        Raises:
            ApprovalCancelled: the user cancelled the turn too: once the item is completed as
                declined, the turn has to be ended as interrupted.
            Denied: it must not run; the text is for the model.
        """
        raise NotImplementedError

    async def ask_outside(self, request: CommandRequest) -> bool:
        """Ask, after the sandbox denied what a command did, whether it may run again without.

        Returns False if policy forbids the question, or the answer is no; what the model then gets
        is the failure as it was. It is asked once an item.

        Raises:
            ApprovalCancelled: see `ask`.
        """
        raise NotImplementedError
