"""Details of single apps, read from the backend's records. No I/O.

Source: docs/apps.md, "Lists".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app_server.apps.inventory.names import install_url
from protocol.integrations.apps import AppToolSummary, ConnectorMetadata
from protocol.model import Json, JsonObject


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
