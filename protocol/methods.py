"""The closed set of messages: every method we answer, every message we send.

A row names the area (a module of this package), the stem of its types and its order:
`method("turns", "TurnStart", THREAD)` takes `protocol.turns.TurnStartParams`, is answered with
`TurnStartResponse`, and keeps its place among requests about the same thread. `trial` rows need the
experimental opt-in; `ours` rows do too, and the reference does not have them.
Source: docs/wire.md, "Methods".
"""

from collections.abc import Mapping

from protocol.specs import (
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
    "account/login/cancel": method("account", "CancelLoginAccount", ACCOUNT),
    "account/login/start": method("account", "LoginAccount", ACCOUNT),
    "account/logout": method("account", "LogoutAccount", ACCOUNT, takes=NOTHING),
    "account/rateLimits/read": method(
        "account", "GetAccountRateLimits", FREE, takes=OBJECT_OR_NULL
    ),
    "account/read": method("account", "GetAccount", ACCOUNT_READ),
    "account/usage/read": method("account", "GetAccountTokenUsage", FREE, takes=OBJECT_OR_NULL),
    "app/installed": method("apps", "AppsInstalled", FREE),
    "app/list": method("apps", "AppsList", FREE),
    "app/read": method("apps", "AppsRead", FREE),
    "collaborationMode/list": trial("models", "CollaborationModeList", FREE),
    "command/exec": method("host", "CommandExec", FREE, large=True),
    "command/exec/resize": method("host", "CommandExecResize", COMMAND),
    "command/exec/terminate": method("host", "CommandExecTerminate", COMMAND),
    "command/exec/write": method("host", "CommandExecWrite", COMMAND),
    "config/batchWrite": method("config", "ConfigWrite", CONFIG, params_stem="ConfigBatchWrite"),
    "config/mcpServer/reload": method("mcp", "McpServerRefresh", CONFIG, takes=NOTHING),
    "config/read": method("config", "ConfigRead", CONFIG_READ),
    "config/value/write": method("config", "ConfigWrite", CONFIG, params_stem="ConfigValueWrite"),
    "configRequirements/read": method(
        "config", "ConfigRequirementsRead", CONFIG_READ, takes=NOTHING
    ),
    "environment/add": trial("environments", "EnvironmentAdd", ENVIRONMENT),
    "environment/info": trial("environments", "EnvironmentInfo", ENVIRONMENT_READ),
    "environment/status": trial("environments", "EnvironmentStatus", ENVIRONMENT_READ),
    "experimentalFeature/enablement/set": method(
        "models", "ExperimentalFeatureEnablementSet", CONFIG
    ),
    "experimentalFeature/list": method("models", "ExperimentalFeatureList", FREE),
    "feedback/save": method("lifecycle", "FeedbackSave", FREE),
    "fs/copy": method("host", "FsCopy", FREE),
    "fs/createDirectory": method("host", "FsCreateDirectory", FREE),
    "fs/getMetadata": method("host", "FsGetMetadata", FREE),
    "fs/readDirectory": method("host", "FsReadDirectory", FREE, large=True),
    "fs/readFile": method("host", "FsReadFile", FREE, large=True),
    "fs/remove": method("host", "FsRemove", FREE),
    "fs/unwatch": method("host", "FsUnwatch", WATCH),
    "fs/watch": method("host", "FsWatch", WATCH),
    "fs/writeFile": method("host", "FsWriteFile", FREE),
    "fuzzyFileSearch": method("search", "FuzzyFileSearch", FREE),
    "fuzzyFileSearch/sessionStart": trial("search", "FuzzyFileSearchSessionStart", SEARCH),
    "fuzzyFileSearch/sessionStop": trial("search", "FuzzyFileSearchSessionStop", SEARCH),
    "fuzzyFileSearch/sessionUpdate": trial("search", "FuzzyFileSearchSessionUpdate", SEARCH),
    "getAuthStatus": method("legacy", "GetAuthStatus", ACCOUNT_READ),
    "getConversationSummary": method("legacy", "GetConversationSummary", FREE),
    "gitDiffToRemote": method("legacy", "GitDiffToRemote", FREE, large=True),
    "hooks/list": method("skills", "HooksList", FREE),
    "initialize": method("lifecycle", "Initialize", BARRIER),
    "marketplace/add": method("marketplaces", "MarketplaceAdd", CONFIG),
    "marketplace/remove": method("marketplaces", "MarketplaceRemove", CONFIG),
    "marketplace/upgrade": method("marketplaces", "MarketplaceUpgrade", CONFIG),
    "mcpServer/event/stream/start": trial("mcp", "McpServerEventStreamStart", FREE),
    "mcpServer/event/stream/stop": trial("mcp", "McpServerEventStreamStop", FREE),
    "mcpServer/oauth/login": method("mcp", "McpServerOauthLogin", MCP_LOGIN),
    "mcpServer/resource/read": method("mcp", "McpResourceRead", FREE),
    "mcpServer/tool/call": method("mcp", "McpServerToolCall", FREE),
    "mcpServerStatus/list": method("mcp", "ListMcpServerStatus", FREE),
    "model/list": method("models", "ModelList", FREE),
    "modelProvider/capabilities/read": method("models", "ModelProviderCapabilitiesRead", FREE),
    "modelProvider/config/write": method("models", "ModelProviderConfigWrite", CONFIG),
    "modelProvider/list": method("models", "ModelProviderList", FREE),
    "permissionProfile/list": method("config", "PermissionProfileList", FREE),
    "plugin/install": method("plugins", "PluginInstall", CONFIG),
    "plugin/installed": method("plugins", "PluginInstalled", FREE),
    "plugin/list": method("plugins", "PluginList", FREE),
    "plugin/read": method("plugins", "PluginRead", FREE),
    "plugin/uninstall": method("plugins", "PluginUninstall", CONFIG),
    "process/kill": trial("host", "ProcessKill", PROCESS),
    "process/resizePty": trial("host", "ProcessResizePty", PROCESS),
    "process/spawn": trial("host", "ProcessSpawn", PROCESS),
    "process/writeStdin": trial("host", "ProcessWriteStdin", PROCESS),
    "project/create": trial("planning", "ProjectCreate", PROJECTS),
    "project/delete": trial("planning", "ProjectDelete", PROJECTS),
    "project/import": trial("planning", "ProjectImport", PROJECTS),
    "project/list": trial("planning", "ProjectList", PROJECTS_READ),
    "project/move": trial("planning", "ProjectMove", PROJECTS),
    "project/read": trial("planning", "ProjectRead", PROJECTS_READ),
    "project/update": trial("planning", "ProjectUpdate", PROJECTS),
    "review/start": method("turns", "ReviewStart", THREAD),
    "server/diagnostics": trial("diagnostics", "ServerDiagnostics", FREE),
    "signal/deliver": ours("signals", "SignalDeliver", SIGNALS),
    "signal/list": ours("signals", "SignalList", FREE),
    "signal/read": ours("signals", "SignalRead", FREE),
    "signal/recall": ours("signals", "SignalRecall", SIGNALS),
    "skills/config/write": method("skills", "SkillsConfigWrite", CONFIG),
    "skills/extraRoots/set": method("skills", "SkillsExtraRootsSet", CONFIG),
    "skills/list": method("skills", "SkillsList", FREE),
    "thread/archive": method("threads", "ThreadArchive", THREAD),
    "thread/attachment/add": method("planning", "ThreadAttachmentAdd", THREAD),
    "thread/attachment/list": method("planning", "ThreadAttachmentList", THREAD_READ),
    "thread/attachment/remove": method("planning", "ThreadAttachmentRemove", THREAD),
    "thread/attachmentOwner/list": method("planning", "ThreadAttachmentOwnerList", FREE),
    "thread/backgroundTerminals/clean": trial("host", "ThreadBackgroundTerminalsClean", THREAD),
    "thread/backgroundTerminals/list": trial("host", "ThreadBackgroundTerminalsList", THREAD_READ),
    "thread/backgroundTerminals/terminate": trial(
        "host", "ThreadBackgroundTerminalsTerminate", THREAD
    ),
    "thread/compact/start": method("planning", "ThreadCompactStart", THREAD),
    "thread/decrement_elicitation": trial("threads", "ThreadDecrementElicitation", THREAD),
    "thread/delete": method("threads", "ThreadDelete", THREAD),
    "thread/fork": method("threads", "ThreadFork", THREAD),
    "thread/goal/clear": method("planning", "ThreadGoalClear", THREAD),
    "thread/goal/get": method("planning", "ThreadGoalGet", THREAD_READ),
    "thread/goal/set": method("planning", "ThreadGoalSet", THREAD),
    "thread/increment_elicitation": trial("threads", "ThreadIncrementElicitation", THREAD),
    "thread/inject_items": method("threads", "ThreadInjectItems", THREAD),
    "thread/items/list": method("history", "ThreadItemsList", THREAD_READ),
    "thread/items/read": trial("history", "ThreadItemsRead", THREAD_READ),
    "thread/list": method("threads", "ThreadList", FREE),
    "thread/loaded/list": method("threads", "ThreadLoadedList", FREE),
    "thread/memory/read": trial("threads", "ThreadMemoryRead", THREAD_READ),
    "thread/memoryMode/set": trial("threads", "ThreadMemoryModeSet", THREAD),
    "thread/metadata/update": method("threads", "ThreadMetadataUpdate", THREAD),
    "thread/name/set": method("threads", "ThreadSetName", THREAD),
    "thread/prepareApprovedPlan": trial("planning", "ThreadPrepareApprovedPlan", THREAD),
    "thread/queue/add": trial("planning", "ThreadQueueAdd", THREAD),
    "thread/queue/delete": trial("planning", "ThreadQueueDelete", THREAD),
    "thread/queue/list": trial("planning", "ThreadQueueList", THREAD_READ),
    "thread/queue/reorder": trial("planning", "ThreadQueueReorder", THREAD),
    "thread/queue/start": trial("planning", "ThreadQueueStart", THREAD),
    "thread/queue/update": trial("planning", "ThreadQueueUpdate", THREAD),
    "thread/read": method("threads", "ThreadRead", THREAD_READ),
    "thread/readState/update": trial("history", "ThreadReadStateUpdate", THREAD),
    "thread/resume": method("threads", "ThreadResume", THREAD),
    "thread/revert": method("threads", "ThreadRevert", THREAD),
    "thread/search": trial("history", "ThreadSearch", FREE),
    "thread/searchOccurrences": trial("history", "ThreadSearchOccurrences", THREAD_READ),
    "thread/section/move": method("planning", "ThreadSectionMove", THREAD),
    "thread/settings/update": trial("threads", "ThreadSettingsUpdate", THREAD),
    "thread/shellCommand": method("host", "ThreadShellCommand", THREAD),
    "thread/start": method("threads", "ThreadStart", FREE),
    "thread/timeline/list": trial("history", "ThreadTimelineList", THREAD_READ),
    "thread/turns/list": method("history", "ThreadTurnsList", THREAD_READ),
    "thread/unarchive": method("threads", "ThreadUnarchive", THREAD),
    "thread/unsubscribe": method("threads", "ThreadUnsubscribe", THREAD),
    "threadSection/create": method("planning", "ThreadSectionCreate", SECTIONS),
    "threadSection/delete": method("planning", "ThreadSectionDelete", SECTIONS),
    "threadSection/list": method("planning", "ThreadSectionList", SECTIONS_READ),
    "threadSection/update": method("planning", "ThreadSectionUpdate", SECTIONS),
    "turn/interrupt": method("turns", "TurnInterrupt", THREAD),
    "turn/settings/update": trial("turns", "TurnSettingsUpdate", THREAD),
    "turn/start": method("turns", "TurnStart", THREAD),
    "turn/steer": method("turns", "TurnSteer", THREAD),
}
"""Requests of clients. A method that is not built yet stands here too: its types are settled."""

CLIENT_NOTIFICATIONS = frozenset({"initialized"})

NOTIFICATIONS: Mapping[str, NotificationSpec] = {
    "account/login/completed": NotificationSpec("account", "AccountLoginCompletedNotification"),
    "account/rateLimits/updated": NotificationSpec(
        "account", "AccountRateLimitsUpdatedNotification"
    ),
    "account/updated": NotificationSpec("account", "AccountUpdatedNotification"),
    "app/list/updated": NotificationSpec("apps", "AppListUpdatedNotification"),
    "autoApprovalReview/strictReviewRequired": NotificationSpec(
        "items", "StrictReviewRequiredNotification"
    ),
    "command/exec/outputDelta": NotificationSpec("host", "CommandExecOutputDeltaNotification"),
    "configWarning": NotificationSpec("lifecycle", "ConfigWarningNotification"),
    "deprecationNotice": NotificationSpec("lifecycle", "DeprecationNoticeNotification"),
    "error": NotificationSpec("turns", "ErrorNotification"),
    "fs/changed": NotificationSpec("host", "FsChangedNotification"),
    "fuzzyFileSearch/sessionCompleted": NotificationSpec(
        "search", "FuzzyFileSearchSessionCompletedNotification"
    ),
    "fuzzyFileSearch/sessionUpdated": NotificationSpec(
        "search", "FuzzyFileSearchSessionUpdatedNotification"
    ),
    "guardianWarning": NotificationSpec("lifecycle", "GuardianWarningNotification"),
    "hook/completed": NotificationSpec("skills", "HookCompletedNotification"),
    "hook/started": NotificationSpec("skills", "HookStartedNotification"),
    "item/agentMessage/delta": NotificationSpec("items", "AgentMessageDeltaNotification"),
    "item/autoApprovalReview/completed": NotificationSpec(
        "items", "ItemGuardianApprovalReviewCompletedNotification"
    ),
    "item/autoApprovalReview/started": NotificationSpec(
        "items", "ItemGuardianApprovalReviewStartedNotification"
    ),
    "item/commandExecution/outputDelta": NotificationSpec(
        "items", "CommandExecutionOutputDeltaNotification"
    ),
    "item/commandExecution/terminalInteraction": NotificationSpec(
        "items", "TerminalInteractionNotification"
    ),
    "item/completed": NotificationSpec("items", "ItemCompletedNotification"),
    "item/fileChange/outputDelta": NotificationSpec("items", "FileChangeOutputDeltaNotification"),
    "item/fileChange/patchUpdated": NotificationSpec("items", "FileChangePatchUpdatedNotification"),
    "item/mcpToolCall/progress": NotificationSpec("items", "McpToolCallProgressNotification"),
    "item/plan/delta": NotificationSpec("items", "PlanDeltaNotification"),
    "item/reasoning/summaryPartAdded": NotificationSpec(
        "items", "ReasoningSummaryPartAddedNotification"
    ),
    "item/reasoning/summaryTextDelta": NotificationSpec(
        "items", "ReasoningSummaryTextDeltaNotification"
    ),
    "item/reasoning/textDelta": NotificationSpec("items", "ReasoningTextDeltaNotification"),
    "item/started": NotificationSpec("items", "ItemStartedNotification"),
    "mcpServer/event/stream/notification": NotificationSpec(
        "mcp", "McpServerEventStreamNotification"
    ),
    "mcpServer/oauthLogin/completed": NotificationSpec(
        "mcp", "McpServerOauthLoginCompletedNotification"
    ),
    "mcpServer/startupStatus/updated": NotificationSpec(
        "mcp", "McpServerStatusUpdatedNotification"
    ),
    "model/rerouted": NotificationSpec("turns", "ModelReroutedNotification"),
    "model/safetyBuffering/updated": NotificationSpec(
        "turns", "ModelSafetyBufferingUpdatedNotification"
    ),
    "model/verification": NotificationSpec("turns", "ModelVerificationNotification"),
    "modelProvider/authRecoveryCompleted": NotificationSpec("models", "AuthRecoveryNotification"),
    "modelProvider/authRecoveryStarted": NotificationSpec("models", "AuthRecoveryNotification"),
    "process/exited": NotificationSpec("host", "ProcessExitedNotification"),
    "process/outputDelta": NotificationSpec("host", "ProcessOutputDeltaNotification"),
    "project/changed": NotificationSpec("planning", "ProjectChangedNotification", opt_in=True),
    "serverRequest/resolved": NotificationSpec("threads", "ServerRequestResolvedNotification"),
    "signal/updated": NotificationSpec(
        "signals", "SignalUpdatedNotification", experimental=True, extension=True
    ),
    "skills/changed": NotificationSpec("skills", "SkillsChangedNotification"),
    "thread/archived": NotificationSpec("threads", "ThreadArchivedNotification"),
    "thread/attachment/updated": NotificationSpec(
        "planning", "ThreadAttachmentUpdatedNotification"
    ),
    "thread/closed": NotificationSpec("threads", "ThreadClosedNotification"),
    "thread/compacted": NotificationSpec("planning", "ContextCompactedNotification"),
    "thread/deleted": NotificationSpec("threads", "ThreadDeletedNotification"),
    "thread/environment/connected": NotificationSpec(
        "environments", "EnvironmentConnectionNotification"
    ),
    "thread/environment/disconnected": NotificationSpec(
        "environments", "EnvironmentConnectionNotification"
    ),
    "thread/goal/cleared": NotificationSpec("planning", "ThreadGoalClearedNotification"),
    "thread/goal/updated": NotificationSpec("thread_facts", "ThreadGoalUpdatedNotification"),
    "thread/name/updated": NotificationSpec("threads", "ThreadNameUpdatedNotification"),
    "thread/project/updated": NotificationSpec(
        "planning", "ThreadProjectUpdatedNotification", opt_in=True
    ),
    "thread/queue/changed": NotificationSpec("threads", "ThreadQueueChangedNotification"),
    "thread/readState/changed": NotificationSpec(
        "thread_facts", "ThreadReadStateChangedNotification", opt_in=True
    ),
    "thread/reverted": NotificationSpec("threads", "ThreadRevertedNotification"),
    "thread/section/changed": NotificationSpec("planning", "ThreadSectionChangedNotification"),
    "thread/settings/updated": NotificationSpec(
        "threads", "ThreadSettingsUpdatedNotification", opt_in=True
    ),
    "thread/started": NotificationSpec("threads", "ThreadStartedNotification"),
    "thread/status/changed": NotificationSpec("threads", "ThreadStatusChangedNotification"),
    "thread/tokenUsage/updated": NotificationSpec("turns", "ThreadTokenUsageUpdatedNotification"),
    "thread/unarchived": NotificationSpec("threads", "ThreadUnarchivedNotification"),
    "turn/completed": NotificationSpec("turns", "TurnCompletedNotification"),
    "turn/diff/updated": NotificationSpec("turns", "TurnDiffUpdatedNotification"),
    "turn/moderationMetadata": NotificationSpec("turns", "TurnModerationMetadataNotification"),
    "turn/plan/updated": NotificationSpec("turns", "TurnPlanUpdatedNotification"),
    "turn/started": NotificationSpec("turns", "TurnStartedNotification"),
    "warning": NotificationSpec("lifecycle", "WarningNotification"),
}
"""What the server tells clients."""

SERVER_REQUESTS: Mapping[str, MethodSpec] = {
    "account/chatgptAuthTokens/refresh": method("account", "ChatgptAuthTokensRefresh"),
    "applyPatchApproval": method("legacy", "ApplyPatchApproval"),
    "attestation/generate": method("approvals", "AttestationGenerate"),
    "currentTime/read": trial("approvals", "CurrentTimeRead", FREE),
    "execCommandApproval": method("legacy", "ExecCommandApproval"),
    "item/commandExecution/requestApproval": method("approvals", "CommandExecutionRequestApproval"),
    "item/fileChange/requestApproval": method("approvals", "FileChangeRequestApproval"),
    "item/permissions/requestApproval": method("approvals", "PermissionsRequestApproval"),
    "item/tool/call": method("approvals", "DynamicToolCall"),
    "item/tool/requestUserInput": method("approvals", "ToolRequestUserInput"),
    "mcpServer/elicitation/request": method("elicitation", "McpServerElicitationRequest"),
}
"""What the server asks clients."""

METHOD_OF: Mapping[str, str] = {spec.params_name: name for name, spec in NOTIFICATIONS.items()}
"""The method that carries a notification, by the name of its params' type.

Two types serve two methods each (`EnvironmentConnectionNotification`, `AuthRecoveryNotification`):
whoever sends them names the method.
"""
