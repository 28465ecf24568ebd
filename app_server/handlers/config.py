"""config/* and model/*: the settings in force."""

from collections.abc import Mapping
from typing import cast

from pydantic import ValidationError

from app_server.config import ConfigError
from app_server.handlers.configuration import Configuration
from app_server.handlers.failures import config_failures, requirements_failures
from app_server.requirements import Requirements
from app_server.rpc.context import Handler, RequestContext
from app_server.turns.providers import default_model, default_provider_id
from app_server.turns.settings import configured_approval_policy
from protocol.config import Config as EffectiveConfig
from protocol.config import (
    ConfigReadParams,
    ConfigReadResponse,
    ConfigRequirements,
    ConfigRequirementsReadResponse,
)
from protocol.model import JsonObject
from protocol.models import Model, ModelListParams, ModelListResponse, ReasoningEffortOption
from protocol.policy import SandboxMode
from protocol.specs import NoParams

SHOWN_KEYS = (
    "model",
    "review_model",
    "model_context_window",
    "model_provider",
    "approval_policy",
    "approvals_reviewer",
    "sandbox_mode",
    "sandbox_workspace_write",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "service_tier",
    "web_search",
)
"""Settings that cannot hold a secret; servers and providers have headers and variables."""

EFFORTS = {
    "minimal": "as little thinking as possible",
    "low": "quick answers",
    "medium": "a balance of speed and depth",
    "high": "thorough thinking",
}


class ConfigHandlers:
    """The config/* and model/* methods."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {
            "config/read": self.read,
            "configRequirements/read": self.read_requirements,
            "model/list": self.list_models,
        }

    async def read(self, context: RequestContext, params: ConfigReadParams) -> ConfigReadResponse:
        """Show the settings in force, without those that can hold secrets."""
        with config_failures():
            config = await self._configuration.read()
            provider_id = default_provider_id(config)
            shown = {key: config.document.get(key) for key in SHOWN_KEYS}
            shown["model_provider"] = provider_id
            shown["model"] = default_model(config, provider_id)
            shown["approval_policy"] = configured_approval_policy(config.view())
            effective = _effective(shown)
        return ConfigReadResponse(
            config=effective, origins={}, layers=[] if params.include_layers else None
        )

    async def read_requirements(
        self, context: RequestContext, params: NoParams
    ) -> ConfigRequirementsReadResponse:
        """Show what an administrator demands, as far as this server enforces it."""
        with requirements_failures():
            demanded = await self._configuration.requirements()
        return ConfigRequirementsReadResponse(
            requirements=_shown(demanded) if demanded.demands_anything else None
        )

    async def list_models(
        self, context: RequestContext, params: ModelListParams
    ) -> ModelListResponse:
        """List the one model that the configuration chooses."""
        with config_failures():
            config = await self._configuration.read()
            provider_id = default_provider_id(config)
            model = default_model(config, provider_id)
            effort = config.view().string("model_reasoning_effort")
        if params.model_provider not in (None, provider_id):
            return ModelListResponse(data=[])
        return ModelListResponse(
            data=[
                Model(
                    id=model,
                    model=model,
                    display_name=model,
                    description=f"The model that is configured, from {provider_id}.",
                    hidden=False,
                    supported_reasoning_efforts=[
                        ReasoningEffortOption(reasoning_effort=name, description=description)
                        for name, description in EFFORTS.items()
                    ],
                    default_reasoning_effort=effort or "medium",
                    is_default=True,
                )
            ]
        )


def _shown(demanded: Requirements) -> ConfigRequirements:
    policies, modes = demanded.approval_policies, demanded.sandbox_modes
    return ConfigRequirements(
        allowed_approval_policies=None if policies is None else list(policies),
        # A client cannot choose an external sandbox by mode.
        allowed_sandbox_modes=(
            None
            if modes is None
            else [cast(SandboxMode, mode) for mode in modes if mode != "external-sandbox"]
        ),
    )


def _effective(settings: JsonObject) -> EffectiveConfig:
    try:
        return EffectiveConfig.model_validate(settings)
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise ConfigError(f"config.toml: {key}: {problem['msg']}") from exc
