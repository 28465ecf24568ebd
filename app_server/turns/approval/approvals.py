"""The approvals of a thread, by kind of action."""

from collections.abc import Callable
from dataclasses import dataclass

from app_server.config.values import Config
from app_server.permissions.rules.book import RuleBook
from app_server.permissions.shell.parse import ScriptReader
from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.turns.approval.asking import ThreadQuestions
from app_server.turns.approval.commands import CommandApprovals
from app_server.turns.approval.files import FileApprovals
from app_server.turns.approval.network import NetworkApprovals
from app_server.turns.approval.permissions import PermissionApprovals
from app_server.turns.approval.persistent import PersistentApprovals
from app_server.turns.approval.tools import ToolApprovals


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadApprovals:
    """The approvals of one loaded thread, by kind of action."""

    questions: ThreadQuestions
    tools: ToolApprovals
    """Of tools of MCP servers."""
    commands: CommandApprovals
    files: FileApprovals
    permissions: PermissionApprovals
    network: NetworkApprovals


def thread_approvals(
    questions: ThreadQuestions,
    records: PersistentApprovals,
    scripts: ScriptReader,
    rules: RuleBook,
    interrupt: Callable[[str], None],
    timeouts: PausableTimeouts,
    config: Config,
) -> ThreadApprovals:
    """Return the approvals of a thread; see NetworkApprovals for `interrupt` and `timeouts`."""
    return ThreadApprovals(
        questions=questions,
        tools=ToolApprovals(questions, records),
        commands=CommandApprovals(questions, scripts, rules, config),
        files=FileApprovals(questions),
        permissions=PermissionApprovals(questions),
        network=NetworkApprovals(questions, rules, interrupt, timeouts),
    )
