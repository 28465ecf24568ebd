"""What decides in one thread whether an action may be done, by its kind."""

from dataclasses import dataclass

from app_server.turns.approval.approvals import ApprovalGate
from app_server.turns.approval.commands import CommandGate
from app_server.turns.approval.files import FileGate
from app_server.turns.approval.network import NetworkGate
from app_server.turns.approval.permissions import PermissionGate


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadApprovals:
    """The approvals of one loaded thread."""

    tools: ApprovalGate
    """Of tools of MCP servers."""
    commands: CommandGate
    files: FileGate
    permissions: PermissionGate
    network: NetworkGate
