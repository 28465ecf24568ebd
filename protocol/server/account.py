"""account/*: who is signed in, how to sign in and out, and how much usage is left.

While the client keeps the ChatGPT tokens, the server asks it for a new one with
account/chatgptAuthTokens/refresh.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Int32,
    Int64,
    Json,
    OpenEnum,
    OpenUnion,
    Variant,
    WireModel,
    experimental,
)
from protocol.thread_ids import ThreadIdParam

SIGN_IN_SCOPE = "openid profile email offline_access api.connectors.read api.connectors.invoke"
"""What the issuer of ChatGPT accounts is asked for in the browser."""


class CancelLoginAccountParams(WireModel):
    """Give up a login that waits for the user."""

    login_id: str
    """From the response to `account/login/start`."""


CancelLoginAccountStatus = TypeAliasType(
    "CancelLoginAccountStatus", OpenEnum[Literal["canceled", "notFound"]]
)
"""Whether there was a login to give up."""


class CancelLoginAccountResponse(WireModel):
    """Whether the login was given up."""

    status: CancelLoginAccountStatus


class AmazonBedrockAccessKeysLoginAccountParams(Variant):
    """Sign in to Amazon Bedrock with AWS access keys; unstable."""

    type: Literal["amazonBedrockAccessKeys"] = "amazonBedrockAccessKeys"
    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    """Only temporary keys have one."""
    region: str
    """AWS region, as `us-east-1`."""


class AmazonBedrockLoginAccountParams(Variant):
    """Sign in to Amazon Bedrock with an API key; unstable."""

    type: Literal["amazonBedrock"] = "amazonBedrock"
    api_key: str
    region: str
    """AWS region, as `us-east-1`."""


class ApiKeyLoginAccountParams(Variant):
    """Sign in with an OpenAI API key, which the server stores."""

    type: Literal["apiKey"] = "apiKey"
    api_key: str


class ChatgptAuthTokensLoginAccountParams(Variant):
    """Sign in to ChatGPT with tokens that the client keeps and renews; unstable."""

    type: Literal["chatgptAuthTokens"] = "chatgptAuthTokens"
    access_token: str
    """A JWT; the server keeps it in memory only."""
    chatgpt_account_id: str
    """Workspace that the token is for."""
    chatgpt_plan_type: str | None = None
    """Null takes the plan from the token."""


class ChatgptDeviceCodeLoginAccountParams(Variant):
    """Sign in to ChatGPT with a code, in a browser on any machine."""

    type: Literal["chatgptDeviceCode"] = "chatgptDeviceCode"


LoginAppBrand = TypeAliasType("LoginAppBrand", Literal["codex", "chatgpt"])
"""Product that the sign-in goes by."""


class ChatgptLoginAccountParams(Variant):
    """Sign in to ChatGPT in a browser."""

    type: Literal["chatgpt"] = "chatgpt"
    codex_streamlined_login: bool = False
    use_hosted_login_success_page: bool = False
    """Whether the browser ends on a page of the service."""
    app_brand: LoginAppBrand | None = None


LoginAccountParams = TypeAliasType(
    "LoginAccountParams",
    Annotated[
        ApiKeyLoginAccountParams
        | ChatgptLoginAccountParams
        | ChatgptDeviceCodeLoginAccountParams
        | ChatgptAuthTokensLoginAccountParams
        | AmazonBedrockLoginAccountParams
        | AmazonBedrockAccessKeysLoginAccountParams,
        Field(discriminator="type"),
    ],
)
"""Sign in, in one of several ways."""


class AmazonBedrockLoginAccountResponse(Variant):
    """Nothing: the Amazon Bedrock credentials are in place."""

    type: Literal["amazonBedrock"] = "amazonBedrock"


class ApiKeyLoginAccountResponse(Variant):
    """Nothing: the API key is stored."""

    type: Literal["apiKey"] = "apiKey"


class ChatgptAuthTokensLoginAccountResponse(Variant):
    """Nothing: the tokens are in use."""

    type: Literal["chatgptAuthTokens"] = "chatgptAuthTokens"


class ChatgptDeviceCodeLoginAccountResponse(Variant):
    """Where the user enters which code; `account/login/completed` tells how it ended."""

    type: Literal["chatgptDeviceCode"] = "chatgptDeviceCode"
    login_id: str
    """Names this attempt, for the notification and to cancel it."""
    verification_url: str
    user_code: str
    """To be shown to the user; good for one login."""


class ChatgptLoginAccountResponse(Variant):
    """Where to send the user; `account/login/completed` tells how it ended."""

    type: Literal["chatgpt"] = "chatgpt"
    login_id: str
    """Names this attempt, for the notification and to cancel it."""
    auth_url: str
    """To be opened in a browser."""


LoginAccountResponse = TypeAliasType(
    "LoginAccountResponse",
    OpenUnion[
        Annotated[
            ApiKeyLoginAccountResponse
            | ChatgptLoginAccountResponse
            | ChatgptDeviceCodeLoginAccountResponse
            | ChatgptAuthTokensLoginAccountResponse
            | AmazonBedrockLoginAccountResponse,
            Field(discriminator="type"),
        ]
    ],
)
"""What the chosen way to sign in needs next, if anything."""


class LogoutAccountResponse(WireModel):
    """Nothing."""


class GetAccountRateLimitsParams(WireModel):
    """Read how much of the account's usage limits is spent."""

    supports_luna_reserve: bool = False
    """Whether the client can fall back to Luna Reserve when ordinary usage is blocked."""
    exclude_reset_credit_details: bool = False
    """Leave out the list of reset credits, which costs a request; the count stays."""


RateLimitResetCreditStatus = TypeAliasType(
    "RateLimitResetCreditStatus", OpenEnum[Literal["available", "redeeming", "redeemed", "unknown"]]
)
"""Where a reset credit stands."""


RateLimitResetType = TypeAliasType(
    "RateLimitResetType", OpenEnum[Literal["codexRateLimits", "unknown"]]
)
"""What a reset credit resets."""


class RateLimitResetCredit(WireModel):
    """A credit that resets a usage limit once."""

    id: str
    """Opaque."""
    reset_type: RateLimitResetType
    status: RateLimitResetCreditStatus
    granted_at: Int64
    """Unix seconds."""
    expires_at: Int64 | None = None
    """Unix seconds; null for one that does not expire."""
    title: str | None = None
    description: str | None = None


class RateLimitResetCreditsSummary(WireModel):
    """The reset credits that an account has."""

    available_count: Int64
    credits: list[RateLimitResetCredit] | None = None
    """May be shorter than `availableCount`; null when only the count is known."""


class CreditsSnapshot(WireModel):
    """Credits that an account has."""

    has_credits: bool
    unlimited: bool
    balance: str | None = None
    """Amount as text; null when unknown."""


PlanType = TypeAliasType(
    "PlanType",
    OpenEnum[
        Literal[
            "free",
            "go",
            "plus",
            "pro",
            "prolite",
            "promax",
            "team",
            "self_serve_business_prolite",
            "self_serve_business_usage_based",
            "business",
            "ent26",
            "enterprise_cbp_automation",
            "enterprise_cbp_usage_based",
            "enterprise",
            "edu",
            "edu_plus",
            "edu_pro",
            "sci",
            "sci_plus",
            "unknown",
        ]
    ],
)
"""Plan of a ChatGPT account."""


RateLimitReachedType = TypeAliasType(
    "RateLimitReachedType",
    OpenEnum[
        Literal[
            "rate_limit_reached",
            "workspace_owner_credits_depleted",
            "workspace_member_credits_depleted",
            "workspace_owner_usage_limit_reached",
            "workspace_member_usage_limit_reached",
        ]
    ],
)
"""Which limit stopped the account."""


class RateLimitWindow(WireModel):
    """Use of a limit within a period of time."""

    used_percent: Int32
    """100 when nothing is left."""
    window_duration_mins: Int64 | None = None
    """Length of the period in minutes."""
    resets_at: Int64 | None = None
    """Unix seconds."""


class SpendControlLimitSnapshot(WireModel):
    """Use of a spending limit."""

    limit: str
    """Amount as text."""
    used: str
    """Amount as text, in the unit of `limit`."""
    remaining_percent: Int32
    resets_at: Int64
    """Unix seconds."""


class RateLimitSnapshot(WireModel):
    """One metered limit, and where the account stands with it."""

    limit_id: str | None = None
    limit_name: str | None = None
    normal_model_slug: str | None = None
    """Model that describes this quota: its display name and reasoning options apply."""
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None
    credits: CreditsSnapshot | None = None
    individual_limit: SpendControlLimitSnapshot | None = None
    """Spending limit of this user."""
    spend_control_reached: bool | None = None
    """Null means unknown, not that the limit is clear."""
    plan_type: PlanType | None = None
    rate_limit_reached_type: RateLimitReachedType | None = None
    """Null while no limit is reached."""


class GetAccountRateLimitsResponse(WireModel):
    """The account's usage limits, and what can be done about them."""

    ordinary_usage_allowed: bool | None = None
    """The backend's verdict; null means unknown, and percentages do not replace it."""
    rate_limits: RateLimitSnapshot
    """The one limit that older clients know."""
    rate_limits_by_limit_id: dict[str, RateLimitSnapshot] | None = None
    """All limits, by `limitId`."""
    rate_limit_reset_credits: RateLimitResetCreditsSummary | None = None
    account_id: str | None = None
    """Account that the figures belong to, if the backend says so."""
    rate_limit_upsell: Json = None
    """A banner in the backend's own snake_case; null changes nothing on display."""


class GetAccountParams(WireModel):
    """Ask who is signed in."""

    refresh_token: bool = False
    """Renew the token first; ignored when the client keeps the tokens."""


class AmazonBedrockAccount(Variant):
    """Amazon Bedrock."""

    type: Literal["amazonBedrock"] = "amazonBedrock"
    uses_codex_managed_credentials: bool = False
    """Whether the credentials came through `account/login/start`."""


class ApiKeyAccount(Variant):
    """An OpenAI API key."""

    type: Literal["apiKey"] = "apiKey"


class ChatgptAccount(Variant):
    """A ChatGPT account."""

    type: Literal["chatgpt"] = "chatgpt"
    email: str | None
    plan_type: PlanType
    workspace_name: str | None = None
    """Display name of the chosen workspace."""


class GcpAccount(Variant):
    """Google Cloud Vertex AI, with credentials managed elsewhere."""

    type: Literal["gcp"] = "gcp"


Account = TypeAliasType(
    "Account",
    OpenUnion[
        Annotated[
            ApiKeyAccount | ChatgptAccount | AmazonBedrockAccount | GcpAccount,
            Field(discriminator="type"),
        ]
    ],
)
"""Who or what model requests are made as."""


AccountRoutingOverride = TypeAliasType(
    "AccountRoutingOverride", OpenEnum[Literal["NO_CONSTRAINT", "us", "us_cr"]]
)
"""Routing policy of a workspace: none, or a region."""


class WorkspaceRouting(WireModel):
    """Where requests of a workspace go."""

    chatgpt_account_id: str
    backend_origin: str
    """Scheme and host of the backend."""
    account_routing_override: AccountRoutingOverride


class GetAccountResponse(WireModel):
    """The account, or null, and whether the chosen provider needs one."""

    account: Account | None = None
    user_id: str | None = None
    """ChatGPT user id, if known."""
    requires_openai_auth: bool
    workspace_routing: WorkspaceRouting | None = experimental()


class GetAccountTokenUsageParams(WireModel):
    """Read how many tokens the account used, or how much a thread did."""

    thread_id: ThreadIdParam | None = None
    """Thread to estimate; null reads the account's activity."""


class AccountTokenUsageDailyBucket(WireModel):
    """Tokens of one day."""

    start_date: str
    """The day, as text."""
    tokens: Int64


class AccountTokenUsageSummary(WireModel):
    """Token use of an account over its lifetime."""

    lifetime_tokens: Int64 | None = None
    peak_daily_tokens: Int64 | None = None
    longest_running_turn_sec: Int64 | None = None
    """Seconds."""
    current_streak_days: Int64 | None = None
    longest_streak_days: Int64 | None = None


class ThreadUsageBreakdownGroup(WireModel):
    """Share of a thread's usage with the same model, effort and speed."""

    model: str | None = None
    reasoning_effort: str | None = None
    speed: str | None = None
    estimated_usage_credits_micros: Int64
    """Millionths of a credit."""
    net_new_input_tokens: Int64 | None = None
    """Input tokens that are new; see `cachedInputTokens` for the others."""
    cached_input_tokens: Int64 | None = None
    input_tokens: Int64 | None = None
    output_tokens: Int64 | None = None
    total_tokens: Int64 | None = None


class ThreadUsage(WireModel):
    """Estimated usage of a thread."""

    thread_id: str
    estimated_usage_credits_micros: Int64
    """Millionths of a credit."""
    estimated_usage_usd_micros: Int64 | None = None
    """Millionths of a US dollar."""
    native_usage_usd_micros: Int64 | None = None
    """Millionths of a US dollar, not derived from credits; absent means unknown, not zero."""
    groups: list[ThreadUsageBreakdownGroup]


class GetAccountTokenUsageResponse(WireModel):
    """Token use of the account, and of a thread if one was named."""

    summary: AccountTokenUsageSummary
    daily_usage_buckets: list[AccountTokenUsageDailyBucket] | None = None
    thread_usage: ThreadUsage | None = None
    """Absent unless a thread was named and its billing can be read."""


ChatgptAuthTokensRefreshReason = TypeAliasType(
    "ChatgptAuthTokensRefreshReason", OpenEnum[Literal["unauthorized"]]
)
"""Why the server needs a new token: the backend answered 401."""


class ChatgptAuthTokensRefreshParams(WireModel):
    """Ask the client for a new ChatGPT token."""

    reason: ChatgptAuthTokensRefreshReason
    previous_account_id: str | None = None
    """Workspace of the old token, to choose among several."""


class ChatgptAuthTokensRefreshResponse(WireModel):
    """The new token."""

    access_token: str
    """A JWT."""
    chatgpt_account_id: str
    """Workspace that the token is for."""
    chatgpt_plan_type: str | None = None
    """Null takes the plan from the token."""


DesktopOnboardingEntrypoint = TypeAliasType(
    "DesktopOnboardingEntrypoint", OpenEnum[Literal["life_sciences"]]
)
"""Which introduction a desktop client should begin with."""


class AccountLoginCompletedNotification(WireModel):
    """A login ended, well or not."""

    login_id: str | None = None
    """From the response to `account/login/start`; null for a way that has none."""
    success: bool
    error: str | None = None
    """For people; null on success."""
    onboarding_entrypoint: DesktopOnboardingEntrypoint | None = None


class AccountRateLimitsUpdatedNotification(WireModel):
    """Figures of a usage limit changed."""

    rate_limits: RateLimitSnapshot
    """What is known now; a null here does not clear an earlier value."""


AuthMode = TypeAliasType(
    "AuthMode",
    OpenEnum[
        Literal[
            "apikey",
            "chatgpt",
            "chatgptAuthTokens",
            "headers",
            "agentIdentity",
            "personalAccessToken",
            "bedrockApiKey",
            "bedrockAccessKeys",
        ]
    ],
)
"""How requests to the model's provider are authenticated."""


class AccountUpdatedNotification(WireModel):
    """The signed-in account, or what is known of it, changed."""

    auth_mode: AuthMode | None = None
    """Null when nobody is signed in."""
    plan_type: PlanType | None = None
