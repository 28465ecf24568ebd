"""skills/list: the skills of the user and of a project, for clients to show and to name in input.

The model is not told of them by itself. Files are read for every request.
Source: docs/config.md, "Skills".
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio.to_thread

from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.plugins.skills import Skill, read_linked_skills
from app_server.rpc.context import Handler, RequestContext
from protocol.errors import invalid_params
from protocol.skills import (
    SkillErrorInfo,
    SkillMetadata,
    SkillScope,
    SkillsListEntry,
    SkillsListParams,
    SkillsListResponse,
)

MAX_FOLDERS = 100
"""That one request may ask about."""

MAX_ANCESTORS = 64
"""Folders from a working folder up to the root of its repository."""

PROJECT_SKILLS = Path(".agents", "skills")
SCOPES: Sequence[SkillScope] = ("repo", "user")
"""In the order in which they are listed."""


class _Found(NamedTuple):
    scope: SkillScope
    skill: Skill


class SkillHandlers:
    """The method skills/list."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._home = services.home

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"skills/list": self.list_skills}

    async def list_skills(
        self, context: RequestContext, params: SkillsListParams
    ) -> SkillsListResponse:
        """List the skills for each folder, or for the server's own."""
        if len(params.cwds) > MAX_FOLDERS:
            raise invalid_params(f"cwds accepts at most {MAX_FOLDERS} entries", field="cwds")
        folders = params.cwds or [self._configuration.resolve(None)]
        resolved = [Path(self._configuration.resolve(folder)) for folder in folders]
        with config_failures():
            config = await self._configuration.read()
        return await anyio.to_thread.run_sync(
            _list, self._home.absolute(), folders, resolved, config.document
        )


def _list(
    home: Path, names: Sequence[str], folders: Sequence[Path], settings: Mapping[str, Any]
) -> SkillsListResponse:
    entries = []
    for name, folder in zip(names, folders, strict=True):
        found, errors = _read(home, folder)
        found.sort(key=lambda each: (SCOPES.index(each.scope), each.skill.name, each.skill.file))
        skills = [_shown(each, settings) for each in found]
        entries.append(SkillsListEntry(cwd=name, skills=skills, errors=errors))
    return SkillsListResponse(data=entries)


def _read(home: Path, folder: Path) -> tuple[list[_Found], list[SkillErrorInfo]]:
    roots: list[tuple[SkillScope, Path]] = [("repo", root) for root in _project_roots(folder)]
    found: dict[Path, _Found] = {}
    errors: dict[Path, str] = {}
    for scope, root in [*roots, ("user", home / "skills")]:
        skills, problems = read_linked_skills(root)
        for skill in skills:
            # A file that several links lead to is one skill.
            found.setdefault(skill.file, _Found(scope, skill))
        errors.update(problems)
    return list(found.values()), [
        SkillErrorInfo(path=str(file), message=errors[file]) for file in sorted(errors)
    ]


def _project_roots(folder: Path) -> Iterator[Path]:
    ancestors = [folder, *folder.parents][:MAX_ANCESTORS]
    depth = next((n for n, parent in enumerate(ancestors) if (parent / ".git").exists()), 0)
    for ancestor in ancestors[: depth + 1]:
        yield ancestor / PROJECT_SKILLS


def _shown(found: _Found, settings: Mapping[str, Any]) -> SkillMetadata:
    skill = found.skill
    return SkillMetadata(
        name=skill.name,
        description=skill.description,
        short_description=skill.short_description,
        path=str(skill.file),
        scope=found.scope,
        enabled=_is_enabled(skill, settings),
    )


def _is_enabled(skill: Skill, settings: Mapping[str, Any]) -> bool:
    """Whether `[[skills.config]]` leaves it on; the last entry about a skill counts."""
    table = settings.get("skills")
    entries = table.get("config") if isinstance(table, dict) else None
    enabled = True
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and (
            entry.get("name") == skill.name or entry.get("path") == str(skill.file)
        ):
            enabled = entry.get("enabled", True) is not False
    return enabled
