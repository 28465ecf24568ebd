"""config/* and model/*: settings as the server sees them.

Payloads of config.toml are snake_case.
"""

from protocol.model import JsonObject, UInt32, WireModel


class ConfigReadParams(WireModel):
    """Ask for the settings in force."""

    include_layers: bool = False
    cwd: str | None = None


class ConfigReadResponse(WireModel):
    """The settings in force, without anything that could be a secret."""

    config: JsonObject
    origins: JsonObject
    layers: list[JsonObject] | None = None


class ConfigRequirementsReadParams(WireModel):
    """Ask for what an administrator demands."""


class ConfigRequirementsReadResponse(WireModel):
    """What an administrator demands; null when nobody does."""

    requirements: JsonObject | None = None
    supports_independent_speed_modes: bool | None = None


class ModelListParams(WireModel):
    """Page through the models that can be chosen."""

    cursor: str | None = None
    limit: UInt32 | None = None
    include_hidden: bool | None = None
    model_provider: str | None = None


class ReasoningEffortOption(WireModel):
    """One effort a model can be asked for."""

    reasoning_effort: str
    description: str


class Model(WireModel):
    """One model."""

    id: str
    model: str
    upgrade: str | None = None
    upgrade_info: JsonObject | None = None
    availability_nux: JsonObject | None = None
    display_name: str
    description: str
    hidden: bool
    supported_reasoning_efforts: list[ReasoningEffortOption]
    default_reasoning_effort: str
    input_modalities: list[str] = ["text", "image"]
    supports_personality: bool = False
    additional_speed_tiers: list[str] = []
    service_tiers: list[JsonObject] = []
    default_service_tier: str | None = None
    is_default: bool


class ModelListResponse(WireModel):
    """One page; `next_cursor` is null at the end."""

    data: list[Model]
    next_cursor: str | None = None
