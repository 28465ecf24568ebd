"""From methods of the older interface to methods of today, and from their results back. No I/O.

Source: docs/older_interface.md; openai/codex, codex-rs/app-server-protocol (`protocol/v1.rs`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, TypeAlias

from app_server.rpc.older_interface.events import messages_of
from protocol.jsonrpc.errors import invalid_member
from protocol.model import Json, JsonObject

Params: TypeAlias = Mapping[str, Any]

PAGE_SIZE = "pageSize"
"""Member for the number of entries of a page; today's wire says `limit`."""

TODAYS = frozenset({"model/list"})
"""Translated methods whose names are those of today's wire."""

_ID_AT_END = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")

EXTERNAL = "external-sandbox"

_MODES = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
    EXTERNAL: "externalSandbox",
}


@dataclass(frozen=True, slots=True)
class Translated:
    """A request of today, and what its result means in the older interface."""

    method: str
    params: JsonObject
    result: Callable[[Any], JsonObject]
    first_sandbox: Json = None
    """The sandbox policy of a conversation, if it has to go with its first turn."""


def translate(method: str, params: Params) -> Translated:
    """Translate one request.

    Raises:
        RpcError: a member is missing or makes no sense; the error names it.
    """
    return TRANSLATIONS[method](params)


def _new_conversation(params: Params) -> Translated:
    return Translated("thread/start", _thread(params), _started, _first_sandbox(params))


def _resume(params: Params) -> Translated:
    if params.get("history") is not None:
        raise invalid_member("history", "is not taken; give `conversationId` or `path`")
    overrides = params.get("overrides") or {}
    if not isinstance(overrides, dict):
        raise invalid_member("overrides", "must be an object")
    thread_id = params.get("conversationId") or _id_of(params.get("path"))
    request = {"threadId": thread_id, **_thread(overrides)}
    return Translated(
        "thread/resume",
        request,
        lambda result: _started(result, resumed=True),
        _first_sandbox(overrides),
    )


def _id_of(path: Any) -> str:
    """Return the id that the name of a rollout file ends with."""
    found = _ID_AT_END.search(PurePath(path).stem) if isinstance(path, str) else None
    if found is None:
        raise invalid_member("path", "names no conversation; give `conversationId`")
    return found[0]


_TOOLS = {"includeApplyPatchTool": "apply_patch", "includePlanTool": "update_plan"}


def _thread(params: Params) -> JsonObject:
    config = dict(params.get("config") or {})
    if params.get("compactPrompt") is not None:
        config["compact_prompt"] = params["compactPrompt"]
    for member, tool in _TOOLS.items():
        if params.get(member) is not None:
            config[f"tools.{tool}.enabled"] = params[member]
    return _given(
        params,
        *("model", "modelProvider", "cwd", "baseInstructions", "developerInstructions", "profile"),
        approvalPolicy=_approval_policy(params),
        sandbox=None if _first_sandbox(params) is not None else params.get("sandbox"),
        config=config or None,
    )


def _given(params: Params, *names: str, **translated: Json) -> JsonObject:
    """Copy members of a request, together with translated ones; leave out nulls."""
    members = {**{name: params.get(name) for name in names}, **translated}
    return {name: value for name, value in members.items() if value is not None}


def _approval_policy(params: Params) -> Json:
    policy = params.get("approvalPolicy")
    # What the older policy asked about, today's asks about before it is tried.
    return "on-request" if policy == "on-failure" else policy


def _first_sandbox(params: Params) -> Json:
    """Return the policy of a conversation that asks for an external sandbox.

    A thread of today has no such mode, but a turn has such a policy.
    """
    return sandbox_policy({"mode": EXTERNAL}) if params.get("sandbox") == EXTERNAL else None


def _started(result: Any, *, resumed: bool = False) -> JsonObject:
    thread = result["thread"]
    answer: JsonObject = {
        "conversationId": thread["id"],
        "model": result["model"],
        "rolloutPath": thread.get("path"),
    }
    if result.get("reasoningEffort") is not None:
        answer["reasoningEffort"] = result["reasoningEffort"]
    if resumed:
        answer["initialMessages"] = messages_of(thread.get("turns") or [])
    return answer


def _send_message(params: Params) -> Translated:
    return Translated("turn/start", _turn(params), _nothing)


def _send_turn(params: Params) -> Translated:
    chosen = _given(
        params,
        *("cwd", "model", "effort", "summary", "personality", "outputSchema"),
        approvalPolicy=_approval_policy(params),
        sandboxPolicy=sandbox_policy(params.get("sandboxPolicy")),
    )
    return Translated("turn/start", {**_turn(params), **chosen}, _nothing)


def _turn(params: Params) -> JsonObject:
    items = params.get("items")
    if not isinstance(items, list):
        raise invalid_member("items", "must be a list")
    return {"threadId": _conversation(params), "input": [_item(item) for item in items]}


def _item(item: Any) -> Json:
    """Take the members of an input item out of its `data`, where the older interface has them."""
    if not isinstance(item, dict):
        raise invalid_member("items", "must hold objects")
    data = item.get("data")
    members = data if isinstance(data, dict) else item
    match item.get("type"):
        case "text":
            return {"type": "text", "text": members.get("text")}
        case "image":
            return {"type": "image", "url": members.get("imageUrl", members.get("url"))}
        case "localImage":
            return {"type": "localImage", "path": members.get("path")}
    raise invalid_member(
        "items", f"must be of type text, image or localImage, not {item.get('type')!r}"
    )


def sandbox_policy(policy: Any) -> Json:
    """Write a sandbox policy as today's wire has it; what is written so already stays."""
    if policy is None or not isinstance(policy, dict):
        return policy
    mode = policy.get("mode", policy.get("type"))
    members = {
        re.sub("_([a-z])", lambda found: found[1].upper(), name): value
        for name, value in policy.items()
        if name not in ("mode", "type")
    }
    return {"type": _MODES.get(str(mode), mode), **members}


def _interrupt(params: Params) -> Translated:
    request = {"threadId": _conversation(params), "turnId": ""}
    return Translated("turn/interrupt", request, lambda result: {"abortReason": "interrupted"})


def _list(params: Params) -> Translated:
    request = _given(params, "cursor", "modelProviders", limit=params.get(PAGE_SIZE))

    def result(page: Any) -> JsonObject:
        items = [_summary(thread) for thread in page["data"]]
        return {"items": items, "nextCursor": page.get("nextCursor")}

    return Translated("thread/list", request, result)


def _summary(thread: JsonObject) -> JsonObject:
    same = ("preview", "modelProvider", "cwd", "cliVersion", "source")
    return {
        "conversationId": thread["id"],
        "path": thread.get("path"),
        "timestamp": datetime.fromtimestamp(thread["createdAt"], UTC).isoformat(),
        "gitInfo": thread.get("gitInfo"),
        **{name: thread[name] for name in same},
    }


def _models(params: Params) -> Translated:
    members = {name: value for name, value in params.items() if name != PAGE_SIZE}
    if params.get(PAGE_SIZE) is not None:
        members["limit"] = params[PAGE_SIZE]
    return Translated("model/list", members, lambda page: {**page, "items": page["data"]})


def _archive(params: Params) -> Translated:
    return Translated("thread/archive", {"threadId": _conversation(params)}, _nothing)


_SAVED = {
    "approvalPolicy": "approval_policy",
    "sandboxMode": "sandbox_mode",
    "sandboxSettings": "sandbox_workspace_write",
    "model": "model",
    "modelReasoningEffort": "model_reasoning_effort",
    "modelReasoningSummary": "model_reasoning_summary",
    "modelVerbosity": "model_verbosity",
}


def _saved_config(params: Params) -> Translated:
    def result(answer: Any) -> JsonObject:
        shown = {name: answer["config"].get(key) for name, key in _SAVED.items()}
        return {"config": {**shown, "tools": None, "profile": None, "profiles": {}}}

    return Translated("config/read", {}, result)


def _default_model(params: Params) -> Translated:
    edits = [
        {"keyPath": key, "value": params.get(name), "mergeStrategy": "replace"}
        for key, name in (("model", "model"), ("model_reasoning_effort", "reasoningEffort"))
    ]
    return Translated("config/batchWrite", {"edits": edits}, _nothing)


def _user_info(params: Params) -> Translated:
    def result(answer: Any) -> JsonObject:
        account = answer.get("account") or {}
        return {"allegedUserEmail": account.get("email")}

    return Translated("account/read", {}, result)


def _execute(params: Params) -> Translated:
    policy = sandbox_policy(params.get("sandboxPolicy"))
    request = _given(params, "command", "timeoutMs", "cwd", sandboxPolicy=policy)
    return Translated("command/exec", request, dict)


def _conversation(params: Params) -> str:
    conversation_id = params.get("conversationId")
    if not isinstance(conversation_id, str):
        raise invalid_member("conversationId", "must be a string")
    return conversation_id


def _nothing(result: Any) -> JsonObject:
    return {}


TRANSLATIONS: Mapping[str, Callable[[Params], Translated]] = {
    "newConversation": _new_conversation,
    "resumeConversation": _resume,
    "sendUserMessage": _send_message,
    "sendUserTurn": _send_turn,
    "interruptConversation": _interrupt,
    "listConversations": _list,
    "archiveConversation": _archive,
    "model/list": _models,
    "getUserSavedConfig": _saved_config,
    "setDefaultModel": _default_model,
    "userInfo": _user_info,
    "execOneOffCommand": _execute,
}
"""By method; `stream.py` answers the others of the older interface by itself."""
