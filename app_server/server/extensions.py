"""Extensions of a server by plugins and apps, and the skills of its threads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.abc

from app_server.apps.lazy import LazyApps
from app_server.config.editing.file import ConfigFile
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.plugins.in_turns import PluginsInTurns
from app_server.extensions.plugins.store import PluginStore
from app_server.extensions.skills.catalog import SkillCatalog
from app_server.extensions.skills.folders import FoundSkill
from app_server.host.environments import Environments
from app_server.rpc.hub import Hub
from app_server.server.settings import Settings, Substitutes
from protocol.integrations.skills import SkillsChangedNotification

if TYPE_CHECKING:
    from app_server.handlers.integrations.apps_port import AppsPort

APPROVALS_OF_APPS = "apps"
"""Target of lasting approvals in the registrations of apps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """Plugins, apps and registry of a server."""

    plugins: Plugins
    registry: ExtensionRegistry
    apps: "AppsPort | None"
    lazy_apps: LazyApps | None
    """The same apps where they are the real ones; None: this process serves no apps."""


def join_extensions(
    settings: Settings,
    substitutes: Substitutes,
    environments: Environments,
    config_file: ConfigFile,
) -> Extensions:
    """Make the real ones, or take the substitutes."""
    plugins = Plugins(PluginStore(settings.home), partial(_is_available, environments))
    if substitutes.extensions is not None:
        return Extensions(
            plugins=plugins, registry=substitutes.extensions, apps=substitutes.apps, lazy_apps=None
        )
    apps = LazyApps(settings.home, environments, plugins)
    registry = ExtensionRegistry(
        [plugins],
        persisters={APPROVALS_OF_APPS: partial(_approve, config_file)},
        in_turns=[PluginsInTurns(plugins)],
        install_checks=[apps],
        late=[apps],
    )
    return Extensions(plugins=plugins, registry=registry, apps=apps, lazy_apps=apps)


def _is_available(environments: Environments, environment_id: str) -> bool:
    return environments.instance_of(environment_id) is not None


async def _approve(file: ConfigFile, path: Sequence[str]) -> None:
    await file.write(path, "approve")


def join_skills(
    settings: Settings, plugins: Plugins, hub: Hub, background: anyio.abc.TaskGroup
) -> SkillCatalog:
    """Find the skills of the user, of projects and of plugins; clients are notified of changes."""

    def changed() -> None:
        hub.broadcast(SkillsChangedNotification())

    return SkillCatalog(
        settings.home,
        settings.user_home,
        partial(_skills_of_plugins, plugins),
        background,
        changed,
    )


def _skills_of_plugins(
    plugins: Plugins, settings: Mapping[str, Any], thread_id: str | None
) -> list[FoundSkill]:
    return [
        FoundSkill("user", skill, active.id)
        for active in plugins.active(settings, thread_id)
        for skill in active.plugin.named_skills()
    ]
