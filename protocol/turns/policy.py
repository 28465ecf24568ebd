"""Approvals, sandboxes and permissions: what the model may do, and who is asked."""

from typing import Annotated, Literal

from pydantic import (
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from typing_extensions import TypeAliasType

from protocol.model import (
    STABLE,
    Json,
    OpenEnum,
    PositiveUInt,
    SnakeVariant,
    Sparse,
    Variant,
    WireModel,
    absent_if_unset,
)
from protocol.values import AbsolutePathBuf, LegacyAppPathString


class ActivePermissionProfile(WireModel):
    """The named permissions in force."""

    id: str
    """Name of a profile from the configuration, or a built-in one such as `:workspace`."""
    extends: str | None = None
    """The profile that this one builds on; null if it stands alone."""


FileSystemAccessMode = TypeAliasType("FileSystemAccessMode", Literal["read", "write", "deny"])
"""What may be done with a path."""


class GlobPatternFileSystemPath(Variant):
    """All files that a glob pattern matches."""

    type: Literal["glob_pattern"] = "glob_pattern"
    pattern: str


class PathFileSystemPath(Variant):
    """One file or folder, by its path."""

    type: Literal["path"] = "path"
    path: LegacyAppPathString


class ProjectRootsFileSystemSpecialPath(Variant):
    """The roots of the project that the thread works in."""

    kind: Literal["project_roots"] = "project_roots"
    subpath: LegacyAppPathString | None = None
    """A place below each root; null means the whole root."""


class MinimalFileSystemSpecialPath(Variant):
    """The few system paths that programs need to run."""

    kind: Literal["minimal"] = "minimal"


class RootFileSystemSpecialPath(Variant):
    """The whole file system."""

    kind: Literal["root"] = "root"


class SlashTmpFileSystemSpecialPath(Variant):
    """The folder `/tmp`."""

    kind: Literal["slash_tmp"] = "slash_tmp"


class TmpdirFileSystemSpecialPath(Variant):
    """The folder that the environment variable `TMPDIR` names."""

    kind: Literal["tmpdir"] = "tmpdir"


class UnknownFileSystemSpecialPath(Variant):
    """A special place that this version does not know."""

    kind: Literal["unknown"] = "unknown"
    path: str
    """Its name, as it was given."""
    subpath: LegacyAppPathString | None = None


FileSystemSpecialPath = TypeAliasType(
    "FileSystemSpecialPath",
    Annotated[
        RootFileSystemSpecialPath
        | MinimalFileSystemSpecialPath
        | ProjectRootsFileSystemSpecialPath
        | TmpdirFileSystemSpecialPath
        | SlashTmpFileSystemSpecialPath
        | UnknownFileSystemSpecialPath,
        Field(discriminator="kind"),
    ],
)
"""A place that means something else on each machine or in each project."""


class SpecialFileSystemPath(Variant):
    """A place with a meaning rather than a fixed path."""

    type: Literal["special"] = "special"
    value: FileSystemSpecialPath


FileSystemPath = TypeAliasType(
    "FileSystemPath",
    Annotated[
        PathFileSystemPath | GlobPatternFileSystemPath | SpecialFileSystemPath,
        Field(discriminator="type"),
    ],
)
"""What an entry speaks of: a path, a pattern or a special place."""


class FileSystemSandboxEntry(WireModel):
    """Access to one path, pattern or special place."""

    path: FileSystemPath
    access: FileSystemAccessMode


class AdditionalFileSystemPermissions(Sparse):
    """Access to files beyond what the sandbox allows."""

    read: list[LegacyAppPathString] | None = None
    """Paths to read; older form of `entries`."""
    write: list[LegacyAppPathString] | None = None
    """Paths to write; older form of `entries`."""
    glob_scan_max_depth: PositiveUInt | None = absent_if_unset()
    """How many folders deep glob patterns are searched; absent means no limit given."""
    entries: list[FileSystemSandboxEntry] | None = absent_if_unset()


class AdditionalNetworkPermissions(WireModel):
    """Network access beyond what the sandbox allows."""

    enabled: bool | None = None
    """Null says nothing about the network."""


ApprovalsReviewer = TypeAliasType(
    "ApprovalsReviewer", Literal["user", "auto_review", "guardian_subagent"]
)
"""Who decides on approvals: the user, or an agent that weighs the risk; `guardian_subagent` is the
old name of `auto_review`.
"""


class GranularApprovals(SnakeVariant):
    """For each kind of approval: true asks, false refuses without asking."""

    mcp_elicitations: bool
    """Questions that MCP servers put to the user."""
    request_permissions: bool = False
    """Requests of the model for more permissions."""
    rules: bool
    """Commands for which a rule says to ask."""
    sandbox_approval: bool
    """Commands that want to leave the sandbox."""
    skill_approval: bool = False
    """Scripts that belong to skills."""


class GranularAskForApproval(Variant, extra="forbid"):
    """A policy chosen kind by kind."""

    experimental_as = "askForApproval.granular"

    granular: GranularApprovals

    @model_serializer(mode="wrap")
    def _render(self, render: SerializerFunctionWrapHandler, info: SerializationInfo) -> Json:
        # The nearest policy that every client knows.
        return "on-request" if info.context is STABLE else render(self)


AskForApproval = TypeAliasType(
    "AskForApproval", Literal["untrusted", "on-request", "never"] | GranularAskForApproval
)
"""When to ask before acting: for all but trusted commands, when the model wants it, never, or kind
by kind.
"""


class DangerFullAccessSandboxPolicy(Variant):
    """No sandbox at all."""

    type: Literal["dangerFullAccess"] = "dangerFullAccess"


NetworkAccess = TypeAliasType("NetworkAccess", Literal["restricted", "enabled"])
"""Whether programs may use the network."""


class ExternalSandboxPolicy(Variant):
    """The server is sandboxed from outside already, and adds no sandbox of its own."""

    type: Literal["externalSandbox"] = "externalSandbox"
    network_access: NetworkAccess = "restricted"


NetworkApprovalProtocol = TypeAliasType(
    "NetworkApprovalProtocol", OpenEnum[Literal["http", "https", "socks5Tcp", "socks5Udp"]]
)
"""The protocol of a connection that needs approval."""


NetworkPolicyRuleAction = TypeAliasType("NetworkPolicyRuleAction", Literal["allow", "deny"])
"""What a rule does with connections to a host."""


class NetworkPolicyAmendment(WireModel):
    """A rule for one host, to be added to the network policy."""

    host: str
    action: NetworkPolicyRuleAction


class ReadOnlySandboxPolicy(Variant):
    """Read everything, write nothing."""

    type: Literal["readOnly"] = "readOnly"
    network_access: bool = False


class RequestPermissionProfile(WireModel, extra="forbid"):
    """The permissions that the model asks for."""

    network: AdditionalNetworkPermissions | None = None
    """Null asks for no more network access."""
    file_system: AdditionalFileSystemPermissions | None = None
    """Null asks for no more access to files."""


SandboxMode = TypeAliasType(
    "SandboxMode", Literal["read-only", "workspace-write", "danger-full-access"]
)
"""How far commands are confined, in one word."""


class WorkspaceWriteSandboxPolicy(Variant):
    """Write below the working directory and the named roots."""

    type: Literal["workspaceWrite"] = "workspaceWrite"
    writable_roots: list[AbsolutePathBuf] = []
    """Folders to write in besides the working directory."""
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    """True keeps the folder that `TMPDIR` names unwritable."""
    exclude_slash_tmp: bool = False
    """True keeps `/tmp` unwritable."""


SandboxPolicy = TypeAliasType(
    "SandboxPolicy",
    Annotated[
        DangerFullAccessSandboxPolicy
        | ReadOnlySandboxPolicy
        | ExternalSandboxPolicy
        | WorkspaceWriteSandboxPolicy,
        Field(discriminator="type"),
    ],
)
"""How far commands are confined, with the details."""
