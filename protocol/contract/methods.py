"""The closed set of messages: every method we answer, every message we send.

A row names the area (a module of `protocol`), the stem of its types and its order:
`method("turns.requests", "TurnStart", THREAD)` takes `protocol.turns.requests.TurnStartParams`, is
answered with `TurnStartResponse`, and keeps its place among requests about the same thread. `trial`
rows need the experimental opt-in; `ours` rows do too, and the reference does not have them. `owner`
says, where the order does not, whether a request is for the server that has the thread loaded.
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
    SIGNAL,
    SIGNAL_RECALL,
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
    "account/bedrock/checkGovCloudRequirements": trial(
        "server.absent", "BedrockCheckGovCloudRequirements", FREE
    ),
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
    "app/installed": method("integrations.apps", "AppsInstalled", FREE, owner=True),
    "app/list": method("integrations.apps", "AppsList", FREE, owner=True),
    "app/read": method("integrations.apps", "AppsRead", FREE, owner=True),
    "collaborationMode/list": trial("server.models", "CollaborationModeList", AT_ONCE),
    "command/exec": method("host.commands", "CommandExec", FREE, large=True),
    "command/exec/resize": method("host.commands", "CommandExecResize", COMMAND),
    "command/exec/terminate": method("host.commands", "CommandExecTerminate", COMMAND),
    "command/exec/write": method("host.commands", "CommandExecWrite", COMMAND),
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
    "experimentalFeature/list": method(
        "server.models", "ExperimentalFeatureList", FREE, owner=True
    ),
    "externalAgentConfig/detect": method("server.absent", "ExternalAgentConfigDetect", FREE),
    "externalAgentConfig/import/readHistories": method(
        "server.absent",
        "ExternalAgentConfigImportHistoriesRead",
        FREE,
        takes=NOTHING,
    ),
    "feedback/save": method("server.lifecycle", "FeedbackSave", FREE),
    "fs/copy": method("host.files", "FsCopy", FREE),
    "fs/createDirectory": method("host.files", "FsCreateDirectory", FREE),
    "fs/getMetadata": method("host.files", "FsGetMetadata", FREE),
    "fs/readDirectory": method("host.files", "FsReadDirectory", FREE, large=True),
    "fs/readFile": method("host.files", "FsReadFile", FREE, large=True),
    "fs/remove": method("host.files", "FsRemove", FREE),
    "fs/unwatch": method("host.files", "FsUnwatch", WATCH),
    "fs/watch": method("host.files", "FsWatch", WATCH),
    "fs/writeFile": method("host.files", "FsWriteFile", FREE),
    "fuzzyFileSearch": method("host.search", "FuzzyFileSearch", FREE),
    "fuzzyFileSearch/sessionStart": trial("host.search", "FuzzyFileSearchSessionStart", SEARCH),
    "fuzzyFileSearch/sessionStop": trial("host.search", "FuzzyFileSearchSessionStop", SEARCH),
    "fuzzyFileSearch/sessionUpdate": trial("host.search", "FuzzyFileSearchSessionUpdate", SEARCH),
    "getAuthStatus": method("older_interface.queries", "GetAuthStatus", ACCOUNT_READ),
    "getConversationSummary": method("older_interface.queries", "GetConversationSummary", FREE),
    "gitDiffToRemote": method("older_interface.queries", "GitDiffToRemote", FREE, large=True),
    "hooks/list": method("integrations.skills", "HooksList", FREE, owner=True),
    "initialize": method("server.lifecycle", "Initialize", BARRIER),
    "marketplace/add": method("integrations.marketplaces", "MarketplaceAdd", CONFIG),
    "marketplace/remove": method("integrations.marketplaces", "MarketplaceRemove", CONFIG),
    "marketplace/upgrade": method("integrations.marketplaces", "MarketplaceUpgrade", CONFIG),
    "mcpServer/event/stream/start": trial(
        "integrations.mcp", "McpServerEventStreamStart", FREE, owner=True
    ),
    "mcpServer/event/stream/stop": trial("integrations.mcp", "McpServerEventStreamStop", FREE),
    "mcpServer/oauth/login": method(
        "integrations.mcp", "McpServerOauthLogin", MCP_LOGIN, owner=True
    ),
    "mcpServer/output/read": ours("integrations.mcp", "McpServerOutputRead", FREE, owner=True),
    "mcpServer/resource/read": method("integrations.mcp", "McpResourceRead", FREE, owner=True),
    "mcpServer/restart": ours("integrations.mcp", "McpServerRestart", FREE, owner=True),
    "mcpServer/set": ours("integrations.mcp", "McpServerSet", CONFIG, owner=True),
    "mcpServer/tool/call": method("integrations.mcp", "McpServerToolCall", FREE, owner=True),
    "mcpServerStatus/list": method("integrations.mcp", "ListMcpServerStatus", FREE, owner=True),
    "memory/reset": trial("server.absent", "MemoryReset", FREE, takes=NOTHING),
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
    "plugin/reconcile": method("integrations.plugins", "PluginReconcile", FREE),
    "plugin/uninstall": method("integrations.plugins", "PluginUninstall", CONFIG),
    "process/kill": trial("host.processes", "ProcessKill", PROCESS),
    "process/resizePty": trial("host.processes", "ProcessResizePty", PROCESS),
    "process/spawn": trial("host.processes", "ProcessSpawn", PROCESS),
    "process/writeStdin": trial("host.processes", "ProcessWriteStdin", PROCESS),
    "project/create": trial("organization.projects", "ProjectCreate", PROJECTS),
    "project/delete": trial("organization.projects", "ProjectDelete", PROJECTS),
    "project/import": trial("organization.projects", "ProjectImport", PROJECTS),
    "project/list": trial("organization.projects", "ProjectList", PROJECTS_READ),
    "project/move": trial("organization.projects", "ProjectMove", PROJECTS),
    "project/read": trial("organization.projects", "ProjectRead", PROJECTS_READ),
    "project/update": trial("organization.projects", "ProjectUpdate", PROJECTS),
    "remoteControl/status/read": trial(
        "server.absent", "RemoteControlStatusRead", AT_ONCE, takes=NOTHING
    ),
    "review/start": method("turns.code_review", "ReviewStart", THREAD),
    "server/diagnostics": trial("server.diagnostics", "ServerDiagnostics", FREE),
    "signal/deliver": ours("signals.delivery", "SignalDeliver", SIGNAL),
    "signal/list": ours("signals.delivery", "SignalList", FREE),
    "signal/read": ours("signals.delivery", "SignalRead", FREE),
    "signal/recall": ours("signals.delivery", "SignalRecall", SIGNAL_RECALL),
    "skills/config/write": method("integrations.skills", "SkillsConfigWrite", CONFIG),
    "skills/extraRoots/set": method("integrations.skills", "SkillsExtraRootsSet", CONFIG),
    "skills/list": method("integrations.skills", "SkillsList", FREE),
    "thread/archive": method("threads.changes", "ThreadArchive", THREAD),
    "thread/attachment/add": method("organization.attachments", "ThreadAttachmentAdd", THREAD),
    "thread/attachment/list": method(
        "organization.attachments", "ThreadAttachmentList", THREAD_READ
    ),
    "thread/attachment/remove": method(
        "organization.attachments", "ThreadAttachmentRemove", THREAD
    ),
    "thread/attachmentOwner/list": method(
        "organization.attachments", "ThreadAttachmentOwnerList", FREE
    ),
    "thread/backgroundTerminals/clean": trial(
        "host.terminals", "ThreadBackgroundTerminalsClean", THREAD
    ),
    "thread/backgroundTerminals/list": trial(
        "host.terminals", "ThreadBackgroundTerminalsList", THREAD_READ, owner=True
    ),
    "thread/backgroundTerminals/terminate": trial(
        "host.terminals", "ThreadBackgroundTerminalsTerminate", THREAD
    ),
    "thread/compact/start": method("threads.context", "ThreadCompactStart", THREAD),
    "thread/decrement_elicitation": trial("threads.changes", "ThreadDecrementElicitation", THREAD),
    "thread/delete": method("threads.changes", "ThreadDelete", THREAD),
    "thread/fork": method("threads.start", "ThreadFork", THREAD, owner=False),
    "thread/goal/clear": method("threads.goals", "ThreadGoalClear", THREAD),
    "thread/goal/get": method("threads.goals", "ThreadGoalGet", THREAD_READ),
    "thread/goal/set": method("threads.goals", "ThreadGoalSet", THREAD),
    "thread/increment_elicitation": trial("threads.changes", "ThreadIncrementElicitation", THREAD),
    "thread/inject_items": method("threads.changes", "ThreadInjectItems", THREAD),
    "thread/items/list": method("threads.history", "ThreadItemsList", THREAD_READ),
    "thread/items/read": trial("threads.history", "ThreadItemsRead", THREAD_READ),
    "thread/list": method("threads.lists", "ThreadList", FREE),
    "thread/loaded/list": method("threads.lists", "ThreadLoadedList", AT_ONCE),
    "thread/memory/read": trial("threads.metadata", "ThreadMemoryRead", THREAD_READ),
    "thread/memoryMode/set": trial("threads.metadata", "ThreadMemoryModeSet", THREAD),
    "thread/metadata/update": method("threads.metadata", "ThreadMetadataUpdate", THREAD),
    "thread/name/set": method("threads.metadata", "ThreadSetName", THREAD),
    "thread/prepareApprovedPlan": trial("threads.context", "ThreadPrepareApprovedPlan", THREAD),
    "thread/queue/add": trial("threads.queue", "ThreadQueueAdd", THREAD),
    "thread/queue/delete": trial("threads.queue", "ThreadQueueDelete", THREAD),
    "thread/queue/list": trial("threads.queue", "ThreadQueueList", THREAD_READ),
    "thread/queue/reorder": trial("threads.queue", "ThreadQueueReorder", THREAD),
    "thread/queue/start": trial("threads.queue", "ThreadQueueStart", THREAD),
    "thread/queue/update": trial("threads.queue", "ThreadQueueUpdate", THREAD),
    "thread/read": method("threads.lists", "ThreadRead", THREAD_READ),
    "thread/readState/update": trial("threads.history", "ThreadReadStateUpdate", THREAD),
    "thread/realtime/listVoices": trial("server.absent", "ThreadRealtimeListVoices", AT_ONCE),
    "thread/realtime/stop": trial("server.absent", "ThreadRealtimeStop", THREAD),
    "thread/resume": method("threads.start", "ThreadResume", THREAD),
    "thread/revert": method("threads.changes", "ThreadRevert", THREAD),
    "thread/search": trial("threads.history", "ThreadSearch", FREE),
    "thread/searchOccurrences": trial("threads.history", "ThreadSearchOccurrences", THREAD_READ),
    "thread/section/move": method("organization.sections", "ThreadSectionMove", THREAD),
    "thread/settings/update": trial("threads.settings", "ThreadSettingsUpdate", THREAD),
    "thread/shellCommand": method("host.terminals", "ThreadShellCommand", THREAD),
    "thread/start": method("threads.start", "ThreadStart", FREE, owner=True),
    "thread/timeline/list": trial("threads.history", "ThreadTimelineList", THREAD_READ),
    "thread/turns/list": method("threads.history", "ThreadTurnsList", THREAD_READ),
    "thread/unarchive": method("threads.changes", "ThreadUnarchive", THREAD),
    "thread/unsubscribe": method("threads.changes", "ThreadUnsubscribe", THREAD),
    "threadSection/create": method("organization.sections", "ThreadSectionCreate", SECTIONS),
    "threadSection/delete": method("organization.sections", "ThreadSectionDelete", SECTIONS),
    "threadSection/list": method("organization.sections", "ThreadSectionList", SECTIONS_READ),
    "threadSection/update": method("organization.sections", "ThreadSectionUpdate", SECTIONS),
    "turn/interrupt": method("turns.requests", "TurnInterrupt", THREAD),
    "turn/settings/update": trial("turns.requests", "TurnSettingsUpdate", THREAD),
    "turn/start": method("turns.requests", "TurnStart", THREAD),
    "turn/steer": method("turns.requests", "TurnSteer", THREAD),
    "usage/read": ours("threads.usage", "UsageRead", FREE),
    "userVerification/status": trial("server.absent", "UserVerificationStatus", AT_ONCE),
    "windowsSandbox/readiness": method(
        "server.absent", "WindowsSandboxReadiness", AT_ONCE, takes=NOTHING
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
