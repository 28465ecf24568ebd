"""The closed set of messages: every method we answer, every message we send.

A row names the area (a module of `protocol`), the stem of its types and its order:
`method("turns.turn", "TurnStart", THREAD)` takes `protocol.turns.turn.TurnStartParams`, is answered
with `TurnStartResponse`, and keeps its place among requests about the same thread. `trial` rows
need the experimental opt-in; `ours` rows do too, and the reference does not have them.
Source: docs/wire.md, "Methods".
"""

from collections.abc import Mapping

from protocol.contract.specs import (
    ACCOUNT,
    ACCOUNT_READ,
    BARRIER,
    COMMAND,
    CONFIG,
    CONFIG_READ,
    ENVIRONMENT,
    ENVIRONMENT_READ,
    FREE,
    MCP_LOGIN,
    NOTHING,
    OBJECT_OR_NULL,
    PROCESS,
    PROJECTS,
    PROJECTS_READ,
    SEARCH,
    SECTIONS,
    SECTIONS_READ,
    SIGNALS,
    THREAD,
    THREAD_READ,
    WATCH,
    MethodSpec,
    NotificationSpec,
    method,
    ours,
    trial,
)

METHODS: Mapping[str, MethodSpec] = {
    "account/login/cancel": method("server.account", "CancelLoginAccount", ACCOUNT),
    "account/login/start": method("server.account", "LoginAccount", ACCOUNT),
    "account/logout": method("server.account", "LogoutAccount", ACCOUNT, takes=NOTHING),
    "account/rateLimits/read": method(
        "server.account", "GetAccountRateLimits", FREE, takes=OBJECT_OR_NULL
    ),
    "account/read": method("server.account", "GetAccount", ACCOUNT_READ),
    "account/usage/read": method(
        "server.account", "GetAccountTokenUsage", FREE, takes=OBJECT_OR_NULL
    ),
    "app/installed": method("integrations.apps", "AppsInstalled", FREE),
    "app/list": method("integrations.apps", "AppsList", FREE),
    "app/read": method("integrations.apps", "AppsRead", FREE),
    "collaborationMode/list": trial("server.models", "CollaborationModeList", FREE),
    "command/exec": method("host.processes", "CommandExec", FREE, large=True),
    "command/exec/resize": method("host.processes", "CommandExecResize", COMMAND),
    "command/exec/terminate": method("host.processes", "CommandExecTerminate", COMMAND),
    "command/exec/write": method("host.processes", "CommandExecWrite", COMMAND),
    "config/batchWrite": method(
        "server.config", "ConfigWrite", CONFIG, params_stem="ConfigBatchWrite"
    ),
    "config/mcpServer/reload": method(
        "integrations.mcp", "McpServerRefresh", CONFIG, takes=NOTHING
    ),
    "config/read": method("server.config", "ConfigRead", CONFIG_READ),
    "config/value/write": method(
        "server.config", "ConfigWrite", CONFIG, params_stem="ConfigValueWrite"
    ),
    "configRequirements/read": method(
        "server.config", "ConfigRequirementsRead", CONFIG_READ, takes=NOTHING
    ),
    "environment/add": trial("host.environments", "EnvironmentAdd", ENVIRONMENT),
    "environment/info": trial("host.environments", "EnvironmentInfo", ENVIRONMENT_READ),
    "environment/status": trial("host.environments", "EnvironmentStatus", ENVIRONMENT_READ),
    "experimentalFeature/enablement/set": method(
        "server.models", "ExperimentalFeatureEnablementSet", CONFIG
    ),
    "experimentalFeature/list": method("server.models", "ExperimentalFeatureList", FREE),
    "feedback/save": method("server.lifecycle", "FeedbackSave", FREE),
    "fs/copy": method("host.processes", "FsCopy", FREE),
    "fs/createDirectory": method("host.processes", "FsCreateDirectory", FREE),
    "fs/getMetadata": method("host.processes", "FsGetMetadata", FREE),
    "fs/readDirectory": method("host.processes", "FsReadDirectory", FREE, large=True),
    "fs/readFile": method("host.processes", "FsReadFile", FREE, large=True),
    "fs/remove": method("host.processes", "FsRemove", FREE),
    "fs/unwatch": method("host.processes", "FsUnwatch", WATCH),
    "fs/watch": method("host.processes", "FsWatch", WATCH),
    "fs/writeFile": method("host.processes", "FsWriteFile", FREE),
    "fuzzyFileSearch": method("host.search", "FuzzyFileSearch", FREE),
    "fuzzyFileSearch/sessionStart": trial("host.search", "FuzzyFileSearchSessionStart", SEARCH),
    "fuzzyFileSearch/sessionStop": trial("host.search", "FuzzyFileSearchSessionStop", SEARCH),
    "fuzzyFileSearch/sessionUpdate": trial("host.search", "FuzzyFileSearchSessionUpdate", SEARCH),
    "getAuthStatus": method("older_interface.approvals", "GetAuthStatus", ACCOUNT_READ),
    "getConversationSummary": method("older_interface.approvals", "GetConversationSummary", FREE),
    "gitDiffToRemote": method("older_interface.approvals", "GitDiffToRemote", FREE, large=True),
    "hooks/list": method("integrations.skills", "HooksList", FREE),
    "initialize": method("server.lifecycle", "Initialize", BARRIER),
    "marketplace/add": method("integrations.marketplaces", "MarketplaceAdd", CONFIG),
    "marketplace/remove": method("integrations.marketplaces", "MarketplaceRemove", CONFIG),
    "marketplace/upgrade": method("integrations.marketplaces", "MarketplaceUpgrade", CONFIG),
    "mcpServer/event/stream/start": trial("integrations.mcp", "McpServerEventStreamStart", FREE),
    "mcpServer/event/stream/stop": trial("integrations.mcp", "McpServerEventStreamStop", FREE),
    "mcpServer/oauth/login": method("integrations.mcp", "McpServerOauthLogin", MCP_LOGIN),
    "mcpServer/resource/read": method("integrations.mcp", "McpResourceRead", FREE),
    "mcpServer/tool/call": method("integrations.mcp", "McpServerToolCall", FREE),
    "mcpServerStatus/list": method("integrations.mcp", "ListMcpServerStatus", FREE),
    "model/list": method("server.models", "ModelList", FREE),
    "modelProvider/capabilities/read": method(
        "server.models", "ModelProviderCapabilitiesRead", FREE
    ),
    "modelProvider/config/write": method("server.models", "ModelProviderConfigWrite", CONFIG),
    "modelProvider/list": method("server.models", "ModelProviderList", FREE),
    "permissionProfile/list": method("server.config", "PermissionProfileList", FREE),
    "plugin/install": method("integrations.plugins", "PluginInstall", CONFIG),
    "plugin/installed": method("integrations.plugins", "PluginInstalled", FREE),
    "plugin/list": method("integrations.plugins", "PluginList", FREE),
    "plugin/read": method("integrations.plugins", "PluginRead", FREE),
    "plugin/uninstall": method("integrations.plugins", "PluginUninstall", CONFIG),
    "process/kill": trial("host.processes", "ProcessKill", PROCESS),
    "process/resizePty": trial("host.processes", "ProcessResizePty", PROCESS),
    "process/spawn": trial("host.processes", "ProcessSpawn", PROCESS),
    "process/writeStdin": trial("host.processes", "ProcessWriteStdin", PROCESS),
    "project/create": trial("threads.planning", "ProjectCreate", PROJECTS),
    "project/delete": trial("threads.planning", "ProjectDelete", PROJECTS),
    "project/import": trial("threads.planning", "ProjectImport", PROJECTS),
    "project/list": trial("threads.planning", "ProjectList", PROJECTS_READ),
    "project/move": trial("threads.planning", "ProjectMove", PROJECTS),
    "project/read": trial("threads.planning", "ProjectRead", PROJECTS_READ),
    "project/update": trial("threads.planning", "ProjectUpdate", PROJECTS),
    "review/start": method("turns.turn", "ReviewStart", THREAD),
    "server/diagnostics": trial("server.diagnostics", "ServerDiagnostics", FREE),
    "signal/deliver": ours("signals.delivery", "SignalDeliver", SIGNALS),
    "signal/list": ours("signals.delivery", "SignalList", FREE),
    "signal/read": ours("signals.delivery", "SignalRead", FREE),
    "signal/recall": ours("signals.delivery", "SignalRecall", SIGNALS),
    "skills/config/write": method("integrations.skills", "SkillsConfigWrite", CONFIG),
    "skills/extraRoots/set": method("integrations.skills", "SkillsExtraRootsSet", CONFIG),
    "skills/list": method("integrations.skills", "SkillsList", FREE),
    "thread/archive": method("threads.thread", "ThreadArchive", THREAD),
    "thread/attachment/add": method("threads.planning", "ThreadAttachmentAdd", THREAD),
    "thread/attachment/list": method("threads.planning", "ThreadAttachmentList", THREAD_READ),
    "thread/attachment/remove": method("threads.planning", "ThreadAttachmentRemove", THREAD),
    "thread/attachmentOwner/list": method("threads.planning", "ThreadAttachmentOwnerList", FREE),
    "thread/backgroundTerminals/clean": trial(
        "host.processes", "ThreadBackgroundTerminalsClean", THREAD
    ),
    "thread/backgroundTerminals/list": trial(
        "host.processes", "ThreadBackgroundTerminalsList", THREAD_READ
    ),
    "thread/backgroundTerminals/terminate": trial(
        "host.processes", "ThreadBackgroundTerminalsTerminate", THREAD
    ),
    "thread/compact/start": method("threads.planning", "ThreadCompactStart", THREAD),
    "thread/decrement_elicitation": trial("threads.thread", "ThreadDecrementElicitation", THREAD),
    "thread/delete": method("threads.thread", "ThreadDelete", THREAD),
    "thread/fork": method("threads.thread", "ThreadFork", THREAD),
    "thread/goal/clear": method("threads.planning", "ThreadGoalClear", THREAD),
    "thread/goal/get": method("threads.planning", "ThreadGoalGet", THREAD_READ),
    "thread/goal/set": method("threads.planning", "ThreadGoalSet", THREAD),
    "thread/increment_elicitation": trial("threads.thread", "ThreadIncrementElicitation", THREAD),
    "thread/inject_items": method("threads.thread", "ThreadInjectItems", THREAD),
    "thread/items/list": method("threads.history", "ThreadItemsList", THREAD_READ),
    "thread/items/read": trial("threads.history", "ThreadItemsRead", THREAD_READ),
    "thread/list": method("threads.thread", "ThreadList", FREE),
    "thread/loaded/list": method("threads.thread", "ThreadLoadedList", FREE),
    "thread/memory/read": trial("threads.thread", "ThreadMemoryRead", THREAD_READ),
    "thread/memoryMode/set": trial("threads.thread", "ThreadMemoryModeSet", THREAD),
    "thread/metadata/update": method("threads.thread", "ThreadMetadataUpdate", THREAD),
    "thread/name/set": method("threads.thread", "ThreadSetName", THREAD),
    "thread/prepareApprovedPlan": trial("threads.planning", "ThreadPrepareApprovedPlan", THREAD),
    "thread/queue/add": trial("threads.planning", "ThreadQueueAdd", THREAD),
    "thread/queue/delete": trial("threads.planning", "ThreadQueueDelete", THREAD),
    "thread/queue/list": trial("threads.planning", "ThreadQueueList", THREAD_READ),
    "thread/queue/reorder": trial("threads.planning", "ThreadQueueReorder", THREAD),
    "thread/queue/start": trial("threads.planning", "ThreadQueueStart", THREAD),
    "thread/queue/update": trial("threads.planning", "ThreadQueueUpdate", THREAD),
    "thread/read": method("threads.thread", "ThreadRead", THREAD_READ),
    "thread/readState/update": trial("threads.history", "ThreadReadStateUpdate", THREAD),
    "thread/resume": method("threads.thread", "ThreadResume", THREAD),
    "thread/revert": method("threads.thread", "ThreadRevert", THREAD),
    "thread/search": trial("threads.history", "ThreadSearch", FREE),
    "thread/searchOccurrences": trial("threads.history", "ThreadSearchOccurrences", THREAD_READ),
    "thread/section/move": method("threads.planning", "ThreadSectionMove", THREAD),
    "thread/settings/update": trial("threads.thread", "ThreadSettingsUpdate", THREAD),
    "thread/shellCommand": method("host.processes", "ThreadShellCommand", THREAD),
    "thread/start": method("threads.thread", "ThreadStart", FREE),
    "thread/timeline/list": trial("threads.history", "ThreadTimelineList", THREAD_READ),
    "thread/turns/list": method("threads.history", "ThreadTurnsList", THREAD_READ),
    "thread/unarchive": method("threads.thread", "ThreadUnarchive", THREAD),
    "thread/unsubscribe": method("threads.thread", "ThreadUnsubscribe", THREAD),
    "threadSection/create": method("threads.planning", "ThreadSectionCreate", SECTIONS),
    "threadSection/delete": method("threads.planning", "ThreadSectionDelete", SECTIONS),
    "threadSection/list": method("threads.planning", "ThreadSectionList", SECTIONS_READ),
    "threadSection/update": method("threads.planning", "ThreadSectionUpdate", SECTIONS),
    "turn/interrupt": method("turns.turn", "TurnInterrupt", THREAD),
    "turn/settings/update": trial("turns.turn", "TurnSettingsUpdate", THREAD),
    "turn/start": method("turns.turn", "TurnStart", THREAD),
    "turn/steer": method("turns.turn", "TurnSteer", THREAD),
}
"""Requests of clients. A method that is not built yet stands here too: its types are settled."""

CLIENT_NOTIFICATIONS = frozenset({"initialized"})

NOTIFICATIONS: Mapping[str, NotificationSpec] = {
    "account/login/completed": NotificationSpec(
        "server.account", "AccountLoginCompletedNotification"
    ),
    "account/rateLimits/updated": NotificationSpec(
        "server.account", "AccountRateLimitsUpdatedNotification"
    ),
    "account/updated": NotificationSpec("server.account", "AccountUpdatedNotification"),
    "app/list/updated": NotificationSpec("integrations.apps", "AppListUpdatedNotification"),
    "autoApprovalReview/strictReviewRequired": NotificationSpec(
        "turns.items", "StrictReviewRequiredNotification"
    ),
    "command/exec/outputDelta": NotificationSpec(
        "host.processes", "CommandExecOutputDeltaNotification"
    ),
    "configWarning": NotificationSpec("server.lifecycle", "ConfigWarningNotification"),
    "deprecationNotice": NotificationSpec("server.lifecycle", "DeprecationNoticeNotification"),
    "error": NotificationSpec("turns.turn", "ErrorNotification"),
    "fs/changed": NotificationSpec("host.processes", "FsChangedNotification"),
    "fuzzyFileSearch/sessionCompleted": NotificationSpec(
        "host.search", "FuzzyFileSearchSessionCompletedNotification"
    ),
    "fuzzyFileSearch/sessionUpdated": NotificationSpec(
        "host.search", "FuzzyFileSearchSessionUpdatedNotification"
    ),
    "guardianWarning": NotificationSpec("server.lifecycle", "GuardianWarningNotification"),
    "hook/completed": NotificationSpec("integrations.skills", "HookCompletedNotification"),
    "hook/started": NotificationSpec("integrations.skills", "HookStartedNotification"),
    "item/agentMessage/delta": NotificationSpec("turns.items", "AgentMessageDeltaNotification"),
    "item/autoApprovalReview/completed": NotificationSpec(
        "turns.items", "ItemGuardianApprovalReviewCompletedNotification"
    ),
    "item/autoApprovalReview/started": NotificationSpec(
        "turns.items", "ItemGuardianApprovalReviewStartedNotification"
    ),
    "item/commandExecution/outputDelta": NotificationSpec(
        "turns.items", "CommandExecutionOutputDeltaNotification"
    ),
    "item/commandExecution/terminalInteraction": NotificationSpec(
        "turns.items", "TerminalInteractionNotification"
    ),
    "item/completed": NotificationSpec("turns.items", "ItemCompletedNotification"),
    "item/fileChange/outputDelta": NotificationSpec(
        "turns.items", "FileChangeOutputDeltaNotification"
    ),
    "item/fileChange/patchUpdated": NotificationSpec(
        "turns.items", "FileChangePatchUpdatedNotification"
    ),
    "item/mcpToolCall/progress": NotificationSpec("turns.items", "McpToolCallProgressNotification"),
    "item/plan/delta": NotificationSpec("turns.items", "PlanDeltaNotification"),
    "item/reasoning/summaryPartAdded": NotificationSpec(
        "turns.items", "ReasoningSummaryPartAddedNotification"
    ),
    "item/reasoning/summaryTextDelta": NotificationSpec(
        "turns.items", "ReasoningSummaryTextDeltaNotification"
    ),
    "item/reasoning/textDelta": NotificationSpec("turns.items", "ReasoningTextDeltaNotification"),
    "item/started": NotificationSpec("turns.items", "ItemStartedNotification"),
    "mcpServer/event/stream/notification": NotificationSpec(
        "integrations.mcp", "McpServerEventStreamNotification"
    ),
    "mcpServer/oauthLogin/completed": NotificationSpec(
        "integrations.mcp", "McpServerOauthLoginCompletedNotification"
    ),
    "mcpServer/startupStatus/updated": NotificationSpec(
        "integrations.mcp", "McpServerStatusUpdatedNotification"
    ),
    "model/rerouted": NotificationSpec("turns.turn", "ModelReroutedNotification"),
    "model/safetyBuffering/updated": NotificationSpec(
        "turns.turn", "ModelSafetyBufferingUpdatedNotification"
    ),
    "model/verification": NotificationSpec("turns.turn", "ModelVerificationNotification"),
    "modelProvider/authRecoveryCompleted": NotificationSpec(
        "server.models", "AuthRecoveryNotification"
    ),
    "modelProvider/authRecoveryStarted": NotificationSpec(
        "server.models", "AuthRecoveryNotification"
    ),
    "process/exited": NotificationSpec("host.processes", "ProcessExitedNotification"),
    "process/outputDelta": NotificationSpec("host.processes", "ProcessOutputDeltaNotification"),
    "project/changed": NotificationSpec(
        "threads.planning", "ProjectChangedNotification", opt_in=True
    ),
    "serverRequest/resolved": NotificationSpec(
        "threads.thread", "ServerRequestResolvedNotification"
    ),
    "signal/updated": NotificationSpec(
        "signals.delivery", "SignalUpdatedNotification", experimental=True, extension=True
    ),
    "skills/changed": NotificationSpec("integrations.skills", "SkillsChangedNotification"),
    "thread/archived": NotificationSpec("threads.thread", "ThreadArchivedNotification"),
    "thread/attachment/updated": NotificationSpec(
        "threads.planning", "ThreadAttachmentUpdatedNotification"
    ),
    "thread/closed": NotificationSpec("threads.thread", "ThreadClosedNotification"),
    "thread/compacted": NotificationSpec("threads.planning", "ContextCompactedNotification"),
    "thread/deleted": NotificationSpec("threads.thread", "ThreadDeletedNotification"),
    "thread/environment/connected": NotificationSpec(
        "host.environments", "EnvironmentConnectionNotification"
    ),
    "thread/environment/disconnected": NotificationSpec(
        "host.environments", "EnvironmentConnectionNotification"
    ),
    "thread/goal/cleared": NotificationSpec("threads.planning", "ThreadGoalClearedNotification"),
    "thread/goal/updated": NotificationSpec("threads.facts", "ThreadGoalUpdatedNotification"),
    "thread/name/updated": NotificationSpec("threads.thread", "ThreadNameUpdatedNotification"),
    "thread/project/updated": NotificationSpec(
        "threads.planning", "ThreadProjectUpdatedNotification", opt_in=True
    ),
    "thread/queue/changed": NotificationSpec("threads.thread", "ThreadQueueChangedNotification"),
    "thread/readState/changed": NotificationSpec(
        "threads.facts", "ThreadReadStateChangedNotification", opt_in=True
    ),
    "thread/reverted": NotificationSpec("threads.thread", "ThreadRevertedNotification"),
    "thread/section/changed": NotificationSpec(
        "threads.planning", "ThreadSectionChangedNotification"
    ),
    "thread/settings/updated": NotificationSpec(
        "threads.thread", "ThreadSettingsUpdatedNotification", opt_in=True
    ),
    "thread/started": NotificationSpec("threads.thread", "ThreadStartedNotification"),
    "thread/status/changed": NotificationSpec("threads.thread", "ThreadStatusChangedNotification"),
    "thread/tokenUsage/updated": NotificationSpec(
        "turns.turn", "ThreadTokenUsageUpdatedNotification"
    ),
    "thread/unarchived": NotificationSpec("threads.thread", "ThreadUnarchivedNotification"),
    "turn/completed": NotificationSpec("turns.turn", "TurnCompletedNotification"),
    "turn/diff/updated": NotificationSpec("turns.turn", "TurnDiffUpdatedNotification"),
    "turn/moderationMetadata": NotificationSpec("turns.turn", "TurnModerationMetadataNotification"),
    "turn/plan/updated": NotificationSpec("turns.turn", "TurnPlanUpdatedNotification"),
    "turn/started": NotificationSpec("turns.turn", "TurnStartedNotification"),
    "warning": NotificationSpec("server.lifecycle", "WarningNotification"),
}
"""What the server tells clients."""

SERVER_REQUESTS: Mapping[str, MethodSpec] = {
    "account/chatgptAuthTokens/refresh": method("server.account", "ChatgptAuthTokensRefresh"),
    "applyPatchApproval": method("older_interface.approvals", "ApplyPatchApproval"),
    "attestation/generate": method("turns.approvals", "AttestationGenerate"),
    "currentTime/read": trial("turns.approvals", "CurrentTimeRead", FREE),
    "execCommandApproval": method("older_interface.approvals", "ExecCommandApproval"),
    "item/commandExecution/requestApproval": method(
        "turns.approvals", "CommandExecutionRequestApproval"
    ),
    "item/fileChange/requestApproval": method("turns.approvals", "FileChangeRequestApproval"),
    "item/permissions/requestApproval": method("turns.approvals", "PermissionsRequestApproval"),
    "item/tool/call": method("turns.approvals", "DynamicToolCall"),
    "item/tool/requestUserInput": method("turns.approvals", "ToolRequestUserInput"),
    "mcpServer/elicitation/request": method("turns.elicitation", "McpServerElicitationRequest"),
}
"""What the server asks clients."""

METHOD_OF: Mapping[str, str] = {spec.params_name: name for name, spec in NOTIFICATIONS.items()}
"""The method that carries a notification, by the name of its params' type.

Two types serve two methods each (`EnvironmentConnectionNotification`, `AuthRecoveryNotification`):
whoever sends them names the method.
"""
