"""Approval and sandbox policies, as clients choose them for a thread."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from protocol.model import EXPERIMENTAL, WireModel


class GranularApprovals(WireModel):
    """Which kinds of questions may be asked; members are snake_case on the wire."""

    mcp_elicitations: bool = Field(alias="mcp_elicitations")
    rules: bool
    sandbox_approval: bool = Field(alias="sandbox_approval")
    request_permissions: bool = Field(default=False, alias="request_permissions")
    skill_approval: bool = Field(default=False, alias="skill_approval")


class GranularAskForApproval(WireModel):
    """A policy chosen kind by kind."""

    granular: GranularApprovals = Field(json_schema_extra={EXPERIMENTAL: "askForApproval.granular"})


AskForApproval: TypeAlias = Literal["untrusted", "on-request", "never"] | GranularAskForApproval

ApprovalsReviewer: TypeAlias = Literal["user", "auto_review", "guardian_subagent"]

SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]


class DangerFullAccessSandboxPolicy(WireModel):
    """No sandbox at all."""

    type: Literal["dangerFullAccess"] = "dangerFullAccess"


class ReadOnlySandboxPolicy(WireModel):
    """Read everything, write nothing."""

    type: Literal["readOnly"] = "readOnly"
    network_access: bool = False


class ExternalSandboxPolicy(WireModel):
    """Somebody else confines the process."""

    type: Literal["externalSandbox"] = "externalSandbox"
    network_access: Literal["restricted", "enabled"] = "restricted"


class WorkspaceWriteSandboxPolicy(WireModel):
    """Write below the working directory and the named roots."""

    type: Literal["workspaceWrite"] = "workspaceWrite"
    writable_roots: list[str] = []
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False


SandboxPolicy: TypeAlias = Annotated[
    DangerFullAccessSandboxPolicy
    | ReadOnlySandboxPolicy
    | ExternalSandboxPolicy
    | WorkspaceWriteSandboxPolicy,
    Field(discriminator="type"),
]
