"""What decides in one thread whether an action may be done, by its kind."""

from collections.abc import Callable
from dataclasses import dataclass

from app_server.permissions.rules.book import RuleBook
from app_server.permissions.shell.parse import ScriptReader
from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.turns.approval.approvals import ApprovalGate
from app_server.turns.approval.asking import Asker
from app_server.turns.approval.commands import CommandGate
from app_server.turns.approval.files import FileGate
from app_server.turns.approval.network import NetworkGate
from app_server.turns.approval.permissions import PermissionGate
from app_server.turns.approval.persistent import PersistentApprovals


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadApprovals:
    """The approvals of one loaded thread."""

    tools: ApprovalGate
    """Of tools of MCP servers."""
    commands: CommandGate
    files: FileGate
    permissions: PermissionGate
    network: NetworkGate


def thread_approvals(
    asker: Asker,
    records: PersistentApprovals,
    scripts: ScriptReader,
    rules: RuleBook,
    interrupt: Callable[[str], None],
    timeouts: PausableTimeouts,
) -> ThreadApprovals:
    """Join what decides in a thread; see the gates for `interrupt` and `timeouts`."""
    return ThreadApprovals(
        tools=ApprovalGate(asker, records),
        commands=CommandGate(asker, scripts, rules),
        files=FileGate(asker),
        permissions=PermissionGate(asker),
        network=NetworkGate(asker, rules, interrupt, timeouts),
    )
