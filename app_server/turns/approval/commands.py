"""Whether a command of the model's may run: policy and rules first, then the user or the reviewer.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio.to_thread

from app_server.config.values import Config, ConfigError
from app_server.permissions.commands.safe import program_name
from app_server.permissions.rules import NotLearned, PrefixRule, RuleBook, Rules
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.permissions.shell.parse import MAX_INLINE_BYTES
from app_server.permissions.trust import project_trust, says_something
from app_server.permissions.verdict import (
    CommandFacts,
    NeedsApproval,
    Refuse,
    Run,
    Verdict,
    may_leave_sandbox,
    unsandboxed_amendment,
    verdict_on,
)
from app_server.turns.approval.asking import (
    Decision,
    HookedTool,
    Question,
    ThreadQuestions,
)
from app_server.turns.approval.reviewer import (
    MAX_ARGUMENTS_BYTES,
    MAX_DESCRIPTION_BYTES,
    PlannedAction,
    bounded,
    machine_of,
)
from protocol.log.rollout import LOCAL
from protocol.model import WireModel
from protocol.turns.approvals import (
    AcceptWithExecpolicyAmendmentDecision,
    ApplyNetworkPolicyAmendmentDecision,
    CommandExecutionRequestApprovalParams,
    CommandExecutionRequestApprovalResponse,
    ExecpolicyAmendmentChoice,
)
from protocol.turns.auto_review import CommandGuardianApprovalReviewAction
from protocol.turns.items import CommandAction
from protocol.turns.policy import AskForApproval

METHOD = "item/commandExecution/requestApproval"

REJECTED = "rejected by user"
RETRY = "command failed; retry without sandbox?"

MAX_REMEMBERED = 1_024
"""Commands, or hosts, of one thread that the user allowed for the session; the oldest go first."""

MAX_SESSION_RULES = 256
"""Rules that could not be written down, and hold for the session; the oldest are forgotten."""

_Key: TypeAlias = tuple[str, str, str, bool]
"""The environment, the command line, the folder, and whether it runs within the sandbox policy."""


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
    sandbox_policy: EffectivePolicy
    """The sandbox policy of the command, if it runs in the sandbox."""
    environment_id: str = LOCAL
    """Id of the environment that it runs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandQuestion(Question):
    """A question about a command of the model's, or about its connections to a host."""

    rules: Sequence[WireModel] = ()
    """The decisions that are offered and write a rule."""

    def read(self, answer: WireModel, client: str | None) -> Decision | None:
        """Return the decision; None for a rule that was not offered."""
        assert isinstance(answer, CommandExecutionRequestApprovalResponse)
        chosen, rule = answer.decision, None
        if isinstance(chosen, WireModel) and chosen not in self.rules:
            return None
        match chosen:
            case AcceptWithExecpolicyAmendmentDecision():
                rule = chosen.accept_with_execpolicy_amendment.execpolicy_amendment
                word = next(iter(chosen.model_dump(by_alias=True)))
            case ApplyNetworkPolicyAmendmentDecision():
                amendment = chosen.apply_network_policy_amendment.network_policy_amendment
                rule = [amendment.action, amendment.host]
                word = next(iter(chosen.model_dump(by_alias=True)))
            case _:
                word = chosen
        is_allowed = word not in ("cancel", "decline")
        return Decision(
            is_allowed=is_allowed,
            by="user",
            word=word,
            text="" if is_allowed else REJECTED,
            ends_turn=word == "cancel",
            answer=answer,
            rule=rule,
            client=client,
        )


@dataclass(slots=True)
class CommandApprovals:
    """The approvals of one thread's commands; those for the session are remembered here."""

    questions: ThreadQuestions
    rules: RuleBook
    config: Config
    """Says which projects the user trusts."""
    _remembered: dict[_Key, None] = field(default_factory=dict, init=False)
    _learned: list[PrefixRule] = field(default_factory=list, init=False)
    """Rules that could not be written to the disk."""
    _last: tuple[tuple[CommandFacts, AskForApproval, EffectivePolicy, Rules], Verdict] | None = (
        field(default=None, init=False)
    )
    """The verdict on the command that was checked last, and what it followed from."""

    async def check(self, request: CommandRequest) -> Verdict:
        """Return whether a command runs, has to be asked about, or is refused.

        Takes as long as it takes to look at the files of rules.
        """
        settings = self.questions.log.state.in_force
        folder = settings.working_folder(request.environment_id)
        known = () if folder is None else (folder.cwd, *folder.roots)
        policy = settings.approval_policy
        facts = replace(
            request.facts,
            is_elsewhere=request.cwd not in known,
            is_trusted=policy == "untrusted" and await self._is_trusted(request),
        )
        given = facts, policy, request.sandbox_policy, await self._rules()
        if self._last is not None and self._last[0] == given:
            # As when a command was asked about, and is allowed.
            verdict = self._last[1]
        elif len(facts.script.text) <= MAX_INLINE_BYTES:
            verdict = verdict_on(*given)
        else:
            # Hundreds of commands take tens of milliseconds.
            verdict = await anyio.to_thread.run_sync(verdict_on, *given)
        self._last = given, verdict
        if (
            isinstance(verdict, NeedsApproval)
            and _key(request, sandboxed=verdict.sandboxed) in self._remembered
        ):
            return Run(verdict.sandboxed)
        return verdict

    async def check_unsandboxed(self, request: CommandRequest) -> Verdict:
        """Return whether a command that the sandbox denied something runs again without it.

        Refused without a text where policy forbids the question: the model gets the failure.
        """
        if not may_leave_sandbox(self.questions.log.state.in_force.approval_policy):
            return Refuse("")
        if _key(request, sandboxed=False) in self._remembered:
            return Run(sandboxed=False)
        amendment = unsandboxed_amendment(request.facts, await self._rules())
        return NeedsApproval(sandboxed=False, reason=RETRY, amendment=amendment)

    def question(
        self, request: CommandRequest, needed: NeedsApproval, *, is_retry: bool = False
    ) -> Question:
        """Return the question; a retry has an id of its own beside the first about its item."""
        questions = self.questions
        amendment = None if needed.amendment is None else list(needed.amendment)
        rules = () if amendment is None else (_learning(amendment),)
        params = CommandExecutionRequestApprovalParams(
            thread_id=questions.log.id,
            turn_id=request.turn_id,
            item_id=request.item_id,
            started_at_ms=questions.clock.now_ms(),
            approval_id=questions.clock.new_id() if is_retry else None,
            environment_id=request.environment_id,
            reason=needed.reason,
            command=request.command,
            cwd=request.cwd,
            command_actions=list(request.actions),
            proposed_execpolicy_amendment=amendment,
            available_decisions=["accept", *rules, "cancel"],
        )
        planned = PlannedAction(
            turn_id=request.turn_id,
            target_item_id=request.item_id,
            action=CommandGuardianApprovalReviewAction(
                source="unifiedExec", command=request.command, cwd=request.cwd
            ),
            evidence={
                "kind": "command",
                **machine_of(request.environment_id),
                "command": bounded(request.command, MAX_ARGUMENTS_BYTES),
                "cwd": request.cwd,
                "runs_in_sandbox": needed.sandboxed and request.sandbox_policy.is_restricted,
                "why_asked": needed.reason,
                "justification_of_the_agent": bounded(
                    request.facts.justification, MAX_DESCRIPTION_BYTES
                ),
            },
        )
        hooked = HookedTool(
            name="Bash",
            input={
                "command": request.facts.script.text,
                "description": request.facts.justification,
            },
        )
        return CommandQuestion(
            action="command",
            turn_id=request.turn_id,
            item_id=request.item_id,
            subject=request.command,
            method=METHOD,
            params=params,
            planned=planned,
            hooked=hooked,
            rules=rules,
        )

    async def keep(
        self, request: CommandRequest, needed: NeedsApproval, decision: Decision
    ) -> None:
        """Keep an approval for the session, or the rule that the user accepted with it."""
        answer = decision.answer
        if not isinstance(answer, CommandExecutionRequestApprovalResponse):
            return
        match answer.decision:
            case "acceptForSession":
                self._remembered[_key(request, sandboxed=needed.sandboxed)] = None
                if len(self._remembered) > MAX_REMEMBERED:
                    del self._remembered[next(iter(self._remembered))]
            case AcceptWithExecpolicyAmendmentDecision() as accepted:
                await self._learn(accepted.accept_with_execpolicy_amendment.execpolicy_amendment)

    async def _rules(self) -> Rules:
        rules = await self.rules.current()
        learned = self._learned
        return replace(rules, prefixes=(*rules.prefixes, *learned)) if learned else rules

    async def _is_trusted(self, request: CommandRequest) -> bool:
        """Whether the user trusts a command's project; looked at only if one may run unasked."""
        programs = {program_name(one.words[0]) for one in request.facts.script.commands}
        if request.environment_id != LOCAL or "git" not in programs:
            return False
        try:
            if not says_something(self.config):
                return False
            trust = await anyio.to_thread.run_sync(project_trust, self.config, request.cwd)
        except ConfigError:
            return False
        return trust == "trusted"

    async def _learn(self, words: Sequence[str]) -> None:
        try:
            await self.rules.learn(words)
        except NotLearned as exc:
            self._learned.append(PrefixRule(tuple((word,) for word in words)))
            del self._learned[:-MAX_SESSION_RULES]
            self.questions.warn(
                f"the rule is not written down: {exc}; it holds for this session only"
            )


def _learning(amendment: list[str]) -> AcceptWithExecpolicyAmendmentDecision:
    choice = ExecpolicyAmendmentChoice(execpolicy_amendment=amendment)
    return AcceptWithExecpolicyAmendmentDecision(accept_with_execpolicy_amendment=choice)


def _key(request: CommandRequest, *, sandboxed: bool) -> _Key:
    return request.environment_id, request.command, request.cwd, sandboxed
