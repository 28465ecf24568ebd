"""Calls of tools of MCP servers, and what a server may know of the turn that calls it.

Servers that confine themselves like a thread's tools are given its sandbox and its turn.
Source: docs/mcp.md, "Calls".
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic_core import to_json

from app_server.extensions.contract.turns import ToolCall
from app_server.mcp.catalog.config import LOCAL
from app_server.mcp.errors import BadArguments
from app_server.mcp.servers.requests import call_tool
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.call_contents import (
    BYTES_PER_TOKEN,
    INPUT_CAPABILITY,
    SANDBOX_CAPABILITIES,
    CallOrigin,
    blocks_of,
    bounded_result,
    failed_output,
    failure_text,
    model_output,
    request_meta,
    without_effective_input,
)
from app_server.mcp.tools.listing import read_only_hint
from app_server.mcp.tools.naming import VisibleName
from app_server.mcp.tools.table import Tool, declare
from app_server.mcp_wire.errors import McpError
from app_server.models.catalogue.models import ModelFeatures
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.permissions.sandbox.roots import SLASH_TMP
from app_server.permissions.verdict import NeedsApproval, Refuse
from app_server.tools.environments import TurnEnvironments
from app_server.turns.approval.tools import ToolRequest
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import RequestedCall, TurnTool
from protocol.log.rollout import Settings
from protocol.model import Json, JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION
from protocol.turns.items import (
    McpToolCallError,
    McpToolCallProgressNotification,
    McpToolCallResult,
    McpToolCallThreadItem,
)
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    FileSystemAccessMode,
    FileSystemPath,
    FileSystemSandboxEntry,
    GlobPatternFileSystemPath,
    PathFileSystemPath,
    ProjectRootsFileSystemSpecialPath,
    RootFileSystemSpecialPath,
    SandboxPolicy,
    SlashTmpFileSystemSpecialPath,
    SpecialFileSystemPath,
    WorkspaceWriteSandboxPolicy,
)


def turn_metadata(running: RunningTurn) -> JsonObject:
    """Describe the running turn: ids, model, how far its tools may go, and who lets them."""
    state, options = running.recorder.log.state, running.options
    turn, settings = state.turns[-1], state.in_force
    metadata: JsonObject = {
        "session_id": state.id,
        "thread_id": state.id,
        "model": settings.model,
    }
    if settings.effort is not None:
        metadata["reasoning_effort"] = settings.effort
    if options.trigger is not None:
        metadata["turn_trigger"] = options.trigger
    if options.parent_turn_id is not None:
        metadata["parent_turn_id"] = options.parent_turn_id
    if running.user_was_asked:
        metadata["user_input_requested_during_turn"] = True
    return metadata | {
        "turn_id": turn.id,
        "turn_started_at_unix_ms": turn.started_at_ms,
        "sandbox_mode": _sandbox_mode(settings.sandbox_policy),
        "auto_review_enabled": settings.approvals_reviewer != "user"
        and settings.approval_policy != "never",
        "codex_version": PROTOCOL_VERSION,
    }


def _sandbox_mode(policy: SandboxPolicy) -> str:
    match policy:
        case DangerFullAccessSandboxPolicy() | ExternalSandboxPolicy():
            return "danger-full-access"
        case WorkspaceWriteSandboxPolicy():
            return "workspace-write"
    return "read-only"


@dataclass(frozen=True, slots=True)
class SandboxMachine:
    """An environment that a sandbox state names."""

    environment_id: str
    instance_id: str | None
    cwd: str | None
    """The folder there; None: that of whatever runs processes there."""


def sandbox_state(
    settings: Settings, sandbox_policy: EffectivePolicy, place: SandboxMachine | None = None
) -> JsonObject:
    """Describe the sandbox in force: the permission profile and the folder it is for.

    Without a `place` it is that of the thread, which is not named.
    """
    state: JsonObject = {
        "permissionProfile": _profile(settings, sandbox_policy),
        "codexLinuxSandboxExe": None,
        "sandboxCwd": Path(settings.cwd).as_uri(),
        "useLegacyLandlock": False,
        "useMxc": False,
    }
    if place is not None:
        state["environmentId"] = place.environment_id
        state["environmentInstanceId"] = place.instance_id
        # A relative folder begins where only the environment knows.
        folder = PurePosixPath(place.cwd or "")
        state["sandboxCwd"] = folder.as_uri() if folder.is_absolute() else None
    return state


def _profile(settings: Settings, sandbox_policy: EffectivePolicy) -> JsonObject:
    if not sandbox_policy.is_restricted:
        if isinstance(settings.sandbox_policy, ExternalSandboxPolicy):
            return {"type": "external", "network": settings.sandbox_policy.network_access}
        return {"type": "disabled"}
    entries = _entries(sandbox_policy, settings.cwd)
    return {
        "type": "managed",
        "file_system": {
            "type": "restricted",
            "entries": [entry.model_dump(mode="json") for entry in entries],
        },
        "network": "enabled" if sandbox_policy.network else "restricted",
    }


def _entries(sandbox_policy: EffectivePolicy, cwd: str) -> Iterator[FileSystemSandboxEntry]:
    everywhere = ("/",)
    ranks: tuple[tuple[tuple[str, ...], FileSystemAccessMode], ...] = (
        (everywhere if sandbox_policy.readable is None else sandbox_policy.readable, "read"),
        (everywhere if sandbox_policy.writable is None else sandbox_policy.writable, "write"),
        (sandbox_policy.protected, "read"),
        (sandbox_policy.denied, "deny"),
    )
    for places, access in ranks:
        for place in places:
            yield FileSystemSandboxEntry(path=_named(place, cwd), access=access)
    for pattern in sandbox_policy.denied_patterns:
        path = GlobPatternFileSystemPath(pattern=pattern)
        yield FileSystemSandboxEntry(path=path, access="deny")


def _named(place: str, cwd: str) -> FileSystemPath:
    if place == "/":
        return SpecialFileSystemPath(value=RootFileSystemSpecialPath())
    if place == cwd:
        return SpecialFileSystemPath(value=ProjectRootsFileSystemSpecialPath())
    if place == SLASH_TMP:
        return SpecialFileSystemPath(value=SlashTmpFileSystemSpecialPath())
    return PathFileSystemPath(path=place)


@dataclass(frozen=True, slots=True)
class McpCalls(TurnTool):
    """The tools of a thread's MCP servers, each a function in the namespace of its server."""

    context: ThreadContext
    turn: RunningTurn
    servers: ServerSet
    environments: TurnEnvironments

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare all tools, unless they are so many that the model has to search them."""
        servers = self.servers
        if not servers.servers or servers.settings.surface == "deferred":
            return []
        return declare(servers.tools())

    def offers(self, call: RequestedCall) -> bool:
        """Whether a server has the tool, also one that the model was not shown."""
        return call.kind == "function" and self._find(call) is not None

    def may_overlap(self, call: RequestedCall) -> bool:
        """Whether the tool only reads, or its server says that its calls may overlap."""
        tool = self._find(call)
        assert tool is not None
        return tool.config.supports_parallel_calls or read_only_hint(tool.definition) is True

    async def run(self, call: RequestedCall) -> Json:
        """Ask if need be, send the call, and return what the model reads."""
        arguments = call.arguments()
        tool = self._find(call)
        assert tool is not None
        recorder, in_turns = self.turn.recorder, self.context.extensions.in_turns
        facts = ToolCall(
            recorder.log.id, recorder.turn_id, call.call_id, tool.raw.server, tool.raw.tool
        )
        shown = in_turns.present(facts)
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
        refusal = await self._refusal(
            ToolRequest(recorder.log.id, recorder.turn_id, call.call_id, tool, arguments)
        )
        if refusal is not None:
            return await self._failed(item, refusal, 0.0)
        started = time.perf_counter()
        try:
            result = await self._send(call, tool, arguments)
        except McpError as exc:
            wall_s = time.perf_counter() - started
            in_turns.call_ended(facts, "failed")
            return await self._failed(item, failure_text(tool.raw, exc), wall_s)
        wall_s = time.perf_counter() - started
        result, effective = without_effective_input(result)
        if effective is not None and self._trusts_effective_input(tool):
            item.arguments = effective
        bounded = bounded_result(result)
        failed = result.get("isError") is True
        item.status = "failed" if failed else "completed"
        item.result = McpToolCallResult(
            content=blocks_of(bounded),
            structured_content=bounded.get("structuredContent"),
            meta=bounded.get("_meta"),
        )
        item.duration_ms = round(wall_s * 1000)
        in_turns.call_ended(facts, "failed" if failed else "completed")
        await recorder.completed(item)
        return model_output(result, wall_s, self._limit_bytes(tool))

    async def _refusal(self, request: ToolRequest) -> str | None:
        """Return why a call must not run, after asking where policy wants it."""
        approvals = self.context.approvals.tools
        verdict = approvals.check(request)
        if isinstance(verdict, Refuse):
            return verdict.text
        if isinstance(verdict, NeedsApproval):
            with approvals.questions.open(approvals.question(request)) as open_question:
                decision = await open_question.decide()
            if not decision.is_allowed:
                return decision.text
            await approvals.keep(request, decision)
        return None

    def _find(self, call: RequestedCall) -> Tool | None:
        return self.servers.tools().find(VisibleName(call.namespace or "", call.name))

    async def _send(self, call: RequestedCall, tool: Tool, arguments: Json) -> JsonObject:
        recorder = self.turn.recorder
        if arguments is not None and not isinstance(arguments, dict):
            shown = to_json(arguments).decode()
            raise BadArguments(f"MCP tool arguments must be a JSON object, got {shown}")
        origin = CallOrigin(
            thread_id=recorder.log.id,
            turn_id=recorder.turn_id,
            call_id=call.call_id,
            item_id=call.item_id,
            turn_metadata=turn_metadata(self.turn),
            sandbox_state=self._sandbox_state(tool),
            plugin_id=tool.config.metadata.plugin_id,
        )
        meta = request_meta(origin, self._client_meta(tool))
        # Somebody may have been asked for long, and another server may have the thread since.
        await recorder.log.require_owned()

        rate = ProgressRate()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if message is None:
                return
            if rate.lets_one_pass():
                recorder.clients.emit(
                    McpToolCallProgressNotification(
                        thread_id=recorder.log.id,
                        turn_id=recorder.turn_id,
                        item_id=call.call_id,
                        message=shortened(message),
                    )
                )
            else:
                server = self.servers.server(tool.raw.server)
                server.record.misbehaved("sent progress of a call faster than it is passed on")

        return await call_tool(
            self.servers, tool.raw, arguments, meta, on_progress, recorder.turn_id
        )

    def _client_meta(self, tool: Tool) -> JsonObject:
        others = tool.config.metadata.client_meta_names
        names = [name for name in others if name != tool.raw.server]
        merged: JsonObject = {}
        for name in (*names, tool.raw.server):
            merged |= self.turn.options.mcp_meta.get(name, {})
        return merged

    def _trusts_effective_input(self, tool: Tool) -> bool:
        listing = self.servers.server(tool.raw.server).listing
        opted_in = listing is not None and listing.opts_into(INPUT_CAPABILITY)
        return opted_in and tool.config.metadata.trusts_effective_input

    def _sandbox_state(self, tool: Tool) -> JsonObject | None:
        listing = self.servers.server(tool.raw.server).listing
        if listing is None or not any(map(listing.opts_into, SANDBOX_CAPABILITIES)):
            return None
        settings, config = self.turn.settings, tool.config
        if config.metadata.sandbox_state_source == "primary":
            return self._state_of_first(settings)
        place = None
        if config.environment_id != LOCAL:
            instance_id = self.servers.environment_instance(config.environment_id)
            place = SandboxMachine(config.environment_id, instance_id, config.folder)
        return sandbox_state(settings, self.environments.sandbox_policy(), place)

    def _state_of_first(self, settings: Settings) -> JsonObject | None:
        """Describe the environment that tools work in when nothing names one, if there is one."""
        folder = next(iter(settings.working_folders), None)
        if folder is None:
            return None
        if folder.environment_id == LOCAL:
            place = SandboxMachine(LOCAL, self.servers.environment_instance(LOCAL), settings.cwd)
            return sandbox_state(settings, self.environments.sandbox_policy(), place)
        instance_id = self.servers.environment_instance(folder.environment_id)
        place = SandboxMachine(folder.environment_id, instance_id, folder.cwd)
        there = settings.model_copy(update={"cwd": folder.cwd})
        return sandbox_state(there, self.environments.sandbox_policy(folder), place)

    def _limit_bytes(self, tool: Tool) -> int:
        tokens = tool.config.tool_output_tokens.get(tool.raw.tool)
        return (
            self.context.settings.output_limit_bytes
            if tokens is None
            else int(tokens * BYTES_PER_TOKEN)
        )

    async def _failed(self, item: McpToolCallThreadItem, text: str, wall_s: float) -> Json:
        item.status = "failed"
        item.error = McpToolCallError(message=text)
        item.duration_ms = round(wall_s * 1000)
        await self.turn.recorder.completed(item)
        return failed_output(text, wall_s)


MAX_AT_ONCE = 64
"""Messages that pass one after the other; then there are PER_SECOND."""
PER_SECOND = 20
MAX_CHARS = 4096
"""Of one message."""


class ProgressRate:
    """The messages of one call; those above the rate are dropped, as a newer one says more."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is in seconds."""
        self._now = now
        self._left = float(MAX_AT_ONCE)
        self._looked_at = now()

    def lets_one_pass(self) -> bool:
        """Count one message that came now; False where it is to be dropped."""
        now = self._now()
        self._left = min(MAX_AT_ONCE, self._left + (now - self._looked_at) * PER_SECOND)
        self._looked_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def shortened(message: str) -> str:
    """Return a message without what is above MAX_CHARS."""
    return message if len(message) <= MAX_CHARS else f"{message[: MAX_CHARS - 1]}…"
