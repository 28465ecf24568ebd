"""The closed set of messages: every method we answer, every message we send.

A row names the area (a module of `protocol`), the stem of its types, its effect and its order:
`method("turns.requests", "TurnStart", LOGS, THREAD)` takes
`protocol.turns.requests.TurnStartParams`, is answered with `TurnStartResponse`, writes to the log
of its thread, and keeps its place among requests about the same thread. `trial` rows need the
experimental opt-in; `ours` rows do too, and the reference does not have them. `owner` says, where
the order does not, whether a request is for the server that has the thread loaded.
Source: docs/wire.md, "Methods".
"""

from collections.abc import Mapping

from protocol.contract.specs import (
    ACCOUNT,
    ACCOUNT_READ,
    AT_ONCE,
    BARRIER,
    COMMAND,
    CONFIG,
    CONFIG_READ,
    CONNECTION,
    ENVIRONMENT,
    ENVIRONMENT_READ,
    FREE,
    LOGS,
    MAKES,
    MCP_LOGIN,
    NOTHING,
    OBJECT_OR_NULL,
    ONCE,
    PROCESS,
    PROJECTS,
    PROJECTS_READ,
    READS,
    SEARCH,
    SECTIONS,
    SECTIONS_READ,
    SETS,
    SIGNAL,
    SIGNAL_RECALL,
    THREAD,
    THREAD_READ,
    WATCH,
    MethodSpec,
    NotificationSpec,
    method,
    ours,
    question,
    trial,
)

METHODS: Mapping[str, MethodSpec] = {
    "account/bedrock/checkGovCloudRequirements": trial(
        "server.absent", "BedrockCheckGovCloudRequirements", READS, FREE
    ),
    "account/login/cancel": method("server.account", "CancelLoginAccount", ONCE, ACCOUNT),
    "account/login/start": method("server.account", "LoginAccount", ONCE, ACCOUNT),
    "account/logout": method("server.account", "LogoutAccount", SETS, ACCOUNT, takes=NOTHING),
    "account/rateLimits/read": method(
        "server.account", "GetAccountRateLimits", READS, FREE, takes=OBJECT_OR_NULL
    ),
    "account/read": method("server.account", "GetAccount", READS, ACCOUNT_READ),
    "account/usage/read": method(
        "server.account", "GetAccountTokenUsage", READS, FREE, takes=OBJECT_OR_NULL
    ),
    "app/installed": method("integrations.apps", "AppsInstalled", READS, FREE, owner=True),
    "app/list": method("integrations.apps", "AppsList", READS, FREE, owner=True),
    "app/read": method("integrations.apps", "AppsRead", READS, FREE, owner=True),
    "collaborationMode/list": trial("server.models", "CollaborationModeList", READS, AT_ONCE),
    "command/exec": method("host.commands", "CommandExec", ONCE, FREE, large=True),
    "command/exec/resize": method("host.commands", "CommandExecResize", ONCE, COMMAND),
    "command/exec/terminate": method("host.commands", "CommandExecTerminate", ONCE, COMMAND),
    "command/exec/write": method("host.commands", "CommandExecWrite", ONCE, COMMAND),
    "config/batchWrite": method(
        "server.config", "ConfigWrite", SETS, CONFIG, params_stem="ConfigBatchWrite"
    ),
    "config/mcpServer/reload": method(
        "integrations.mcp", "McpServerRefresh", SETS, CONFIG, takes=NOTHING
    ),
    "config/read": method("server.config", "ConfigRead", READS, CONFIG_READ),
    "config/value/write": method(
        "server.config", "ConfigWrite", SETS, CONFIG, params_stem="ConfigValueWrite"
    ),
    "configRequirements/read": method(
        "server.config", "ConfigRequirementsRead", READS, CONFIG_READ, takes=NOTHING
    ),
    "environment/add": trial("host.environments", "EnvironmentAdd", SETS, ENVIRONMENT),
    "environment/info": trial("host.environments", "EnvironmentInfo", READS, ENVIRONMENT_READ),
    "environment/status": trial("host.environments", "EnvironmentStatus", READS, ENVIRONMENT_READ),
    "experimentalFeature/enablement/set": method(
        "server.models", "ExperimentalFeatureEnablementSet", SETS, CONFIG
    ),
    "experimentalFeature/list": method(
        "server.models", "ExperimentalFeatureList", READS, FREE, owner=True
    ),
    "externalAgentConfig/detect": method("server.absent", "ExternalAgentConfigDetect", READS, FREE),
    "externalAgentConfig/import/readHistories": method(
        "server.absent",
        "ExternalAgentConfigImportHistoriesRead",
        READS,
        FREE,
        takes=NOTHING,
    ),
    "feedback/save": method("server.lifecycle", "FeedbackSave", ONCE, FREE),
    "fs/copy": method("host.files", "FsCopy", SETS, FREE),
    "fs/createDirectory": method("host.files", "FsCreateDirectory", SETS, FREE),
    "fs/getMetadata": method("host.files", "FsGetMetadata", READS, FREE),
    "fs/readDirectory": method("host.files", "FsReadDirectory", READS, FREE, large=True),
    "fs/readFile": method("host.files", "FsReadFile", READS, FREE, large=True),
    "fs/remove": method("host.files", "FsRemove", SETS, FREE),
    "fs/unwatch": method("host.files", "FsUnwatch", CONNECTION, WATCH),
    "fs/watch": method("host.files", "FsWatch", CONNECTION, WATCH),
    "fs/writeFile": method("host.files", "FsWriteFile", SETS, FREE),
    "fuzzyFileSearch": method("host.search", "FuzzyFileSearch", READS, FREE),
    "fuzzyFileSearch/sessionStart": trial(
        "host.search", "FuzzyFileSearchSessionStart", CONNECTION, SEARCH
    ),
    "fuzzyFileSearch/sessionStop": trial(
        "host.search", "FuzzyFileSearchSessionStop", CONNECTION, SEARCH
    ),
    "fuzzyFileSearch/sessionUpdate": trial(
        "host.search", "FuzzyFileSearchSessionUpdate", CONNECTION, SEARCH
    ),
    "getAuthStatus": method("older_interface.queries", "GetAuthStatus", READS, ACCOUNT_READ),
    "getConversationSummary": method(
        "older_interface.queries", "GetConversationSummary", READS, FREE
    ),
    "gitDiffToRemote": method(
        "older_interface.queries", "GitDiffToRemote", READS, FREE, large=True
    ),
    "hooks/list": method("integrations.skills", "HooksList", READS, FREE, owner=True),
    "initialize": method("server.lifecycle", "Initialize", CONNECTION, BARRIER),
    "marketplace/add": method("integrations.marketplaces", "MarketplaceAdd", SETS, CONFIG),
    "marketplace/remove": method("integrations.marketplaces", "MarketplaceRemove", SETS, CONFIG),
    "marketplace/upgrade": method("integrations.marketplaces", "MarketplaceUpgrade", SETS, CONFIG),
    "mcpServer/event/stream/start": trial(
        "integrations.mcp", "McpServerEventStreamStart", CONNECTION, FREE, owner=True
    ),
    "mcpServer/event/stream/stop": trial(
        "integrations.mcp", "McpServerEventStreamStop", CONNECTION, FREE
    ),
    "mcpServer/oauth/login": method(
        "integrations.mcp", "McpServerOauthLogin", ONCE, MCP_LOGIN, owner=True
    ),
    "mcpServer/output/read": ours(
        "integrations.mcp", "McpServerOutputRead", READS, FREE, owner=True
    ),
    "mcpServer/resource/read": method(
        "integrations.mcp", "McpResourceRead", READS, FREE, owner=True
    ),
    "mcpServer/restart": ours("integrations.mcp", "McpServerRestart", ONCE, FREE, owner=True),
    "mcpServer/set": ours("integrations.mcp", "McpServerSet", SETS, CONFIG, owner=True),
    "mcpServer/tool/call": method("integrations.mcp", "McpServerToolCall", ONCE, FREE, owner=True),
    "mcpServerStatus/list": method(
        "integrations.mcp", "ListMcpServerStatus", READS, FREE, owner=True
    ),
    "memory/reset": trial("server.absent", "MemoryReset", SETS, FREE, takes=NOTHING),
    "model/list": method("server.models", "ModelList", READS, FREE),
    "modelProvider/capabilities/read": method(
        "server.models", "ModelProviderCapabilitiesRead", READS, FREE
    ),
    "modelProvider/config/write": method("server.models", "ModelProviderConfigWrite", SETS, CONFIG),
    "modelProvider/list": method("server.models", "ModelProviderList", READS, FREE),
    "permissionProfile/list": method("server.config", "PermissionProfileList", READS, FREE),
    "notification/list": ours("signals.notifications", "NotificationList", READS, FREE),
    "plugin/install": method("integrations.plugins", "PluginInstall", SETS, CONFIG),
    "plugin/installed": method("integrations.plugins", "PluginInstalled", READS, FREE),
    "plugin/list": method("integrations.plugins", "PluginList", READS, FREE),
    "plugin/read": method("integrations.plugins", "PluginRead", READS, FREE),
    "plugin/reconcile": method("integrations.plugins", "PluginReconcile", SETS, FREE),
    "plugin/uninstall": method("integrations.plugins", "PluginUninstall", SETS, CONFIG),
    "process/kill": trial("host.processes", "ProcessKill", ONCE, PROCESS),
    "process/resizePty": trial("host.processes", "ProcessResizePty", ONCE, PROCESS),
    "process/spawn": trial("host.processes", "ProcessSpawn", ONCE, PROCESS),
    "process/writeStdin": trial("host.processes", "ProcessWriteStdin", ONCE, PROCESS),
    "project/create": trial("organization.projects", "ProjectCreate", MAKES, PROJECTS),
    "project/delete": trial("organization.projects", "ProjectDelete", SETS, PROJECTS),
    "project/import": trial("organization.projects", "ProjectImport", MAKES, PROJECTS),
    "project/list": trial("organization.projects", "ProjectList", READS, PROJECTS_READ),
    "project/move": trial("organization.projects", "ProjectMove", SETS, PROJECTS),
    "project/read": trial("organization.projects", "ProjectRead", READS, PROJECTS_READ),
    "project/update": trial("organization.projects", "ProjectUpdate", SETS, PROJECTS),
    "remoteControl/status/read": trial(
        "server.absent", "RemoteControlStatusRead", READS, AT_ONCE, takes=NOTHING
    ),
    "review/start": method("turns.code_review", "ReviewStart", LOGS, THREAD),
    "server/diagnostics": trial("server.diagnostics", "ServerDiagnostics", READS, FREE),
    "signal/deliver": ours("signals.delivery", "SignalDeliver", SETS, SIGNAL),
    "signal/list": ours("signals.delivery", "SignalList", READS, FREE),
    "signal/read": ours("signals.delivery", "SignalRead", READS, FREE),
    "signal/recall": ours("signals.delivery", "SignalRecall", SETS, SIGNAL_RECALL),
    "skills/config/write": method("integrations.skills", "SkillsConfigWrite", SETS, CONFIG),
    "skills/extraRoots/set": method("integrations.skills", "SkillsExtraRootsSet", SETS, CONFIG),
    "skills/list": method("integrations.skills", "SkillsList", READS, FREE),
    "thread/archive": method("threads.changes", "ThreadArchive", LOGS, THREAD),
    "thread/attachment/add": method(
        "organization.attachments", "ThreadAttachmentAdd", LOGS, THREAD
    ),
    "thread/attachment/list": method(
        "organization.attachments", "ThreadAttachmentList", READS, THREAD_READ
    ),
    "thread/attachment/remove": method(
        "organization.attachments", "ThreadAttachmentRemove", LOGS, THREAD
    ),
    "thread/attachmentOwner/list": method(
        "organization.attachments", "ThreadAttachmentOwnerList", READS, FREE
    ),
    "thread/backgroundTerminals/clean": trial(
        "host.terminals", "ThreadBackgroundTerminalsClean", ONCE, THREAD
    ),
    "thread/backgroundTerminals/list": trial(
        "host.terminals", "ThreadBackgroundTerminalsList", READS, THREAD_READ, owner=True
    ),
    "thread/backgroundTerminals/terminate": trial(
        "host.terminals", "ThreadBackgroundTerminalsTerminate", ONCE, THREAD
    ),
    "thread/budget/set": ours("threads.budget", "ThreadBudgetSet", LOGS, THREAD),
    "thread/compact/start": method("threads.context", "ThreadCompactStart", LOGS, THREAD),
    "thread/decrement_elicitation": trial(
        "threads.changes", "ThreadDecrementElicitation", ONCE, THREAD
    ),
    "thread/delete": method("threads.changes", "ThreadDelete", SETS, THREAD),
    "thread/fork": method("threads.start", "ThreadFork", MAKES, THREAD, owner=False),
    "thread/goal/clear": method("threads.goals", "ThreadGoalClear", LOGS, THREAD),
    "thread/goal/get": method("threads.goals", "ThreadGoalGet", READS, THREAD_READ),
    "thread/goal/set": method("threads.goals", "ThreadGoalSet", LOGS, THREAD),
    "thread/increment_elicitation": trial(
        "threads.changes", "ThreadIncrementElicitation", ONCE, THREAD
    ),
    "thread/inject_items": method("threads.changes", "ThreadInjectItems", LOGS, THREAD),
    "thread/items/list": method("threads.history", "ThreadItemsList", READS, THREAD_READ),
    "thread/items/read": trial("threads.history", "ThreadItemsRead", READS, THREAD_READ),
    "thread/list": method("threads.lists", "ThreadList", READS, FREE),
    "thread/loaded/list": method("threads.lists", "ThreadLoadedList", READS, AT_ONCE),
    "thread/memory/read": trial("threads.metadata", "ThreadMemoryRead", READS, THREAD_READ),
    "thread/memoryMode/set": trial("threads.metadata", "ThreadMemoryModeSet", LOGS, THREAD),
    "thread/metadata/update": method("threads.metadata", "ThreadMetadataUpdate", LOGS, THREAD),
    "thread/name/set": method("threads.metadata", "ThreadSetName", LOGS, THREAD),
    "thread/prepareApprovedPlan": trial(
        "threads.context", "ThreadPrepareApprovedPlan", LOGS, THREAD
    ),
    "thread/queue/add": trial("threads.queue", "ThreadQueueAdd", LOGS, THREAD),
    "thread/queue/delete": trial("threads.queue", "ThreadQueueDelete", LOGS, THREAD),
    "thread/queue/list": trial("threads.queue", "ThreadQueueList", READS, THREAD_READ),
    "thread/queue/reorder": trial("threads.queue", "ThreadQueueReorder", LOGS, THREAD),
    "thread/queue/start": trial("threads.queue", "ThreadQueueStart", LOGS, THREAD),
    "thread/queue/update": trial("threads.queue", "ThreadQueueUpdate", LOGS, THREAD),
    "thread/read": method("threads.lists", "ThreadRead", READS, THREAD_READ),
    "thread/readState/update": trial("threads.history", "ThreadReadStateUpdate", LOGS, THREAD),
    "thread/realtime/listVoices": trial(
        "server.absent", "ThreadRealtimeListVoices", READS, AT_ONCE
    ),
    "thread/realtime/stop": trial("server.absent", "ThreadRealtimeStop", ONCE, THREAD),
    "thread/resume": method("threads.start", "ThreadResume", CONNECTION, THREAD),
    "thread/revert": method("threads.changes", "ThreadRevert", LOGS, THREAD),
    "thread/search": trial("threads.history", "ThreadSearch", READS, FREE),
    "thread/searchOccurrences": trial(
        "threads.history", "ThreadSearchOccurrences", READS, THREAD_READ
    ),
    "thread/section/move": method("organization.sections", "ThreadSectionMove", LOGS, THREAD),
    "thread/settings/update": trial("threads.settings", "ThreadSettingsUpdate", LOGS, THREAD),
    "thread/shellCommand": method("host.terminals", "ThreadShellCommand", LOGS, THREAD),
    "thread/start": method("threads.start", "ThreadStart", MAKES, FREE, owner=True),
    "thread/timeline/list": trial("threads.history", "ThreadTimelineList", READS, THREAD_READ),
    "thread/turns/list": method("threads.history", "ThreadTurnsList", READS, THREAD_READ),
    "thread/unarchive": method("threads.changes", "ThreadUnarchive", LOGS, THREAD),
    "thread/unsubscribe": method("threads.changes", "ThreadUnsubscribe", CONNECTION, THREAD),
    "thread/wake/cancel": ours("signals.wakes", "ThreadWakeCancel", SETS, THREAD),
    "thread/wake/list": ours("signals.wakes", "ThreadWakeList", READS, FREE),
    "thread/wake/set": ours("signals.wakes", "ThreadWakeSet", MAKES, THREAD),
    "threadSection/create": method("organization.sections", "ThreadSectionCreate", MAKES, SECTIONS),
    "threadSection/delete": method("organization.sections", "ThreadSectionDelete", SETS, SECTIONS),
    "threadSection/list": method(
        "organization.sections", "ThreadSectionList", READS, SECTIONS_READ
    ),
    "threadSection/update": method("organization.sections", "ThreadSectionUpdate", SETS, SECTIONS),
    "turn/interrupt": method("turns.requests", "TurnInterrupt", SETS, THREAD),
    "turn/settings/update": trial("turns.requests", "TurnSettingsUpdate", ONCE, THREAD),
    "turn/start": method("turns.requests", "TurnStart", LOGS, THREAD),
    "turn/steer": method("turns.requests", "TurnSteer", LOGS, THREAD),
    "usage/read": ours("threads.usage", "UsageRead", READS, FREE),
    "userVerification/status": trial("server.absent", "UserVerificationStatus", READS, AT_ONCE),
    "windowsSandbox/readiness": method(
        "server.absent", "WindowsSandboxReadiness", READS, AT_ONCE, takes=NOTHING
    ),
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
        "turns.auto_review", "StrictReviewRequiredNotification"
    ),
    "command/exec/outputDelta": NotificationSpec(
        "host.commands", "CommandExecOutputDeltaNotification"
    ),
    "configWarning": NotificationSpec("server.lifecycle", "ConfigWarningNotification"),
    "deprecationNotice": NotificationSpec("server.lifecycle", "DeprecationNoticeNotification"),
    "error": NotificationSpec("turns.notifications", "ErrorNotification"),
    "fs/changed": NotificationSpec("host.files", "FsChangedNotification"),
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
        "turns.auto_review", "ItemGuardianApprovalReviewCompletedNotification"
    ),
    "item/autoApprovalReview/started": NotificationSpec(
        "turns.auto_review", "ItemGuardianApprovalReviewStartedNotification"
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
    "mcpServer/tools/changed": NotificationSpec(
        "integrations.mcp", "McpServerToolsChangedNotification", experimental=True, extension=True
    ),
    "model/rerouted": NotificationSpec("turns.notifications", "ModelReroutedNotification"),
    "model/safetyBuffering/updated": NotificationSpec(
        "turns.notifications", "ModelSafetyBufferingUpdatedNotification"
    ),
    "model/verification": NotificationSpec("turns.notifications", "ModelVerificationNotification"),
    "modelProvider/authRecoveryCompleted": NotificationSpec(
        "server.models", "AuthRecoveryNotification"
    ),
    "modelProvider/authRecoveryStarted": NotificationSpec(
        "server.models", "AuthRecoveryNotification"
    ),
    "process/exited": NotificationSpec("host.processes", "ProcessExitedNotification"),
    "process/outputDelta": NotificationSpec("host.processes", "ProcessOutputDeltaNotification"),
    "project/changed": NotificationSpec(
        "organization.projects", "ProjectChangedNotification", opt_in=True
    ),
    "serverRequest/resolved": NotificationSpec(
        "threads.notifications", "ServerRequestResolvedNotification"
    ),
    "signal/updated": NotificationSpec(
        "signals.delivery", "SignalUpdatedNotification", experimental=True, extension=True
    ),
    "skills/changed": NotificationSpec("integrations.skills", "SkillsChangedNotification"),
    "thread/budget/updated": NotificationSpec(
        "threads.budget", "ThreadBudgetUpdatedNotification", experimental=True, extension=True
    ),
    "thread/archived": NotificationSpec("threads.notifications", "ThreadArchivedNotification"),
    "thread/attachment/updated": NotificationSpec(
        "organization.attachments", "ThreadAttachmentUpdatedNotification"
    ),
    "thread/closed": NotificationSpec("threads.notifications", "ThreadClosedNotification"),
    "thread/compacted": NotificationSpec("threads.context", "ContextCompactedNotification"),
    "thread/deleted": NotificationSpec("threads.notifications", "ThreadDeletedNotification"),
    "thread/environment/connected": NotificationSpec(
        "host.environments", "EnvironmentConnectionNotification"
    ),
    "thread/environment/disconnected": NotificationSpec(
        "host.environments", "EnvironmentConnectionNotification"
    ),
    "thread/goal/cleared": NotificationSpec("threads.goals", "ThreadGoalClearedNotification"),
    "thread/goal/updated": NotificationSpec(
        "threads.notifications", "ThreadGoalUpdatedNotification"
    ),
    "thread/name/updated": NotificationSpec(
        "threads.notifications", "ThreadNameUpdatedNotification"
    ),
    "thread/project/updated": NotificationSpec(
        "organization.projects", "ThreadProjectUpdatedNotification", opt_in=True
    ),
    "thread/queue/changed": NotificationSpec("threads.queue", "ThreadQueueChangedNotification"),
    "thread/readState/changed": NotificationSpec(
        "threads.notifications", "ThreadReadStateChangedNotification", opt_in=True
    ),
    "thread/reverted": NotificationSpec("threads.notifications", "ThreadRevertedNotification"),
    "thread/section/changed": NotificationSpec(
        "organization.sections", "ThreadSectionChangedNotification"
    ),
    "thread/settings/updated": NotificationSpec(
        "threads.settings", "ThreadSettingsUpdatedNotification", opt_in=True
    ),
    "thread/started": NotificationSpec("threads.notifications", "ThreadStartedNotification"),
    "thread/status/changed": NotificationSpec(
        "threads.notifications", "ThreadStatusChangedNotification"
    ),
    "thread/tokenUsage/updated": NotificationSpec(
        "turns.notifications", "ThreadTokenUsageUpdatedNotification"
    ),
    "thread/unarchived": NotificationSpec("threads.notifications", "ThreadUnarchivedNotification"),
    "thread/wake/changed": NotificationSpec(
        "signals.wakes", "ThreadWakeChangedNotification", experimental=True, extension=True
    ),
    "turn/completed": NotificationSpec("turns.notifications", "TurnCompletedNotification"),
    "turn/diff/updated": NotificationSpec("turns.notifications", "TurnDiffUpdatedNotification"),
    "turn/moderationMetadata": NotificationSpec(
        "turns.notifications", "TurnModerationMetadataNotification"
    ),
    "turn/plan/updated": NotificationSpec("turns.notifications", "TurnPlanUpdatedNotification"),
    "turn/started": NotificationSpec("turns.notifications", "TurnStartedNotification"),
    "warning": NotificationSpec("server.lifecycle", "WarningNotification"),
}
"""What the server tells clients."""

SERVER_REQUESTS: Mapping[str, MethodSpec] = {
    "account/chatgptAuthTokens/refresh": question("server.account", "ChatgptAuthTokensRefresh"),
    "applyPatchApproval": question("older_interface.approvals", "ApplyPatchApproval"),
    "attestation/generate": question("turns.approvals", "AttestationGenerate"),
    "currentTime/read": question("turns.approvals", "CurrentTimeRead", experimental=True),
    "execCommandApproval": question("older_interface.approvals", "ExecCommandApproval"),
    "item/commandExecution/requestApproval": question(
        "turns.approvals", "CommandExecutionRequestApproval"
    ),
    "item/fileChange/requestApproval": question("turns.approvals", "FileChangeRequestApproval"),
    "item/permissions/requestApproval": question("turns.approvals", "PermissionsRequestApproval"),
    "item/tool/call": question("turns.approvals", "DynamicToolCall"),
    "item/tool/requestUserInput": question("turns.approvals", "ToolRequestUserInput"),
    "mcpServer/elicitation/request": question("turns.elicitation", "McpServerElicitationRequest"),
}
"""What the server asks clients."""

METHOD_OF: Mapping[str, str] = {spec.params_name: name for name, spec in NOTIFICATIONS.items()}
"""The method that carries a notification, by the name of its params' type.

Two types serve two methods each (`EnvironmentConnectionNotification`, `AuthRecoveryNotification`):
whoever sends them names the method.
"""
