"""Elicitations of MCP servers: policy first, then the clients, or for approvals the reviewer.

A form without fields whose `_meta` says `codex_request_type: approval_request` names a tool call
that the server holds back, which a reviewer may answer. Other questions are the user's alone.
Source: docs/mcp.md, "Questions of servers".
"""

from dataclasses import dataclass
from typing import TypeAlias

from pydantic import ValidationError

from app_server.extensions.contract.registration import ApprovalSource, RuntimeMetadata
from app_server.mcp.elicitation import CANCELLED, DECLINED, ServerQuestion
from app_server.mcp_wire.errors import BadQuestion
from app_server.runtime.cut_text import cut_middle
from app_server.turns.approval.asking import ThreadQuestions
from app_server.turns.approval.reviewer import (
    MAX_ARGUMENTS_BYTES,
    MAX_DESCRIPTION_BYTES,
    MAX_DETAIL_BYTES,
    ApprovalRefused,
    PlannedAction,
    bounded,
    is_reviewed,
)
from app_server.turns.approval.tools import ELICITATION, writes_freely
from protocol.log.rollout import Settings
from protocol.model import Json, JsonObject
from protocol.turns.auto_review import reviewed_call
from protocol.turns.elicitation import (
    SOURCE_DESCRIPTION,
    SOURCE_ID,
    SOURCE_NAME,
    FormElicitation,
    McpElicitationSchema,
    McpServerElicitationRequestResponse,
    OpenaiFormElicitation,
    UrlElicitation,
)
from protocol.turns.policy import GranularAskForApproval

Wire: TypeAlias = FormElicitation | OpenaiFormElicitation | UrlElicitation

_LIMITS = {
    "tool_title": MAX_DETAIL_BYTES,
    "tool_description": MAX_DESCRIPTION_BYTES,
    SOURCE_ID: MAX_DETAIL_BYTES,
    SOURCE_NAME: MAX_DETAIL_BYTES,
    SOURCE_DESCRIPTION: MAX_DESCRIPTION_BYTES,
}

_SOURCE = (SOURCE_ID, SOURCE_NAME, SOURCE_DESCRIPTION)


@dataclass(frozen=True, slots=True)
class Elicitations:
    """The questions of one thread's servers."""

    questions: ThreadQuestions

    async def elicit(self, question: ServerQuestion, metadata: RuntimeMetadata) -> JsonObject:
        """Answer a question, asking the user unless policy decides; see ElicitationPort.

        `metadata` is what whoever registered the server says of it.
        """
        questions, log = self.questions, self.questions.log
        clients = questions.clients
        wire = _wire_question(log.id, question)
        settings = log.state.in_force
        if _is_empty_form(wire) and settings.approval_policy == "never" and writes_freely(settings):
            return {"action": "accept", "content": {}}
        if _may_not_ask(settings):
            return DECLINED
        is_for_reviewer = asks_for_approval(wire.meta) and is_reviewed(
            metadata.approvals_reviewer, settings
        )
        if question.turn_id is not None and is_for_reviewer:
            return await self._review(question.turn_id, wire, metadata)
        if wire.needs_extension and not clients.can_ask(ELICITATION, wire):
            raise BadQuestion(f"Unsupported elicitation mode: {wire.mode}")
        waiting = questions.status.waiting_on("waitingOnApproval")
        with questions.withdrawn_with(question.turn_id) as scope, waiting:
            answer, _ = await clients.ask(ELICITATION, wire)
        if scope.cancelled_caught:
            return CANCELLED
        if not isinstance(answer, McpServerElicitationRequestResponse):
            return DECLINED
        members = {"action": answer.action, "content": answer.content, "_meta": answer.meta}
        return {name: value for name, value in members.items() if value is not None}

    async def _review(self, turn_id: str, wire: Wire, metadata: RuntimeMetadata) -> JsonObject:
        planned = None
        if isinstance(wire, FormElicitation):
            planned = planned_by_server(turn_id, wire, metadata)
        if planned is None:
            return declined()
        with self.questions.withdrawn_with(turn_id):
            try:
                await self.questions.reviewer.review(planned)
            except ApprovalRefused as exc:
                return declined(str(exc))
            return accepted()
        return CANCELLED


def _may_not_ask(settings: Settings) -> bool:
    policy = settings.approval_policy
    if isinstance(policy, GranularAskForApproval):
        return not policy.granular.mcp_elicitations
    return policy == "never"


def _is_empty_form(wire: Wire) -> bool:
    return isinstance(wire, FormElicitation) and not wire.requested_schema.properties


def _wire_question(thread_id: str, question: ServerQuestion) -> Wire:
    asked = question.params
    shared: JsonObject = {
        "threadId": thread_id,
        "turnId": question.turn_id,
        "serverName": question.server,
        "_meta": asked.get("_meta"),
        "message": asked.get("message"),
    }
    try:
        match asked.get("mode", "form"):
            case "form":
                # Servers send titles and the like, which the clients' schema has no place for.
                schema = McpElicitationSchema.model_validate(
                    asked.get("requestedSchema"), extra="ignore"
                )
                return FormElicitation.model_validate({**shared, "requestedSchema": schema})
            case "openai/form":
                form = {"requestedSchema": asked.get("requestedSchema")}
                return OpenaiFormElicitation.model_validate({**shared, **form})
            case "url":
                link = {"url": asked.get("url"), "elicitationId": asked.get("elicitationId")}
                return UrlElicitation.model_validate({**shared, **link})
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"]) or "requestedSchema"
        raise BadQuestion(f"Invalid elicitation: {place}: {problem['msg']}") from exc
    raise BadQuestion(f"Unsupported elicitation mode: {asked['mode']}")


def asks_for_approval(meta: Json) -> bool:
    """Whether a question, by its `_meta`, wants somebody's approval."""
    return isinstance(meta, dict) and meta.get("codex_request_type") == "approval_request"


def planned_by_server(
    turn_id: str, form: FormElicitation, metadata: RuntimeMetadata
) -> PlannedAction | None:
    """Put the form to the reviewer; None if it does not name a call, or wants more than a word.

    Whom the call belongs to is what a registration says of the tool, else what the server says.
    """
    meta = form.meta
    if not isinstance(meta, dict) or form.requested_schema.properties:
        return None
    name, arguments = meta.get("tool_name"), meta.get("tool_params", {})
    if meta.get("codex_approval_kind") != "mcp_tool_call" or not isinstance(arguments, dict):
        return None
    if not isinstance(name, str) or not name.strip():
        return None
    registered = metadata.of_named_tool(name).approval_source
    if registered is not None:
        meta = {**meta, **dict.fromkeys(_SOURCE), **_members_of(registered)}
    name = cut_middle(name, MAX_DETAIL_BYTES)
    facts = {
        key: cut_middle(text, limit_bytes)
        for key, limit_bytes in _LIMITS.items()
        if isinstance(text := meta.get(key), str)
    }
    evidence: JsonObject = {
        "kind": "request_of_mcp_server",
        "server": form.server_name,
        "tool": name,
        **facts,
        "message": bounded(form.message, MAX_DESCRIPTION_BYTES),
        "arguments": bounded(arguments, MAX_ARGUMENTS_BYTES),
    }
    source = facts.get(SOURCE_ID), facts.get(SOURCE_NAME)
    action = reviewed_call(form.server_name, name, facts.get("tool_title"), source)
    return PlannedAction(turn_id, None, action, evidence)


def _members_of(source: ApprovalSource) -> JsonObject:
    return dict(zip(_SOURCE, (source.id, source.name, source.description), strict=True))


def accepted() -> JsonObject:
    """Answer a server whose call was approved."""
    return {"action": "accept", "content": {}, "_meta": {"approvals_reviewer": "auto_review"}}


def declined(reason: str | None = None) -> JsonObject:
    """Answer a server whose call was not."""
    why = {} if reason is None else {"message": reason}
    return {"action": "decline", "_meta": {**why, "approvals_reviewer": "auto_review"}}
