"""Whether a tool of an MCP server may run: policy first, then the user or the reviewer.

What whoever registered the server says of the tool shapes the question; what the server itself
writes into `_meta` cannot be replaced by it.
Source: docs/mcp.md, "Approval"; docs/extensions.md, "Metadata".
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic_core import to_json

from app_server.config.values import NotRecorded
from app_server.extensions.contract.registration import ApprovalPresentation
from app_server.mcp.tools.table import Tool
from app_server.permissions.verdict import NeedsApproval, Refuse, Run, Verdict
from app_server.turns.approval.asking import Decision, Question, ThreadQuestions
from app_server.turns.approval.persistent import PersistentApprovals
from app_server.turns.approval.reviewer import (
    PlannedAction,
    bounded,
    connected_account,
    planned_call,
)
from protocol.log.rollout import Settings
from protocol.model import Json, JsonObject, WireModel
from protocol.turns.auto_review import reviewed_call
from protocol.turns.elicitation import (
    FormElicitation,
    McpElicitationSchema,
    McpServerElicitationRequestResponse,
)
from protocol.turns.policy import DangerFullAccessSandboxPolicy, ExternalSandboxPolicy

ELICITATION = "mcpServer/elicitation/request"

FORBIDDEN = "MCP tool call requires approval, but approval policy is never"
REJECTED = "user rejected MCP tool call"
CANCELLED = "user cancelled MCP tool call"
NOT_OFFERED = "an approval was answered with a `persist` that was not offered: it counts as refused"

PERSISTENCES = {"session": "acceptForSession", "always": "acceptAlways"}
"""Persistence of an approval beyond the call, with the word of it in the log."""

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
class ToolRequest:
    """A call of a tool of an MCP server."""

    thread_id: str
    turn_id: str
    item_id: str
    tool: Tool
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQuestion(Question):
    """A question about a call of a tool of an MCP server, as a form without fields."""

    unusable_answer: ClassVar[str] = REJECTED
    not_offered: ClassVar[str] = NOT_OFFERED
    is_timed: ClassVar[bool] = False

    may_persist: bool
    """Whether the user may approve for more than this call."""

    def read(self, answer: WireModel, client: str | None) -> Decision | None:
        """Return the decision, and in its word for how long it holds."""
        assert isinstance(answer, McpServerElicitationRequestResponse)
        meta = answer.meta if isinstance(answer.meta, dict) else {}
        word, text = str(answer.action), ""
        match answer.action:
            case "accept" if isinstance(persist := meta.get("persist"), str):
                if not (self.may_persist and persist in PERSISTENCES):
                    return None
                word = PERSISTENCES[persist]
            case "cancel":
                text = CANCELLED
            case "decline":
                text = REJECTED
        return Decision(
            is_allowed=not text, by="user", word=word, text=text, answer=answer, client=client
        )


@dataclass(frozen=True, slots=True)
class ToolApprovals:
    """The approvals of one thread's tools; those for the session are remembered here."""

    questions: ThreadQuestions
    records: PersistentApprovals
    _remembered: set[Hashable] = field(default_factory=set, init=False)

    def check(self, request: ToolRequest) -> Verdict:
        """Return whether a call runs, has to be asked about, or is refused."""
        tool, settings = request.tool, self.questions.log.state.in_force
        mode = tool.config.approval_mode_of(tool.raw.tool)
        if mode == "approve" or not _needs_approval(mode, tool.definition.get("annotations")):
            return Run()
        if settings.approval_policy == "never" and writes_freely(settings):
            return Run()
        if approval_key(tool) in self._remembered:
            return Run()
        return Refuse(FORBIDDEN) if settings.approval_policy == "never" else NeedsApproval()

    def question(self, request: ToolRequest) -> Question:
        """Return the question about a call; its user is waited for without limit."""
        tool, metadata = request.tool, request.tool.metadata
        source, title = metadata.approval_source, tool.definition.get("title")
        action = reviewed_call(
            tool.raw.server,
            tool.raw.tool,
            title if isinstance(title, str) else None,
            (None, None) if source is None else (source.id, source.name),
        )
        planned = PlannedAction(
            turn_id=request.turn_id,
            target_item_id=request.item_id,
            action=action,
            evidence=planned_call(tool, request.arguments),
            private=connected_account(tool),
        )
        return ToolQuestion(
            action="mcpToolCall",
            turn_id=request.turn_id,
            item_id=request.item_id,
            subject=f"{tool.raw.server}/{tool.raw.tool}",
            method=ELICITATION,
            params=approval_form(request),
            planned=planned,
            reviewer=tool.config.metadata.approvals_reviewer,
            may_persist=may_persist(tool),
        )

    async def keep(self, request: ToolRequest, decision: Decision) -> None:
        """Keep an approval for the session, or for good."""
        if decision.word not in ("acceptForSession", "acceptAlways"):
            return
        raw = request.tool.raw
        self._remembered.add(approval_key(request.tool))
        if decision.word == "acceptAlways":
            try:
                await self.records.approve(raw, request.tool.metadata.approval_persistence)
            except NotRecorded as exc:
                self.questions.warn(
                    f"the approval of {raw.server}/{raw.tool} holds for this session only, "
                    f"as it cannot be written down: {exc}"
                )


def approval_key(tool: Tool) -> Hashable:
    """Return what an approval of the tool is remembered by."""
    identity = tool.metadata.approval_identity
    return tool.raw if identity is None else identity.key


def may_persist(tool: Tool) -> bool:
    """Whether the user may approve for more than this call."""
    return tool.config.approval_mode_of(tool.raw.tool) == "auto"


def approval_form(request: ToolRequest) -> FormElicitation:
    """Return the question to the user, a form without fields."""
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


def _needs_approval(mode: str, annotations: Json) -> bool:
    hints: Mapping[str, Json] = annotations if isinstance(annotations, dict) else {}
    read_only = hints.get("readOnlyHint") is True
    match mode:
        case "prompt":
            return True
        case "writes":
            return not read_only
    destructive = hints.get("destructiveHint") is not False
    open_world = hints.get("openWorldHint") is not False
    return not read_only and (destructive or open_world)


def writes_freely(settings: Settings) -> bool:
    """Whether nothing that a turn does is confined."""
    return isinstance(
        settings.sandbox_policy, DangerFullAccessSandboxPolicy | ExternalSandboxPolicy
    )
