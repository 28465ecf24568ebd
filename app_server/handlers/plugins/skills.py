"""skills/*: the skills of the user, of a project and of plugins; switching them on and off.

Source: docs/skills.md.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app_server.config.editing.errors import NotRecorded
from app_server.config.values import Config
from app_server.extensions.skills.catalog import MAX_EXTRA_ROOTS
from app_server.extensions.skills.folders import Found, Skills
from app_server.extensions.skills.switches import MAX_ENTRIES, switched
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.handlers.settings.file_changes import change_config
from app_server.rpc.context import RequestContext, Routes
from protocol.integrations.skills import (
    SkillErrorInfo,
    SkillMetadata,
    SkillsConfigWriteParams,
    SkillsConfigWriteResponse,
    SkillScope,
    SkillsExtraRootsSetParams,
    SkillsExtraRootsSetResponse,
    SkillsListEntry,
    SkillsListParams,
    SkillsListResponse,
)
from protocol.jsonrpc.errors import invalid_params

MAX_FOLDERS = 100
"""That one request may ask about."""

SCOPES: Sequence[SkillScope] = ("repo", "user", "system", "admin")
"""In the order in which they are listed."""


class SkillHandlers:
    """The skills/* methods."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._file = services.config_file
        self._skills = services.skills
        self.routes: Routes = {
            "skills/config/write": self.write_config,
            "skills/extraRoots/set": self.set_extra_roots,
            "skills/list": self.list_skills,
        }

    async def list_skills(
        self, context: RequestContext, params: SkillsListParams
    ) -> SkillsListResponse:
        """List the skills for each folder, or for the server's own."""
        if len(params.cwds) > MAX_FOLDERS:
            raise invalid_params(f"cwds accepts at most {MAX_FOLDERS} entries", field="cwds")
        names = params.cwds or [self._configuration.resolve(None)]
        folders = [Path(self._configuration.resolve(name)) for name in names]
        with config_failures():
            config = await self._configuration.read()
        listed = await self._skills.of(folders, config.document)
        return SkillsListResponse(
            data=[
                _entry(name, skills, config.document)
                for name, skills in zip(names, listed, strict=True)
            ]
        )

    async def set_extra_roots(
        self, context: RequestContext, params: SkillsExtraRootsSetParams
    ) -> SkillsExtraRootsSetResponse:
        """Replace the further folders in which skills are looked for, for all clients."""
        if len(params.extra_roots) > MAX_EXTRA_ROOTS:
            rule = f"accepts at most {MAX_EXTRA_ROOTS} entries"
            raise invalid_params(f"extraRoots {rule}", field="extraRoots", rule=rule)
        roots = [Path(root) for root in params.extra_roots]
        context.after_answer(self._skills.set_extra_roots, roots)
        return SkillsExtraRootsSetResponse()

    async def write_config(
        self, context: RequestContext, params: SkillsConfigWriteParams
    ) -> SkillsConfigWriteResponse:
        """Write into config.toml whether a skill is on."""
        if bool(params.path) == bool(params.name):
            raise invalid_params(
                "skills/config/write requires exactly one of path or name", field="path"
            )
        key, value = ("path", params.path) if params.path else ("name", params.name)
        assert value is not None

        def changed(edit: Any, found: Config) -> str:
            entries = switched(found.document, key, value, enabled=params.enabled)
            if len(entries) > MAX_ENTRIES:
                raise NotRecorded(f"skills.config would have over {MAX_ENTRIES} entries")
            path = ("skills", "config")
            if entries:
                return str(edit.set_value(found.text, path, entries))
            return str(edit.remove(found.text, path))

        await change_config(self._file, changed)
        return SkillsConfigWriteResponse(effective_enabled=params.enabled)


def _entry(name: str, skills: Skills, settings: Mapping[str, Any]) -> SkillsListEntry:
    found = sorted(
        skills.found,
        key=lambda each: (SCOPES.index(each.scope), each.skill.name, each.skill.file),
    )
    return SkillsListEntry(
        cwd=name,
        skills=[_shown(each, settings) for each in found],
        errors=[SkillErrorInfo(path=str(file), message=text) for file, text in skills.problems],
    )


def _shown(found: Found, settings: Mapping[str, Any]) -> SkillMetadata:
    skill = found.skill
    return SkillMetadata(
        name=skill.name,
        description=skill.description,
        short_description=skill.short_description,
        interface=skill.interface,
        dependencies=skill.dependencies,
        path=str(skill.file),
        scope=found.scope,
        enabled=found.is_enabled(settings),
        plugin_id=found.plugin_id,
    )
