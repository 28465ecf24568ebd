"""From questions of the app-server to those of ACP, and back. No I/O.

Source: https://agentclientprotocol.com/protocol/v1/tool-calls, "Requesting Permission", and
/protocol/v1/elicitation; docs/acp.md, "Questions".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app_server.acp.updates import ThreadUpdates, describe, describe_command
from protocol.model import Json, JsonObject

COMMAND = "item/commandExecution/requestApproval"
PATCH = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
USER_INPUT = "item/tool/requestUserInput"
ELICITATION = "mcpServer/elicitation/request"

PERMISSION_METHOD = "session/request_permission"
ELICITATION_METHOD = "elicitation/create"

_DECISIONS: Mapping[str, tuple[str, str]] = {
    "accept": ("Yes, proceed", "allow_once"),
    "acceptForSession": ("Yes, and don't ask again in this session", "allow_always"),
    "decline": ("No, and go on without it", "reject_once"),
    "cancel": ("No, and stop the turn", "reject_once"),
}
"""Of approvals: the words of the option, and its kind."""


@dataclass(frozen=True, slots=True)
class AcpQuestion:
    """A question as a client of ACP is asked it."""

    method: str
    params: JsonObject
    results: Mapping[str, JsonObject] = field(default_factory=dict)
    """What the app-server is answered, by the option that is chosen."""
    refusal: JsonObject = field(default_factory=dict)
    """What it is answered where none is chosen, or nonsense is."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Of a form that has the model's questions: the id of each, by the name of its field."""

    def result(self, answer: Json) -> JsonObject:
        """Return what the app-server is answered for the answer of the client."""
        if not isinstance(answer, dict):
            return self.refusal
        if self.method == PERMISSION_METHOD:
            outcome = answer.get("outcome")
            chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
            return (
                self.results.get(chosen, self.refusal) if isinstance(chosen, str) else self.refusal
            )
        action, content = answer.get("action"), answer.get("content")
        if action not in ("accept", "decline", "cancel"):
            return self.refusal
        if not self.fields:
            given = {"content": content or {}} if action == "accept" else {}
            return {"action": action, **given}
        values = content if action == "accept" and isinstance(content, dict) else {}
        answers = {
            question_id: {"answers": [str(values[name])]}
            for name, question_id in self.fields.items()
            if name in values
        }
        return {"answers": answers}


def acp_question(
    method: str, asked: JsonObject, updates: ThreadUpdates, capabilities: JsonObject
) -> AcpQuestion | None:
    """Return a question as this client can be asked it; None where it cannot.

    `updates` know what it is about, and `capabilities` are the client's.
    """
    session_id: str = asked["threadId"]
    item, cwd = updates.item_of_question(asked), updates.cwd
    modes = capabilities.get("elicitation")
    forms = modes if isinstance(modes, dict) else {}
    match method:
        case "item/commandExecution/requestApproval":
            return _about_command(session_id, asked, cwd)
        case "item/fileChange/requestApproval":
            offered = ["accept", "acceptForSession", "decline", "cancel"]
            call = describe(item, cwd) if item else {"title": "Edit files", "kind": "edit"}
            return _approval(session_id, asked, call or {}, offered)
        case "item/permissions/requestApproval":
            return _about_permissions(session_id, asked)
        case "item/tool/requestUserInput":
            return _about_input(session_id, asked, has_forms=forms.get("form") is not None)
        case "mcpServer/elicitation/request" if _is_approval(asked):
            return _about_tool(session_id, asked, item, cwd)
        case "mcpServer/elicitation/request":
            return _of_server(session_id, asked, forms)
    return None


def _about_command(session_id: str, asked: JsonObject, cwd: str) -> AcpQuestion:
    network = asked.get("networkApprovalContext")
    if network is not None:
        host = f"{network['protocol']}://{network['host']}"
        call: JsonObject = {"title": f"Connect to {host}", "kind": "fetch"}
    else:
        call = describe_command(
            asked.get("command") or "", asked.get("cwd") or cwd,
            asked.get("commandActions") or (), cwd,
        )  # fmt: skip
    offered = asked.get("availableDecisions") or ["accept", "acceptForSession", "decline", "cancel"]
    return _approval(session_id, asked, call, offered)


def _approval(
    session_id: str, asked: JsonObject, call: JsonObject, offered: Sequence[Json]
) -> AcpQuestion:
    """Ask whether something may be done; `offered` are decisions of the app-server, in order."""
    options: list[JsonObject] = []
    results: dict[str, JsonObject] = {}
    for decision in offered:
        option_id, name, kind = _option(decision)
        if option_id in results:
            continue
        options.append({"optionId": option_id, "name": name, "kind": kind})
        results[option_id] = {"decision": decision}
    if reason := asked.get("reason"):
        # There is no member for the reason, and it is what the user decides by.
        why = {"type": "content", "content": {"type": "text", "text": reason}}
        call = {**call, "content": [why, *call.get("content", ())]}
    return _permission(session_id, asked["itemId"], call, options, results, {"decision": "cancel"})


def _option(decision: Json) -> tuple[str, str, str]:
    """Return id, words and kind of the option for a decision."""
    if isinstance(decision, str):
        return decision, *_DECISIONS.get(decision, (decision, "allow_once"))
    if (chosen := decision.get("acceptWithExecpolicyAmendment")) is not None:
        words = " ".join(chosen["execpolicy_amendment"])
        return "acceptRule", f"Yes, and don't ask again for `{words}`", "allow_always"
    amendment = decision["applyNetworkPolicyAmendment"]["network_policy_amendment"]
    host, action = amendment["host"], amendment["action"]
    if action == "allow":
        return "allowHost", f"Yes, and always allow {host}", "allow_always"
    return "denyHost", f"No, and never allow {host}", "reject_always"


def _about_permissions(session_id: str, asked: JsonObject) -> AcpQuestion:
    wanted = asked["permissions"]
    options = [
        {"optionId": "turn", "name": "Yes, for this turn", "kind": "allow_once"},
        {"optionId": "session", "name": "Yes, for this session", "kind": "allow_always"},
        {"optionId": "decline", "name": "No", "kind": "reject_once"},
    ]
    refused: JsonObject = {"permissions": {}, "scope": "turn"}
    results = {
        "turn": {"permissions": wanted, "scope": "turn"},
        "session": {"permissions": wanted, "scope": "session"},
        "decline": refused,
    }
    call: JsonObject = {
        "title": asked.get("reason") or "More permissions",
        "kind": "other",
        "rawInput": wanted,
    }
    return _permission(session_id, asked["itemId"], call, options, results, refused)


def _about_tool(session_id: str, asked: JsonObject, item: JsonObject, cwd: str) -> AcpQuestion:
    """Ask for the approval of a call of a tool."""
    meta = asked["_meta"]
    call = (describe(item, cwd) if item else None) or {"title": asked["message"], "kind": "execute"}
    persist = meta.get("persist")
    lasting = persist if isinstance(persist, list) else [persist]
    options = [{"optionId": "accept", "name": "Allow", "kind": "allow_once"}]
    results: dict[str, JsonObject] = {"accept": {"action": "accept", "content": {}}}
    for word, name in (("session", "Allow for this session"), ("always", "Always allow")):
        if word in lasting:
            options.append({"optionId": word, "name": name, "kind": "allow_always"})
            kept = {"action": "accept", "content": {}, "_meta": {"persist": word}}
            results[word] = kept
    options.append({"optionId": "decline", "name": "No", "kind": "reject_once"})
    results["decline"] = {"action": "decline"}
    call_id = item.get("id") or meta.get("call_id") or f"approval-{asked['serverName']}"
    return _permission(session_id, call_id, call, options, results, {"action": "cancel"})


def _of_server(session_id: str, asked: JsonObject, modes: JsonObject) -> AcpQuestion | None:
    """Put the question of an MCP server."""
    mode = asked["mode"]
    if mode not in ("form", "url") or modes.get(mode) is None:
        return None
    params: JsonObject = {"sessionId": session_id, "mode": mode, "message": asked["message"]}
    if mode == "form":
        params["requestedSchema"] = asked["requestedSchema"]
    else:
        params |= {"url": asked["url"], "elicitationId": asked["elicitationId"]}
    return AcpQuestion(ELICITATION_METHOD, params, refusal={"action": "cancel"})


def _about_input(session_id: str, asked: JsonObject, *, has_forms: bool) -> AcpQuestion | None:
    """Put the model's questions: as a form, or one with answers to choose as options."""
    questions: Sequence[JsonObject] = asked["questions"]
    if any(question.get("isSecret") for question in questions):
        # Forms must not ask for secrets.
        return None
    if has_forms:
        names = {f"question{number}": one for number, one in enumerate(questions, start=1)}
        schema = {
            "type": "object",
            "properties": {name: _field(one) for name, one in names.items()},
            "required": list(names),
        }
        params = {
            "sessionId": session_id,
            "toolCallId": asked["itemId"],
            "mode": "form",
            "message": "\n".join(one["question"] for one in questions),
            "requestedSchema": schema,
        }
        fields = {name: one["id"] for name, one in names.items()}
        return AcpQuestion(ELICITATION_METHOD, params, refusal={"answers": {}}, fields=fields)
    if len(questions) != 1 or not questions[0].get("options"):
        return None
    (question,) = questions
    offered = {f"option{number}": one for number, one in enumerate(question["options"], start=1)}
    options = [
        {"optionId": option_id, "name": one["label"], "kind": "allow_once"}
        for option_id, one in offered.items()
    ]
    options.append({"optionId": "skip", "name": "No answer", "kind": "reject_once"})
    results = {
        option_id: {"answers": {question["id"]: {"answers": [one["label"]]}}}
        for option_id, one in offered.items()
    }
    call: JsonObject = {"title": question["question"], "kind": "other"}
    nothing: JsonObject = {"answers": {}}
    return _permission(session_id, asked["itemId"], call, options, results, nothing)


def _field(question: JsonObject) -> JsonObject:
    labels = [option["label"] for option in question.get("options") or ()]
    about = {"title": question["header"], "description": question["question"]}
    if not labels or question.get("isOther"):
        hint = f" ({', '.join(labels)})" if labels else ""
        return {"type": "string", **about, "description": f"{question['question']}{hint}"}
    return {"type": "string", **about, "enum": labels}


def _is_approval(asked: JsonObject) -> bool:
    """Whether the user is asked about a call of a tool, and not by the server."""
    meta = asked.get("_meta")
    return isinstance(meta, dict) and meta.get("codex_approval_kind") == "mcp_tool_call"


def _permission(
    session_id: str,
    call_id: str,
    call: JsonObject,
    options: Sequence[JsonObject],
    results: Mapping[str, JsonObject],
    refusal: JsonObject,
) -> AcpQuestion:
    tool_call: dict[str, Any] = {"toolCallId": call_id, "status": "pending", **call}
    params = {"sessionId": session_id, "toolCall": tool_call, "options": list(options)}
    return AcpQuestion(PERMISSION_METHOD, params, results, refusal)
