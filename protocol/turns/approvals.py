"""item/*/requestApproval, item/tool/*, attestation/generate, currentTime/read: the server asks."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import (
    Int64,
    Json,
    OpenEnum,
    SnakeVariant,
    UInt64,
    Variant,
    WireModel,
    experimental,
)
from protocol.turns.items import CommandAction, DynamicToolCallOutputContentItem
from protocol.turns.policy import (
    AdditionalFileSystemPermissions,
    AdditionalNetworkPermissions,
    NetworkApprovalProtocol,
    NetworkPolicyAmendment,
    RequestPermissionProfile,
)
from protocol.values import LegacyAppPathString


class AttestationGenerateParams(WireModel):
    """Make a token that vouches for the client."""


class AttestationGenerateResponse(WireModel):
    """The client's token."""

    token: str
    """Opaque."""


class CurrentTimeReadParams(WireModel):
    """Tell the time by the client's clock."""

    thread_id: str


class CurrentTimeReadResponse(WireModel):
    """The client's time."""

    current_time_at: Int64
    """Unix seconds."""


class AdditionalPermissionProfile(WireModel):
    """What one command needs beyond what its thread may do."""

    network: AdditionalNetworkPermissions | None = None
    file_system: AdditionalFileSystemPermissions | None = None


class ExecpolicyAmendmentChoice(SnakeVariant):
    """The rule that the user wants to add."""

    execpolicy_amendment: list[str]
    """The words with which such commands begin."""


class AcceptWithExecpolicyAmendmentDecision(Variant, extra="forbid"):
    """Run it, and let commands like it run without a question from now on."""

    accept_with_execpolicy_amendment: ExecpolicyAmendmentChoice


class NetworkPolicyAmendmentChoice(SnakeVariant):
    """The host that the user wants to allow or deny."""

    network_policy_amendment: NetworkPolicyAmendment


class ApplyNetworkPolicyAmendmentDecision(Variant, extra="forbid"):
    """Settle access to the host for good, one way or the other."""

    apply_network_policy_amendment: NetworkPolicyAmendmentChoice


CommandExecutionApprovalDecision = TypeAliasType(
    "CommandExecutionApprovalDecision",
    Literal["accept", "acceptForSession", "decline", "cancel"]
    | AcceptWithExecpolicyAmendmentDecision
    | ApplyNetworkPolicyAmendmentDecision,
)
"""The user's word on a command: after `decline` the turn goes on, `cancel` ends it too."""


CommandExecutionApprovalKind = TypeAliasType(
    "CommandExecutionApprovalKind", OpenEnum[Literal["command", "writeStdin", "humanCommand"]]
)
"""What is to be approved: a command, or input for one that already runs."""


class NetworkApprovalContext(WireModel):
    """The connection that a command wants to make."""

    host: str
    protocol: NetworkApprovalProtocol


class CommandExecutionRequestApprovalParams(WireModel):
    """Ask the user whether a command may run."""

    kind: CommandExecutionApprovalKind = "command"
    """`humanCommand` wants a person to decide now: only accept, decline and cancel are valid."""
    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: Int64
    """Unix milliseconds when the question was first asked."""
    approval_id: str | None = None
    """Opaque; tells several questions about one item apart. Absent for a plain command."""
    environment_id: str | None = None
    reason: str | None = None
    """Why it is asked, for the user to read."""
    network_approval_context: NetworkApprovalContext | None = None
    """Present when the question is about a connection."""
    command: str | None = None
    cwd: LegacyAppPathString | None = None
    command_actions: list[CommandAction] | None = None
    """The command taken apart for display, as far as it was understood."""
    additional_permissions: AdditionalPermissionProfile | None = experimental()
    proposed_execpolicy_amendment: list[str] | None = None
    """What `acceptWithExecpolicyAmendment` may add: words with which commands begin."""
    proposed_network_policy_amendments: list[NetworkPolicyAmendment] | None = None
    available_decisions: list[CommandExecutionApprovalDecision] | None = experimental()
    """What to offer the user, in this order."""


class CommandExecutionRequestApprovalResponse(WireModel):
    """The user's decision about the command."""

    decision: CommandExecutionApprovalDecision


class FileChangeRequestApprovalParams(WireModel):
    """Ask the user whether files may be changed."""

    thread_id: str
    turn_id: str
    item_id: str
    started_at_ms: Int64
    """Unix milliseconds when the question was first asked."""
    reason: str | None = None
    grant_root: str | None = None
    """Folder below which writes would be allowed for the rest of the session."""


FileChangeApprovalDecision = TypeAliasType(
    "FileChangeApprovalDecision", Literal["accept", "acceptForSession", "decline", "cancel"]
)
"""The user's word on a change: after `decline` the turn goes on, `cancel` ends it too."""


class FileChangeRequestApprovalResponse(WireModel):
    """The user's decision about the change."""

    decision: FileChangeApprovalDecision


class PermissionsRequestApprovalParams(WireModel):
    """Ask the user for permissions that the model wants."""

    thread_id: str
    turn_id: str
    item_id: str
    environment_id: str | None = None
    started_at_ms: Int64
    """Unix milliseconds when the question was first asked."""
    cwd: LegacyAppPathString
    reason: str | None = None
    permissions: RequestPermissionProfile


class GrantedPermissionProfile(WireModel):
    """The permissions that the user grants; what is not named is not granted."""

    network: AdditionalNetworkPermissions | None = None
    file_system: AdditionalFileSystemPermissions | None = None


PermissionGrantScope = TypeAliasType("PermissionGrantScope", Literal["turn", "session"])
"""How long a grant lasts."""


class PermissionsRequestApprovalResponse(WireModel):
    """What the user grants, and for how long."""

    permissions: GrantedPermissionProfile
    scope: PermissionGrantScope = "turn"
    strict_auto_review: bool | None = None
    """Review every further command of this turn before it runs."""


class DynamicToolCallParams(WireModel):
    """Run a tool that the client declared in `dynamicTools` of `thread/start`."""

    thread_id: str
    turn_id: str
    call_id: str
    """The model's id of the call."""
    namespace: str | None = None
    """Null for a tool that was declared on its own."""
    tool: str
    arguments: Json
    """As the model wrote them."""


class DynamicToolCallResponse(WireModel):
    """The tool's outcome."""

    content_items: list[DynamicToolCallOutputContentItem]
    """What the model gets to see."""
    success: bool


class ToolRequestUserInputOption(WireModel):
    """One answer to choose."""

    label: str
    description: str


class ToolRequestUserInputQuestion(WireModel):
    """One question to the user."""

    id: str
    """Key of the answer in the response."""
    header: str
    """A short title."""
    question: str
    is_other: bool = False
    """An answer besides the options may be given."""
    is_secret: bool = False
    """Do not show the answer while it is typed."""
    options: list[ToolRequestUserInputOption] | None = None
    """Null when there is nothing to choose from."""


class ToolRequestUserInputParams(WireModel):
    """Put the model's questions to the user."""

    thread_id: str
    turn_id: str
    item_id: str
    questions: list[ToolRequestUserInputQuestion]
    is_blocking: bool
    """The turn waits for the answers."""
    auto_resolution_ms: UInt64 | None = None
    """Outdated; go by `isBlocking`."""


class ToolRequestUserInputAnswer(WireModel):
    """The answer to one question."""

    answers: list[str]


class ToolRequestUserInputResponse(WireModel):
    """The user's answers."""

    answers: dict[str, ToolRequestUserInputAnswer]
    """By the `id` of the question."""
