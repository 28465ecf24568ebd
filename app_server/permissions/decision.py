"""Whether a command runs, is asked about, or is refused: one function on values. No I/O.

Source: docs/tools.md, "Approvals and rules".
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from app_server.permissions.confinement import Confinement
from app_server.permissions.rules.rule import Rules
from app_server.permissions.shell.script import Script
from protocol.policy import AskForApproval

SandboxPermissions: TypeAlias = Literal["use_default", "require_escalated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """What a model wants to run, and how."""

    script: Script
    sandbox_permissions: SandboxPermissions = "use_default"
    justification: str | None = None
    """Why it wants to leave the sandbox, in its words."""
    prefix_rule: tuple[str, ...] | None = None
    """The rule that it would like to be remembered."""


@dataclass(frozen=True, slots=True)
class Run:
    """It runs, without a question."""

    sandboxed: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody is asked; if they accept, it runs."""

    sandboxed: bool
    """Whether it then runs in the sandbox."""
    reason: str | None = None
    amendment: tuple[str, ...] | None = None
    """The rule that may be remembered; None if none should be."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It does not run; the text is for the model."""

    text: str


Decision: TypeAlias = Run | Ask | Refuse


def decide(
    facts: CommandFacts, policy: AskForApproval, confinement: Confinement, rules: Rules
) -> Decision:
    """Decide about a command."""
    raise NotImplementedError
