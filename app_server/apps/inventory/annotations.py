"""The annotations that the hosted endpoint puts into a tool's `_meta`. No I/O.

A text that is blank counts as absent; so does a member of another type than the table says.
Source: docs/apps.md, "Annotations".
"""

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.model import Json, JsonObject

ENVELOPE = "_codex_apps"
"""Key in `_meta` of the endpoint's own data about a tool; sent back with each call."""

APPROVAL_CONTEXT = "codex/approvalContext"
"""Key in `_meta` of the account that a tool uses, for reviewers; upstream's value is dropped."""

MAX_EMAIL_BYTES = 320

_EMAIL = "connected_account_email"


@dataclass(frozen=True, slots=True)
class Origin:
    """The connector that a tool belongs to."""

    id: str
    name: str
    description: str | None


def meta_of(tool: JsonObject) -> JsonObject:
    """Return a tool's `_meta`; empty when it has none."""
    return _object(tool.get("_meta"))


def envelope_of(meta: JsonObject) -> JsonObject:
    """Return the private envelope without the account's e-mail."""
    return _without(_object(meta.get(ENVELOPE)), _EMAIL)


def origin_of(meta: JsonObject) -> Origin | None:
    """Return which connector a tool belongs to; None unless it has both an id and a name."""
    id_ = text_at(meta, "connector_id")
    name = text_at(meta, "connector_name") or text_at(meta, "connector_display_name")
    if id_ is None or name is None:
        return None
    description = text_at(meta, "connector_description") or text_at(meta, "connectorDescription")
    return Origin(id_, name, description)


def email_of(meta: JsonObject) -> str | None:
    """Return the e-mail of the account that a tool uses; None unless it is a sensible one."""
    return valid_email(_object(meta.get(ENVELOPE)).get(_EMAIL))


def valid_email(value: Json) -> str | None:
    """Return an e-mail of 1 to 320 bytes without whitespace and control characters, else None."""
    if not isinstance(value, str) or "@" not in value:
        return None
    if " " in value or not value.isprintable() or len(value.encode()) > MAX_EMAIL_BYTES:
        return None
    return value


def without_account(tool: JsonObject) -> JsonObject:
    """Remove the account data from a tool's `_meta`; the rest stays as it is."""
    meta = meta_of(tool)
    if not _tells_of_account(meta):
        return tool
    kept = _without(meta, APPROVAL_CONTEXT)
    if isinstance(kept.get(ENVELOPE), dict):
        kept[ENVELOPE] = envelope_of(kept)
    return {**tool, "_meta": kept}


def with_reviewer_context(tool: JsonObject) -> JsonObject:
    """Move the account's e-mail to where a reviewer looks for it, and nowhere else."""
    meta = meta_of(tool)
    if not _tells_of_account(meta):
        return tool
    moved, email = without_account(tool), email_of(meta)
    if email is None:
        return moved
    context = {APPROVAL_CONTEXT: {"connectedAccountEmail": email}}
    return {**moved, "_meta": meta_of(moved) | context}


def _tells_of_account(meta: JsonObject) -> bool:
    return APPROVAL_CONTEXT in meta or _EMAIL in _object(meta.get(ENVELOPE))


def is_synthetic(meta: JsonObject) -> bool:
    """Whether a tool exists only to let the user link its connector."""
    return _object(meta.get(ENVELOPE)).get("synthetic_link") is True


def action_name_of(envelope: JsonObject) -> str | None:
    """Return the last segment of the path that names a tool upstream."""
    segments = (text_at(envelope, "resource_uri") or "").split("/")
    return next((segment for segment in reversed(segments) if segment.strip()), None)


def resources_of(meta: JsonObject) -> tuple[str, ...]:
    """Return the URIs of a tool's user interface, exact, its own first, each once."""
    declared = (
        _object(meta.get("ui")).get("resourceUri"),
        meta.get("ui/resourceUri"),
        meta.get("openai/outputTemplate"),
    )
    return tuple(dict.fromkeys(_exact_texts(declared)))


def file_params_of(meta: JsonObject) -> tuple[str, ...]:
    """Return the names of the arguments that carry files, exact, each once."""
    names = meta.get("openai/fileParams")
    return tuple(dict.fromkeys(_exact_texts(names if isinstance(names, list) else ())))


def is_visible_to_model(meta: JsonObject) -> bool:
    """Whether the model may see a tool: unless `ui.visibility` leaves it out."""
    visibility = _object(meta.get("ui")).get("visibility")
    return not isinstance(visibility, list) or "model" in visibility


def text_at(table: JsonObject, key: str) -> str | None:
    """Return a stripped text; None if it is empty."""
    value = table.get(key)
    return (value.strip() or None) if isinstance(value, str) else None


def _exact_texts(values: list[Json] | tuple[Json, ...]) -> Iterator[str]:
    return (value for value in values if isinstance(value, str) and value.strip())


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _without(table: JsonObject, key: str) -> JsonObject:
    return {name: value for name, value in table.items() if name != key}
