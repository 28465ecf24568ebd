"""How the user or the reviewer is asked whether a tool may run. No I/O.

What whoever registered the server says of the tool shapes the question; what the server itself
writes into `_meta` cannot be replaced by it.
Source: docs/mcp.md, "Approval"; docs/extensions.md, "Metadata".
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from pydantic_core import to_json

from app_server.extension.metadata import ApprovalPresentation
from app_server.mcp.tools.table import Tool
from app_server.turns.approval.decisions import Asked
from app_server.turns.review.evidence import bounded, connected_account, planned_call
from app_server.turns.review.reviewer import PlannedAction
from protocol.model import Json, JsonObject
from protocol.turns.auto_review import reviewed_call
from protocol.turns.elicitation import FormElicitation, McpElicitationSchema

RESERVED_KEYS = frozenset(
    {
        "codex_approval_kind",
        "persist",
        "tool_name",
        "tool_title",
        "tool_annotations",
        "tool_description",
        "tool_params",
        "tool_params_display",
        "approval_header",
    }
)

MAX_TITLE_BYTES = 4_000
MAX_DESCRIPTION_BYTES = 64_000
"""Of what a server says of a tool, as JSON; of more the beginning and the end are shown."""
MAX_SHOWN_TWICE_BYTES = 300_000
"""Of arguments, as JSON; larger ones are in `tool_params` alone, so that clients can read it."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that may need somebody's word."""

    thread_id: str
    turn_id: str
    item_id: str
    tool: Tool
    arguments: Json

    @property
    def asked(self) -> Asked:
        """The call, as it is written down."""
        raw = self.tool.raw
        return Asked(
            action="mcpToolCall",
            turn_id=self.turn_id,
            item_id=self.item_id,
            subject=f"{raw.server}/{raw.tool}",
        )


def approval_key(tool: Tool) -> Hashable:
    """Return what an approval of the tool is remembered by."""
    identity = tool.metadata.approval_identity
    return tool.raw if identity is None else identity.key


def may_persist(tool: Tool) -> bool:
    """Whether the user may approve for more than this call."""
    return tool.config.approval_mode_of(tool.raw.tool) == "auto"


def approval_question(request: ApprovalRequest) -> FormElicitation:
    """Put the question, as a form without fields."""
    tool, metadata = request.tool, request.tool.metadata
    arguments = request.arguments if isinstance(request.arguments, dict) else {}
    display = _labelled(metadata.approval_presentation, arguments)
    meta: JsonObject = {
        key: value for key, value in metadata.approval_form_meta.items() if key not in RESERVED_KEYS
    }
    meta["codex_approval_kind"] = "mcp_tool_call"
    if may_persist(tool):
        meta["persist"] = ["session", "always"]
    if metadata.approval_header is not None:
        meta["approval_header"] = metadata.approval_header
    meta["tool_name"] = tool.raw.tool
    for key, member, limit_bytes in (
        ("tool_title", "title", MAX_TITLE_BYTES),
        ("tool_annotations", "annotations", MAX_DESCRIPTION_BYTES),
        ("tool_description", "description", MAX_DESCRIPTION_BYTES),
    ):
        if (value := tool.definition.get(member)) is not None:
            meta[key] = bounded(value, limit_bytes)
    meta["tool_params"] = arguments
    meta["tool_params_display"] = _plain(arguments) if display is None else display
    if len(to_json(arguments)) > MAX_SHOWN_TWICE_BYTES:
        meta["tool_params_display"] = []
    return FormElicitation(
        thread_id=request.thread_id,
        turn_id=request.turn_id,
        server_name=tool.raw.server,
        meta=meta,
        message=_message(tool, presented=display is not None),
        requested_schema=McpElicitationSchema(type="object", properties={}),
    )


def planned_action(request: ApprovalRequest) -> PlannedAction:
    """Put the question to the reviewer."""
    tool = request.tool
    source, title = tool.metadata.approval_source, tool.definition.get("title")
    action = reviewed_call(
        tool.raw.server,
        tool.raw.tool,
        title if isinstance(title, str) else None,
        (None, None) if source is None else (source.id, source.name),
    )
    return PlannedAction(
        turn_id=request.turn_id,
        target_item_id=request.item_id,
        action=action,
        evidence=planned_call(tool, request.arguments),
        private=connected_account(tool),
    )


def _message(tool: Tool, *, presented: bool) -> str:
    presentation, source = tool.metadata.approval_presentation, tool.metadata.approval_source
    if presented and presentation is not None:
        return presentation.question
    if source is not None:
        return f'Allow {source.name} to run tool "{tool.raw.tool}"?'
    return f'Allow the {tool.raw.server} MCP server to run tool "{tool.raw.tool}"?'


def _plain(arguments: Mapping[str, Json]) -> list[JsonObject]:
    return [_shown(name, arguments[name], name) for name in sorted(arguments)]


def _labelled(
    presentation: ApprovalPresentation | None, arguments: Mapping[str, Json]
) -> list[JsonObject] | None:
    """Show labelled arguments first; None if two would be shown under one name."""
    if presentation is None:
        return None
    labels = {entry.name: entry.label for entry in presentation.labels if entry.name in arguments}
    first = [_shown(name, arguments[name], label) for name, label in labels.items()]
    shown = first + _plain({n: v for n, v in arguments.items() if n not in labels})
    names = {entry["display_name"] for entry in shown}
    return shown if len(names) == len(shown) else None


def _shown(name: str, value: Json, display_name: str) -> JsonObject:
    return {"name": name, "value": value, "display_name": display_name}
