"""Tools that a client declares for a thread and runs itself: their names and schemas, their calls.

Source: docs/tools.md, "Tools of clients".
"""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from app_server.mcp.tools.search import spaced
from app_server.models.catalogue.models import ModelFeatures
from app_server.runtime.cut_text import cut_middle
from app_server.tools.mcp.resources import RESOURCE_FUNCTION_NAMES
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import BadCall, RequestedCall, TurnTool
from protocol.model import Json, JsonObject
from protocol.threads.start import (
    DynamicToolSpec,
    FunctionDynamicToolNamespaceTool,
    FunctionDynamicToolSpec,
)
from protocol.turns.approvals import DynamicToolCallParams, DynamicToolCallResponse
from protocol.turns.items import (
    DynamicToolCallOutputContentItem,
    DynamicToolCallThreadItem,
    InputAudioDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)

MAX_TOOLS = 512
MAX_BYTES = 256 * 1024
"""Of everything that a thread's clients declare, as JSON."""
MAX_NAME_CHARS = 128
MAX_NAMESPACE_CHARS = 64

OWN_NAMES = frozenset(
    {
        "apply_patch",
        "create_goal",
        "exec_command",
        "get_goal",
        "request_permissions",
        "request_user_input",
        "tool_search",
        "update_goal",
        "update_plan",
        "view_image",
        "wait_until",
        "web_search",
        "write_stdin",
        *RESOURCE_FUNCTION_NAMES,
    }
)
"""Functions of the server itself, which no tool of a client may replace."""
RESERVED_NAMESPACES = frozenset({"functions", "multi_tool_use", "web"})
"""Of the Responses API."""
MCP_PREFIX = "mcp__"

_NAME = re.compile(r"[a-zA-Z0-9_-]+")


class BadSpec(Exception):
    """A tool that cannot be declared: which member, and the rule that it breaks."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


@dataclass(frozen=True, slots=True)
class DynamicTool:
    """One tool of a client."""

    namespace: str | None
    name: str
    description: str
    parameters: JsonObject
    is_deferred: bool

    @property
    def text(self) -> str:
        """Text that a search looks through: names and description."""
        return spaced(self.namespace or "", self.name, self.description)

    def declare(self) -> JsonObject:
        """Declare the function, as the Responses API takes it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "strict": False,
            "parameters": self.parameters,
        }


class DynamicTools:
    """The tools of one thread's clients."""

    def __init__(self, specs: Sequence[JsonObject] = ()) -> None:
        """Take what `checked_specs` returned."""
        self._namespaces = {spec["name"]: spec for spec in specs if spec["type"] == "namespace"}
        self._tools = {(tool.namespace, tool.name): tool for tool in _tools(specs)}
        self.deferred = [tool for tool in self._tools.values() if tool.is_deferred]
        """Tools that a model must search for."""

    def find(self, namespace: str | None, name: str) -> DynamicTool | None:
        """Return a tool, declared or deferred."""
        return self._tools.get((namespace, name))

    def declarations(self) -> list[JsonObject]:
        """Declare all that are not deferred: functions first, then namespaces."""
        shown = [tool for tool in self._tools.values() if not tool.is_deferred]
        return [
            *(tool.declare() for tool in shown if tool.namespace is None),
            *self._grouped([tool for tool in shown if tool.namespace is not None], {}),
        ]

    def declare_found(self, found: Sequence[DynamicTool]) -> list[JsonObject]:
        """Declare deferred tools that a search found."""
        return list(self._grouped(found, {"defer_loading": True}))

    def deferred_lines(self) -> list[str]:
        """Describe the namespaces with deferred tools, a line each."""
        names = dict.fromkeys(tool.namespace for tool in self.deferred)
        return [
            f"- {name}: {(self._namespaces[name]['description'].splitlines() or [''])[0]}"
            for name in names
            if name is not None
        ]

    def _grouped(self, tools: Sequence[DynamicTool], marks: JsonObject) -> Iterator[JsonObject]:
        for name, spec in self._namespaces.items():
            members = [tool.declare() | marks for tool in tools if tool.namespace == name]
            if members:
                yield {
                    "type": "namespace",
                    "name": name,
                    "description": spec["description"],
                    "tools": members,
                }


def checked_specs(specs: Sequence[DynamicToolSpec]) -> list[JsonObject]:
    """Check what a client declares, and return it as it is stored.

    Raises:
        BadSpec: it names the first member that breaks a rule.
    """
    field = "dynamicTools"
    names: set[tuple[str | None, str]] = set()
    namespaces: set[str] = set()
    count = 0
    for index, spec in enumerate(specs):
        place = f"{field}[{index}]"
        if isinstance(spec, FunctionDynamicToolSpec):
            _check_tool(spec, None, place, names)
            if spec.defer_loading:
                raise BadSpec(f"{place}.deferLoading", "a tool that is deferred needs a namespace")
            count += 1
            continue
        _check_namespace(spec.name, place, namespaces)
        if not spec.tools:
            raise BadSpec(f"{place}.tools", "must not be empty")
        for number, tool in enumerate(spec.tools):
            _check_tool(tool, spec.name, f"{place}.tools[{number}]", names)
        count += len(spec.tools)
    if count > MAX_TOOLS:
        raise BadSpec(field, f"has more than {MAX_TOOLS} tools")
    stored = [spec.model_dump(mode="json", by_alias=True) for spec in specs]
    if len(to_json(stored)) > MAX_BYTES:
        raise BadSpec(field, f"has more than {MAX_BYTES} bytes")
    return stored


def _check_namespace(name: str, place: str, taken: set[str]) -> None:
    field = f"{place}.name"
    _check_name(name, field, MAX_NAMESPACE_CHARS)
    if name in RESERVED_NAMESPACES:
        raise BadSpec(field, f"`{name}` is reserved")
    if name in taken:
        raise BadSpec(field, f"`{name}` is there twice")
    taken.add(name)


def _check_tool(
    tool: FunctionDynamicToolSpec | FunctionDynamicToolNamespaceTool,
    namespace: str | None,
    place: str,
    taken: set[tuple[str | None, str]],
) -> None:
    field = f"{place}.name"
    _check_name(tool.name, field, MAX_NAME_CHARS)
    if namespace is None and tool.name in OWN_NAMES:
        raise BadSpec(field, f"`{tool.name}` is a tool of this server")
    if (namespace, tool.name) in taken:
        raise BadSpec(field, f"`{tool.name}` is there twice")
    taken.add((namespace, tool.name))
    _check_schema(tool.input_schema, f"{place}.inputSchema")


def _check_name(name: str, field: str, max_chars: int) -> None:
    if not name:
        raise BadSpec(field, "must not be empty")
    if len(name) > max_chars:
        raise BadSpec(field, f"has more than {max_chars} characters")
    if not _NAME.fullmatch(name):
        raise BadSpec(field, "may have letters, digits, `_` and `-` alone")
    if name.startswith(MCP_PREFIX):
        raise BadSpec(field, f"names that begin with `{MCP_PREFIX}` are reserved")


def _check_schema(schema: Json, field: str) -> None:
    if not isinstance(schema, dict):
        raise BadSpec(field, "must be an object")
    if schema.get("type", "object") != "object":
        raise BadSpec(f"{field}.type", "must be `object`: arguments have names")
    if not isinstance(schema.get("properties", {}), dict):
        raise BadSpec(f"{field}.properties", "must be an object")


def _tools(specs: Sequence[JsonObject]) -> Iterator[DynamicTool]:
    for spec in specs:
        if spec["type"] == "namespace":
            yield from (_tool(tool, spec["name"]) for tool in spec["tools"])
        else:
            yield _tool(spec, None)


def _tool(spec: dict[str, Any], namespace: str | None) -> DynamicTool:
    schema = spec["inputSchema"]
    return DynamicTool(
        namespace=namespace,
        name=spec["name"],
        description=spec["description"],
        parameters={"type": "object", "properties": {}} | schema,
        is_deferred=spec["deferLoading"],
    )


METHOD = "item/tool/call"
FAILED = "the client that offers this tool refused the call, or its answer makes no sense"
NOBODY = "no client is connected that could run this tool"
MAX_CONTENT_BYTES = 512 * 1024
"""Of what a call returned, as clients are shown it and the log has it."""
LEFT_OUT = "[left out: it is larger than what a call may return]"


@dataclass(frozen=True, slots=True)
class ClientTools(TurnTool):
    """The tools of clients, in one turn."""

    context: ThreadContext
    turn: RunningTurn
    tools: DynamicTools

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare what is not deferred."""
        return self.tools.declarations()

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is one of the tools, deferred ones too."""
        found = self.tools.find(call.namespace, call.name)
        return call.kind == "function" and found is not None

    # Calls do not overlap: what a client's tool does is not known.

    async def run(self, call: RequestedCall) -> Json:
        """Have a client run it, and wait without limit; returns what the client gave.

        Raises:
            BadCall: the arguments are no JSON.
            OSError: the log cannot be written.
        """
        try:
            arguments = call.arguments()
        except BadCall as exc:
            raise BadCall(f"failed to parse function arguments: {exc}") from exc
        recorder = self.turn.recorder
        item = DynamicToolCallThreadItem(
            id=call.call_id,
            namespace=call.namespace,
            tool=call.name,
            arguments=arguments,
            status="inProgress",
        )
        recorder.started(item)
        started = time.perf_counter()
        answer = await self._ask(call, arguments)
        item.status = "completed" if answer.success else "failed"
        item.content_items = bounded_content(answer.content_items)
        item.success = answer.success
        item.duration_ms = round((time.perf_counter() - started) * 1000)
        await recorder.completed(item)
        return _output(item.content_items, self.context.settings.output_limit_bytes)

    async def _ask(self, call: RequestedCall, arguments: Json) -> DynamicToolCallResponse:
        turn = self.turn
        params = DynamicToolCallParams(
            thread_id=self.context.log.id,
            turn_id=turn.id,
            call_id=call.call_id,
            namespace=call.namespace,
            tool=call.name,
            arguments=arguments,
        )
        if not self.context.clients.can_ask(METHOD, params):
            return _failure(NOBODY)
        answer, _ = await self.context.clients.ask(METHOD, params)
        return answer if isinstance(answer, DynamicToolCallResponse) else _failure(FAILED)


def _failure(text: str) -> DynamicToolCallResponse:
    part = InputTextDynamicToolCallOutputContentItem(text=text)
    return DynamicToolCallResponse(content_items=[part], success=False)


def bounded_content(
    parts: Sequence[DynamicToolCallOutputContentItem],
) -> list[DynamicToolCallOutputContentItem]:
    """Return parts that fit into a message to a client: texts are cut, media left out."""
    if len(to_json([part.model_dump(mode="json") for part in parts])) <= MAX_CONTENT_BYTES:
        return list(parts)
    left = MAX_CONTENT_BYTES
    fitting: list[DynamicToolCallOutputContentItem] = []
    for part in parts:
        # A text may take twice its bytes as JSON.
        if isinstance(part, InputTextDynamicToolCallOutputContentItem):
            kept: DynamicToolCallOutputContentItem = InputTextDynamicToolCallOutputContentItem(
                text=cut_middle(part.text, left // 2)
            )
        else:
            kept = part
        size = len(kept.model_dump_json())
        if size > left:
            fitting.append(InputTextDynamicToolCallOutputContentItem(text=LEFT_OUT))
            continue
        left -= size
        fitting.append(kept)
    return fitting


def _output(parts: Sequence[DynamicToolCallOutputContentItem], limit_bytes: int) -> Json:
    """Make what the model reads: a text if there is nothing else, or a list of parts."""
    content: list[Json] = []
    for part in parts:
        match part:
            case InputTextDynamicToolCallOutputContentItem():
                text = cut_middle(part.text, limit_bytes)
                limit_bytes = max(0, limit_bytes - len(text.encode()))
                content.append({"type": "input_text", "text": text})
            case InputImageDynamicToolCallOutputContentItem():
                content.append({"type": "input_image", "image_url": part.image_url})
            case InputAudioDynamicToolCallOutputContentItem():
                content.append({"type": "input_audio", "audio_url": part.audio_url})
    match content:
        case [{"type": "input_text", "text": text}]:
            return text
    return content
