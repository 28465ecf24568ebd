"""Whether a command runs, is asked about, or is refused: one function on values. No I/O.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app_server.permissions.commands.dangerous import danger_of, danger_of_words
from app_server.permissions.commands.safe import not_reading, program_name
from app_server.permissions.commands.wrappers import layers
from app_server.permissions.rules import PrefixRule, Rules, proposed, strictest
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.permissions.shell.script import Command, Script
from protocol.turns.policy import AskForApproval, GranularAskForApproval

SandboxPermissions: TypeAlias = Literal["use_default", "require_escalated"]

CANNOT_ESCALATE = (
    "you cannot ask for escalated permissions, as the approval policy does not allow it; "
    "go on without them"
)
CANNOT_ASK = (
    "a rule wants somebody's approval for it, and the approval policy does not allow to ask"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """A model's request to run a command, with its sandbox permissions."""

    script: Script
    sandbox_permissions: SandboxPermissions = "use_default"
    justification: str | None = None
    """Why it wants to leave the sandbox, in its words."""
    prefix_rule: tuple[str, ...] | None = None
    """The rule that it would like to be remembered."""
    is_elsewhere: bool = False
    """Whether it is to run in a folder that is none of the thread's."""
    is_trusted: bool = False
    """Whether the user trusts the project that this folder belongs to."""


@dataclass(frozen=True, slots=True)
class Run:
    """It runs, without a question."""

    sandboxed: bool = True
    """Whether within the sandbox policy in force, which may be none."""


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """The user is asked; if they accept, it runs."""

    sandboxed: bool = True
    """Whether it then runs within the sandbox policy in force, which may be none."""
    reason: str | None = None
    """For the user."""
    amendment: tuple[str, ...] | None = None
    """The rule that may be remembered; None if none should be."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It does not run; the text is for the model."""

    text: str


Verdict: TypeAlias = Run | NeedsApproval | Refuse


def verdict_on(
    facts: CommandFacts,
    policy: AskForApproval,
    sandbox_policy: EffectivePolicy,
    rules: Rules,
) -> Verdict:
    """Decide about a command."""
    script = facts.script
    strict = _strictest_rule(script, rules)
    if strict is not None and strict.decision == "forbidden":
        forbidden = f"policy forbids commands starting with `{strict.shown()}`"
        return Refuse(strict.justification or forbidden)
    # Whoever is not confined has nothing to leave.
    escalated = facts.sandbox_permissions == "require_escalated" and sandbox_policy.is_restricted
    if strict is not None and strict.decision == "prompt":
        if not _may_ask_for_rules(policy):
            return Refuse(CANNOT_ASK)
        why = strict.justification or f"a rule for `{strict.shown()}`"
        return NeedsApproval(not escalated, f"requires approval: {why}")
    if script.is_understood and all(
        _is_allowed_by_rule(part, facts, rules) for part in script.commands
    ):
        return Run(sandboxed=False)
    if escalated:
        if not may_leave_sandbox(policy):
            return Refuse(CANNOT_ESCALATE)
        return NeedsApproval(False, facts.justification, unsandboxed_amendment(facts, rules))
    danger = danger_of(script)
    if danger is not None:
        return _decide_about_danger(danger, policy, sandbox_policy)
    others = not_reading(script, is_trusted=facts.is_trusted and not facts.is_elsewhere)
    asking = [command for command in others if not _is_allowed_by_rule(command, facts, rules)]
    if policy != "untrusted" or (script.is_understood and not asking):
        return Run()
    return NeedsApproval(True, facts.justification, proposed(asking, facts.prefix_rule))


def may_leave_sandbox(policy: AskForApproval) -> bool:
    """Whether the approval policy permits asking to run a command without the sandbox."""
    if isinstance(policy, GranularAskForApproval):
        return policy.granular.sandbox_approval
    return policy != "never"


def unsandboxed_amendment(facts: CommandFacts, rules: Rules) -> tuple[str, ...] | None:
    """Return the rule that would let a command run without the sandbox; see `proposed`."""
    asking = [part for part in facts.script.commands if not _is_allowed_by_rule(part, facts, rules)]
    return None if danger_of(facts.script) else proposed(asking, facts.prefix_rule)


def _may_ask_for_rules(policy: AskForApproval) -> bool:
    if isinstance(policy, GranularAskForApproval):
        return policy.granular.rules
    return policy != "never"


def _decide_about_danger(
    danger: str, policy: AskForApproval, sandbox_policy: EffectivePolicy
) -> Verdict:
    if policy != "never":
        return NeedsApproval(True, f"this is known to be dangerous: {danger}")
    if sandbox_policy.is_restricted:
        return Run()
    return Refuse(f"this is known to be dangerous, and nobody may be asked: {danger}")


def _strictest_rule(script: Script, rules: Rules) -> PrefixRule | None:
    """Return the strictest rule for whatever a script mentions, also within other programs."""
    found = (rules.of(words) for words in _mentioned(script))
    return strictest(rule for rule in found if rule is not None)


def _mentioned(script: Script) -> Iterator[tuple[str, ...]]:
    for part in (script, *script.nested):
        for pipeline in part.mentioned:
            for command in pipeline.commands:
                yield from layers(command.texts)


def _is_allowed_by_rule(command: Command, facts: CommandFacts, rules: Rules) -> bool:
    """Whether a rule lets a command run; a dangerous one only if the rule names the danger.

    A model may make a repository in a folder of its own, whose settings name programs to run: there
    no rule is about `git`.
    """
    if any(word.is_pattern and word.may_be_option for word in command.words):
        return False
    if facts.is_elsewhere and program_name(command.words[0]) == "git":
        return False
    words = command.texts
    rule = rules.of(words)
    if rule is None or rule.decision != "allow":
        return False
    return danger_of_words(words) is None or danger_of_words(words[: len(rule.pattern)]) is not None
