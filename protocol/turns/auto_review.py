"""item/autoApprovalReview/*: reviews that answer approvals instead of the user."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import Int64, OpenEnum, OpenUnion, UInt16, Variant, WireModel
from protocol.turns.policy import NetworkApprovalProtocol, RequestPermissionProfile
from protocol.values import AbsolutePathBuf, LegacyAppPathString


class StrictReviewRequiredNotification(WireModel):
    """A turn now needs a strict review of what it does."""

    thread_id: str
    turn_id: str
    started_at_ms: Int64
    """When the review began, Unix milliseconds."""


AutoReviewDecisionSource = TypeAliasType("AutoReviewDecisionSource", OpenEnum[Literal["agent"]])
"""Who came to the decision."""


GuardianApprovalReviewStatus = TypeAliasType(
    "GuardianApprovalReviewStatus",
    OpenEnum[Literal["inProgress", "approved", "denied", "timedOut", "aborted"]],
)
"""How far an automatic review has come, or how it ended."""


GuardianRiskLevel = TypeAliasType(
    "GuardianRiskLevel", OpenEnum[Literal["low", "medium", "high", "critical"]]
)
"""How much harm the reviewer expects from an action."""


GuardianUserAuthorization = TypeAliasType(
    "GuardianUserAuthorization", OpenEnum[Literal["unknown", "low", "medium", "high"]]
)
"""How clearly the user asked for an action, in the reviewer's eyes."""


class GuardianApprovalReview(WireModel):
    """What the reviewer found."""

    status: GuardianApprovalReviewStatus
    risk_level: GuardianRiskLevel | None = None
    user_authorization: GuardianUserAuthorization | None = None
    rationale: str | None = None
    """The reviewer's reasons, for people to read."""


class ApplyPatchGuardianApprovalReviewAction(Variant):
    """Change files."""

    type: Literal["applyPatch"] = "applyPatch"
    cwd: LegacyAppPathString
    files: list[LegacyAppPathString]


GuardianCommandSource = TypeAliasType(
    "GuardianCommandSource", OpenEnum[Literal["shell", "unifiedExec"]]
)
"""The tool through which a command is run."""


class CommandGuardianApprovalReviewAction(Variant):
    """Run a command."""

    type: Literal["command"] = "command"
    source: GuardianCommandSource
    command: str
    cwd: LegacyAppPathString


class ExecveGuardianApprovalReviewAction(Variant):
    """Start one program from within a command."""

    type: Literal["execve"] = "execve"
    source: GuardianCommandSource
    program: str
    argv: list[str]
    cwd: AbsolutePathBuf


class McpToolCallGuardianApprovalReviewAction(Variant):
    """Call a tool of an MCP server."""

    type: Literal["mcpToolCall"] = "mcpToolCall"
    server: str
    tool_name: str
    connector_id: str | None = None
    """The app that the tool belongs to; null if none."""
    connector_name: str | None = None
    tool_title: str | None = None


def reviewed_call(
    server: str, tool: str, title: str | None, source: tuple[str | None, str | None]
) -> McpToolCallGuardianApprovalReviewAction:
    """Describe the call of a tool that is reviewed; `source`: id and name of its owner."""
    return McpToolCallGuardianApprovalReviewAction(
        server=server,
        tool_name=tool,
        connector_id=source[0],
        connector_name=source[1],
        tool_title=title,
    )


class NetworkAccessGuardianApprovalReviewAction(Variant):
    """Connect to a host."""

    type: Literal["networkAccess"] = "networkAccess"
    target: str
    host: str
    protocol: NetworkApprovalProtocol
    port: UInt16


class RequestPermissionsGuardianApprovalReviewAction(Variant):
    """Get more permissions."""

    type: Literal["requestPermissions"] = "requestPermissions"
    reason: str | None = None
    """Why the model wants them, in its words."""
    permissions: RequestPermissionProfile


class WriteStdinGuardianApprovalReviewAction(Variant):
    """Send input to a command that is running."""

    type: Literal["writeStdin"] = "writeStdin"
    approval_id: str
    """Tells this approval from the one of the command itself."""
    process_id: str
    stdin: str
    cwd: LegacyAppPathString


GuardianApprovalReviewAction = TypeAliasType(
    "GuardianApprovalReviewAction",
    OpenUnion[
        Annotated[
            CommandGuardianApprovalReviewAction
            | ExecveGuardianApprovalReviewAction
            | WriteStdinGuardianApprovalReviewAction
            | ApplyPatchGuardianApprovalReviewAction
            | NetworkAccessGuardianApprovalReviewAction
            | McpToolCallGuardianApprovalReviewAction
            | RequestPermissionsGuardianApprovalReviewAction,
            Field(discriminator="type"),
        ]
    ],
)
"""What is being reviewed."""


class ItemGuardianApprovalReviewCompletedNotification(WireModel):
    """An automatic review has ended."""

    thread_id: str
    turn_id: str
    started_at_ms: Int64
    """Unix milliseconds."""
    completed_at_ms: Int64
    """Unix milliseconds."""
    review_id: str
    """The same as in `item/autoApprovalReview/started`."""
    target_item_id: str | None = None
    """The item under review; null if there is none, as for network access. Several reviews may have
    the same one.
    """
    decision_source: AutoReviewDecisionSource
    review: GuardianApprovalReview
    action: GuardianApprovalReviewAction


class ItemGuardianApprovalReviewStartedNotification(WireModel):
    """An automatic review of an action has begun."""

    thread_id: str
    turn_id: str
    started_at_ms: Int64
    """Unix milliseconds."""
    review_id: str
    target_item_id: str | None = None
    """The item under review; null if there is none, as for network access. Several reviews may have
    the same one.
    """
    review: GuardianApprovalReview
    action: GuardianApprovalReviewAction
