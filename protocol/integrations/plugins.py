"""plugin/*: bundles of skills, hooks, apps and MCP servers, and the marketplaces they come from."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.integrations.skills import SkillInterface
from protocol.model import Int64, OpenEnum, OpenUnion, UInt32, Variant, WireModel
from protocol.values import AbsolutePathBuf, HookEventName, LegacyAppPathString


class PluginInstallParams(WireModel):
    """Install a plugin from a marketplace."""

    marketplace_path: AbsolutePathBuf | None = None
    """Local marketplace file that lists the plugin."""
    remote_marketplace_name: str | None = None
    """Remote marketplace that lists it, in place of `marketplacePath`."""
    install_attempt_id: str | None = None
    """Chosen by the client, to tell its attempts apart."""
    plugin_name: str


class AppSummary(WireModel):
    """An app that a plugin uses."""

    id: str
    name: str
    description: str | None = None
    install_url: str | None = None
    """Page where the user connects the app."""
    category: str | None = None


PluginAuthPolicy = TypeAliasType("PluginAuthPolicy", OpenEnum[Literal["ON_INSTALL", "ON_USE"]])
"""When the user has to sign in to a plugin's apps."""


class PluginInstallResponse(WireModel):
    """The plugin is installed; some of its apps may need a sign-in."""

    auth_policy: PluginAuthPolicy
    apps_needing_auth: list[AppSummary]
    """Empty also when it is not known which apps are connected."""


class PluginInstalledParams(WireModel):
    """List the plugins that are installed."""

    cwds: list[AbsolutePathBuf] | None = None
    """Folders whose repositories are searched for marketplaces."""
    install_suggestion_plugin_names: list[str] | None = None
    """Plugins to list although they are not installed, if a local marketplace has them."""


class MarketplaceLoadErrorInfo(WireModel):
    """A marketplace file that could not be loaded."""

    marketplace_path: AbsolutePathBuf
    message: str


class MarketplaceInterface(WireModel):
    """How to show a marketplace."""

    display_name: str | None = None


PluginAvailability = TypeAliasType(
    "PluginAvailability", OpenEnum[Literal["DISABLED_BY_ADMIN", "AVAILABLE"]]
)
"""Whether a plugin may be installed and used."""


PluginDisabledReason = TypeAliasType(
    "PluginDisabledReason",
    OpenEnum[
        Literal["disabled_by_admin", "plan_not_eligible", "required_app_unavailable", "unknown"]
    ],
)
"""Why a remote plugin is not available."""


PluginInstallPolicy = TypeAliasType(
    "PluginInstallPolicy", OpenEnum[Literal["NOT_AVAILABLE", "AVAILABLE", "INSTALLED_BY_DEFAULT"]]
)
"""Whether a plugin can be installed, or is from the start."""


PluginInstallPolicySource = TypeAliasType(
    "PluginInstallPolicySource", OpenEnum[Literal["WORKSPACE_SETTING", "IMPLICIT_CANONICAL_APP"]]
)
"""Where an install policy comes from."""


class PluginInterface(WireModel):
    """How to show a plugin."""

    display_name: str | None = None
    short_description: str | None = None
    long_description: str | None = None
    developer_name: str | None = None
    category: str | None = None
    capabilities: list[str]
    website_url: str | None = None
    privacy_policy_url: str | None = None
    terms_of_service_url: str | None = None
    default_prompt: list[str] | None = None
    """Prompts to start with; at most 3, of at most 512 characters each."""
    brand_color: str | None = None
    composer_icon: AbsolutePathBuf | None = None
    """File in the installed plugin."""
    composer_icon_url: str | None = None
    """Remote, from the catalog."""
    logo: AbsolutePathBuf | None = None
    """File in the installed plugin."""
    logo_dark: AbsolutePathBuf | None = None
    logo_url: str | None = None
    """Remote, from the catalog."""
    logo_url_dark: str | None = None
    screenshots: list[AbsolutePathBuf]
    """Files in the installed plugin."""
    screenshot_urls: list[str]
    """Remote, from the catalog."""


PluginShareDiscoverability = TypeAliasType(
    "PluginShareDiscoverability", OpenEnum[Literal["LISTED", "UNLISTED", "PRIVATE"]]
)
"""Who can find a shared plugin."""


PluginSharePrincipalRole = TypeAliasType(
    "PluginSharePrincipalRole", OpenEnum[Literal["reader", "editor", "owner"]]
)
"""What someone may do with a shared plugin."""


PluginSharePrincipalType = TypeAliasType(
    "PluginSharePrincipalType", OpenEnum[Literal["user", "group", "workspace"]]
)
"""What kind of party a plugin is shared with."""


class PluginSharePrincipal(WireModel):
    """A party that a plugin is shared with."""

    principal_type: PluginSharePrincipalType
    principal_id: str
    role: PluginSharePrincipalRole
    name: str


class PluginShareContext(WireModel):
    """How a plugin is shared."""

    remote_plugin_id: str
    remote_version: str | None = None
    """Version of the shared release, if known."""
    discoverability: PluginShareDiscoverability | None = None
    share_url: str | None = None
    creator_account_user_id: str | None = None
    """The creator's user id within the account."""
    creator_name: str | None = None
    share_principals: list[PluginSharePrincipal] | None = None
    can_publish_to_workspace: bool | None = None


class GitPluginSource(Variant):
    """A plugin in a Git repository."""

    type: Literal["git"] = "git"
    url: str
    path: str | None = None
    """Folder within the repository."""
    ref_name: str | None = None
    """Branch or tag."""
    sha: str | None = None
    """Commit."""


class LocalPluginSource(Variant):
    """A plugin in a folder of the server's machine."""

    type: Literal["local"] = "local"
    path: AbsolutePathBuf


class NpmPluginSource(Variant):
    """A plugin in an npm package."""

    type: Literal["npm"] = "npm"
    package: str
    version: str | None = None
    """Version or range."""
    registry: str | None = None
    """HTTPS URL; credentials stay in the user's npm configuration."""


class RemotePluginSource(Variant):
    """A plugin in the remote catalog; only the server knows where to fetch it."""

    type: Literal["remote"] = "remote"


PluginSource = TypeAliasType(
    "PluginSource",
    OpenUnion[
        Annotated[
            LocalPluginSource | GitPluginSource | NpmPluginSource | RemotePluginSource,
            Field(discriminator="type"),
        ]
    ],
)
"""Where a plugin comes from."""


class PluginSummary(WireModel):
    """A plugin as a marketplace lists it, and its state here."""

    id: str
    """`name@marketplace`."""
    remote_plugin_id: str | None = None
    """Its id in the remote catalog."""
    version: str | None = None
    """Version that the remote catalog offers."""
    local_version: str | None = None
    """Version of the files on the server's machine."""
    name: str
    share_context: PluginShareContext | None = None
    source: PluginSource
    installed: bool
    installed_at: Int64 | None = None
    """Unix seconds; remote plugins only."""
    enabled: bool
    install_policy: PluginInstallPolicy
    install_policy_source: PluginInstallPolicySource | None = None
    must_show_installation_interstitial: bool | None = None
    """Whether to show the user a page before the plugin is installed."""
    auth_policy: PluginAuthPolicy
    availability: PluginAvailability = "AVAILABLE"
    disabled_reason: PluginDisabledReason | None = None
    eligible_plan_types: list[str] | None = None
    """Plans that may install it, by the catalog's own names."""
    interface: PluginInterface | None = None
    keywords: list[str] = []


class PluginMarketplaceEntry(WireModel):
    """A marketplace and its plugins."""

    name: str
    path: AbsolutePathBuf | None = None
    """The marketplace file; null for a remote catalog."""
    interface: MarketplaceInterface | None = None
    plugins: list[PluginSummary]


class PluginInstalledResponse(WireModel):
    """The installed plugins, by marketplace."""

    marketplaces: list[PluginMarketplaceEntry]
    marketplace_load_errors: list[MarketplaceLoadErrorInfo] = []


PluginListMarketplaceKind = TypeAliasType(
    "PluginListMarketplaceKind",
    Literal["local", "vertical", "workspace-directory", "shared-with-me", "created-by-me-remote"],
)
"""A kind of marketplace to ask for."""


class PluginListParams(WireModel):
    """List the plugins that marketplaces offer."""

    cwds: list[AbsolutePathBuf] | None = None
    """Folders whose repositories are searched for marketplaces; null searches none."""
    marketplace_kinds: list[PluginListMarketplaceKind] | None = None
    """Null means local ones, and the default remote catalog where it is switched on."""
    force_refetch: bool = False
    """Ask the remote catalog again."""


class PluginListResponse(WireModel):
    """The plugins on offer, by marketplace."""

    marketplaces: list[PluginMarketplaceEntry]
    marketplace_load_errors: list[MarketplaceLoadErrorInfo] = []
    featured_plugin_ids: list[str] = []


class PluginReadParams(WireModel):
    """Read about one plugin of a marketplace."""

    marketplace_path: AbsolutePathBuf | None = None
    """Local marketplace file that lists the plugin."""
    remote_marketplace_name: str | None = None
    """Remote marketplace that lists it, in place of `marketplacePath`."""
    plugin_name: str


AppTemplateUnavailableReason = TypeAliasType(
    "AppTemplateUnavailableReason",
    OpenEnum[Literal["NOT_CONFIGURED_FOR_WORKSPACE", "NO_ACTIVE_WORKSPACE"]],
)
"""Why no app can be made from a template."""


class AppTemplateSummary(WireModel):
    """A template from which a workspace makes an app of its own."""

    template_id: str
    name: str
    description: str | None = None
    category: str | None = None
    canonical_connector_id: str | None = None
    logo_url: str | None = None
    logo_url_dark: str | None = None
    materialized_app_ids: list[str]
    """Apps that were made from it."""
    reason: AppTemplateUnavailableReason | None = None
    """Why it is not available; null otherwise."""


class PluginHookSummary(WireModel):
    """A hook that a plugin brings."""

    key: str
    event_name: HookEventName


class DailyScheduledTaskSchedule(Variant):
    """Every day."""

    type: Literal["daily"] = "daily"
    time: str
    """Time of day, as text."""


ScheduledTaskWeekday = TypeAliasType(
    "ScheduledTaskWeekday", OpenEnum[Literal["MO", "TU", "WE", "TH", "FR", "SA", "SU"]]
)
"""First two letters of a day of the week."""


class HourlyScheduledTaskSchedule(Variant):
    """Every few hours."""

    type: Literal["hourly"] = "hourly"
    interval_hours: UInt32
    days: list[ScheduledTaskWeekday] | None = None
    """The only days on which it runs, where it is so limited."""


class WeekdaysScheduledTaskSchedule(Variant):
    """On working days."""

    type: Literal["weekdays"] = "weekdays"
    time: str
    """Time of day, as text."""


class WeeklyScheduledTaskSchedule(Variant):
    """Every week, on the days named."""

    type: Literal["weekly"] = "weekly"
    days: list[ScheduledTaskWeekday]
    time: str
    """Time of day, as text."""


ScheduledTaskSchedule = TypeAliasType(
    "ScheduledTaskSchedule",
    OpenUnion[
        Annotated[
            HourlyScheduledTaskSchedule
            | DailyScheduledTaskSchedule
            | WeekdaysScheduledTaskSchedule
            | WeeklyScheduledTaskSchedule,
            Field(discriminator="type"),
        ]
    ],
)
"""When a task runs."""


class ScheduledTaskSummary(WireModel):
    """A task that a plugin would run by the clock."""

    key: str
    name: str
    prompt: str
    """What the model is told to do."""
    schedule: ScheduledTaskSchedule


class SkillSummary(WireModel):
    """A skill that a plugin brings."""

    name: str
    description: str
    short_description: str | None = None
    interface: SkillInterface | None = None
    path: LegacyAppPathString | None = None
    """The skill's file, if it is on this machine."""
    enabled: bool


class PluginDetail(WireModel):
    """All there is to show about a plugin."""

    marketplace_name: str
    marketplace_path: AbsolutePathBuf | None = None
    """The marketplace file; null for a remote catalog."""
    summary: PluginSummary
    share_url: str | None = None
    description: str | None = None
    skills: list[SkillSummary]
    onboarding_skill: SkillSummary | None = None
    """The skill to begin with; null unless plugin and skill are enabled."""
    hooks: list[PluginHookSummary]
    apps: list[AppSummary]
    app_templates: list[AppTemplateSummary]
    mcp_servers: list[str]
    """Names of the MCP servers that it brings."""
    scheduled_tasks: list[ScheduledTaskSummary] | None = None


class PluginReadResponse(WireModel):
    """The plugin."""

    plugin: PluginDetail


class PluginUninstallParams(WireModel):
    """Remove an installed plugin."""

    plugin_id: str
    """`id` of the plugin's summary."""


class PluginUninstallResponse(WireModel):
    """Nothing."""


class PluginReconcileParams(WireModel):
    """Bring what is installed into line with the hosted catalog."""

    reason: str | None = None
    """For the log of the catalog."""


class PluginReconcileChangedPlugin(WireModel):
    """An installed plugin that this changed."""

    id: str
    has_mcps: bool
    has_apps: bool
    has_hooks: bool
    has_skills: bool


class PluginReconcileResponse(WireModel):
    """What changed; nothing where no plugin is of a hosted catalog."""

    changed_plugins: list[PluginReconcileChangedPlugin]
    failed_remote_plugin_ids: list[str]
    failed_materialization_remote_plugin_ids: list[str]
