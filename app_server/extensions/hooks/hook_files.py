"""Files that declare hooks: `hooks.json`, and `[hooks]` of config.toml.

Reading blocks: call it in a worker thread.
Source: docs/hooks.md, "Declaring hooks".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic_core import from_json

from app_server.config.config_toml import read_config
from app_server.config.values import Config, ConfigError
from app_server.extensions.hooks.definition import EVENTS, Event, Hook, HookedPlugin, Origin, Source
from app_server.extensions.hooks.fingerprint import NoFingerprint, fingerprint
from app_server.host.folder_reads import FolderReads
from app_server.permissions.trust import trust_of
from app_server.runtime.files.repository import folders_of_project

FILE = "hooks.json"
SETTINGS_FILE = "config.toml"
PROJECT_FOLDER = ".codex"

MAX_FILE_BYTES = 256 * 1024
MAX_HOOKS = 256
"""Of a thread; those behind them are left out, with a warning."""

MAX_COMMAND_CHARS = 16 * 1024
MAX_MATCHER_CHARS = 1024

DEFAULT_TIMEOUT_S = 600
MAX_TIMEOUT_S = 3600


class HookFile(NamedTuple):
    """A file that may declare hooks."""

    file: Path
    source: Source
    origin: Origin | None = None
    """The plugin that has the file, if one has it."""


@dataclass(slots=True)
class HookList:
    """Hooks of some files, and the problems of others."""

    hooks: list[Hook] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[tuple[Path, str]] = field(default_factory=list)


def places_of(home: Path, trusted_folders: Sequence[Path]) -> list[HookFile]:
    """Return the files to read; `trusted_folders` are the project's, from its root down."""
    layers: list[tuple[Path, Source]] = [(home, "user")]
    layers += [(folder / PROJECT_FOLDER, "project") for folder in trusted_folders]
    names = (FILE, SETTINGS_FILE)
    return [HookFile(folder / name, source) for folder, source in layers for name in names]


def read_hooks(
    places: Sequence[HookFile],
    settings: Mapping[str, Any],
    settings_file: Path,
    plugins: Sequence[HookedPlugin] = (),
) -> HookList:
    """Read the hooks of files and plugins. `settings` are those of `settings_file`."""
    found = HookList()
    table = settings.get("hooks")
    table = table if isinstance(table, dict) else {}
    in_json: Path | None = None
    for place in places:
        is_json = place.file.name == FILE
        if is_json:
            declared = _read_file(place, found)
        else:
            declared = table if place.file == settings_file else _read_settings(place, found)
        if not declared:
            continue
        before = len(found.hooks)
        add_hooks(found, declared, place)
        if len(found.hooks) == before:
            continue
        if is_json:
            in_json = place.file
        elif in_json is not None and in_json.parent == place.file.parent:
            found.warnings.append(f"hooks of {in_json} and of {place.file} run: one file would do")
    for plugin in plugins:
        _add_plugin(found, plugin)
    if len(found.hooks) > MAX_HOOKS:
        found.warnings.append(f"there are over {MAX_HOOKS} hooks: the last ones do not run")
        del found.hooks[MAX_HOOKS:]
    found.hooks.sort(key=lambda hook: EVENTS.index(hook.event))
    states = table.get("state")
    found.hooks = [
        _with_state(replace(hook, order=order), states if isinstance(states, dict) else {})
        for order, hook in enumerate(found.hooks)
    ]
    return found


def _read_file(place: HookFile, found: HookList) -> Mapping[str, Any] | None:
    try:
        with place.file.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        found.errors.append((place.file, f"cannot be read: {exc.strerror}"))
        return None
    if len(content) > MAX_FILE_BYTES:
        found.errors.append((place.file, f"is larger than {MAX_FILE_BYTES} bytes"))
        return None
    try:
        value = from_json(content)
    except ValueError as exc:
        found.errors.append((place.file, f"is not JSON: {exc}"))
        return None
    hooks = value.get("hooks") if isinstance(value, dict) else None
    if not isinstance(hooks, dict):
        found.errors.append((place.file, "`hooks` is missing, or no object"))
        return None
    return hooks


def _read_settings(place: HookFile, found: HookList) -> Mapping[str, Any] | None:
    """Read `[hooks]` of a project, but `state`: a project cannot declare itself trusted."""
    try:
        hooks = read_config(place.file).document.get("hooks")
    except ConfigError as exc:
        found.errors.append((place.file, str(exc)))
        return None
    return hooks if isinstance(hooks, dict) else None


def add_hooks(found: HookList, declared: Mapping[str, Any], place: HookFile) -> None:
    """Add the hooks of one source, by event; an unusable one becomes a warning."""
    for event, groups in declared.items():
        if event == "state" and place.file.suffix == ".toml":
            continue
        if event not in EVENTS:
            found.warnings.append(f"{place.file}: hooks of `{event}` are not run by this server")
            continue
        for group, members in enumerate(_list(groups)):
            for number, handler in enumerate(_list(_member(members, "hooks"))):
                where = f"{place.file}: {event}[{group}].hooks[{number}]"
                try:
                    hook = _hook(cast(Event, event), members, handler, place)
                    found.hooks.append(replace(hook, group=group, number=number))
                except _Unusable as exc:
                    found.warnings.append(f"{where}: {exc}")


def _add_plugin(found: HookList, plugin: HookedPlugin) -> None:
    declared, problems = plugin.read()
    found.errors += problems
    if not declared:
        return
    try:
        digest = fingerprint(plugin.root)
    except NoFingerprint as exc:
        found.warnings.append(f"hooks of the plugin {plugin.id} do not run: {exc}")
        return
    for name, file, hooks in declared:
        origin = Origin(plugin.id, name, plugin.root, plugin.data, digest)
        add_hooks(found, hooks, HookFile(file, "plugin", origin))


class _Unusable(Exception):
    """A hook that cannot run; the text says why."""


def _hook(event: Event, group: Any, handler: Any, place: HookFile) -> Hook:
    matcher, command = _member(group, "matcher"), _member(handler, "command")
    kind, timeout = _member(handler, "type"), _member(handler, "timeout")
    message = _member(handler, "statusMessage")
    if kind != "command":
        raise _Unusable(f"hooks of type `{kind}` are not run by this server")
    if not isinstance(command, str) or not command.strip():
        raise _Unusable("`command` is missing")
    if len(command) > MAX_COMMAND_CHARS:
        raise _Unusable(f"`command` has more than {MAX_COMMAND_CHARS} characters")
    if _member(handler, "async") is True:
        raise _Unusable("`async` hooks are not run by this server")
    if timeout is None:
        timeout = DEFAULT_TIMEOUT_S
    if not isinstance(timeout, int) or not 0 < timeout <= MAX_TIMEOUT_S:
        raise _Unusable(f"`timeout` must be 1 to {MAX_TIMEOUT_S} seconds")
    if matcher is not None:
        _check_matcher(matcher)
    return Hook(
        event=event,
        matcher=matcher,
        command=command,
        timeout_s=timeout,
        status_message=message if isinstance(message, str) else None,
        file=place.file,
        source=place.source,
        origin=place.origin,
        group=0,
        number=0,
    )


def _check_matcher(matcher: Any) -> None:
    if not isinstance(matcher, str) or len(matcher) > MAX_MATCHER_CHARS:
        raise _Unusable(f"`matcher` must be a text of at most {MAX_MATCHER_CHARS} characters")
    if matcher == "*":
        return
    try:
        re.compile(matcher)
    except re.error as exc:
        raise _Unusable(f"`matcher` is no regular expression: {exc}") from exc


def _with_state(hook: Hook, states: Mapping[str, Any]) -> Hook:
    state = states.get(hook.key)
    trusted, whole = _member(state, "trusted_hash"), _member(state, "trusted_content_hash")
    if hook.origin is not None and isinstance(trusted, str) and isinstance(whole, str):
        trusted = f"{trusted}/{whole}"
    return replace(
        hook,
        is_enabled=_member(state, "enabled") is not False,
        trusted_hash=trusted if isinstance(trusted, str) else None,
    )


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _list(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else ()


async def read_hooks_of(
    config: Config,
    home: Path,
    folder: Path | None,
    plugins: Sequence[HookedPlugin],
    reads: FolderReads,
) -> Sequence[Hook] | None:
    """Read the hooks that hold in a folder; `None` if the disk does not answer in time.

    A thread without a folder is shown those of the user alone.
    """
    found = await reads.read(partial(hooks_of, config, home, folder, plugins))
    return None if found is None else found.hooks


def hooks_of(
    config: Config, home: Path, folder: Path | None, plugins: Sequence[HookedPlugin] = ()
) -> HookList:
    """Read the hooks that hold in a folder; `None` is a thread without one. This blocks."""
    trusted: list[Path] = []
    if folder is not None:
        within = folders_of_project(folder)
        try:
            if trust_of(config, map(str, within)) == "trusted":
                trusted = list(reversed(within))
        except ConfigError:
            # The same value is named to every client that needs it.
            pass
    return read_hooks(places_of(home, trusted), config.document, home / "config.toml", plugins)
