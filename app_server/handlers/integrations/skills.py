"""skills/* and hooks/list: the skills and hooks of a user, of projects and of plugins.

Source: docs/skills.md; docs/hooks.md; docs/hooks.md, "Hooks of plugins".
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from app_server.config.editing.keys import split_key_path
from app_server.config.values import Config, NotRecorded
from app_server.extensions.hooks.definition import WIRE, Hook, HookedPlugin
from app_server.extensions.hooks.hook_files import hooks_of
from app_server.extensions.plugins.contributor import hooked_plugins
from app_server.extensions.skills.catalog import MAX_EXTRA_ROOTS
from app_server.extensions.skills.folders import MAX_ENTRIES, FoundSkill, Skills, switched
from app_server.handlers.errors import config_failures, loaded_thread
from app_server.handlers.server.config_changes import change_config
from app_server.handlers.serving import RequestContext, serves
from protocol.integrations.skills import (
    CommandHookMetadata,
    HookErrorInfo,
    HookMetadata,
    HooksListEntry,
    HooksListParams,
    HooksListResponse,
    HookTrustStatus,
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
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.model import Json
from protocol.server.config import ConfigEdit

MAX_FOLDERS = 100
"""Entries of `cwds` in one `skills/list`."""

SCOPES: Sequence[SkillScope] = ("repo", "user", "system", "admin")
"""In the order in which they are listed."""


@serves("skills/list")
async def list_skills(context: RequestContext, params: SkillsListParams) -> SkillsListResponse:
    """List the skills for each folder, or for the server's own."""
    if len(params.cwds) > MAX_FOLDERS:
        raise invalid_params(f"cwds accepts at most {MAX_FOLDERS} entries", field="cwds")
    names = params.cwds or [context.services.configuration.resolve(None)]
    folders = [Path(context.services.configuration.resolve(name)) for name in names]
    with config_failures():
        config = await context.services.configuration.read()
    listed = await context.services.skills.of(folders, config.document)
    return SkillsListResponse(
        data=[
            _entry(name, skills, config.document)
            for name, skills in zip(names, listed, strict=True)
        ]
    )


@serves("skills/extraRoots/set")
async def set_extra_roots(
    context: RequestContext, params: SkillsExtraRootsSetParams
) -> SkillsExtraRootsSetResponse:
    """Replace the further folders in which skills are looked for, for all clients."""
    if len(params.extra_roots) > MAX_EXTRA_ROOTS:
        rule = f"accepts at most {MAX_EXTRA_ROOTS} entries"
        raise invalid_params(f"extraRoots {rule}", field="extraRoots", rule=rule)
    roots = [Path(root) for root in params.extra_roots]
    context.after_answer(context.services.skills.set_extra_roots, roots)
    return SkillsExtraRootsSetResponse()


@serves("skills/config/write")
async def write_skill_config(
    context: RequestContext, params: SkillsConfigWriteParams
) -> SkillsConfigWriteResponse:
    """Enable or disable a skill in config.toml."""
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

    await change_config(context.services.config_file, changed)
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


def _shown(found: FoundSkill, settings: Mapping[str, Any]) -> SkillMetadata:
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


MAX_FOLDERS = 100
"""Entries of `cwds` in one `hooks/list`."""


@serves("hooks/list")
async def list_hooks(context: RequestContext, params: HooksListParams) -> HooksListResponse:
    """List the hooks for each folder, or for the folder of a loaded thread."""
    if len(params.cwds) > MAX_FOLDERS:
        raise invalid_params(f"cwds accepts at most {MAX_FOLDERS} entries", field="cwds")
    with config_failures():
        if params.thread_id is None:
            config = await context.services.configuration.read()
            folders = params.cwds or [context.services.configuration.resolve(None)]
        else:
            if params.cwds:
                raise invalid_request("specify either threadId or cwds", "invalidParams")
            session = loaded_thread(context.services.sessions, params.thread_id)
            config, folders = session.servers.config, [session.log.state.settings.cwd]
    resolved = [Path(context.services.configuration.resolve(folder)) for folder in folders]
    home = context.services.home.absolute()
    plugins = hooked_plugins(context.services.plugins, home, config.document, params.thread_id)
    return HooksListResponse(
        data=await anyio.to_thread.run_sync(_entries, config, home, plugins, folders, resolved)
    )


def _entries(
    config: Config,
    home: Path,
    plugins: Sequence[HookedPlugin],
    names: list[str],
    folders: list[Path],
) -> list[HooksListEntry]:
    entries = []
    for name, folder in zip(names, folders, strict=True):
        found = hooks_of(config, home, folder, plugins)
        errors = [HookErrorInfo(path=str(file), message=text) for file, text in found.errors]
        hooks: list[HookMetadata] = [_shown_hook(hook) for hook in found.hooks]
        entries.append(
            HooksListEntry(cwd=name, hooks=hooks, warnings=found.warnings, errors=errors)
        )
    return entries


def _shown_hook(hook: Hook) -> CommandHookMetadata:
    return CommandHookMetadata(
        key=hook.key,
        event_name=WIRE[hook.event],
        command=hook.command,
        matcher=hook.matcher,
        timeout_sec=hook.timeout_s,
        status_message=hook.status_message,
        source_path=str(hook.file),
        source=hook.source,
        plugin_id=None if hook.origin is None else hook.origin.plugin_id,
        display_order=hook.order,
        enabled=hook.is_enabled,
        is_managed=False,
        current_hash=hook.hash,
        trust_status=_trust(hook),
    )


def _trust(hook: Hook) -> HookTrustStatus:
    if hook.trusted_hash is None:
        return "untrusted"
    return "trusted" if hook.trusted_hash == hook.hash else "modified"


STATE = ("hooks", "state")

OWN, WHOLE = "trusted_hash", "trusted_content_hash"


def with_parts(edits: Sequence[ConfigEdit]) -> list[ConfigEdit]:
    """Split the hashes of hooks of plugins, `HOOK/PLUGIN`, wherever edits write them.

    Raises:
        BadEdit: a path makes no sense.
    """
    return [part for edit in edits for part in _parts(edit)]


def _parts(edit: ConfigEdit) -> Iterator[ConfigEdit]:
    path = split_key_path(edit.key_path)
    if tuple(path[:2]) != STATE:
        yield edit
    elif tuple(path[3:]) == (OWN,) and isinstance(edit.value, str):
        for name, value in _split({OWN: edit.value}).items():
            # The last part has no dot, whether it stands in quotes or not.
            above = edit.key_path.rpartition(".")[0]
            yield edit.model_copy(update={"key_path": f"{above}.{name}", "value": value})
    else:
        yield edit.model_copy(update={"value": _within(edit.value, 3 - len(path))})


def _within(value: Json, depth: int) -> Json:
    """Split in the tables of hooks that are `depth` levels below a value."""
    if not isinstance(value, dict) or depth < 0:
        return value
    if depth == 0:
        return _split(value)
    return {key: _within(one, depth - 1) for key, one in value.items()}


def _split(state: dict[str, Any]) -> dict[str, Any]:
    trusted = state.get(OWN)
    if not isinstance(trusted, str) or "/" not in trusted:
        return state
    own, _, whole = trusted.partition("/")
    return {**state, OWN: own, WHOLE: whole}
