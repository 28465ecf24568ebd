"""model/list, modelProvider/*, experimentalFeature/*, collaborationMode/list: what there is."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import Int64, OpenEnum, OpenUnion, SnakeModel, UInt32, Variant, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.values import CyberAccessProgram, ModeKind, ReasoningEffort


class CollaborationModeListParams(WireModel):
    """List the collaboration modes."""


class CollaborationModeMask(SnakeModel):
    """A preset: what a collaboration mode changes in a thread's settings."""

    name: str
    mode: ModeKind | None = None
    model: str | None = None
    """Null leaves the thread's model."""
    reasoning_effort: ReasoningEffort | None = None


class CollaborationModeListResponse(WireModel):
    """All collaboration modes."""

    data: list[CollaborationModeMask]


class ExperimentalFeatureEnablementSetParams(WireModel):
    """Switch features on or off while the server runs."""

    enablement: dict[str, bool]
    """By feature name; features that are not named stay as they are."""


class ExperimentalFeatureEnablementSetResponse(WireModel):
    """What was switched."""

    enablement: dict[str, bool]
    """By feature name; only those that the request changed."""


class ExperimentalFeatureListParams(WireModel):
    """Page through the features that can be switched."""

    cursor: str | None = None
    """Opaque, from `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Features a page; null lets the server choose."""
    thread_id: ThreadIdParam | None = None
    """Loaded thread whose settings decide what is enabled; null means the server's settings."""


ExperimentalFeatureStage = TypeAliasType(
    "ExperimentalFeatureStage",
    OpenEnum[Literal["beta", "underDevelopment", "stable", "deprecated", "removed"]],
)
"""How far a feature has come; `removed` is a name kept for old configurations."""


class ExperimentalFeature(WireModel):
    """One feature that can be switched."""

    name: str
    """Key in `config.toml` and in `experimentalFeature/enablement/set`."""
    stage: ExperimentalFeatureStage
    display_name: str | None = None
    """For people; null outside beta."""
    description: str | None = None
    """Null outside beta."""
    announcement: str | None = None
    """Text that introduces the feature to users; null outside beta."""
    enabled: bool
    default_enabled: bool


class ExperimentalFeatureListResponse(WireModel):
    """One page; `nextCursor` is null at the end."""

    data: list[ExperimentalFeature]
    next_cursor: str | None = None


class ModelListParams(WireModel):
    """Page through the models that can be chosen."""

    model_provider: str | None = None
    """Id of a configured provider; null means the default one."""
    cursor: str | None = None
    """Opaque, from `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Models a page; null lets the server choose."""
    include_hidden: bool | None = None
    """Also list models whose `hidden` is true."""


InputModality = TypeAliasType("InputModality", OpenEnum[Literal["text", "image", "audio"]])
"""A kind of input that a model takes."""


class ModelAccessPrograms(WireModel):
    """Special access that this caller can choose for a model."""

    cyber: list[CyberAccessProgram]


class ModelAvailabilityNux(WireModel):
    """A note to users that a model has become available."""

    message: str


class ModelServiceTier(WireModel):
    """A class of service that a model can be run in, such as a faster one."""

    id: str
    """The value for `serviceTier` of `thread/start` and `turn/start`."""
    name: str
    description: str


class ModelUpgradeInfo(WireModel):
    """A model that is recommended in place of this one."""

    model: str
    upgrade_copy: str | None = None
    model_link: str | None = None
    migration_markdown: str | None = None
    """Advice for the change, in Markdown."""
    retirement_at: Int64 | None = None
    """Unix seconds of this model's planned end; null when none is known."""


MultiAgentVersion = TypeAliasType("MultiAgentVersion", OpenEnum[Literal["disabled", "v1", "v2"]])
"""The way a model works with several agents, if at all."""


class ReasoningEffortOption(WireModel):
    """One effort a model can be asked for."""

    reasoning_effort: ReasoningEffort
    description: str


class Model(WireModel):
    """One model."""

    id: str
    model: str
    """The value for `model` of `thread/start` and `turn/start`."""
    upgrade: str | None = None
    """Model that is recommended in its place."""
    upgrade_info: ModelUpgradeInfo | None = None
    availability_nux: ModelAvailabilityNux | None = None
    display_name: str
    description: str
    model_specialty: str | None = None
    hidden: bool
    """Left out of `model/list` unless `includeHidden` is set."""
    supported_reasoning_efforts: list[ReasoningEffortOption]
    default_reasoning_effort: ReasoningEffort
    input_modalities: list[InputModality] = ["text", "image"]
    """Text and images when absent."""
    supports_personality: bool = False
    """Always false; kept for older clients."""
    multi_agent_version: MultiAgentVersion | None = None
    additional_speed_tiers: list[str] = []
    """Older form of `serviceTiers`."""
    service_tiers: list[ModelServiceTier] = []
    default_service_tier: str | None = None
    """Id of one of `serviceTiers`."""
    available_access_programs: ModelAccessPrograms | None = None
    """Null when nothing is known about them."""
    is_default: bool
    """Used when nobody names a model."""


class ModelListResponse(WireModel):
    """One page; `nextCursor` is null at the end."""

    data: list[Model]
    next_cursor: str | None = None


class ModelProviderCapabilitiesReadParams(WireModel):
    """Ask what the model provider in use can do."""


class ModelProviderCapabilitiesReadResponse(WireModel):
    """What the model provider in use can do besides text."""

    image_generation: bool
    web_search: bool


BedrockProviderId = TypeAliasType(
    "BedrockProviderId", Literal["amazon-bedrock", "amazon-bedrock-runtime"]
)
"""The built-in providers that reach Amazon Bedrock."""


class BedrockProviderSettingsPatch(Variant, extra="forbid"):
    """Change how Amazon Bedrock is reached."""

    type: Literal["bedrock"] = "bedrock"
    profile: str | None = None
    """AWS profile; absent keeps it, null clears it."""
    provider_id: BedrockProviderId
    region: str | None = None
    """AWS region; absent keeps it, null clears it."""


class CustomGatewayProviderSettingsPatch(Variant, extra="forbid"):
    """Add a gateway of one's own, or change one."""

    type: Literal["customGateway"] = "customGateway"
    base_url: str | None = None
    """Absent keeps it, null clears it."""
    env_key: str | None = None
    """Environment variable that holds the API key; absent keeps it, null clears it."""
    name: str = ""
    provider_id: str | None = None
    """Absent or null adds a provider under a new id."""


GcpProviderId = TypeAliasType("GcpProviderId", Literal["gcp"])
"""The built-in provider that reaches Google Cloud."""


class GcpProviderSettingsPatch(Variant, extra="forbid"):
    """Change how Google Cloud is reached."""

    type: Literal["gcp"] = "gcp"
    credential_file: str | None = None
    """Path on the server's machine; absent keeps it, null clears it."""
    location: str | None = None
    """Absent keeps it, null clears it."""
    project_id: str | None = None
    """Absent keeps it, null clears it."""
    provider_id: GcpProviderId


ProviderSettingsPatch = TypeAliasType(
    "ProviderSettingsPatch",
    Annotated[
        CustomGatewayProviderSettingsPatch
        | BedrockProviderSettingsPatch
        | GcpProviderSettingsPatch,
        Field(discriminator="type"),
    ],
)
"""Changes to one provider: absent members stay, null clears."""


class ModelProviderConfigWriteParams(WireModel, extra="forbid"):
    """Add a model provider, or change one."""

    settings: ProviderSettingsPatch


class BedrockProviderSettings(Variant):
    """How Amazon Bedrock is reached."""

    type: Literal["bedrock"] = "bedrock"
    profile: str | None = None
    """AWS profile."""
    region: str | None = None
    """AWS region."""


class EnvironmentVariableGatewayAuth(Variant):
    """The API key comes from an environment variable."""

    mode: Literal["environmentVariable"] = "environmentVariable"
    env_key: str
    """The variable's name, not its value."""


class ExternallyConfiguredGatewayAuth(Variant):
    """Credentials are set up elsewhere; edits leave them alone."""

    mode: Literal["externallyConfigured"] = "externallyConfigured"
    env_key: str | None = None


class NoneGatewayAuth(Variant):
    """The gateway wants no credentials."""

    mode: Literal["none"] = "none"


GatewayAuth = TypeAliasType(
    "GatewayAuth",
    OpenUnion[
        Annotated[
            NoneGatewayAuth | EnvironmentVariableGatewayAuth | ExternallyConfiguredGatewayAuth,
            Field(discriminator="mode"),
        ]
    ],
)
"""How the server identifies itself to a gateway."""


class CustomGatewayProviderSettings(Variant):
    """A gateway that the user configured."""

    type: Literal["customGateway"] = "customGateway"
    auth: GatewayAuth


class GcpProviderSettings(Variant):
    """How Google Cloud is reached."""

    type: Literal["gcp"] = "gcp"
    project_id: str | None = None
    location: str | None = None
    credential_file: str | None = None
    """Path on the server's machine; the content is never shown."""


class OpenaiProviderSettings(Variant):
    """OpenAI's own service, which has nothing to set here."""

    type: Literal["openai"] = "openai"


ProviderSettings = TypeAliasType(
    "ProviderSettings",
    OpenUnion[
        Annotated[
            OpenaiProviderSettings
            | CustomGatewayProviderSettings
            | BedrockProviderSettings
            | GcpProviderSettings,
            Field(discriminator="type"),
        ]
    ],
)
"""How a provider is reached, by its kind."""


class ModelProviderSummary(WireModel):
    """One model provider, without its secrets."""

    id: str
    name: str
    can_edit: bool
    """Whether `modelProvider/config/write` can change it."""
    base_url: str | None = None
    """Null when there is none, or when it may hold a secret."""
    settings: ProviderSettings


class ModelProviderConfigWriteResponse(WireModel):
    """The provider as it is now."""

    provider: ModelProviderSummary


class ModelProviderListParams(WireModel):
    """List the model providers."""


class ModelProviderListResponse(WireModel):
    """All model providers."""

    data: list[ModelProviderSummary]
    default_provider_id: str
    """The provider of threads that name none."""
    can_change_default: bool
    """Whether the user's settings can name another default."""


class AuthRecoveryNotification(WireModel):
    """A turn's provider is getting new credentials, or has them: the method tells which."""

    thread_id: str
    turn_id: str
    provider: str
    """The provider whose credentials are renewed."""
    message: str
    """For the user."""
