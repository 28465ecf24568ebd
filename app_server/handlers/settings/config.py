"""config/read, configRequirements/read, permissionProfile/list: the settings, and what may be set.

Source: docs/config.md, "Layers", "Requirements", "Permission profiles".
"""

from typing import cast

import anyio.to_thread

from app_server.config.effective import Configuration
from app_server.config.requirements import NetworkDemand, Requirements
from app_server.config.values import Config
from app_server.handlers.errors import config_failures, settings_failures
from app_server.handlers.services import Services
from app_server.handlers.settings.layers import (
    effective_config,
    layers_of,
    origins_of,
    shown_layer,
)
from app_server.handlers.views.pages import page
from app_server.permissions.profiles import profile_names, read_profile
from app_server.permissions.project_config import read_project_layers, with_projects
from app_server.rpc.context import RequestContext, Routes
from app_server.sessions.settings import PERMISSION_PROFILES
from protocol.contract.specs import NoParams
from protocol.log.rollout import StoredProfile
from protocol.server.config import (
    ConfigReadParams,
    ConfigReadResponse,
    ConfigRequirements,
    ConfigRequirementsReadResponse,
    NetworkRequirements,
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
)
from protocol.turns.policy import ReadOnlySandboxPolicy, SandboxMode


class ConfigHandlers:
    """The methods that show settings."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self.routes: Routes = {
            "config/read": self.read,
            "configRequirements/read": self.read_requirements,
            "permissionProfile/list": self.list_profiles,
        }

    async def read(self, context: RequestContext, params: ConfigReadParams) -> ConfigReadResponse:
        """Show the settings in force in a folder, without those that can hold secrets."""
        cwd = None if params.cwd is None else self._configuration.resolve(params.cwd)
        with config_failures():
            config = await self._configuration.read()
            return await anyio.to_thread.run_sync(
                _read, config, params.include_layers, self._configuration, cwd
            )

    async def read_requirements(
        self, context: RequestContext, params: NoParams
    ) -> ConfigRequirementsReadResponse:
        """Show what an administrator demands, as far as this server enforces it."""
        with settings_failures("failed to read configuration layers"):
            demanded = await self._configuration.requirements()
        return ConfigRequirementsReadResponse(
            requirements=_shown(demanded) if demanded.demands_anything else None
        )

    async def list_profiles(
        self, context: RequestContext, params: PermissionProfileListParams
    ) -> PermissionProfileListResponse:
        """List the profiles, and whether an administrator lets them be chosen."""
        with settings_failures("failed to read configuration layers"):
            allowed = (await self._configuration.requirements()).sandbox_modes
        with config_failures():
            config = await self._configuration.read()
            own = [(name, read_profile(config, name, "/")) for name in profile_names(config)]
        modes: list[tuple[str, str]] = [*PERMISSION_PROFILES.items()]
        modes += [(name, _mode(profile)) for name, profile in own]
        profiles = [
            PermissionProfileSummary(id=name, allowed=allowed is None or mode in allowed)
            for name, mode in modes
        ]
        data, next_cursor = page(profiles, params.cursor, params.limit, "permission profiles")
        return PermissionProfileListResponse(data=data, next_cursor=next_cursor)


def _read(
    config: Config, include_layers: bool, configuration: Configuration, cwd: str | None
) -> ConfigReadResponse:
    projects = [] if cwd is None else read_project_layers(config, cwd)
    config = with_projects(config, projects)
    documents = [source.document for source in config.sources]
    layers = layers_of(config, configuration, documents, projects)
    return ConfigReadResponse(
        config=effective_config(config),
        origins=origins_of(layers),
        layers=[shown_layer(layer) for layer in layers] if include_layers else None,
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
        network=None if demanded.network is None else _shown_network(demanded.network),
    )


def _shown_network(demanded: NetworkDemand) -> NetworkRequirements:
    domains = demanded.domains.items()
    return NetworkRequirements(
        enabled=True,
        domains=dict(demanded.domains),
        managed_allowed_domains_only=demanded.allowed_domains_only or None,
        allowed_domains=[name for name, said in domains if said == "allow"],
        denied_domains=[name for name, said in domains if said == "deny"],
        allow_local_binding=demanded.allow_local_binding,
    )


def _mode(profile: StoredProfile) -> str:
    """Return the sandbox mode that says most of it."""
    reads_only = isinstance(profile.sandbox_policy, ReadOnlySandboxPolicy)
    return "read-only" if reads_only else "workspace-write"
