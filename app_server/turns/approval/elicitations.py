"""What MCP servers ask the user: policy first, then the clients, or for approvals the reviewer.

Source: docs/mcp.md, "Questions of servers".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import ValidationError

from app_server.extension.metadata import RuntimeMetadata
from app_server.mcp.elicitation import CANCELLED, DECLINED, ServerQuestion
from app_server.mcp_wire.errors import BadQuestion
from app_server.turns.approval.approvals import ELICITATION, writes_freely
from app_server.turns.approval.asking import Asker
from app_server.turns.approval.forms import (
    accepted,
    asks_for_approval,
    declined,
    planned_by_server,
)
from app_server.turns.review.reviewer import ApprovalRefused, is_reviewed
from protocol.log.rollout import Settings
from protocol.model import JsonObject
from protocol.turns.elicitation import (
    FormElicitation,
    McpElicitationSchema,
    McpServerElicitationRequestResponse,
    OpenaiFormElicitation,
    UrlElicitation,
)
from protocol.turns.policy import GranularAskForApproval

Wire: TypeAlias = FormElicitation | OpenaiFormElicitation | UrlElicitation


@dataclass(frozen=True, slots=True)
class ElicitationGate:
    """The questions of one thread's servers."""

    asker: Asker
    metadata_of: Callable[[str], RuntimeMetadata]
    """Gives what is said of a server, by its name."""

    async def elicit(self, question: ServerQuestion) -> JsonObject:
        """Answer a question, asking the user unless policy decides; see ElicitationPort."""
        thread, clients = self.asker.thread, self.asker.clients
        wire = _wire_question(thread.id, question)
        settings = thread.state.in_force
        if _is_empty_form(wire) and settings.approval_policy == "never" and writes_freely(settings):
            return {"action": "accept", "content": {}}
        if _may_not_ask(settings):
            return DECLINED
        if question.caller is not None and self._is_for_reviewer(wire, settings):
            return await self._review(question.caller, wire)
        if wire.needs_extension and not clients.can_ask(thread.id, ELICITATION, wire):
            raise BadQuestion(f"Unsupported elicitation mode: {wire.mode}")
        with self.asker.open.asked_in(question.caller) as scope, self.asker.waiting():
            answer = await clients.ask(thread.id, ELICITATION, wire)
        if scope.cancelled_caught:
            return CANCELLED
        if not isinstance(answer, McpServerElicitationRequestResponse):
            return DECLINED
        members = {"action": answer.action, "content": answer.content, "_meta": answer.meta}
        return {name: value for name, value in members.items() if value is not None}

    def _is_for_reviewer(self, wire: Wire, settings: Settings) -> bool:
        metadata = self.metadata_of(wire.server_name)
        return asks_for_approval(wire.meta) and is_reviewed(metadata, settings)

    async def _review(self, turn_id: str, wire: Wire) -> JsonObject:
        planned = None
        if isinstance(wire, FormElicitation):
            planned = planned_by_server(turn_id, wire, self.metadata_of(wire.server_name))
        if planned is None:
            return declined()
        with self.asker.open.asked_in(turn_id):
            try:
                await self.asker.reviewer.review(planned)
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
        "turnId": question.caller,
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
