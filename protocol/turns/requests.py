"""turn/start, turn/steer, turn/interrupt, turn/settings/update.

Settings that are null or left out stay as they are, unless a member says otherwise.
"""

from typing import Literal, TypeAlias

from typing_extensions import TypeAliasType

from protocol.model import Json, JsonObject, OpenEnum, WireModel, experimental
from protocol.thread_ids import ThreadIdParam
from protocol.turns.items import UserInput
from protocol.turns.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy
from protocol.turns.response_items import FunctionCallOutputBody
from protocol.turns.turn import Turn, TurnEnvironmentParams
from protocol.values import (
    AbsolutePathBuf,
    CollaborationMode,
    CyberAccessProgram,
    MultiAgentMode,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
)


class TurnInterruptParams(WireModel):
    """Stop a turn; an empty `turnId` without a running turn stops MCP start-up."""

    thread_id: ThreadIdParam
    turn_id: str


class TurnInterruptResponse(WireModel):
    """Nothing: the end arrives as `turn/completed`."""


class TurnSettingsUpdateParams(WireModel, extra="forbid"):
    """Change settings of the running turn, and of that turn alone."""

    thread_id: ThreadIdParam
    turn_id: str
    approvals_reviewer: ApprovalsReviewer | None = None
    """Questions that are already open stay with their reviewer."""
    environments: list[TurnEnvironmentParams] | None = None
    """For the steps that follow; `[]` leaves the turn without any."""
    model: str | None = None
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    service_tier: str | None = None
    """Null clears the tier; leave it out to keep it."""


TurnSettingsUpdateStatus = TypeAliasType(
    "TurnSettingsUpdateStatus", OpenEnum[Literal["applied", "targetUnavailable"]]
)
"""Whether the turn's next steps use the settings, or it was no longer there."""


class TurnSettingsUpdateResponse(WireModel):
    """What became of the change."""

    status: TurnSettingsUpdateStatus


AdditionalContextKind = TypeAliasType("AdditionalContextKind", Literal["untrusted", "application"])
"""How far a context text is trusted: material to judge, or the word of the application."""


class AdditionalContextEntry(WireModel):
    """A text that the client adds to what the model knows."""

    value: str
    kind: AdditionalContextKind
    name: str | None = None
    """Label for an untrusted text."""


class TurnToolOutput(WireModel):
    """Output of a tool that comes with the input of a turn."""

    name: str
    namespace: str | None = None
    output: FunctionCallOutputBody
    retain: bool = False
    """Keep it in the thread's model-visible history."""


McpMetaByServer: TypeAlias = dict[str, JsonObject]
"""Raw server name to the members that go into `_meta` of calls the model makes there."""


class TurnStartParams(WireModel):
    """Give the model something to do; settings become the thread's."""

    thread_id: ThreadIdParam
    disabled_plugin_ids: list[str] | None = None
    """Replaces the thread's list; `[]` clears it."""
    client_user_message_id: str | None = None
    """Comes back as `clientId` of the user message."""
    input: list[UserInput]
    turn_trigger: str | None = None
    """What made the client start the turn; ignored when the input joins a running turn."""
    parent_turn_id: str | None = None
    """The turn that caused this one, perhaps in another thread; null for work of the user."""
    root_turn_id: str | None = None
    """The parent's `rootTurnId`; null makes the new turn its own root."""
    tool_output: TurnToolOutput | None = None
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    """Goes to the model's API as `client_metadata`, and nowhere else."""
    responsesapi_client_metadata_patch: dict[str, str] | None = experimental()
    """Merged into those entries, after `responsesapiClientMetadata`."""
    additional_context: dict[str, AdditionalContextEntry] | None = experimental()
    """By a name of the source, which is opaque to the server."""
    environments: list[TurnEnvironmentParams] | None = experimental()
    """The first one is the current one; `[]` leaves the turn without any."""
    cwd: str | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = experimental()
    """Replaces the thread's roots."""
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_policy: SandboxPolicy | None = None
    permissions: str | None = experimental()
    """Id of a named permission profile; not together with `sandboxPolicy`."""
    model: str | None = None
    service_tier: str | None = None
    service_tier_for_turn: str | None = None
    """For a new turn alone; `default` means the ordinary speed."""
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    personality: Personality | None = None
    output_schema: Json = None
    """JSON Schema that the last agent message of this turn must satisfy."""
    collaboration_mode: CollaborationMode | None = experimental()
    """Wins over `model` and `effort`."""
    multi_agent_mode: MultiAgentMode | None = experimental()
    """Outdated and ignored; set `effort` instead."""
    cyber_access_program: CyberAccessProgram | None = experimental()
    """For this turn; grants nothing that the account does not have."""
    mcp_meta_by_server: McpMetaByServer | None = experimental(extension=True)
    """Extra `_meta` for MCP calls that the model makes in this turn."""


class TurnStartResponse(WireModel):
    """The turn that took the input."""

    turn: Turn


class TurnSteerParams(WireModel):
    """Give the running turn more to think about."""

    thread_id: ThreadIdParam
    client_user_message_id: str | None = None
    input: list[UserInput]
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    """Replaces the client's entries in the turn metadata of model calls; `{}` clears them."""
    responsesapi_client_metadata_patch: dict[str, str] | None = experimental()
    """Merged into those entries, after `responsesapiClientMetadata`."""
    additional_context: dict[str, AdditionalContextEntry] | None = experimental()
    """By a name of the source, which is opaque to the server."""
    expected_turn_id: str
    """The turn that the caller believes is running."""
    mcp_meta_by_server: McpMetaByServer | None = experimental(extension=True)
    """Replaces the turn's entries, server by server."""


class TurnSteerResponse(WireModel):
    """The turn that took the input."""

    turn_id: str
