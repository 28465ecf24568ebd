"""Whether a tool of an MCP server may run: policy first, then the user or the reviewer.

Source: docs/mcp.md, "Approval".
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from app_server.config.editing.errors import NotRecorded
from app_server.turns.approval.asking import Asker, Denied
from app_server.turns.approval.persistent import PersistentApprovals
from app_server.turns.approval.question import (
    ApprovalRequest,
    approval_key,
    approval_question,
    may_persist,
    planned_action,
)
from app_server.turns.review.reviewer import is_reviewed
from protocol.log.rollout import Settings
from protocol.model import Json
from protocol.turns.elicitation import McpServerElicitationRequestResponse
from protocol.turns.policy import DangerFullAccessSandboxPolicy, ExternalSandboxPolicy

ELICITATION = "mcpServer/elicitation/request"

FORBIDDEN = "MCP tool call requires approval, but approval policy is never"
REJECTED = "user rejected MCP tool call"
CANCELLED = "user cancelled MCP tool call"


@dataclass(frozen=True, slots=True)
class ApprovalGate:
    """The approvals of one thread; what the user allowed for the session is remembered here."""

    asker: Asker
    records: PersistentApprovals
    _remembered: set[Hashable] = field(default_factory=set, init=False)

    async def allow(self, request: ApprovalRequest) -> None:
        """Ask the reviewer or the user if policy wants it; returns when the call may run.

        Waits for the user's answer without limit; cancelling withdraws the question.

        Raises:
            Denied: policy forbids the call, the reviewer or the user said no, or what the client
                sent was no answer.
        """
        tool, settings = request.tool, self.asker.thread.state.in_force
        mode = tool.config.approval_mode_of(tool.raw.tool)
        if mode == "approve" or not _needs_approval(mode, tool.definition.get("annotations")):
            return
        if settings.approval_policy == "never" and writes_freely(settings):
            return
        if approval_key(tool) in self._remembered:
            return
        if settings.approval_policy == "never":
            raise Denied(FORBIDDEN)
        if is_reviewed(tool.config.metadata, settings):
            await self.asker.review(request.asked, planned_action(request))
        else:
            with self.asker.waiting():
                await self._ask(request)

    async def _ask(self, request: ApprovalRequest) -> None:
        kind = McpServerElicitationRequestResponse
        question = approval_question(request)
        answer, client = await self.asker.put(request.asked, ELICITATION, question, kind)
        if answer is None:
            raise Denied(REJECTED)
        persist = _persistence(request, answer.meta) if answer.action == "accept" else None
        words = {"session": "acceptForSession", "always": "acceptAlways"}
        decision = answer.action if persist is None else words[persist]
        await self.asker.decisions.write(request.asked, decision, "user", client)
        match answer.action:
            case "accept":
                if persist is not None:
                    await self._remember(request, persist)
            case "cancel":
                raise Denied(CANCELLED)
            case "decline":
                raise Denied(REJECTED)

    async def _remember(self, request: ApprovalRequest, persist: str) -> None:
        raw = request.tool.raw
        self._remembered.add(approval_key(request.tool))
        if persist == "always":
            try:
                await self.records.approve(raw, request.tool.metadata.approval_persistence)
            except NotRecorded as exc:
                self.asker.warn(
                    f"the approval of {raw.server}/{raw.tool} holds for this session only, "
                    f"as it cannot be written down: {exc}"
                )


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
