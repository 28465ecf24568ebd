"""Whether a tool of an MCP server may run: policy first, then the user or the reviewer.

Source: docs/mcp.md, "Approval".
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum

from app_server.config.editing.errors import NotRecorded
from app_server.mcp.tools.table import Tool
from app_server.turns.approval.decisions import Action, Decisions
from app_server.turns.approval.question import (
    ApprovalRequest,
    approval_key,
    approval_question,
    may_persist,
    planned_action,
)
from app_server.turns.ports import ApprovalRecords, ClientPort
from app_server.turns.review.reviewer import ApprovalRefused, Reviewer, is_reviewed
from protocol.elicitation import McpServerElicitationRequestResponse
from protocol.lifecycle import WarningNotification
from protocol.model import Json
from protocol.policy import DangerFullAccessSandboxPolicy, ExternalSandboxPolicy
from protocol.rollout import Settings

ELICITATION = "mcpServer/elicitation/request"

FORBIDDEN = "MCP tool call requires approval, but approval policy is never"
REJECTED = "user rejected MCP tool call"
CANCELLED = "user cancelled MCP tool call"


class Verdict(Enum):
    """What policy says of a call."""

    RUN = "run"
    ASK = "ask"
    REVIEW = "review"
    FORBID = "forbid"


class Denied(Exception):
    """The call must not run; the text goes to the item and to the model."""


class ApprovalCancelled(Denied):
    """The call must not run, and its turn has to be ended as interrupted."""


class ApprovalGate:
    """The approvals of one thread; what the user allowed for the session is remembered here."""

    def __init__(
        self,
        clients: ClientPort,
        records: ApprovalRecords,
        reviewer: Reviewer,
        decisions: Decisions,
    ) -> None:
        self._clients = clients
        self._decisions = decisions
        self._records = records
        self._reviewer = reviewer
        self._remembered: set[Hashable] = set()

    def verdict(self, tool: Tool, settings: Settings) -> Verdict:
        """Apply policy to a call."""
        mode = tool.config.approval_mode_of(tool.raw.tool)
        if mode == "approve" or not _needs_approval(mode, tool.definition.get("annotations")):
            return Verdict.RUN
        if settings.approval_policy == "never" and writes_freely(settings):
            return Verdict.RUN
        if approval_key(tool) in self._remembered:
            return Verdict.RUN
        if settings.approval_policy == "never":
            return Verdict.FORBID
        return Verdict.REVIEW if is_reviewed(tool.config.metadata, settings) else Verdict.ASK

    async def ask(self, request: ApprovalRequest) -> None:
        """Ask the user; returns when the call may run.

        Waits for an answer without limit; cancelling withdraws the question.

        Raises:
            Denied: the user said no, or what the client sent was no answer.
        """
        question, asked = approval_question(request), _AskedCall(request)
        try:
            answer, client = await self._clients.ask_by_name(
                request.thread_id, ELICITATION, question
            )
        except BaseException:
            await self._decisions.write_withdrawn(asked)
            raise
        if not isinstance(answer, McpServerElicitationRequestResponse):
            await self._decisions.write(asked, "failed", "user", client)
            raise Denied(REJECTED)
        persist = _persistence(request, answer.meta) if answer.action == "accept" else None
        words = {"session": "acceptForSession", "always": "acceptAlways"}
        decision = answer.action if persist is None else words[persist]
        await self._decisions.write(asked, decision, "user", client)
        match answer.action:
            case "accept":
                if persist is not None:
                    await self._remember(request, persist)
            case "cancel":
                raise Denied(CANCELLED)
            case "decline":
                raise Denied(REJECTED)

    async def review(self, request: ApprovalRequest) -> None:
        """Ask the reviewer; returns when the call may run, this once.

        Raises:
            Denied: the reviewer said no, or came to no verdict in time.
        """
        try:
            await self._reviewer.review(planned_action(request))
        except ApprovalRefused as exc:
            await self._decisions.write(_AskedCall(request), "decline", "reviewer")
            raise Denied(str(exc)) from exc
        except BaseException:
            await self._decisions.write_withdrawn(_AskedCall(request))
            raise
        await self._decisions.write(_AskedCall(request), "accept", "reviewer")

    async def _remember(self, request: ApprovalRequest, persist: str) -> None:
        raw = request.tool.raw
        self._remembered.add(approval_key(request.tool))
        if persist == "always":
            try:
                await self._records.approve(raw, request.tool.metadata.approval_persistence)
            except NotRecorded as exc:
                message = (
                    f"the approval of {raw.server}/{raw.tool} holds for this session only, "
                    f"as it cannot be written down: {exc}"
                )
                warning = WarningNotification(thread_id=request.thread_id, message=message)
                self._clients.emit(request.thread_id, warning)


@dataclass(frozen=True, slots=True)
class _AskedCall:
    request: ApprovalRequest

    @property
    def action(self) -> Action:
        return "mcpToolCall"

    @property
    def turn_id(self) -> str:
        return self.request.turn_id

    @property
    def item_id(self) -> str:
        return self.request.item_id

    @property
    def subject(self) -> str:
        raw = self.request.tool.raw
        return f"{raw.server}/{raw.tool}"


def _persistence(request: ApprovalRequest, meta: Json) -> str | None:
    """Return how long an approval is to last beyond the call; None if it is not."""
    persist = meta.get("persist") if isinstance(meta, dict) else None
    is_known = persist in ("session", "always") and may_persist(request.tool)
    return str(persist) if is_known else None


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
