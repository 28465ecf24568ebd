"""From a call the model makes to the output it reads.

Whatever happens to a call, the model gets an output and the turn goes on; only cancelling and a
disk that refuses come through.
Source: docs/mcp.md, "Calls".
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import anyio.to_thread
from pydantic_core import from_json, to_json

from app_server.extension.hooks import Hooks, ToolCall
from app_server.extension.registration import ContributionContext
from app_server.mcp.catalog.config import LOCAL, ServerConfig
from app_server.mcp.connections import ServerSet, Tool
from app_server.mcp.errors import BadArguments
from app_server.mcp.tools.calls import (
    BYTES_PER_TOKEN,
    INPUT_CAPABILITY,
    SANDBOX_CAPABILITIES,
    CallOrigin,
    bounded_result,
    cut_middle,
    failed_output,
    failure_text,
    model_output,
    request_meta,
    without_effective_input,
)
from app_server.mcp.tools.declare import (
    RESOURCE_FUNCTIONS,
    SEARCH_FUNCTION,
    declare,
    declare_found,
    deferred_note,
)
from app_server.mcp.tools.listing import read_only_hint
from app_server.mcp.tools.naming import VisibleName
from app_server.mcp.tools.resources import RESOURCE_FUNCTION_NAMES, call_resource_function
from app_server.mcp.tools.search import DEFAULT_LIMIT, MAX_LIMIT, search_tools
from app_server.mcp_wire.errors import McpError
from app_server.turns.approval.approvals import FORBIDDEN, ApprovalGate, Denied, Verdict
from app_server.turns.approval.question import ApprovalRequest
from app_server.turns.model.prompt import call_output, search_output
from app_server.turns.recorder import TurnRecorder
from app_server.turns.tools.sandbox_state import Place, sandbox_state
from protocol.items import (
    McpToolCallError,
    McpToolCallProgressNotification,
    McpToolCallResult,
    McpToolCallThreadItem,
)
from protocol.model import Json, JsonObject
from protocol.turns import McpMetaByServer

WaitingOnApproval: TypeAlias = Callable[[], AbstractContextManager[None]]

UNNAMED_SERVER = "codex"
"""What items of resource functions name when the model named no server; clients know it."""


class ThreadFunctions(Protocol):
    """Functions that a thread offers its model: those of its goal."""

    def declarations(self) -> list[JsonObject]:
        """Declare those that can be called now, as the Responses API takes them."""

    def offers(self, namespace: str | None, name: str) -> bool:
        """Whether a call is for one of them."""

    async def call(self, turn_id: str, name: str, arguments: Json) -> str:
        """Make a call and return what the model reads.

        Raises:
            OSError: the disk refused.
        """


@dataclass(frozen=True, slots=True)
class TurnTools:
    """What the calls of one turn need."""

    servers: ServerSet
    approvals: ApprovalGate
    recorder: TurnRecorder
    waiting_on_approval: WaitingOnApproval
    """Shows in the thread's status, for as long as the context lasts, that the user is asked."""
    mcp_meta: McpMetaByServer
    """The client's `_meta` by server; steering replaces entries while the turn runs."""
    turn_metadata: Callable[[], JsonObject]
    output_limit_bytes: int
    hooks: Hooks = field(default_factory=Hooks)
    functions: ThreadFunctions | None = None
    """What the thread itself offers the model beside its MCP servers."""
    context: Callable[[], ContributionContext] = lambda: ContributionContext("current", {})
    """What hooks are told of the thread."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One `function_call` or `tool_search_call` item of a response."""

    call_id: str
    item_id: str | None
    namespace: str | None
    name: str
    arguments: Json
    """Text as the model wrote it; of a search perhaps an object."""
    is_search: bool = False

    @classmethod
    def of(cls, item: JsonObject, new_id: Callable[[], str]) -> "FunctionCall":
        """Read an item; members that make no sense count as absent."""

        def text(key: str) -> str | None:
            value = item.get(key)
            return value if isinstance(value, str) else None

        return cls(
            call_id=text("call_id") or new_id(),
            item_id=text("id"),
            namespace=text("namespace"),
            name=text("name") or "",
            arguments=item.get("arguments"),
            is_search=item.get("type") == "tool_search_call",
        )


class ToolRouter:
    """The calls of one turn."""

    def __init__(self, tools: TurnTools) -> None:
        self._tools = tools

    def declarations(self) -> list[JsonObject]:
        """Declare what can be called now."""
        functions = self._tools.functions
        own = [] if functions is None else functions.declarations()
        return [*own, *self._of_servers()]

    def _of_servers(self) -> list[JsonObject]:
        servers = self._tools.servers
        if not servers.servers:
            return []
        table = servers.tools()
        if servers.surface == "deferred":
            return [*RESOURCE_FUNCTIONS, *([SEARCH_FUNCTION] if table.tools else [])]
        return [*RESOURCE_FUNCTIONS, *declare(table)]

    def notes(self) -> list[str]:
        """Tell the model which tools it could search, and what extensions say of its tools."""
        servers = self._tools.servers
        table = servers.tools()
        notes = self._tools.hooks.instructions(self._tools.context(), table.raw_names)
        if servers.surface == "deferred" and table.tools:
            notes.insert(0, deferred_note(table))
        return notes

    def may_overlap(self, call: FunctionCall) -> bool:
        """Whether the call may run beside others: it only reads, or its server says so."""
        tool = self._tools.servers.tools().find(VisibleName(call.namespace or "", call.name))
        if tool is None:
            return True
        return tool.config.supports_parallel_calls or read_only_hint(tool.definition) is True

    async def answer(self, call: FunctionCall) -> JsonObject:
        """Make one call and return the item that answers it in the history.

        Raises:
            OSError: the disk refused.
        """
        try:
            arguments = _parse(call.arguments)
        except ValueError as exc:
            if call.is_search:
                return search_output(call.call_id, [])
            return call_output(call.call_id, f"err: {exc}")
        if call.is_search:
            return search_output(call.call_id, await self._search(arguments))
        return call_output(call.call_id, await self._run(call, arguments))

    async def _search(self, arguments: Json) -> list[JsonObject]:
        members = arguments if isinstance(arguments, dict) else {}
        query, limit = members.get("query"), members.get("limit")
        if not isinstance(query, str):
            return []
        wanted = limit if isinstance(limit, int | float) else DEFAULT_LIMIT
        bounded = int(max(1, min(wanted, MAX_LIMIT)))
        table = self._tools.servers.tools()
        found = await anyio.to_thread.run_sync(search_tools, table, query, bounded)
        return declare_found(table, found)

    async def _run(self, call: FunctionCall, arguments: Json) -> Json:
        if call.namespace is None and call.name in RESOURCE_FUNCTION_NAMES:
            return await self._call_resource_function(call, arguments)
        visible = VisibleName(call.namespace or "", call.name)
        tool = self._tools.servers.tools().find(visible)
        functions = self._tools.functions
        if tool is None and functions is not None and functions.offers(call.namespace, call.name):
            return await functions.call(self._tools.recorder.turn_id, call.name, arguments)
        if tool is None:
            return f"unsupported call: {call.namespace or ''}{call.name}"
        return await self._call_tool(call, tool, arguments)

    async def _call_tool(self, call: FunctionCall, tool: Tool, arguments: Json) -> Json:
        recorder, hooks = self._tools.recorder, self._tools.hooks
        facts = ToolCall(
            recorder.thread.id, recorder.turn_id, call.call_id, tool.raw.server, tool.raw.tool
        )
        shown = hooks.present(facts)
        item = McpToolCallThreadItem(
            id=call.call_id,
            server=tool.raw.server,
            tool=tool.raw.tool,
            status="inProgress",
            arguments=arguments,
            app_context=shown.app_context,
            mcp_app_resource_uri=shown.resource_uri,
            plugin_id=tool.config.metadata.plugin_id,
            read_only_hint=read_only_hint(tool.definition),
        )
        recorder.started(item)
        try:
            await self._approve(call, tool, arguments)
        except Denied as exc:
            return await self._failed(item, str(exc), 0.0)
        started = time.perf_counter()
        try:
            result = await self._send(call, tool, arguments)
        except McpError as exc:
            wall_s = time.perf_counter() - started
            hooks.call_ended(facts, "failed")
            return await self._failed(item, failure_text(tool.raw, exc), wall_s)
        wall_s = time.perf_counter() - started
        result, effective = without_effective_input(result)
        if effective is not None and self._trusts_effective_input(tool):
            item.arguments = effective
        bounded = bounded_result(result)
        failed = result.get("isError") is True
        item.status = "failed" if failed else "completed"
        item.result = McpToolCallResult(
            content=bounded.get("content") or [],
            structured_content=bounded.get("structuredContent"),
            meta=bounded.get("_meta"),
        )
        item.duration_ms = round(wall_s * 1000)
        hooks.call_ended(facts, "failed" if failed else "completed")
        await recorder.completed(item)
        return model_output(result, wall_s, self._limit_bytes(tool))

    async def _approve(self, call: FunctionCall, tool: Tool, arguments: Json) -> None:
        tools = self._tools
        thread_id, turn_id = tools.recorder.thread.id, tools.recorder.turn_id
        request = ApprovalRequest(thread_id, turn_id, call.call_id, tool, arguments)
        match tools.approvals.verdict(tool, tools.recorder.thread.state.in_force):
            case Verdict.FORBID:
                raise Denied(FORBIDDEN)
            case Verdict.REVIEW:
                await tools.approvals.review(request)
            case Verdict.ASK:
                with tools.waiting_on_approval():
                    await tools.approvals.ask(request)

    async def _send(self, call: FunctionCall, tool: Tool, arguments: Json) -> JsonObject:
        recorder = self._tools.recorder
        if arguments is not None and not isinstance(arguments, dict):
            shown = to_json(arguments).decode()
            raise BadArguments(f"MCP tool arguments must be a JSON object, got {shown}")
        origin = CallOrigin(
            thread_id=recorder.thread.id,
            turn_id=recorder.turn_id,
            call_id=call.call_id,
            item_id=call.item_id,
            turn_metadata=self._tools.turn_metadata(),
            sandbox_state=self._sandbox_state(tool),
            plugin_id=tool.config.metadata.plugin_id,
        )
        meta = request_meta(origin, self._client_meta(tool))

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if message is not None:
                recorder.emit(
                    McpToolCallProgressNotification(
                        thread_id=recorder.thread.id,
                        turn_id=recorder.turn_id,
                        item_id=call.call_id,
                        message=message,
                    )
                )

        return await self._tools.servers.call_tool(
            tool.raw, arguments, meta, on_progress, recorder.turn_id
        )

    def _client_meta(self, tool: Tool) -> JsonObject:
        others = tool.config.metadata.client_meta_names
        names = [name for name in others if name != tool.raw.server]
        merged: JsonObject = {}
        for name in (*names, tool.raw.server):
            merged |= self._tools.mcp_meta.get(name, {})
        return merged

    def _trusts_effective_input(self, tool: Tool) -> bool:
        listing = self._tools.servers.server(tool.raw.server).listing
        opted_in = listing is not None and listing.opts_into(INPUT_CAPABILITY)
        return opted_in and tool.config.metadata.trusts_effective_input

    def _sandbox_state(self, tool: Tool) -> JsonObject | None:
        listing = self._tools.servers.server(tool.raw.server).listing
        if listing is None or not any(map(listing.opts_into, SANDBOX_CAPABILITIES)):
            return None
        settings = self._tools.recorder.thread.state.in_force
        return sandbox_state(settings, self._place(tool.config, settings.cwd))

    def _place(self, config: ServerConfig, cwd: str) -> Place | None:
        """Name the environment that is described, unless it is the one that nobody chose."""
        is_primary = config.metadata.sandbox_state_source == "primary"
        if is_primary or config.environment_id != LOCAL:
            environment_id = LOCAL if is_primary else config.environment_id
            folder = cwd if is_primary else config.folder
            instance_id = self._tools.servers.instance_of(environment_id)
            return Place(environment_id, instance_id, folder)
        return None

    def _limit_bytes(self, tool: Tool) -> int:
        tokens = tool.config.tool_output_tokens.get(tool.raw.tool)
        return self._tools.output_limit_bytes if tokens is None else int(tokens * BYTES_PER_TOKEN)

    async def _failed(self, item: McpToolCallThreadItem, text: str, wall_s: float) -> Json:
        item.status = "failed"
        item.error = McpToolCallError(message=text)
        item.duration_ms = round(wall_s * 1000)
        await self._tools.recorder.completed(item)
        return failed_output(text, wall_s)

    async def _call_resource_function(self, call: FunctionCall, arguments: Json) -> Json:
        named = arguments.get("server") if isinstance(arguments, dict) else None
        item = McpToolCallThreadItem(
            id=call.call_id,
            server=named if isinstance(named, str) else UNNAMED_SERVER,
            tool=call.name,
            status="inProgress",
            arguments=arguments,
        )
        recorder = self._tools.recorder
        recorder.started(item)
        started = time.perf_counter()
        try:
            text = await call_resource_function(self._tools.servers, call.name, arguments)
            content = {"content": [{"type": "text", "text": text}]}
            item.status = "completed"
            item.result = McpToolCallResult(content=bounded_result(content)["content"])
        except McpError as exc:
            text = f"resources/{call.name} failed: {exc}"
            item.status = "failed"
            item.error = McpToolCallError(message=text)
        item.duration_ms = round((time.perf_counter() - started) * 1000)
        await recorder.completed(item)
        return cut_middle(text, self._tools.output_limit_bytes)


def _parse(arguments: Json) -> Json:
    """Read a call's arguments: text with JSON in it, or JSON; nothing is None."""
    if not isinstance(arguments, str):
        return arguments
    return from_json(arguments) if arguments.strip() else None
