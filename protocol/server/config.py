"""config/*, configRequirements/read, permissionProfile/list: settings and who may change them.

Settings come in layers; a higher layer overrides a lower one. Requirements are what an
administrator demands: no layer can override them.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Int64,
    Json,
    JsonObject,
    OpenEnum,
    OpenUnion,
    SnakeModel,
    UInt,
    UInt16,
    UInt32,
    UInt64,
    Variant,
    WireModel,
    absent_if_none,
    experimental,
)
from protocol.turns.policy import ApprovalsReviewer, AskForApproval, SandboxMode
from protocol.values import (
    AbsolutePathBuf,
    LegacyAppPathString,
    ReasoningEffort,
    ReasoningSummary,
    Verbosity,
)

MergeStrategy = TypeAliasType("MergeStrategy", Literal["replace", "upsert"])
"""What a write does with a table that is there already: replace it, or merge into it."""


class ConfigEdit(WireModel):
    """One setting to write."""

    key_path: str
    """Dotted path of the setting in the file, as `sandbox_workspace_write.network_access`."""
    value: Json
    """New value; null removes the setting."""
    merge_strategy: MergeStrategy


class ConfigBatchWriteParams(WireModel):
    """Write several settings in one step."""

    edits: list[ConfigEdit]
    file_path: str | None = None
    """File to write; null means the user's `config.toml`."""
    expected_version: str | None = None
    """Version that the file must still have, from `config/read`; null skips the check."""
    reload_user_config: bool = False
    """Also hand the new settings to loaded threads; their model, effort and service tier stay."""


class EnterpriseManagedConfigLayerSource(Variant):
    """A layer that the organisation delivers from its cloud."""

    type: Literal["enterpriseManaged"] = "enterpriseManaged"
    id: str
    name: str
    """Shown in diagnostics, so that an administrator can be told which layer is at fault."""


class LegacyManagedConfigTomlFromFileConfigLayerSource(Variant):
    """A `managed_config.toml` on disk, the older way to override everything else."""

    type: Literal["legacyManagedConfigTomlFromFile"] = "legacyManagedConfigTomlFromFile"
    file: AbsolutePathBuf


class LegacyManagedConfigTomlFromMdmConfigLayerSource(Variant):
    """The older managed settings, delivered by device management."""

    type: Literal["legacyManagedConfigTomlFromMdm"] = "legacyManagedConfigTomlFromMdm"


class MdmConfigLayerSource(Variant):
    """Preferences that device management set on a macOS machine."""

    type: Literal["mdm"] = "mdm"
    domain: str
    """Preferences domain that holds the settings."""
    key: str
    """Key inside `domain`."""


class PackagedDefaultsConfigLayerSource(Variant):
    """Defaults that came with the installation."""

    type: Literal["packagedDefaults"] = "packagedDefaults"
    file: AbsolutePathBuf


class ProjectConfigLayerSource(Variant):
    """Settings kept in a project's own folder; nested folders give several such layers."""

    type: Literal["project"] = "project"
    dot_codex_folder: AbsolutePathBuf
    """The `.codex` folder, somewhere between the working directory and the project's root."""


class SessionFlagsConfigLayerSource(Variant):
    """Overrides given on the command line."""

    type: Literal["sessionFlags"] = "sessionFlags"


class SystemConfigLayerSource(Variant):
    """Settings for everybody on the machine."""

    type: Literal["system"] = "system"
    file: AbsolutePathBuf
    """The file may not exist."""


class UserConfigLayerSource(Variant):
    """The user's own settings."""

    type: Literal["user"] = "user"
    file: AbsolutePathBuf
    """The file may not exist."""
    profile: str | None = None
    """Profile whose settings lie over the base file; null for the base file itself."""


ConfigLayerSource = TypeAliasType(
    "ConfigLayerSource",
    OpenUnion[
        Annotated[
            PackagedDefaultsConfigLayerSource
            | MdmConfigLayerSource
            | SystemConfigLayerSource
            | EnterpriseManagedConfigLayerSource
            | UserConfigLayerSource
            | ProjectConfigLayerSource
            | SessionFlagsConfigLayerSource
            | LegacyManagedConfigTomlFromFileConfigLayerSource
            | LegacyManagedConfigTomlFromMdmConfigLayerSource,
            Field(discriminator="type"),
        ]
    ],
)
"""Where a layer of settings comes from."""


class ConfigLayerMetadata(WireModel):
    """A layer and the state it was read in."""

    name: ConfigLayerSource
    version: str
    """Opaque; changes with the layer's content."""


class OverriddenMetadata(WireModel):
    """Why a written setting has no effect."""

    message: str
    overriding_layer: ConfigLayerMetadata
    """The higher layer that sets it too."""
    effective_value: Json
    """The value in force."""


WriteStatus = TypeAliasType("WriteStatus", OpenEnum[Literal["ok", "okOverridden"]])
"""Whether a written setting is in force, or overridden by a higher layer."""


class ConfigWriteResponse(WireModel):
    """What was written, and whether it counts."""

    status: WriteStatus
    version: str
    """The file's new version, for the next `expectedVersion`."""
    file_path: AbsolutePathBuf
    overridden_metadata: OverriddenMetadata | None = None
    """Only with `status` `okOverridden`."""


class ConfigReadParams(WireModel):
    """Ask for the settings in force."""

    include_layers: bool = False
    """Also return each layer by itself."""
    cwd: str | None = None
    """Directory whose project layers count too; null leaves project layers out."""


class AnalyticsConfig(WireModel, extra="allow"):
    """Whether usage is measured; other members may be present."""

    enabled: bool | None = None


AppToolApproval = TypeAliasType(
    "AppToolApproval", OpenEnum[Literal["auto", "prompt", "writes", "approve"]]
)
"""When an app's tool call needs approval."""


class AppsDefaultConfig(SnakeModel):
    """What holds for apps that say nothing else."""

    enabled: bool = True
    approvals_reviewer: ApprovalsReviewer | None = None
    destructive_enabled: bool = True
    """Whether tools that may destroy something can be used."""
    open_world_enabled: bool = True
    """Whether tools that reach beyond the app's own data can be used."""
    default_tools_approval_mode: AppToolApproval | None = None


class AppsConfig(SnakeModel, extra="allow"):
    """Settings for apps: those of one app under its id."""

    default_: AppsDefaultConfig | None = Field(default=None, alias="_default")
    """What holds for apps that have no settings of their own."""


AutoCompactTokenLimitScope = TypeAliasType(
    "AutoCompactTokenLimitScope", OpenEnum[Literal["total", "body_after_prefix"]]
)
"""What counts towards `model_auto_compact_token_limit`: all of the context, or its growth after the
prefix."""


AllowDenyRequirement = TypeAliasType("AllowDenyRequirement", OpenEnum[Literal["allow", "deny"]])
"""Allowed or denied."""


class BrowserUseOriginPolicyConfig(SnakeModel):
    """What the agent's browser may do on a site."""

    access: AllowDenyRequirement | None = None
    downloads: AllowDenyRequirement | None = None
    uploads: AllowDenyRequirement | None = None
    full_cdp_access: AllowDenyRequirement | None = None
    """Unrestricted use of the Chrome DevTools Protocol."""


class BrowserUseConfig(SnakeModel):
    """What the agent's browser may do."""

    allow_history_access: bool | None = None
    default_origin_policy: BrowserUseOriginPolicyConfig | None = None
    """For sites that `origins` does not name."""
    origins: dict[str, BrowserUseOriginPolicyConfig] | None = None
    """By web origin."""


class ComputerUseMacosConfig(SnakeModel):
    """Which macOS apps the agent may operate."""

    bundle_ids: dict[str, AllowDenyRequirement] | None = None
    """By bundle identifier."""


class ComputerUseWindowsExeConfig(SnakeModel):
    """A Windows program that the agent may or may not operate."""

    publisher_name: str
    product_name: str
    binary_name: str | None = None
    """File name of the program; null when not given."""
    access: AllowDenyRequirement


class ComputerUseWindowsConfig(WireModel):
    """Which Windows apps the agent may operate."""

    aumids: dict[str, AllowDenyRequirement] | None = None
    """By application user model id."""
    exes: list[ComputerUseWindowsExeConfig] | None = None
    """Programs that are recognised by publisher and product."""


class ComputerUseConfig(SnakeModel):
    """Which apps the agent may operate."""

    default_app_access: AllowDenyRequirement | None = None
    """For apps that are not named."""
    macos: ComputerUseMacosConfig | None = None
    windows: ComputerUseWindowsConfig | None = None


ForcedChatgptWorkspaceIds = TypeAliasType("ForcedChatgptWorkspaceIds", str | list[str])
"""The ChatGPT workspace, or workspaces, that a login must belong to."""


ForcedLoginMethod = TypeAliasType("ForcedLoginMethod", OpenEnum[Literal["chatgpt", "api"]])
"""A way to sign in: a ChatGPT account or an API key."""


class SandboxWorkspaceWrite(SnakeModel):
    """Details of the sandbox mode `workspace-write`."""

    writable_roots: list[str] = []
    """Directories that may be written besides the working directory."""
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    """Keep the directory that `TMPDIR` names read-only."""
    exclude_slash_tmp: bool = False
    """Keep `/tmp` read-only."""


WebSearchContextSize = TypeAliasType(
    "WebSearchContextSize", OpenEnum[Literal["low", "medium", "high"]]
)
"""How much of what a search finds goes to the model."""


class WebSearchLocation(WireModel, extra="forbid"):
    """Where the user is, roughly, so that results fit."""

    country: str | None = None
    region: str | None = None
    city: str | None = None
    timezone: str | None = None
    """IANA name."""


class WebSearchToolConfig(SnakeModel, extra="forbid"):
    """Settings of the web search tool."""

    context_size: WebSearchContextSize | None = None
    allowed_domains: list[str] | None = None
    """Search these alone; null means everywhere."""
    location: WebSearchLocation | None = None


class ToolsV2(SnakeModel):
    """Settings of built-in tools."""

    web_search: WebSearchToolConfig | None = None


WebSearchMode = TypeAliasType(
    "WebSearchMode", OpenEnum[Literal["disabled", "cached", "indexed", "live"]]
)
"""Whether web search is on, and how fresh its pages are."""


WebSearchProvider = TypeAliasType(
    "WebSearchProvider", OpenEnum[Literal["standalone", "search_mcp"]]
)
"""What should carry out web searches."""


class Config(SnakeModel, extra="allow"):
    """Settings in force, under their names in `config.toml`.

    All others that are known are members too, in the form of the file; null where nothing is set.
    """

    model: str | None = None
    review_model: str | None = None
    """Model for `review/start`; null means the thread's own."""
    model_context_window: Int64 | None = None
    """Tokens."""
    model_auto_compact_token_limit: Int64 | None = None
    """Tokens at which a thread's history is compacted."""
    model_auto_compact_token_limit_scope: AutoCompactTokenLimitScope | None = None
    model_provider: str | None = None
    """Id of an entry in `model_providers`, or of a built-in provider."""
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_mode: SandboxMode | None = None
    sandbox_workspace_write: SandboxWorkspaceWrite | None = None
    """Used when `sandbox_mode` is `workspace-write`."""
    forced_chatgpt_workspace_id: ForcedChatgptWorkspaceIds | None = None
    forced_login_method: ForcedLoginMethod | None = None
    """The only way to sign in; null allows all."""
    web_search: WebSearchMode | None = None
    client_search_provider: WebSearchProvider | None = None
    """A provider that the model itself selects comes first."""
    tools: ToolsV2 | None = None
    instructions: str | None = None
    """System instructions."""
    developer_instructions: str | None = None
    compact_prompt: str | None = None
    """Replaces the prompt that asks the model to summarise a history."""
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    service_tier: str | None = None
    analytics: AnalyticsConfig | None = None
    apps: AppsConfig | None = experimental()
    browser_use: BrowserUseConfig | None = None
    computer_use: ComputerUseConfig | None = None
    desktop: JsonObject | None = None
    """Settings of a desktop client: carried, not interpreted."""


class ConfigLayer(WireModel):
    """One layer's own settings."""

    name: ConfigLayerSource
    version: str
    """Opaque; changes with the layer's content."""
    config: Json
    disabled_reason: str | None = absent_if_none()
    """Why the layer does not count; null when it does."""


class ConfigReadResponse(WireModel):
    """The settings in force, with `[redacted]` in the place of each secret."""

    config: Config
    origins: dict[str, ConfigLayerMetadata]
    """The layer that decided a setting, by the setting's dotted path."""
    layers: list[ConfigLayer] | None = absent_if_none()
    """Absent unless `includeLayers` asked for them."""


class ConfigValueWriteParams(WireModel):
    """Write one setting."""

    key_path: str
    """Dotted path of the setting in the file."""
    value: Json
    """New value; null removes the setting."""
    merge_strategy: MergeStrategy
    file_path: str | None = None
    """File to write; null means the user's `config.toml`."""
    expected_version: str | None = None
    """Version that the file must still have, from `config/read`; null skips the check."""


NetworkDomainPermission = TypeAliasType(
    "NetworkDomainPermission", OpenEnum[Literal["allow", "deny"]]
)
"""Whether a domain may be reached."""


class ApplicationNetworkRequirements(WireModel):
    """Which domains the desktop application may contact."""

    enabled: bool
    """When true, only domains that `domains` allows by their exact name can be contacted."""
    domains: dict[str, NetworkDomainPermission]


class ApplicationStorageRequirements(WireModel):
    """Where the desktop application puts new workspaces; restricts no file access."""

    default_project_parent: LegacyAppPathString | None = None
    projectless_workspace_root: LegacyAppPathString | None = None
    """Where work without a project goes."""


class ApplicationRequirements(WireModel):
    """Demands on the desktop application."""

    network: ApplicationNetworkRequirements | None = None
    storage: ApplicationStorageRequirements | None = None


class AutoReviewRequirements(WireModel):
    """Demands on the automatic review of approvals."""

    required_on_models: list[str] | None = None
    """Models that may not run without it."""
    ignore_rules: list[str] | None = None


class RequestHeader(WireModel):
    """A header added to web requests."""

    name: str
    value: str


class BrowserUseExtensionRequirements(WireModel):
    """Demands on the browser extension."""

    request_headers: list[RequestHeader] | None = None


BrowserUseAccessApprovalLifetime = TypeAliasType(
    "BrowserUseAccessApprovalLifetime", OpenEnum[Literal["thread", "turn"]]
)
"""How long an approved access to a site lasts."""


class BrowserUseOriginPolicy(WireModel):
    """What the agent's browser may do on a site, as the administrator sets it."""

    access: AllowDenyRequirement | None = None
    downloads: AllowDenyRequirement | None = None
    uploads: AllowDenyRequirement | None = None
    full_cdp_access: AllowDenyRequirement | None = None
    """Unrestricted use of the Chrome DevTools Protocol."""
    auto_review: AllowDenyRequirement | None = None
    """Whether approvals may be left to the automatic review."""
    persistent_approval: bool | None = None
    """Whether the user may approve the site for good."""
    access_approval_lifetime: BrowserUseAccessApprovalLifetime | None = None


class BrowserUseRequirements(WireModel):
    """Demands on the agent's browser."""

    extension: BrowserUseExtensionRequirements | None = None
    allow_webmcp: bool | None = None
    """Whether tools that web pages offer over WebMCP may be used."""
    allow_history_access: bool | None = None
    disable_auto_review: bool | None = None
    allow_global_persistent_approval: bool | None = None
    default_origin_policy: BrowserUseOriginPolicy | None = None
    """For sites that `origins` does not name."""
    origins: dict[str, BrowserUseOriginPolicy] | None = None
    """By web origin."""


CliAuthCredentialsStoreMode = TypeAliasType(
    "CliAuthCredentialsStoreMode", OpenEnum[Literal["file", "keyring", "auto", "ephemeral"]]
)
"""Where login credentials are kept; `ephemeral` keeps them in memory alone."""


class ComputerUseMacosRequirements(WireModel):
    """Which macOS apps the agent may operate, as the administrator sets it."""

    bundle_ids: dict[str, AllowDenyRequirement] | None = None
    """By bundle identifier."""


class ComputerUseWindowsExeRequirement(WireModel):
    """A Windows program that the administrator allows or denies to the agent."""

    publisher_name: str
    product_name: str
    binary_name: str | None = None
    """File name of the program; null when not given."""
    access: AllowDenyRequirement


class ComputerUseWindowsRequirements(WireModel):
    """Which Windows apps the agent may operate, as the administrator sets it."""

    aumids: dict[str, AllowDenyRequirement] | None = None
    """By application user model id."""
    exes: list[ComputerUseWindowsExeRequirement] | None = None
    """Programs that are recognised by publisher and product."""


class ComputerUseRequirements(WireModel):
    """Demands on the agent's use of apps."""

    allow_locked_computer_use: bool | None = None
    """Whether the agent may work while the machine is locked."""
    allow_persistent_approval: bool | None = None
    default_app_access: AllowDenyRequirement | None = None
    """For apps that are not named."""
    macos: ComputerUseMacosRequirements | None = None
    windows: ComputerUseWindowsRequirements | None = None


class FeedbackRequirements(WireModel):
    """Whether users may send feedback."""

    enabled: bool | None = None


class InAppBrowserRequirements(WireModel):
    """Demands on the browser inside the desktop application."""

    allow_external_browser_settings_import: bool | None = None
    """Whether settings may be taken over from another browser."""


class AgentConfiguredHookHandler(Variant):
    """Handle the event with an agent."""

    type: Literal["agent"] = "agent"


class CommandConfiguredHookHandler(Variant):
    """Run a command on the event."""

    type: Literal["command"] = "command"
    command: str
    command_windows: str | None = None
    """Used on Windows; null means `command` there too."""
    timeout_sec: UInt64 | None = None
    """Seconds."""
    async_: bool = Field(alias="async")
    """Do not wait for the command."""
    status_message: str | None = None
    """Shown while it runs."""
    additional_context_limit: UInt | None = None
    """Tokens of added context from which on the rest goes to a file: null means 2500, 0 never."""


class McpToolConfiguredHookHandler(Variant):
    """Call an MCP tool on the event."""

    type: Literal["mcp_tool"] = "mcp_tool"
    server: str
    """Name of a configured MCP server."""
    tool: str
    input: JsonObject
    """Arguments of the call."""
    timeout_sec: UInt64 | None = None
    """Seconds."""
    status_message: str | None = None
    """Shown while it runs."""


class PromptConfiguredHookHandler(Variant):
    """Handle the event with a prompt."""

    type: Literal["prompt"] = "prompt"


ConfiguredHookHandler = TypeAliasType(
    "ConfiguredHookHandler",
    OpenUnion[
        Annotated[
            CommandConfiguredHookHandler
            | McpToolConfiguredHookHandler
            | PromptConfiguredHookHandler
            | AgentConfiguredHookHandler,
            Field(discriminator="type"),
        ]
    ],
)
"""What a hook does."""


class ConfiguredHookMatcherGroup(WireModel):
    """Hooks that share a condition."""

    matcher: str | None = None
    """Pattern for what the event is about, as a tool's name; null matches everything."""
    hooks: list[ConfiguredHookHandler]


class ManagedHooksRequirements(WireModel):
    """Hooks that the administrator installs, by event."""

    pre_model_request: list[ConfiguredHookMatcherGroup] = Field(default=[], alias="PreModelRequest")
    post_model_request: list[ConfiguredHookMatcherGroup] = Field(
        default=[], alias="PostModelRequest"
    )
    managed_dir: str | None = None
    """Directory of the hooks' files."""
    windows_managed_dir: str | None = None
    """The same on Windows."""
    pre_tool_use: list[ConfiguredHookMatcherGroup] = Field(alias="PreToolUse")
    permission_request: list[ConfiguredHookMatcherGroup] = Field(alias="PermissionRequest")
    post_tool_use: list[ConfiguredHookMatcherGroup] = Field(alias="PostToolUse")
    pre_compact: list[ConfiguredHookMatcherGroup] = Field(alias="PreCompact")
    post_compact: list[ConfiguredHookMatcherGroup] = Field(alias="PostCompact")
    session_start: list[ConfiguredHookMatcherGroup] = Field(alias="SessionStart")
    session_end: list[ConfiguredHookMatcherGroup] = Field(default=[], alias="SessionEnd")
    user_prompt_submit: list[ConfiguredHookMatcherGroup] = Field(alias="UserPromptSubmit")
    subagent_start: list[ConfiguredHookMatcherGroup] = Field(alias="SubagentStart")
    subagent_stop: list[ConfiguredHookMatcherGroup] = Field(alias="SubagentStop")
    stop: list[ConfiguredHookMatcherGroup] = Field(alias="Stop")
    interrupt: list[ConfiguredHookMatcherGroup] = Field(default=[], alias="Interrupt")


class NewThreadModelDefaults(WireModel):
    """What a new thread starts with unless it is told otherwise."""

    model: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    service_tier: str | None = None


class ModelsRequirements(WireModel):
    """The administrator's choice of models."""

    new_thread: NewThreadModelDefaults | None = None


NetworkUnixSocketPermission = TypeAliasType(
    "NetworkUnixSocketPermission", OpenEnum[Literal["allow", "deny"]]
)
"""Whether a Unix socket may be connected to."""


class NetworkRequirements(WireModel):
    """Demands on the network that sandboxed commands see."""

    enabled: bool | None = None
    http_port: UInt16 | None = None
    """Port of the HTTP proxy that they go through."""
    socks_port: UInt16 | None = None
    """Port of the SOCKS proxy that they go through."""
    allow_upstream_proxy: bool | None = None
    """Whether that proxy may use another one."""
    dangerously_allow_non_loopback_proxy: bool | None = None
    """Let the proxy listen beyond this machine."""
    dangerously_allow_all_unix_sockets: bool | None = None
    domains: dict[str, NetworkDomainPermission] | None = None
    """By host pattern; this is what counts, not `allowedDomains` and `deniedDomains`."""
    review_domains: list[str] | None = None
    """Host patterns that need approval even when a rule allows them."""
    managed_allowed_domains_only: bool | None = None
    """Ignore domains that others than the administrator allowed."""
    allowed_domains: list[str] | None = None
    """What `domains` allows, for older clients."""
    denied_domains: list[str] | None = None
    """What `domains` denies, for older clients."""
    unix_sockets: dict[str, NetworkUnixSocketPermission] | None = None
    """By path; this is what counts, not `allowUnixSockets`."""
    allow_unix_sockets: list[str] | None = None
    """What `unixSockets` allows, for older clients."""
    allow_local_binding: bool | None = None
    """Whether commands may listen on local ports."""


class OtelTlsConfig(WireModel):
    """Certificates for a telemetry connection, as paths of files."""

    ca_certificate: str | None = Field(default=None, alias="ca-certificate")
    client_certificate: str | None = Field(default=None, alias="client-certificate")
    client_private_key: str | None = Field(default=None, alias="client-private-key")


class OtlpGrpcOtelExporterOtlpGrpc(Variant):
    """A collector that speaks OTLP over gRPC."""

    endpoint: str
    headers: dict[str, str]
    """The names are real, the values masked."""
    tls: OtelTlsConfig | None = None


class OtlpGrpcOtelExporter(Variant, extra="forbid"):
    """Send telemetry over gRPC."""

    otlp_grpc: OtlpGrpcOtelExporterOtlpGrpc = Field(alias="otlp-grpc")


OtelHttpProtocol = TypeAliasType("OtelHttpProtocol", OpenEnum[Literal["binary", "json"]])
"""Encoding of OTLP over HTTP."""


class OtlpHttpOtelExporterOtlpHttp(Variant):
    """A collector that speaks OTLP over HTTP."""

    endpoint: str
    headers: dict[str, str]
    """The names are real, the values masked."""
    protocol: OtelHttpProtocol
    tls: OtelTlsConfig | None = None


class OtlpHttpOtelExporter(Variant, extra="forbid"):
    """Send telemetry over HTTP."""

    otlp_http: OtlpHttpOtelExporterOtlpHttp = Field(alias="otlp-http")


OtelExporter = TypeAliasType(
    "OtelExporter",
    OpenUnion[OpenEnum[Literal["none", "statsig"]] | OtlpHttpOtelExporter | OtlpGrpcOtelExporter],
)
"""Where telemetry goes."""


class OtelToolResultLogConfig(SnakeModel):
    """How much of a tool's result is logged."""

    max_bytes: UInt
    """Bytes kept of one result."""


class OtelRequirements(SnakeModel):
    """Demands on telemetry."""

    tool_result: OtelToolResultLogConfig | None = None
    log_sse_deltas: bool | None = None
    """Log each fragment of a model's streamed answer."""
    log_user_prompt: bool | None = None
    log_agent_responses: bool | None = None
    log_guardian_assessments: bool | None = None
    """Log the verdicts of the automatic review."""
    environment: str | None = None
    """Label such as `production`."""
    exporter: OtelExporter | None = None
    trace_exporter: OtelExporter | None = None
    metrics_exporter: OtelExporter | None = None
    span_attributes: dict[str, str] | None = None
    """Added to every span."""
    tracestate: dict[str, dict[str, str]] | None = None
    """W3C trace state: a vendor's name, then its members."""


ResidencyRequirement = TypeAliasType("ResidencyRequirement", OpenEnum[Literal["us"]])
"""Region where data must stay."""


WindowsSandboxImplementation = TypeAliasType(
    "WindowsSandboxImplementation", OpenEnum[Literal["elevated", "unelevated", "mxc"]]
)
"""A way to confine commands on Windows."""


class ConfigRequirements(WireModel):
    """What an administrator demands; a member that is null demands nothing."""

    model_provider: str | None = None
    """The only provider that may be used."""
    model_providers: JsonObject | None = None
    """Complete definitions, under their names in `config.toml`."""
    allowed_login_methods: list[ForcedLoginMethod] | None = None
    """Ways to sign in that remain after all restrictions; an empty list leaves none."""
    cli_auth_credentials_store: CliAuthCredentialsStoreMode | None = None
    chatgpt_base_url: str | None = None
    additional_developer_instructions: str | None = None
    """Added to what every thread tells the model."""
    allowed_approval_policies: list[AskForApproval] | None = None
    allowed_approvals_reviewers: list[ApprovalsReviewer] | None = experimental()
    allowed_sandbox_modes: list[SandboxMode] | None = None
    allowed_windows_sandbox_implementations: list[WindowsSandboxImplementation] | None = None
    allowed_permission_profiles: dict[str, bool] | None = None
    """By profile id; `permissionProfile/list` shows the outcome."""
    default_permissions: str | None = None
    """Id of the permission profile that is used unless another is chosen."""
    allowed_web_search_modes: list[WebSearchMode] | None = None
    allow_managed_hooks_only: bool | None = None
    """Ignore hooks that others than the administrator configured."""
    allow_browser_and_computer_use: bool | None = None
    allow_appshots: bool | None = None
    """Whether pictures of app windows may be taken."""
    allow_remote_control: bool | None = None
    computer_use: ComputerUseRequirements | None = None
    browser_use: BrowserUseRequirements | None = None
    in_app_browser: InAppBrowserRequirements | None = None
    feature_requirements: dict[str, bool] | None = None
    """Features that are forced on or off, by name."""
    hooks: ManagedHooksRequirements | None = experimental()
    """Hooks that always run."""
    enforce_residency: ResidencyRequirement | None = None
    network: NetworkRequirements | None = experimental()
    application: ApplicationRequirements | None = experimental()
    auto_review: AutoReviewRequirements | None = None
    models: ModelsRequirements | None = None
    sqlite_home: str | None = None
    """Directory of the databases."""
    log_dir: str | None = None
    model_catalog_json: str | None = None
    """Path of a file that lists the models."""
    check_for_update_on_startup: bool | None = None
    allow_login_shell: bool | None = None
    """Whether commands may run in a login shell."""
    feedback: FeedbackRequirements | None = None
    otel: OtelRequirements | None = None


class ConfigRequirementsReadResponse(WireModel):
    """What an administrator demands; null when nobody does."""

    supports_independent_speed_modes: bool | None = None
    """Whether the speed modes are restricted one by one; absent or null on servers that treat them
    as one."""
    requirements: ConfigRequirements | None = None
    """Null when nothing is demanded."""


class PermissionProfileListParams(WireModel):
    """Page through the permission profiles that can be chosen."""

    cursor: str | None = None
    """Opaque, from `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Profiles a page; null means all."""
    cwd: str | None = None
    """Directory whose project layers count too."""


class PermissionProfileSummary(WireModel):
    """One permission profile."""

    id: str
    description: str | None = None
    allowed: bool
    """Whether the administrator's demands leave it open to choose."""


class PermissionProfileListResponse(WireModel):
    """One page; `nextCursor` is null at the end."""

    data: list[PermissionProfileSummary]
    next_cursor: str | None = None
