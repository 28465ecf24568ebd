"""Whether a command of the model's may run: policy and rules first, then the user or the reviewer.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio.to_thread

from app_server.permissions.commands.nested import read_command, run_by
from app_server.permissions.decision import (
    Ask,
    Decision,
    Run,
    decide,
    may_leave_sandbox,
    unsandboxed_amendment,
)
from app_server.permissions.rules.amendment import is_writable
from app_server.permissions.rules.book import NotLearned, RuleBook
from app_server.permissions.rules.rule import PrefixRule, Rules
from app_server.permissions.shell.parse import MAX_INLINE_BYTES, ScriptReader
from app_server.permissions.shell.script import Script
from app_server.turns.approval.asking import (
    NO_ANSWER,
    ApprovalCancelled,
    Asker,
    Denied,
    OnDenied,
    Question,
)
from app_server.turns.approval.command_question import CommandRequest, command_question
from protocol.model import WireModel
from protocol.turns.approvals import (
    AcceptWithExecpolicyAmendmentDecision,
    CommandExecutionRequestApprovalResponse,
)

REJECTED = "rejected by user"
RETRY = "command failed; retry without sandbox?"

MAX_REMEMBERED = 1_024
"""Commands, or hosts, of one thread that the user allowed for the session; the oldest go first."""

MAX_SESSION_RULES = 256
"""Rules that could not be written down, and hold for the session; the oldest are forgotten."""

_Key: TypeAlias = tuple[str, str, str, bool]
"""The environment, the command line, the folder, and whether it runs within the confinement."""


@dataclass(slots=True)
class CommandGate:
    """The approvals of one thread's commands; what was allowed for the session is kept here."""

    asker: Asker
    scripts: ScriptReader
    rules: RuleBook
    _remembered: dict[_Key, None] = field(default_factory=dict, init=False)
    _learned: list[PrefixRule] = field(default_factory=list, init=False)
    """What could not be written down."""

    async def read(self, script: str, shell: str, *, is_users: bool) -> Script:
        """Take a command line apart, for `CommandFacts` and for `command_actions`.

        `shell` is the absolute path of what runs it; `is_users` says that the user chose it, and
        not the model. If the grammar cannot be loaded now, it is like a script that is too long.
        """
        return run_by(await read_command(self.scripts, script), shell, is_users=is_users)

    async def decide(self, request: CommandRequest) -> Decision:
        """Say what becomes of a command: it runs, `ask` has to be called first, or it is refused.

        Asks nobody, and takes as long as it takes to look at the files of rules.
        """
        settings = self.asker.thread.state.in_force
        folder = settings.working_folder(request.environment_id)
        known = () if folder is None else (folder.cwd, *folder.roots)
        facts = replace(request.facts, is_elsewhere=request.cwd not in known)
        policy = settings.approval_policy
        given = facts, policy, request.confinement, await self._rules()
        if len(facts.script.text) <= MAX_INLINE_BYTES:
            decision = decide(*given)
        else:
            # Hundreds of commands take tens of milliseconds.
            decision = await anyio.to_thread.run_sync(decide, *given)
        if isinstance(decision, Ask) and self._is_remembered(request, sandboxed=decision.sandboxed):
            return Run(decision.sandboxed)
        return decision

    async def ask(
        self,
        request: CommandRequest,
        ask: Ask,
        announce: Callable[[], None],
        on_denied: OnDenied,
    ) -> Run:
        """Ask the user or the reviewer, and return how the command may run.

        That is as `ask` says, or if the user accepted a rule, as the rule says.

        `announce` shows clients the item, and is called before the question is put; `on_denied`
        completes the item as declined, and is called before a refusal is raised. Waits as long as
        the settings say, without limit by default; cancelling withdraws the question.

        Raises:
            ApprovalCancelled: the user cancelled the turn too, which has to be interrupted.
            Denied: it must not run; the text is for the model.
        """
        question = command_question(self.asker, request, ask)
        await self._ask(request, ask, question, on_denied, announce)
        decision = await self.decide(request)
        return decision if isinstance(decision, Run) else Run(ask.sandboxed)

    async def may_run_unsandboxed(self, request: CommandRequest, on_denied: OnDenied) -> bool:
        """Ask, after the sandbox denied what a command did, whether it may run again without.

        False if policy forbids the question, or the answer is no: the model then gets the failure
        as it was. To be called once an item. `on_denied` is called before ApprovalCancelled.

        Raises:
            ApprovalCancelled: the user cancelled the turn too, which has to be interrupted.
        """
        if not may_leave_sandbox(self.asker.thread.state.in_force.approval_policy):
            return False
        if self._is_remembered(request, sandboxed=False):
            return True
        amendment = unsandboxed_amendment(request.facts, await self._rules())
        ask = Ask(sandboxed=False, reason=RETRY, amendment=amendment)
        try:
            question = command_question(self.asker, request, ask, self.asker.clock.new_id())
            await self._ask(request, ask, question)
        except ApprovalCancelled:
            await on_denied()
            raise
        except Denied:
            return False
        return True

    async def _rules(self) -> Rules:
        rules = await self.rules.current()
        return replace(rules, prefixes=(*rules.prefixes, *self._learned))

    def _is_remembered(self, request: CommandRequest, *, sandboxed: bool) -> bool:
        return _key(request, sandboxed=sandboxed) in self._remembered

    async def _ask(
        self,
        request: CommandRequest,
        ask: Ask,
        question: Question,
        on_denied: OnDenied | None = None,
        announce: Callable[[], None] | None = None,
    ) -> None:
        kind = CommandExecutionRequestApprovalResponse
        answer = await self.asker.allow(question, kind, check_decision, on_denied, announce)
        match None if answer is None else answer.decision:
            case "acceptForSession":
                self._remember(request, sandboxed=ask.sandboxed)
            case AcceptWithExecpolicyAmendmentDecision() as accepted if ask.amendment is not None:
                words = accepted.accept_with_execpolicy_amendment.execpolicy_amendment
                await self._learn(words)

    def _remember(self, request: CommandRequest, *, sandboxed: bool) -> None:
        self._remembered[_key(request, sandboxed=sandboxed)] = None
        if len(self._remembered) > MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    async def _learn(self, words: Sequence[str]) -> None:
        try:
            await self.rules.learn(words)
        except NotLearned as exc:
            message = f"the rule is not written down: {exc}"
            # Without words it would be about every command.
            if is_writable(words):
                message += "; it holds for this session only"
                self._learned.append(PrefixRule(tuple((word,) for word in words)))
                del self._learned[:-MAX_SESSION_RULES]
            self.asker.warn(message)


def check_decision(
    answer: CommandExecutionRequestApprovalResponse, *amendments: type[WireModel]
) -> None:
    """Raise ApprovalCancelled or Denied unless it accepts, in words or with an amendment."""
    match answer.decision:
        case "accept" | "acceptForSession" | AcceptWithExecpolicyAmendmentDecision():
            return
        case "cancel":
            raise ApprovalCancelled(REJECTED)
        case "decline":
            raise Denied(REJECTED)
    if not isinstance(answer.decision, amendments):
        raise Denied(NO_ANSWER)


def _key(request: CommandRequest, *, sandboxed: bool) -> _Key:
    return request.environment_id, request.command, request.cwd, sandboxed
