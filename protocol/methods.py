"""The closed set of messages: every method we answer, every message we send.

A method that is not in METHODS does not exist here and is answered with -32601.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from protocol import account, apps, config, items, lifecycle, mcp, threads, turns
from protocol.model import WireModel


class Access(Enum):
    """How a request orders itself against others of its connection.

    Requests with one `threadId` form a lane. Everything outside a lane may overtake.
    """

    EXCLUSIVE = "exclusive"
    """Alone in its thread's lane, after all that came before."""
    SHARED = "shared"
    """In its thread's lane, beside other shared requests."""
    FREE = "free"
    """In no lane: it must not wait for others, or others for it."""
    BARRIER = "barrier"
    """Answered before the next message of the connection is read."""


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One method: shapes, order, and whether it needs the experimental opt-in."""

    params: type[WireModel]
    result: type[WireModel]
    access: Access = Access.FREE
    experimental: bool = False


_EXCLUSIVE, _SHARED = Access.EXCLUSIVE, Access.SHARED

METHODS: Mapping[str, MethodSpec] = {
    "initialize": MethodSpec(
        lifecycle.InitializeParams, lifecycle.InitializeResponse, Access.BARRIER
    ),
    "thread/start": MethodSpec(threads.ThreadStartParams, threads.ThreadStartResponse),
    "thread/resume": MethodSpec(
        threads.ThreadResumeParams, threads.ThreadResumeResponse, _EXCLUSIVE
    ),
    "thread/read": MethodSpec(threads.ThreadReadParams, threads.ThreadReadResponse, _SHARED),
    "thread/list": MethodSpec(threads.ThreadListParams, threads.ThreadListResponse),
    "thread/loaded/list": MethodSpec(
        threads.ThreadLoadedListParams, threads.ThreadLoadedListResponse
    ),
    "thread/unsubscribe": MethodSpec(
        threads.ThreadUnsubscribeParams, threads.ThreadUnsubscribeResponse, _EXCLUSIVE
    ),
    "thread/name/set": MethodSpec(
        threads.ThreadSetNameParams, threads.ThreadSetNameResponse, _EXCLUSIVE
    ),
    "thread/archive": MethodSpec(
        threads.ThreadArchiveParams, threads.ThreadArchiveResponse, _EXCLUSIVE
    ),
    "thread/unarchive": MethodSpec(
        threads.ThreadUnarchiveParams, threads.ThreadUnarchiveResponse, _EXCLUSIVE
    ),
    "thread/inject_items": MethodSpec(
        threads.ThreadInjectItemsParams, threads.ThreadInjectItemsResponse, _EXCLUSIVE
    ),
    "turn/start": MethodSpec(turns.TurnStartParams, turns.TurnStartResponse, _EXCLUSIVE),
    "turn/steer": MethodSpec(turns.TurnSteerParams, turns.TurnSteerResponse, _EXCLUSIVE),
    "turn/interrupt": MethodSpec(
        turns.TurnInterruptParams, turns.TurnInterruptResponse, _EXCLUSIVE
    ),
    # A slow MCP server must not hold up the thread's lane.
    "mcpServerStatus/list": MethodSpec(
        mcp.ListMcpServerStatusParams, mcp.ListMcpServerStatusResponse
    ),
    "mcpServer/tool/call": MethodSpec(mcp.McpServerToolCallParams, mcp.McpServerToolCallResponse),
    "mcpServer/resource/read": MethodSpec(mcp.McpResourceReadParams, mcp.McpResourceReadResponse),
    "account/read": MethodSpec(account.GetAccountParams, account.GetAccountResponse),
    "config/read": MethodSpec(config.ConfigReadParams, config.ConfigReadResponse),
    "configRequirements/read": MethodSpec(
        config.ConfigRequirementsReadParams, config.ConfigRequirementsReadResponse
    ),
    "model/list": MethodSpec(config.ModelListParams, config.ModelListResponse),
    "skills/list": MethodSpec(apps.SkillsListParams, apps.SkillsListResponse),
}

CLIENT_NOTIFICATIONS = frozenset({"initialized"})

NOTIFICATIONS: Mapping[str, type[WireModel]] = {
    "configWarning": lifecycle.ConfigWarningNotification,
    "error": turns.ErrorNotification,
    "item/agentMessage/delta": items.AgentMessageDeltaNotification,
    "item/completed": items.ItemCompletedNotification,
    "item/mcpToolCall/progress": items.McpToolCallProgressNotification,
    "item/reasoning/summaryPartAdded": items.ReasoningSummaryPartAddedNotification,
    "item/reasoning/summaryTextDelta": items.ReasoningSummaryTextDeltaNotification,
    "item/reasoning/textDelta": items.ReasoningTextDeltaNotification,
    "item/started": items.ItemStartedNotification,
    "mcpServer/startupStatus/updated": mcp.McpServerStatusUpdatedNotification,
    "serverRequest/resolved": threads.ServerRequestResolvedNotification,
    "thread/archived": threads.ThreadArchivedNotification,
    "thread/closed": threads.ThreadClosedNotification,
    "thread/name/updated": threads.ThreadNameUpdatedNotification,
    "thread/settings/updated": threads.ThreadSettingsUpdatedNotification,
    "thread/started": threads.ThreadStartedNotification,
    "thread/status/changed": threads.ThreadStatusChangedNotification,
    "thread/tokenUsage/updated": turns.ThreadTokenUsageUpdatedNotification,
    "thread/unarchived": threads.ThreadUnarchivedNotification,
    "turn/completed": turns.TurnCompletedNotification,
    "turn/started": turns.TurnStartedNotification,
    "warning": lifecycle.WarningNotification,
}

METHOD_OF: Mapping[type[WireModel], str] = {
    params: method for method, params in NOTIFICATIONS.items()
}
"""The method that carries a notification's params."""


@dataclass(frozen=True, slots=True)
class ServerRequestSpec:
    """A request that we send to clients."""

    params: type[WireModel]
    result: type[WireModel]


SERVER_REQUESTS: Mapping[str, ServerRequestSpec] = {
    "mcpServer/elicitation/request": ServerRequestSpec(
        mcp.McpServerElicitationRequestParams, mcp.McpServerElicitationRequestResponse
    ),
}
