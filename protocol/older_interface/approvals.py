"""applyPatchApproval, execCommandApproval: how older clients are asked for approval.

Methods without a slash, from before threads had their present form; newer clients use others.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import OpenUnion, SnakeVariant, Variant, WireModel
from protocol.turns.policy import NetworkPolicyAmendment
from protocol.values import ThreadId


class AddFileChange(Variant):
    """A new file."""

    type: Literal["add"] = "add"
    content: str
    """All of it."""


class DeleteFileChange(Variant):
    """A file that goes away."""

    type: Literal["delete"] = "delete"
    content: str
    """What the file held."""


class UpdateFileChange(SnakeVariant):
    """A file that is edited, and perhaps moved."""

    type: Literal["update"] = "update"
    unified_diff: str
    move_path: str | None = None
    """Where it moves; null when it stays."""


FileChange = TypeAliasType(
    "FileChange",
    OpenUnion[
        Annotated[AddFileChange | DeleteFileChange | UpdateFileChange, Field(discriminator="type")]
    ],
)
"""What happens to one file."""


class ApplyPatchApprovalParams(WireModel):
    """Ask the user to let the agent change files."""

    conversation_id: ThreadId
    call_id: str
    """Id of the tool call that wants the change."""
    file_changes: dict[str, FileChange]
    """By path."""
    reason: str | None = None
    """Why the agent asks; null when it gave no reason."""
    grant_root: str | None = None
    """Directory that the agent wants to write below until the session ends; null asks for this
    change alone."""


class ApprovedExecpolicyAmendment(SnakeVariant):
    """A rule for commands, as approved."""

    proposed_execpolicy_amendment: list[str]
    """First words of the commands that need no approval any more."""


class ApprovedExecpolicyAmendmentReviewDecision(SnakeVariant, extra="forbid"):
    """Go on, and stop asking about commands of this kind."""

    approved_execpolicy_amendment: ApprovedExecpolicyAmendment


class DeniedReviewDecisionDenied(Variant):
    """Why something was refused."""

    rejection: str
    """Told to the agent."""


class DeniedReviewDecision(Variant, extra="forbid"):
    """Refuse this, and let the turn go on."""

    denied: DeniedReviewDecisionDenied


class ReviewedNetworkPolicyAmendment(SnakeVariant):
    """A network rule, as decided."""

    network_policy_amendment: NetworkPolicyAmendment


class NetworkPolicyAmendmentReviewDecision(SnakeVariant, extra="forbid"):
    """Allow or deny a host from now on."""

    network_policy_amendment: ReviewedNetworkPolicyAmendment


ReviewDecision = TypeAliasType(
    "ReviewDecision",
    Literal[
        "approved", "approved_for_session", "approved_mcp_policy_amendment", "timed_out", "abort"
    ]
    | ApprovedExecpolicyAmendmentReviewDecision
    | NetworkPolicyAmendmentReviewDecision
    | DeniedReviewDecision,
)
"""The answer to a request for approval; `abort` also ends the turn."""


class ApplyPatchApprovalResponse(WireModel):
    """Whether the files may be changed."""

    decision: ReviewDecision


class ListFilesParsedCommand(Variant):
    """It lists files."""

    type: Literal["list_files"] = "list_files"
    cmd: str
    path: str | None = None
    """Directory; null when it could not be told."""


class ReadParsedCommand(Variant):
    """It reads a file."""

    type: Literal["read"] = "read"
    cmd: str
    name: str
    """Short name of the file, to show."""
    path: str
    """A best guess; a relative one starts at the command's `cwd`."""


class SearchParsedCommand(Variant):
    """It searches files."""

    type: Literal["search"] = "search"
    cmd: str
    query: str | None = None
    """What it looks for; null when it could not be told."""
    path: str | None = None
    """Where it looks; null when it could not be told."""


class UnknownParsedCommand(Variant):
    """It does something else."""

    type: Literal["unknown"] = "unknown"
    cmd: str


ParsedCommand = TypeAliasType(
    "ParsedCommand",
    OpenUnion[
        Annotated[
            ReadParsedCommand | ListFilesParsedCommand | SearchParsedCommand | UnknownParsedCommand,
            Field(discriminator="type"),
        ]
    ],
)
"""What a shell command seems to do."""


class ExecCommandApprovalParams(WireModel):
    """Ask the user to let the agent run a command."""

    conversation_id: ThreadId
    call_id: str
    """Id of the tool call that wants the command."""
    approval_id: str | None = None
    """Tells several approvals of one call apart; null when there is one."""
    command: list[str]
    """Program and arguments."""
    cwd: str
    reason: str | None = None
    """Why the agent asks; null when it gave no reason."""
    parsed_cmd: list[ParsedCommand]
    """For display only: what the command seems to do, part by part."""


class ExecCommandApprovalResponse(WireModel):
    """Whether the command may run."""

    decision: ReviewDecision
