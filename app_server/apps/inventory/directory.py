"""Lists of apps: the directory, the apps of an account, both merged, and details of one. No I/O.

Source: docs/apps.md, "Lists".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from app_server.apps.inventory.inventory import Connector
from app_server.apps.inventory.names import install_url
from app_server.apps.policy import AppsPolicy
from protocol.integrations.apps import AppInfo, AppToolSummary, ConnectorMetadata, InstalledApp
from protocol.model import Json, JsonObject

_LOOKS = (
    "description",
    "logo_url",
    "logo_url_dark",
    "icon_assets",
    "icon_dark_assets",
    "distribution_channel",
)
_OBJECTS = ("branding", "app_metadata")
_DIRECTORY_MEMBERS = (*_LOOKS, *_OBJECTS, "labels")
"""All that the directory decides; the rest is ours."""

_EMPTY: tuple[Json, ...] = (None, "", [], {})


def parse_directory(entries: Iterable[Json]) -> list[AppInfo]:
    """Read the directory's entries, hidden ones left out, one app for each id, in their order.

    Members may be in camelCase or snake_case; one of a wrong type counts as absent. Of two entries
    with one id the first one's members count, but for the description: there the last one's does.
    Addresses of install pages are not read.
    """
    apps: dict[str, AppInfo] = {}
    for entry in entries:
        app = _parse_entry(entry)
        if app is not None:
            known = apps.get(app.id)
            apps[app.id] = app if known is None else _joined(known, app)
    return list(apps.values())


def with_declared(directory: Sequence[AppInfo], connector_ids: Iterable[str]) -> list[AppInfo]:
    """Add the apps that plugins declare and the directory does not have, under their ids."""
    known = {app.id for app in directory}
    added = sorted(set(connector_ids) - known)
    return [*directory, *(AppInfo(id=id_, name=id_) for id_ in added)]


def accessible_apps(connectors: Sequence[Connector]) -> list[AppInfo]:
    """Turn connectors with a real tool into apps."""
    return [
        AppInfo(id=one.id, name=one.name, description=one.description, is_accessible=True)
        for one in connectors
    ]


def merge_apps(
    directory: Sequence[AppInfo],
    accessible: Sequence[AppInfo],
    *,
    directory_loaded: bool,
    is_enabled: Callable[[str], bool],
    plugin_names: Mapping[str, Sequence[str]],
) -> list[AppInfo]:
    """Make one list: accessible apps first, then by name, then by id.

    An accessible app that the directory does not have is in it only as long as the directory has
    not been loaded. `plugin_names` are display names by connector id.
    """
    merged = {app.id: app.model_copy(update={"is_accessible": False}) for app in directory}
    for app in accessible:
        known = merged.get(app.id)
        if known is not None:
            merged[app.id] = _made_accessible(known, app)
        elif not directory_loaded:
            merged[app.id] = app
    finished = [
        app.model_copy(
            update={
                "install_url": install_url(app.name, app.id),
                "is_enabled": is_enabled(app.id),
                "plugin_display_names": sorted(set(plugin_names.get(app.id, ()))),
            }
        )
        for app in merged.values()
    ]
    return sorted(finished, key=lambda app: (not app.is_accessible, app.name, app.id))


def installed_apps(
    connectors: Sequence[Connector], policy: AppsPolicy, *, allowed: bool
) -> list[InstalledApp]:
    """Turn connectors with a real tool into rows; unless `allowed` none of them can be used."""
    return [
        InstalledApp(
            id=one.id,
            runtime_name=one.name,
            enabled=allowed and policy.app_enabled(one.id),
            callable=allowed and policy.callable(one),
        )
        for one in connectors
    ]


def _parse_entry(entry: Json) -> AppInfo | None:
    if not isinstance(entry, dict) or entry.get("visibility") == "HIDDEN":
        return None
    id_ = _trimmed(entry.get("id"))
    if id_ is None:
        return None
    members = _directory_members(entry)
    members |= {"id": id_, "name": _trimmed(entry.get("name")) or id_}
    try:
        return AppInfo.model_validate(members)
    except ValidationError as exc:
        wrong = {problem["loc"][0] for problem in exc.errors(include_url=False)}
        return AppInfo.model_validate({k: v for k, v in members.items() if k not in wrong})


def _directory_members(entry: JsonObject) -> JsonObject:
    """Read the members of a directory entry, in whichever spelling, by wire name."""
    members: JsonObject = {}
    for member in _DIRECTORY_MEMBERS:
        alias = to_camel(member)
        said = (entry.get(alias), entry.get(member))
        members[alias] = next((value for value in said if value is not None), None)
    return members | {"description": _trimmed(members["description"])}


def _joined(first: AppInfo, second: AppInfo) -> AppInfo:
    mine, other = first.model_dump(by_alias=False), second.model_dump(by_alias=False)
    members = _filled(mine, other)
    for member in _OBJECTS:
        if mine[member] and other[member]:
            members[member] = _filled(mine[member], other[member])
    if first.name == first.id:
        members["name"] = second.name
    members["description"] = second.description or first.description
    return AppInfo.model_validate(members)


def _filled(first: JsonObject, second: JsonObject) -> JsonObject:
    """Fill in members that the first lacks from the second."""
    return {name: second[name] if value in _EMPTY else value for name, value in first.items()}


def _made_accessible(app: AppInfo, accessible: AppInfo) -> AppInfo:
    update: dict[str, Any] = {
        member: getattr(app, member) or getattr(accessible, member) for member in _LOOKS
    }
    update["is_accessible"] = True
    if app.name == app.id:
        update["name"] = accessible.name
    return app.model_copy(update=update)


def _trimmed(value: Json) -> str | None:
    return (value.strip() or None) if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class AppDetails:
    """One app."""

    metadata: ConnectorMetadata
    has_tools: bool
    """Whether its tools were asked for; there may be none all the same."""

    def shown(self, *, tools: bool, plugin_names: Sequence[str]) -> ConnectorMetadata:
        """Return it for an answer, with or without its tools."""
        update = {
            "plugin_display_names": sorted(set(plugin_names)),
            "tool_summaries": self.metadata.tool_summaries if tools else None,
        }
        return self.metadata.model_copy(update=update)


def parse_details(records: Sequence[Json], with_tools: bool) -> dict[str, AppDetails]:
    """Read the backend's records by id; of two with one id the first counts.

    A record without an id or a name is left out, and a tool without a name. Other members than
    those of `ConnectorMetadata` are not read, and neither are addresses of install pages.
    """
    details: dict[str, AppDetails] = {}
    for record in records:
        if not isinstance(record, dict):
            continue
        id_, name = _text(record, "id"), _text(record, "name")
        if id_ is None or name is None or id_ in details:
            continue
        metadata = ConnectorMetadata(
            id=id_,
            name=name,
            description=_text(record, "description"),
            icon_url=_text(record, "icon_url"),
            icon_url_dark=_text(record, "icon_url_dark") or _text(record, "icon_dark_url"),
            distribution_channel=_text(record, "distribution_channel"),
            install_url=install_url(name, id_),
            tool_summaries=_summaries(record.get("tools")) if with_tools else None,
        )
        details[id_] = AppDetails(metadata, with_tools)
    return details


def _summaries(tools: Json) -> list[AppToolSummary] | None:
    if not isinstance(tools, list):
        return None
    return [
        AppToolSummary(
            name=name,
            title=_text(tool, "title"),
            description=_text(tool, "description") or "",
            is_enabled=tool.get("is_enabled") is not False,
            disabled_reason=_text(tool, "disabled_reason"),
            is_read_only=tool.get("is_read_only") is True,
        )
        for tool in tools
        if isinstance(tool, dict) and (name := _text(tool, "name")) is not None
    ]


def _text(record: JsonObject, member: str) -> str | None:
    value = record.get(member)
    return value if isinstance(value, str) and value.strip() else None
