"""app/list, app/read, app/installed: ChatGPT apps, also called connectors.

`app/list` shows what exists, `app/installed` what can run, `app/read` the details of some.
"""

from protocol.model import UInt32, WireModel
from protocol.thread_ids import ThreadIdParam


class AppsInstalledParams(WireModel):
    """List the apps that have tools here, as last discovered."""

    thread_id: ThreadIdParam | None = None
    """Loaded thread whose configuration applies; null for the global one."""
    force_refresh: bool = False
    """Fetch the tools again first; ignored while apps are off."""


class InstalledApp(WireModel):
    """An app with tools, and whether they can be used."""

    id: str
    runtime_name: str | None = None
    """As the tool list names the app; the display name comes from `app/read`."""
    enabled: bool
    """By all configuration that applies: global, workspace, local and managed."""
    callable: bool
    """Enabled, with at least one tool that the model may see and policy allows."""


class AppsInstalledResponse(WireModel):
    """The installed apps, by id."""

    apps: list[InstalledApp]


class AppsListParams(WireModel):
    """Page through the apps that exist for this account, those it can use first."""

    cursor: str | None = None
    """From `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Apps a page; null lets the server choose."""
    thread_id: ThreadIdParam | None = None
    """Loaded thread whose configuration applies; null for the global one."""
    force_refetch: bool = False
    """Pass over the caches and ask the sources."""


class AppBranding(WireModel):
    """Who stands behind an app, and where to read about it."""

    category: str | None = None
    developer: str | None = None
    website: str | None = None
    """URL."""
    privacy_policy: str | None = None
    """URL."""
    terms_of_service: str | None = None
    """URL."""
    is_discoverable_app: bool


class AppReview(WireModel):
    """Where an app stands in the directory's review."""

    status: str


class AppScreenshot(WireModel):
    """A picture of an app at work."""

    url: str | None = None
    file_id: str | None = None
    user_prompt: str
    """The prompt that belongs to the picture."""


class AppMetadata(WireModel):
    """What the directory tells about an app besides its name and look."""

    review: AppReview | None = None
    categories: list[str] | None = None
    sub_categories: list[str] | None = None
    seo_description: str | None = None
    """Description written for search engines."""
    screenshots: list[AppScreenshot] | None = None
    developer: str | None = None
    version: str | None = None
    version_id: str | None = None
    version_notes: str | None = None
    first_party_requires_install: bool | None = None
    show_in_composer_when_unlinked: bool | None = None
    """Whether to offer the app before an account is linked."""


class AppInfo(WireModel):
    """An app of the directory, as this account has it."""

    id: str
    name: str
    description: str | None = None
    logo_url: str | None = None
    logo_url_dark: str | None = None
    icon_assets: dict[str, str] | None = None
    """Further icons, by the directory's own keys."""
    icon_dark_assets: dict[str, str] | None = None
    """The same for dark backgrounds."""
    distribution_channel: str | None = None
    branding: AppBranding | None = None
    app_metadata: AppMetadata | None = None
    labels: dict[str, str] | None = None
    """The directory's own labels, by key."""
    install_url: str | None = None
    """Page where the user connects the app."""
    is_accessible: bool = False
    """Whether the account has tools of this app."""
    is_enabled: bool = True
    """False when configuration or an administrator switches the app off."""
    plugin_display_names: list[str] = []
    """Plugins that use the app, sorted."""


class AppsListResponse(WireModel):
    """One page of apps."""

    data: list[AppInfo]
    next_cursor: str | None = None
    """Null at the end."""


class AppsReadParams(WireModel):
    """Read about some apps, by id."""

    app_ids: list[str]
    """At most 100; repeated ones count once."""
    thread_id: ThreadIdParam | None = None
    """Loaded thread whose configuration applies; null for the global one."""
    include_tools: bool = False
    """Fill in `toolSummaries`."""


class AppToolSummary(WireModel):
    """A tool of an app, for display only."""

    name: str
    title: str | None = None
    description: str
    is_enabled: bool = True
    disabled_reason: str | None = None
    """Null when the tool is enabled, or nobody said why it is not."""
    is_read_only: bool = False


class ConnectorMetadata(WireModel):
    """What there is to show about one app."""

    id: str
    name: str
    description: str | None = None
    icon_url: str | None = None
    icon_url_dark: str | None = None
    distribution_channel: str | None = None
    install_url: str | None = None
    """Page where the user connects the app."""
    plugin_display_names: list[str] = []
    """Plugins that use the app."""
    tool_summaries: list[AppToolSummary] | None = None
    """Null unless `includeTools` was true."""


class AppsReadResponse(WireModel):
    """The apps that were found, in the order asked for, and the rest."""

    apps: list[ConnectorMetadata]
    missing_app_ids: list[str]
    """Ids for which nothing was found."""


class AppListUpdatedNotification(WireModel):
    """The list of apps changed, or more of it is known."""

    data: list[AppInfo]
    """The whole list, not a page."""
