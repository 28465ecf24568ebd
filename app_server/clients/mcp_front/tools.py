"""The two tools: arguments, results, and their requests to the app-server. No I/O.

Source: docs/mcp_server.md, "Tools".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.model import Json, JsonObject

CODEX = "codex"
REPLY = "codex-reply"


ApprovalPolicy: TypeAlias = Literal["untrusted", "on-failure", "on-request", "never"]
Sandbox: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]


class BadToolCall(Exception):
    """A call that makes no sense; the text is for the caller."""


class CodexArguments(BaseModel):
    """Arguments of `codex`."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "-"), extra="forbid", strict=True
    )

    prompt: str
    model: str | None = None
    cwd: str | None = None
    approval_policy: ApprovalPolicy | None = None
    sandbox: Sandbox | None = None
    config: dict[str, Json] | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    compact_prompt: str | None = None
    profile: str | None = None
    include_plan_tool: bool | None = None
    include_apply_patch_tool: bool | None = None

    def thread_params(self) -> JsonObject:
        """Return the params of `thread/start`."""
        config = dict(self.config or {})
        if self.compact_prompt is not None:
            config["compact_prompt"] = self.compact_prompt
        if self.include_plan_tool is not None:
            config["tools.update_plan.enabled"] = self.include_plan_tool
        if self.include_apply_patch_tool is not None:
            config["tools.apply_patch.enabled"] = self.include_apply_patch_tool
        # The app-server has no word for it: nearest to it is to ask when asked to.
        policy = "on-request" if self.approval_policy == "on-failure" else self.approval_policy
        params: JsonObject = {
            "model": self.model,
            "cwd": self.cwd,
            "approvalPolicy": policy,
            "sandbox": self.sandbox,
            "config": config or None,
            "baseInstructions": self.base_instructions,
            "developerInstructions": self.developer_instructions,
            "profile": self.profile,
        }
        return {name: value for name, value in params.items() if value is not None}


class ReplyArguments(BaseModel):
    """Arguments of `codex-reply`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str
    thread_id: str | None = Field(default=None, alias="threadId")
    conversation_id: str | None = Field(default=None, alias="conversationId")
    """Outdated name of `threadId`."""

    def thread(self) -> str:
        """Return the thread that is meant.

        Raises:
            BadToolCall: none is.
        """
        chosen = self.thread_id or self.conversation_id
        if chosen is None:
            raise BadToolCall(_CANNOT_PARSE + "threadId: Field required")
        return chosen


_CANNOT_PARSE = "Failed to parse configuration for Codex tool: "


def parse_call(name: Json, arguments: Json) -> CodexArguments | ReplyArguments:
    """Read the name and the arguments of a call.

    Raises:
        BadToolCall: no such tool, or arguments that do not fit its schema.
    """
    types: Mapping[Json, type[CodexArguments | ReplyArguments]] = {
        CODEX: CodexArguments,
        REPLY: ReplyArguments,
    }
    if not isinstance(name, str) or name not in types:
        raise BadToolCall(f"Unknown tool '{name}'")
    try:
        return types[name].model_validate({} if arguments is None else arguments)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "arguments"
        raise BadToolCall(f"{_CANNOT_PARSE}{place}: {first['msg']}") from None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a call."""

    text: str
    thread_id: str | None = None
    is_error: bool = False

    def to_wire(self) -> JsonObject:
        """Render as the result of `tools/call`."""
        result: JsonObject = {"content": [{"type": "text", "text": self.text}]}
        if self.thread_id is not None:
            result["structuredContent"] = {"threadId": self.thread_id, "content": self.text}
        return {**result, "isError": True} if self.is_error else result


def _text(description: str, **more: Json) -> JsonObject:
    return {"type": "string", "description": description, **more}


def _flag(description: str) -> JsonObject:
    return {"type": "boolean", "description": description}


_OUTPUT: JsonObject = {
    "type": "object",
    "properties": {"threadId": {"type": "string"}, "content": {"type": "string"}},
    "required": ["threadId", "content"],
}

TOOLS: list[JsonObject] = [
    {
        "name": CODEX,
        "title": "Codex",
        "description": "Start a thread and run its first turn. Settings that are left out are "
        "those of config.toml.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "prompt": _text("What the first turn is told."),
                "model": _text("The model to use."),
                "cwd": _text("The thread's folder; relative ones count from the server's."),
                "approval-policy": _text("When the user is asked.", enum=get_args(ApprovalPolicy)),
                "sandbox": _text("What may be written.", enum=get_args(Sandbox)),
                "config": {
                    "type": "object",
                    "additionalProperties": True,
                    "description": "Overrides of config.toml for this thread.",
                },
                "base-instructions": _text("Instructions in place of the built-in ones."),
                "developer-instructions": _text("Instructions beside them."),
                "compact-prompt": _text("What the model is told when it sums a thread up."),
                "profile": _text("Settings of NAME.config.toml, over those of config.toml."),
                "include-plan-tool": _flag("Whether the model may show a plan; default: true."),
                "include-apply-patch-tool": _flag(
                    "Whether the model has a tool for patches; default: true."
                ),
            },
            "required": ["prompt"],
            "additionalProperties": False,
        },
        "outputSchema": _OUTPUT,
    },
    {
        "name": REPLY,
        "title": "Codex Reply",
        "description": "Run another turn of a thread, also of one from an earlier process.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "prompt": _text("What the turn is told."),
                "threadId": _text("The thread, as `codex` returned it."),
                "conversationId": _text("Outdated: use threadId.", deprecated=True),
            },
            "required": ["prompt"],
            "additionalProperties": False,
        },
        "outputSchema": _OUTPUT,
    },
]
