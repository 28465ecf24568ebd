// Generated. Do not edit.

export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue };

/** An absolute path on the server's machine; nothing need exist there. */
export type AbsolutePathBuf = string;

/** Who or what model requests are made as. */
export type Account = {
  type: "apiKey";
} | {
  type: "chatgpt";
  email: string | null;
  planType: PlanType;
  /** Display name of the chosen workspace. */
  workspaceName: string | null;
} | {
  type: "amazonBedrock";
  /** Whether the credentials came through `account/login/start`. */
  usesCodexManagedCredentials: boolean;
} | {
  type: "gcp";
};

/** A login ended, well or not. */
export type AccountLoginCompletedNotification = {
  /** From the response to `account/login/start`; null for a way that has none. */
  loginId: string | null;
  success: boolean;
  /** For people; null on success. */
  error: string | null;
  onboardingEntrypoint: DesktopOnboardingEntrypoint | null;
};

/** Figures of a usage limit changed. */
export type AccountRateLimitsUpdatedNotification = {
  /** What is known now; a null here does not clear an earlier value. */
  rateLimits: RateLimitSnapshot;
};

/** Routing policy of a workspace: none, or a region. */
export type AccountRoutingOverride = "NO_CONSTRAINT" | "us" | "us_cr";

/** Tokens of one day. */
export type AccountTokenUsageDailyBucket = {
  /** The day, as text. */
  startDate: string;
  tokens: number;
};

/** Token use of an account over its lifetime. */
export type AccountTokenUsageSummary = {
  lifetimeTokens: number | null;
  peakDailyTokens: number | null;
  /** Seconds. */
  longestRunningTurnSec: number | null;
  currentStreakDays: number | null;
  longestStreakDays: number | null;
};

/** The signed-in account, or what is known of it, changed. */
export type AccountUpdatedNotification = {
  /** Null when nobody is signed in. */
  authMode: AuthMode | null;
  planType: PlanType | null;
};

/** The named permissions in force. */
export type ActivePermissionProfile = {
  /** Name of a profile from the configuration, or a built-in one such as `:workspace`. */
  id: string;
  /** The profile that this one builds on; null if it stands alone. */
  extends: string | null;
};

/** A text that the client adds to what the model knows. */
export type AdditionalContextEntry = {
  value: string;
  kind: AdditionalContextKind;
  /** Label for an untrusted text. */
  name?: string | null;
};

/** How far a context text is trusted: material to judge, or the word of the application. */
export type AdditionalContextKind = "untrusted" | "application";

/** Access to files beyond what the sandbox allows. */
export type AdditionalFileSystemPermissions = {
  /** Paths to read; older form of `entries`. */
  read?: Array<LegacyAppPathString> | null;
  /** Paths to write; older form of `entries`. */
  write?: Array<LegacyAppPathString> | null;
  /** How many folders deep glob patterns are searched; absent means no limit given. */
  globScanMaxDepth?: number | null;
  entries?: Array<FileSystemSandboxEntry> | null;
};

/** Network access beyond what the sandbox allows. */
export type AdditionalNetworkPermissions = {
  /** Null says nothing about the network. */
  enabled?: boolean | null;
};

/** What one command needs beyond what its thread may do. */
export type AdditionalPermissionProfile = {
  network: AdditionalNetworkPermissions | null;
  fileSystem: AdditionalFileSystemPermissions | null;
};

/** How an agent message reaches the user. */
export type AgentMessageDelivery = "async";

/** More text of an agent message. */
export type AgentMessageDeltaNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  /** To be appended to the item's `text`. */
  delta: string;
};

/** How a moderated message is to be shown. */
export type AgentMessageDisplay = {
  /** What to do; leave a word that you do not know to others. */
  action: string;
  blockType: string | null;
  cyberTrustedAccess: boolean | null;
  checkTrustedContacts: boolean | null;
};

/** One part of a message between agents. */
export type AgentMessageInputContent = {
  type: "input_text";
  text: string;
} | {
  type: "encrypted_content";
  encrypted_content: string;
};

/** What moderation made of an agent message. */
export type AgentMessageModeration = {
  moderated: boolean;
  /** Null asks for nothing special. */
  display: AgentMessageDisplay | null;
};

/** Where an agent stands in the tree of agents that work together. */
export type AgentPath = string;

/** Allowed or denied. */
export type AllowDenyRequirement = "allow" | "deny";

/** Whether usage is measured; other members may be present. */
export type AnalyticsConfig = {
  enabled: boolean | null;
  [key: string]: unknown;
};

/** Who stands behind an app, and where to read about it. */
export type AppBranding = {
  category: string | null;
  developer: string | null;
  /** URL. */
  website: string | null;
  /** URL. */
  privacyPolicy: string | null;
  /** URL. */
  termsOfService: string | null;
  isDiscoverableApp: boolean;
};

/** An app of the directory, as this account has it. */
export type AppInfo = {
  id: string;
  name: string;
  description: string | null;
  logoUrl: string | null;
  logoUrlDark: string | null;
  /** Further icons, by the directory's own keys. */
  iconAssets: { [key: string]: string } | null;
  /** The same for dark backgrounds. */
  iconDarkAssets: { [key: string]: string } | null;
  distributionChannel: string | null;
  branding: AppBranding | null;
  appMetadata: AppMetadata | null;
  /** The directory's own labels, by key. */
  labels: { [key: string]: string } | null;
  /** Page where the user connects the app. */
  installUrl: string | null;
  /** Whether the account has tools of this app. */
  isAccessible: boolean;
  /** False when configuration or an administrator switches the app off. */
  isEnabled: boolean;
  /** Plugins that use the app, sorted. */
  pluginDisplayNames: Array<string>;
};

/** The list of apps changed, or more of it is known. */
export type AppListUpdatedNotification = {
  /** The whole list, not a page. */
  data: Array<AppInfo>;
};

/** What the directory tells about an app besides its name and look. */
export type AppMetadata = {
  review: AppReview | null;
  categories: Array<string> | null;
  subCategories: Array<string> | null;
  /** Description written for search engines. */
  seoDescription: string | null;
  screenshots: Array<AppScreenshot> | null;
  developer: string | null;
  version: string | null;
  versionId: string | null;
  versionNotes: string | null;
  firstPartyRequiresInstall: boolean | null;
  /** Whether to offer the app before an account is linked. */
  showInComposerWhenUnlinked: boolean | null;
};

/** Where an app stands in the directory's review. */
export type AppReview = {
  status: string;
};

/** A picture of an app at work. */
export type AppScreenshot = {
  url: string | null;
  fileId: string | null;
  /** The prompt that belongs to the picture. */
  userPrompt: string;
};

/** An app that a plugin uses. */
export type AppSummary = {
  id: string;
  name: string;
  description: string | null;
  /** Page where the user connects the app. */
  installUrl: string | null;
  category: string | null;
};

/** A template from which a workspace makes an app of its own. */
export type AppTemplateSummary = {
  templateId: string;
  name: string;
  description: string | null;
  category: string | null;
  canonicalConnectorId: string | null;
  logoUrl: string | null;
  logoUrlDark: string | null;
  /** Apps that were made from it. */
  materializedAppIds: Array<string>;
  /** Why it is not available; null otherwise. */
  reason: AppTemplateUnavailableReason | null;
};

/** Why no app can be made from a template. */
export type AppTemplateUnavailableReason = "NOT_CONFIGURED_FOR_WORKSPACE" | "NO_ACTIVE_WORKSPACE";

/** When an app's tool call needs approval. */
export type AppToolApproval = "auto" | "prompt" | "writes" | "approve";

/** A tool of an app, for display only. */
export type AppToolSummary = {
  name: string;
  title: string | null;
  description: string;
  isEnabled: boolean;
  /** Null when the tool is enabled, or nobody said why it is not. */
  disabledReason: string | null;
  isReadOnly: boolean;
};

/** Which domains the desktop application may contact. */
export type ApplicationNetworkRequirements = {
  /** When true, only domains that `domains` allows by their exact name can be contacted. */
  enabled: boolean;
  domains: { [key: string]: NetworkDomainPermission };
};

/** Demands on the desktop application. */
export type ApplicationRequirements = {
  network: ApplicationNetworkRequirements | null;
  storage: ApplicationStorageRequirements | null;
};

/** Where the desktop application puts new workspaces; restricts no file access. */
export type ApplicationStorageRequirements = {
  defaultProjectParent: LegacyAppPathString | null;
  /** Where work without a project goes. */
  projectlessWorkspaceRoot: LegacyAppPathString | null;
};

/** Ask the user to let the agent change files. */
export type ApplyPatchApprovalParams = {
  conversationId: ThreadId;
  /** Id of the tool call that wants the change. */
  callId: string;
  /** By path. */
  fileChanges: { [key: string]: FileChange };
  /** Why the agent asks; null when it gave no reason. */
  reason: string | null;
  /**
   * Directory that the agent wants to write below until the session ends; null asks for this
   * change alone.
   */
  grantRoot: string | null;
};

/** Whether the files may be changed. */
export type ApplyPatchApprovalResponse = {
  decision: ReviewDecision;
};

/**
 * Who decides on approvals: the user, or an agent that weighs the risk; `guardian_subagent` is the
 * old name of `auto_review`.
 */
export type ApprovalsReviewer = "user" | "auto_review" | "guardian_subagent";

/** Settings for apps: those of one app under its id. */
export type AppsConfig = {
  /** What holds for apps that have no settings of their own. */
  _default: AppsDefaultConfig | null;
  [key: string]: unknown;
};

/** What holds for apps that say nothing else. */
export type AppsDefaultConfig = {
  enabled: boolean;
  approvals_reviewer: ApprovalsReviewer | null;
  /** Whether tools that may destroy something can be used. */
  destructive_enabled: boolean;
  /** Whether tools that reach beyond the app's own data can be used. */
  open_world_enabled: boolean;
  default_tools_approval_mode: AppToolApproval | null;
};

/** List the apps that have tools here, as last discovered. */
export type AppsInstalledParams = {
  /** Loaded thread whose configuration applies; null for the global one. */
  threadId?: string | null;
  /** Fetch the tools again first; ignored while apps are off. */
  forceRefresh?: boolean;
};

/** The installed apps, by id. */
export type AppsInstalledResponse = {
  apps: Array<InstalledApp>;
};

/** Page through the apps that exist for this account, those it can use first. */
export type AppsListParams = {
  /** From `nextCursor` of the page before. */
  cursor?: string | null;
  /** Apps a page; null lets the server choose. */
  limit?: number | null;
  /** Loaded thread whose configuration applies; null for the global one. */
  threadId?: string | null;
  /** Pass over the caches and ask the sources. */
  forceRefetch?: boolean;
};

/** One page of apps. */
export type AppsListResponse = {
  data: Array<AppInfo>;
  /** Null at the end. */
  nextCursor: string | null;
};

/** Read about some apps, by id. */
export type AppsReadParams = {
  /** At most 100; repeated ones count once. */
  appIds: Array<string>;
  /** Loaded thread whose configuration applies; null for the global one. */
  threadId?: string | null;
  /** Fill in `toolSummaries`. */
  includeTools?: boolean;
};

/** The apps that were found, in the order asked for, and the rest. */
export type AppsReadResponse = {
  apps: Array<ConnectorMetadata>;
  /** Ids for which nothing was found. */
  missingAppIds: Array<string>;
};

/**
 * When to ask before acting: for all but trusted commands, when the model wants it, never, or kind
 * by kind.
 */
export type AskForApproval = "untrusted" | "on-request" | "never" | {
  /** For each kind of approval: true asks, false refuses without asking. */
  granular: {
    /** Questions that MCP servers put to the user. */
    mcp_elicitations: boolean;
    /** Requests of the model for more permissions. */
    request_permissions?: boolean;
    /** Commands for which a rule says to ask. */
    rules: boolean;
    /** Commands that want to leave the sandbox. */
    sandbox_approval: boolean;
    /** Scripts that belong to skills. */
    skill_approval?: boolean;
  };
};

/** A question to the user that comes with an agent message. */
export type AsyncUserInputQuestion = {
  title: string;
  /** Answers to choose from; null leaves the answer open. */
  options: Array<string> | null;
};

/** Make a token that vouches for the client. */
export type AttestationGenerateParams = { [key: string]: JsonValue };

/** The client's token. */
export type AttestationGenerateResponse = {
  /** Opaque. */
  token: string;
};

/** How requests to the model's provider are authenticated. */
export type AuthMode = "apikey" | "chatgpt" | "chatgptAuthTokens" | "headers" | "agentIdentity" | "personalAccessToken" | "bedrockApiKey" | "bedrockAccessKeys";

/** A turn's provider is getting new credentials, or has them: the method tells which. */
export type AuthRecoveryNotification = {
  threadId: string;
  turnId: string;
  /** The provider whose credentials are renewed. */
  provider: string;
  /** For the user. */
  message: string;
};

/**
 * What counts towards `model_auto_compact_token_limit`: all of the context, or its growth after the
 * prefix.
 */
export type AutoCompactTokenLimitScope = "total" | "body_after_prefix";

/** Who came to the decision. */
export type AutoReviewDecisionSource = "agent";

/** Demands on the automatic review of approvals. */
export type AutoReviewRequirements = {
  /** Models that may not run without it. */
  requiredOnModels: Array<string> | null;
  ignoreRules: Array<string> | null;
};

/** Ask whether models are reached in a GovCloud region of Amazon Bedrock. */
export type BedrockCheckGovCloudRequirementsParams = { [key: string]: JsonValue };

/** Whether they are, and whether the user should be warned. */
export type BedrockCheckGovCloudRequirementsResponse = {
  isGovCloud: boolean;
  /** Whether what an administrator demands falls short of what GovCloud needs. */
  shouldWarn: boolean;
};

/** The built-in providers that reach Amazon Bedrock. */
export type BedrockProviderId = "amazon-bedrock" | "amazon-bedrock-runtime";

/** How long an approved access to a site lasts. */
export type BrowserUseAccessApprovalLifetime = "thread" | "turn";

/** What the agent's browser may do. */
export type BrowserUseConfig = {
  allow_history_access: boolean | null;
  /** For sites that `origins` does not name. */
  default_origin_policy: BrowserUseOriginPolicyConfig | null;
  /** By web origin. */
  origins: { [key: string]: BrowserUseOriginPolicyConfig } | null;
};

/** Demands on the browser extension. */
export type BrowserUseExtensionRequirements = {
  requestHeaders: Array<RequestHeader> | null;
};

/** What the agent's browser may do on a site, as the administrator sets it. */
export type BrowserUseOriginPolicy = {
  access: AllowDenyRequirement | null;
  downloads: AllowDenyRequirement | null;
  uploads: AllowDenyRequirement | null;
  /** Unrestricted use of the Chrome DevTools Protocol. */
  fullCdpAccess: AllowDenyRequirement | null;
  /** Whether approvals may be left to the automatic review. */
  autoReview: AllowDenyRequirement | null;
  /** Whether the user may approve the site for good. */
  persistentApproval: boolean | null;
  accessApprovalLifetime: BrowserUseAccessApprovalLifetime | null;
};

/** What the agent's browser may do on a site. */
export type BrowserUseOriginPolicyConfig = {
  access: AllowDenyRequirement | null;
  downloads: AllowDenyRequirement | null;
  uploads: AllowDenyRequirement | null;
  /** Unrestricted use of the Chrome DevTools Protocol. */
  full_cdp_access: AllowDenyRequirement | null;
};

/** Demands on the agent's browser. */
export type BrowserUseRequirements = {
  extension: BrowserUseExtensionRequirements | null;
  /** Whether tools that web pages offer over WebMCP may be used. */
  allowWebmcp: boolean | null;
  allowHistoryAccess: boolean | null;
  disableAutoReview: boolean | null;
  allowGlobalPersistentApproval: boolean | null;
  /** For sites that `origins` does not name. */
  defaultOriginPolicy: BrowserUseOriginPolicy | null;
  /** By web origin. */
  origins: { [key: string]: BrowserUseOriginPolicy } | null;
};

/** Limits from the beginning of a thread on; null is no limit. */
export type BudgetLimits = {
  /** Input and output, as models count them. */
  tokens?: number | null;
  /** At the prices of the settings. */
  cost?: MoneyAmount | null;
  /** Turns that ask a model. */
  turns?: number | null;
  /** Of models and tools. */
  seconds?: number | null;
};

/** The requests that a budget is for: of a thread, a day, a folder and those below it, or all. */
export type BudgetScope = "thread" | "day" | "folder" | "home";

/** What was used of a budget. */
export type BudgetUse = {
  tokens: number;
  /** A sum for each currency, as far as prices are known. */
  cost: Array<MoneyAmount>;
  /** Null for budgets of many threads; so is the next. */
  turns: number | null;
  seconds: number | null;
};

/** Half-open range of UTF-8 bytes. */
export type ByteRange = {
  /** The first byte. */
  start: number;
  /** The byte after the last. */
  end: number;
};

/** Give up a login that waits for the user. */
export type CancelLoginAccountParams = {
  _meta?: RequestMeta | null;
  /** From the response to `account/login/start`. */
  loginId: string;
};

/** Whether the login was given up. */
export type CancelLoginAccountResponse = {
  status: CancelLoginAccountStatus;
};

/** Whether there was a login to give up. */
export type CancelLoginAccountStatus = "canceled" | "notFound";

/** Where a capability root is found. */
export type CapabilityRootLocation = {
  type: "environment";
  environmentId: string;
  /** Absolute, in that environment. */
  path: string;
};

/** Ask the client for a new ChatGPT token. */
export type ChatgptAuthTokensRefreshParams = {
  reason: ChatgptAuthTokensRefreshReason;
  /** Workspace of the old token, to choose among several. */
  previousAccountId: string | null;
};

/** Why the server needs a new token: the backend answered 401. */
export type ChatgptAuthTokensRefreshReason = "unauthorized";

/** The new token. */
export type ChatgptAuthTokensRefreshResponse = {
  /** A JWT. */
  accessToken: string;
  /** Workspace that the token is for. */
  chatgptAccountId: string;
  /** Null takes the plan from the token. */
  chatgptPlanType?: string | null;
};

/** Where login credentials are kept; `ephemeral` keeps them in memory alone. */
export type CliAuthCredentialsStoreMode = "file" | "keyring" | "auto" | "ephemeral";

/** Who is calling; shown in logs and in `thread.originator`. */
export type ClientInfo = {
  name: string;
  /** For people; null means `name`. */
  title?: string | null;
  version: string;
};

/** A notification of a client. */
export type ClientNotification = {
  method: "initialized";
};

/** A request of a client. */
export type ClientRequest = {
  method: "account/bedrock/checkGovCloudRequirements";
  id: RequestId;
  params: BedrockCheckGovCloudRequirementsParams;
} | {
  method: "account/login/cancel";
  id: RequestId;
  params: CancelLoginAccountParams;
} | {
  method: "account/login/start";
  id: RequestId;
  params: LoginAccountParams;
} | {
  method: "account/logout";
  id: RequestId;
  params: null | {
    _meta: RequestMeta | null;
  };
} | {
  method: "account/rateLimits/read";
  id: RequestId;
  params: GetAccountRateLimitsParams | null;
} | {
  method: "account/read";
  id: RequestId;
  params: GetAccountParams;
} | {
  method: "account/usage/read";
  id: RequestId;
  params: GetAccountTokenUsageParams | null;
} | {
  method: "app/installed";
  id: RequestId;
  params: AppsInstalledParams;
} | {
  method: "app/list";
  id: RequestId;
  params: AppsListParams;
} | {
  method: "app/read";
  id: RequestId;
  params: AppsReadParams;
} | {
  method: "collaborationMode/list";
  id: RequestId;
  params: CollaborationModeListParams;
} | {
  method: "command/exec";
  id: RequestId;
  params: CommandExecParams;
} | {
  method: "command/exec/resize";
  id: RequestId;
  params: CommandExecResizeParams;
} | {
  method: "command/exec/terminate";
  id: RequestId;
  params: CommandExecTerminateParams;
} | {
  method: "command/exec/write";
  id: RequestId;
  params: CommandExecWriteParams;
} | {
  method: "config/batchWrite";
  id: RequestId;
  params: ConfigBatchWriteParams;
} | {
  method: "config/mcpServer/reload";
  id: RequestId;
  params: null | {
    _meta: RequestMeta | null;
  };
} | {
  method: "config/read";
  id: RequestId;
  params: ConfigReadParams;
} | {
  method: "config/value/write";
  id: RequestId;
  params: ConfigValueWriteParams;
} | {
  method: "configRequirements/read";
  id: RequestId;
  params: null;
} | {
  method: "environment/add";
  id: RequestId;
  params: EnvironmentAddParams;
} | {
  method: "environment/info";
  id: RequestId;
  params: EnvironmentInfoParams;
} | {
  method: "environment/status";
  id: RequestId;
  params: EnvironmentStatusParams;
} | {
  method: "experimentalFeature/enablement/set";
  id: RequestId;
  params: ExperimentalFeatureEnablementSetParams;
} | {
  method: "experimentalFeature/list";
  id: RequestId;
  params: ExperimentalFeatureListParams;
} | {
  method: "externalAgentConfig/detect";
  id: RequestId;
  params: ExternalAgentConfigDetectParams;
} | {
  method: "externalAgentConfig/import/readHistories";
  id: RequestId;
  params: null;
} | {
  method: "feedback/save";
  id: RequestId;
  params: FeedbackSaveParams;
} | {
  method: "fs/copy";
  id: RequestId;
  params: FsCopyParams;
} | {
  method: "fs/createDirectory";
  id: RequestId;
  params: FsCreateDirectoryParams;
} | {
  method: "fs/getMetadata";
  id: RequestId;
  params: FsGetMetadataParams;
} | {
  method: "fs/readDirectory";
  id: RequestId;
  params: FsReadDirectoryParams;
} | {
  method: "fs/readFile";
  id: RequestId;
  params: FsReadFileParams;
} | {
  method: "fs/remove";
  id: RequestId;
  params: FsRemoveParams;
} | {
  method: "fs/unwatch";
  id: RequestId;
  params: FsUnwatchParams;
} | {
  method: "fs/watch";
  id: RequestId;
  params: FsWatchParams;
} | {
  method: "fs/writeFile";
  id: RequestId;
  params: FsWriteFileParams;
} | {
  method: "fuzzyFileSearch";
  id: RequestId;
  params: FuzzyFileSearchParams;
} | {
  method: "fuzzyFileSearch/sessionStart";
  id: RequestId;
  params: FuzzyFileSearchSessionStartParams;
} | {
  method: "fuzzyFileSearch/sessionStop";
  id: RequestId;
  params: FuzzyFileSearchSessionStopParams;
} | {
  method: "fuzzyFileSearch/sessionUpdate";
  id: RequestId;
  params: FuzzyFileSearchSessionUpdateParams;
} | {
  method: "getAuthStatus";
  id: RequestId;
  params: GetAuthStatusParams;
} | {
  method: "getConversationSummary";
  id: RequestId;
  params: GetConversationSummaryParams;
} | {
  method: "gitDiffToRemote";
  id: RequestId;
  params: GitDiffToRemoteParams;
} | {
  method: "hooks/list";
  id: RequestId;
  params: HooksListParams;
} | {
  method: "initialize";
  id: RequestId;
  params: InitializeParams;
} | {
  method: "marketplace/add";
  id: RequestId;
  params: MarketplaceAddParams;
} | {
  method: "marketplace/remove";
  id: RequestId;
  params: MarketplaceRemoveParams;
} | {
  method: "marketplace/upgrade";
  id: RequestId;
  params: MarketplaceUpgradeParams;
} | {
  method: "mcpServer/event/stream/start";
  id: RequestId;
  params: McpServerEventStreamStartParams;
} | {
  method: "mcpServer/event/stream/stop";
  id: RequestId;
  params: McpServerEventStreamStopParams;
} | {
  method: "mcpServer/oauth/login";
  id: RequestId;
  params: McpServerOauthLoginParams;
} | {
  method: "mcpServer/output/read";
  id: RequestId;
  params: McpServerOutputReadParams;
} | {
  method: "mcpServer/resource/read";
  id: RequestId;
  params: McpResourceReadParams;
} | {
  method: "mcpServer/restart";
  id: RequestId;
  params: McpServerRestartParams;
} | {
  method: "mcpServer/set";
  id: RequestId;
  params: McpServerSetParams;
} | {
  method: "mcpServer/tool/call";
  id: RequestId;
  params: McpServerToolCallParams;
} | {
  method: "mcpServerStatus/list";
  id: RequestId;
  params: ListMcpServerStatusParams;
} | {
  method: "memory/reset";
  id: RequestId;
  params: null | {
    _meta: RequestMeta | null;
  };
} | {
  method: "model/list";
  id: RequestId;
  params: ModelListParams;
} | {
  method: "modelProvider/capabilities/read";
  id: RequestId;
  params: ModelProviderCapabilitiesReadParams;
} | {
  method: "modelProvider/config/write";
  id: RequestId;
  params: ModelProviderConfigWriteParams;
} | {
  method: "modelProvider/list";
  id: RequestId;
  params: ModelProviderListParams;
} | {
  method: "permissionProfile/list";
  id: RequestId;
  params: PermissionProfileListParams;
} | {
  method: "notification/list";
  id: RequestId;
  params: NotificationListParams;
} | {
  method: "plugin/install";
  id: RequestId;
  params: PluginInstallParams;
} | {
  method: "plugin/installed";
  id: RequestId;
  params: PluginInstalledParams;
} | {
  method: "plugin/list";
  id: RequestId;
  params: PluginListParams;
} | {
  method: "plugin/read";
  id: RequestId;
  params: PluginReadParams;
} | {
  method: "plugin/reconcile";
  id: RequestId;
  params: PluginReconcileParams;
} | {
  method: "plugin/uninstall";
  id: RequestId;
  params: PluginUninstallParams;
} | {
  method: "process/kill";
  id: RequestId;
  params: ProcessKillParams;
} | {
  method: "process/resizePty";
  id: RequestId;
  params: ProcessResizePtyParams;
} | {
  method: "process/spawn";
  id: RequestId;
  params: ProcessSpawnParams;
} | {
  method: "process/writeStdin";
  id: RequestId;
  params: ProcessWriteStdinParams;
} | {
  method: "project/create";
  id: RequestId;
  params: ProjectCreateParams;
} | {
  method: "project/delete";
  id: RequestId;
  params: ProjectDeleteParams;
} | {
  method: "project/import";
  id: RequestId;
  params: ProjectImportParams;
} | {
  method: "project/list";
  id: RequestId;
  params: ProjectListParams;
} | {
  method: "project/move";
  id: RequestId;
  params: ProjectMoveParams;
} | {
  method: "project/read";
  id: RequestId;
  params: ProjectReadParams;
} | {
  method: "project/update";
  id: RequestId;
  params: ProjectUpdateParams;
} | {
  method: "remoteControl/status/read";
  id: RequestId;
  params: null;
} | {
  method: "review/start";
  id: RequestId;
  params: ReviewStartParams;
} | {
  method: "server/diagnostics";
  id: RequestId;
  params: ServerDiagnosticsParams;
} | {
  method: "signal/deliver";
  id: RequestId;
  params: SignalDeliverParams;
} | {
  method: "signal/list";
  id: RequestId;
  params: SignalListParams;
} | {
  method: "signal/read";
  id: RequestId;
  params: SignalReadParams;
} | {
  method: "signal/recall";
  id: RequestId;
  params: SignalRecallParams;
} | {
  method: "skills/config/write";
  id: RequestId;
  params: SkillsConfigWriteParams;
} | {
  method: "skills/extraRoots/set";
  id: RequestId;
  params: SkillsExtraRootsSetParams;
} | {
  method: "skills/list";
  id: RequestId;
  params: SkillsListParams;
} | {
  method: "thread/archive";
  id: RequestId;
  params: ThreadArchiveParams;
} | {
  method: "thread/attachment/add";
  id: RequestId;
  params: ThreadAttachmentAddParams;
} | {
  method: "thread/attachment/list";
  id: RequestId;
  params: ThreadAttachmentListParams;
} | {
  method: "thread/attachment/remove";
  id: RequestId;
  params: ThreadAttachmentRemoveParams;
} | {
  method: "thread/attachmentOwner/list";
  id: RequestId;
  params: ThreadAttachmentOwnerListParams;
} | {
  method: "thread/backgroundTerminals/clean";
  id: RequestId;
  params: ThreadBackgroundTerminalsCleanParams;
} | {
  method: "thread/backgroundTerminals/list";
  id: RequestId;
  params: ThreadBackgroundTerminalsListParams;
} | {
  method: "thread/backgroundTerminals/terminate";
  id: RequestId;
  params: ThreadBackgroundTerminalsTerminateParams;
} | {
  method: "thread/budget/set";
  id: RequestId;
  params: ThreadBudgetSetParams;
} | {
  method: "thread/compact/start";
  id: RequestId;
  params: ThreadCompactStartParams;
} | {
  method: "thread/decrement_elicitation";
  id: RequestId;
  params: ThreadDecrementElicitationParams;
} | {
  method: "thread/delete";
  id: RequestId;
  params: ThreadDeleteParams;
} | {
  method: "thread/fork";
  id: RequestId;
  params: ThreadForkParams;
} | {
  method: "thread/goal/clear";
  id: RequestId;
  params: ThreadGoalClearParams;
} | {
  method: "thread/goal/get";
  id: RequestId;
  params: ThreadGoalGetParams;
} | {
  method: "thread/goal/set";
  id: RequestId;
  params: ThreadGoalSetParams;
} | {
  method: "thread/increment_elicitation";
  id: RequestId;
  params: ThreadIncrementElicitationParams;
} | {
  method: "thread/inject_items";
  id: RequestId;
  params: ThreadInjectItemsParams;
} | {
  method: "thread/items/list";
  id: RequestId;
  params: ThreadItemsListParams;
} | {
  method: "thread/items/read";
  id: RequestId;
  params: ThreadItemsReadParams;
} | {
  method: "thread/list";
  id: RequestId;
  params: ThreadListParams;
} | {
  method: "thread/loaded/list";
  id: RequestId;
  params: ThreadLoadedListParams;
} | {
  method: "thread/memory/read";
  id: RequestId;
  params: ThreadMemoryReadParams;
} | {
  method: "thread/memoryMode/set";
  id: RequestId;
  params: ThreadMemoryModeSetParams;
} | {
  method: "thread/metadata/update";
  id: RequestId;
  params: ThreadMetadataUpdateParams;
} | {
  method: "thread/name/set";
  id: RequestId;
  params: ThreadSetNameParams;
} | {
  method: "thread/prepareApprovedPlan";
  id: RequestId;
  params: ThreadPrepareApprovedPlanParams;
} | {
  method: "thread/queue/add";
  id: RequestId;
  params: ThreadQueueAddParams;
} | {
  method: "thread/queue/delete";
  id: RequestId;
  params: ThreadQueueDeleteParams;
} | {
  method: "thread/queue/list";
  id: RequestId;
  params: ThreadQueueListParams;
} | {
  method: "thread/queue/reorder";
  id: RequestId;
  params: ThreadQueueReorderParams;
} | {
  method: "thread/queue/start";
  id: RequestId;
  params: ThreadQueueStartParams;
} | {
  method: "thread/queue/update";
  id: RequestId;
  params: ThreadQueueUpdateParams;
} | {
  method: "thread/read";
  id: RequestId;
  params: ThreadReadParams;
} | {
  method: "thread/readState/update";
  id: RequestId;
  params: ThreadReadStateUpdateParams;
} | {
  method: "thread/realtime/listVoices";
  id: RequestId;
  params: ThreadRealtimeListVoicesParams;
} | {
  method: "thread/realtime/stop";
  id: RequestId;
  params: ThreadRealtimeStopParams;
} | {
  method: "thread/resume";
  id: RequestId;
  params: ThreadResumeParams;
} | {
  method: "thread/revert";
  id: RequestId;
  params: ThreadRevertParams;
} | {
  method: "thread/search";
  id: RequestId;
  params: ThreadSearchParams;
} | {
  method: "thread/searchOccurrences";
  id: RequestId;
  params: ThreadSearchOccurrencesParams;
} | {
  method: "thread/section/move";
  id: RequestId;
  params: ThreadSectionMoveParams;
} | {
  method: "thread/settings/update";
  id: RequestId;
  params: ThreadSettingsUpdateParams;
} | {
  method: "thread/shellCommand";
  id: RequestId;
  params: ThreadShellCommandParams;
} | {
  method: "thread/start";
  id: RequestId;
  params: ThreadStartParams;
} | {
  method: "thread/timeline/list";
  id: RequestId;
  params: ThreadTimelineListParams;
} | {
  method: "thread/turns/list";
  id: RequestId;
  params: ThreadTurnsListParams;
} | {
  method: "thread/unarchive";
  id: RequestId;
  params: ThreadUnarchiveParams;
} | {
  method: "thread/unsubscribe";
  id: RequestId;
  params: ThreadUnsubscribeParams;
} | {
  method: "thread/wake/cancel";
  id: RequestId;
  params: ThreadWakeCancelParams;
} | {
  method: "thread/wake/list";
  id: RequestId;
  params: ThreadWakeListParams;
} | {
  method: "thread/wake/set";
  id: RequestId;
  params: ThreadWakeSetParams;
} | {
  method: "threadSection/create";
  id: RequestId;
  params: ThreadSectionCreateParams;
} | {
  method: "threadSection/delete";
  id: RequestId;
  params: ThreadSectionDeleteParams;
} | {
  method: "threadSection/list";
  id: RequestId;
  params: ThreadSectionListParams;
} | {
  method: "threadSection/update";
  id: RequestId;
  params: ThreadSectionUpdateParams;
} | {
  method: "turn/interrupt";
  id: RequestId;
  params: TurnInterruptParams;
} | {
  method: "turn/settings/update";
  id: RequestId;
  params: TurnSettingsUpdateParams;
} | {
  method: "turn/start";
  id: RequestId;
  params: TurnStartParams;
} | {
  method: "turn/steer";
  id: RequestId;
  params: TurnSteerParams;
} | {
  method: "usage/read";
  id: RequestId;
  params: UsageReadParams;
} | {
  method: "userVerification/status";
  id: RequestId;
  params: UserVerificationStatusParams;
} | {
  method: "windowsSandbox/readiness";
  id: RequestId;
  params: null;
};

/** The kind of a failure, for programs to decide by; newer servers may add kinds. */
export type CodexErrorInfo = "contextWindowExceeded" | "sessionBudgetExceeded" | "usageLimitExceeded" | "rateLimitExceeded" | "flexUnavailable" | "serverOverloaded" | "modelNotFound" | "policyCapacityUnavailable" | "cyberPolicy" | "misalignmentPolicyViolation" | "tooManyDenials" | "internalServerError" | "unauthorized" | "badRequest" | "threadRollbackFailed" | "sandboxError" | "other" | "inferenceHookDenied" | {
  /** The HTTP answer behind a failure. */
  httpConnectionFailed: {
    /** Null when there was no HTTP answer. */
    httpStatusCode: number | null;
  };
} | {
  /** The HTTP answer behind a failure. */
  responseStreamConnectionFailed: {
    /** Null when there was no HTTP answer. */
    httpStatusCode: number | null;
  };
} | {
  /** The HTTP answer behind a failure. */
  responseStreamDisconnected: {
    /** Null when there was no HTTP answer. */
    httpStatusCode: number | null;
  };
} | {
  /** The HTTP answer behind a failure. */
  responseTooManyFailedAttempts: {
    /** Null when there was no HTTP answer. */
    httpStatusCode: number | null;
  };
} | {
  /** Which kind of turn is in the way. */
  activeTurnNotSteerable: {
    turnKind: NonSteerableTurnKind;
  };
} | string | { [key: string]: JsonValue };

/** What is known of one agent. */
export type CollabAgentState = {
  status: CollabAgentStatus;
  /** A text that goes with the status; null if there is none. */
  message: string | null;
};

/** What an agent is doing, as far as its caller knows. */
export type CollabAgentStatus = "pendingInit" | "running" | "interrupted" | "completed" | "errored" | "shutdown" | "notFound";

/** The tools by which agents work together. */
export type CollabAgentTool = "spawnAgent" | "sendInput" | "resumeAgent" | "wait" | "closeAgent" | "sendMessage" | "followupTask" | "interruptAgent" | "listAgents";

/** How far such a call has come. */
export type CollabAgentToolCallStatus = "inProgress" | "completed" | "failed" | "interrupted";

/** A mode of work, and the model settings that go with it. */
export type CollaborationMode = {
  mode: ModeKind;
  settings: Settings;
};

/** List the collaboration modes. */
export type CollaborationModeListParams = { [key: string]: JsonValue };

/** All collaboration modes. */
export type CollaborationModeListResponse = {
  data: Array<CollaborationModeMask>;
};

/** A preset: what a collaboration mode changes in a thread's settings. */
export type CollaborationModeMask = {
  name: string;
  mode: ModeKind | null;
  /** Null leaves the thread's model. */
  model: string | null;
  reasoning_effort: ReasoningEffort | null;
};

/** What one part of a command does, as far as its text tells. */
export type CommandAction = {
  type: "read";
  command: string;
  /** The file's name, short enough to show. */
  name: string;
  path: LegacyAppPathString;
} | {
  type: "listFiles";
  command: string;
  /** Null if the command names none. */
  path: string | null;
} | {
  type: "search";
  command: string;
  /** Null if it could not be made out. */
  query: string | null;
  path: string | null;
} | {
  type: "unknown";
  /** The part of the command line that this is about. */
  command: string;
};

/** A piece of a command's output. */
export type CommandExecOutputDeltaNotification = {
  /** The one given to `command/exec`. */
  processId: string;
  stream: CommandExecOutputStream;
  deltaBase64: string;
  /** True on the last piece of a stream that `outputBytesCap` cut off. */
  capReached: boolean;
};

/** Where output comes from; with a terminal it is all `stdout`. */
export type CommandExecOutputStream = "stdout" | "stderr";

/** Run a program outside any thread, in the sandbox; answered when it has ended. */
export type CommandExecParams = {
  _meta?: RequestMeta | null;
  /** Program and arguments; at least one. */
  command: Array<string>;
  /** Chosen by the client, for its connection; streams, terminals and follow-ups need it. */
  processId?: string | null;
  /** Give it a terminal; implies `streamStdin` and `streamStdoutStderr`. */
  tty?: boolean;
  /** Accept `command/exec/write`; needs `processId`. */
  streamStdin?: boolean;
  /** Send output as `command/exec/outputDelta`, not in the response; needs `processId`. */
  streamStdoutStderr?: boolean;
  /** Bytes kept of each stream; null means the server's default. */
  outputBytesCap?: number | null;
  /** Not together with `outputBytesCap`. */
  disableOutputCap?: boolean;
  /** Not together with `timeoutMs`. */
  disableTimeout?: boolean;
  /** Null means the server's default. */
  timeoutMs?: number | null;
  /** Null means the server's own. */
  cwd?: string | null;
  /** Laid over the server's own; null unsets a variable. */
  env?: { [key: string]: string | null } | null;
  /** Only with `tty`. */
  size?: CommandExecTerminalSize | null;
  /** Null means the configured one; not together with `permissionProfile`. */
  sandboxPolicy?: SandboxPolicy | null;
  /** Id of a profile; null means the configured permissions. */
  permissionProfile?: string | null;
};

/** Change the size of a running command's terminal. */
export type CommandExecResizeParams = {
  _meta?: RequestMeta | null;
  /** The one given to `command/exec`. */
  processId: string;
  size: CommandExecTerminalSize;
};

/** Nothing. */
export type CommandExecResizeResponse = { [key: string]: JsonValue };

/** How the program ended, and what it printed. */
export type CommandExecResponse = {
  exitCode: number;
  /** Empty if it was streamed. */
  stdout: string;
  /** Empty if it was streamed. */
  stderr: string;
};

/** Size of a terminal, in characters. */
export type CommandExecTerminalSize = {
  rows: number;
  cols: number;
};

/** End a running command. */
export type CommandExecTerminateParams = {
  _meta?: RequestMeta | null;
  /** The one given to `command/exec`. */
  processId: string;
};

/** Nothing: the response to `command/exec` tells how it ended. */
export type CommandExecTerminateResponse = { [key: string]: JsonValue };

/** Write to the input of a running command, close it, or both. */
export type CommandExecWriteParams = {
  _meta?: RequestMeta | null;
  /** The one given to `command/exec`. */
  processId: string;
  deltaBase64?: string | null;
  /** Close it after `deltaBase64`, if there is any. */
  closeStdin?: boolean;
};

/** Nothing. */
export type CommandExecWriteResponse = { [key: string]: JsonValue };

/** The user's word on a command: after `decline` the turn goes on, `cancel` ends it too. */
export type CommandExecutionApprovalDecision = "accept" | "acceptForSession" | "decline" | "cancel" | {
  /** The rule that the user wants to add. */
  acceptWithExecpolicyAmendment: {
    /** The words with which such commands begin. */
    execpolicy_amendment: Array<string>;
  };
} | {
  /** The host that the user wants to allow or deny. */
  applyNetworkPolicyAmendment: {
    network_policy_amendment: NetworkPolicyAmendment;
  };
};

/** What is to be approved: a command, or input for one that already runs. */
export type CommandExecutionApprovalKind = "command" | "writeStdin" | "humanCommand";

/** More output of a command. */
export type CommandExecutionOutputDeltaNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  /** To be appended to the item's `aggregatedOutput`. */
  delta: string;
};

/** Ask the user whether a command may run. */
export type CommandExecutionRequestApprovalParams = {
  /** `humanCommand` wants a person to decide now: only accept, decline and cancel are valid. */
  kind: CommandExecutionApprovalKind;
  threadId: string;
  turnId: string;
  itemId: string;
  /** Unix milliseconds when the question was first asked. */
  startedAtMs: number;
  /** Opaque; tells several questions about one item apart. Absent for a plain command. */
  approvalId: string | null;
  environmentId: string | null;
  /** Why it is asked, for the user to read. */
  reason: string | null;
  /** Present when the question is about a connection. */
  networkApprovalContext: NetworkApprovalContext | null;
  command: string | null;
  cwd: LegacyAppPathString | null;
  /** The command taken apart for display, as far as it was understood. */
  commandActions: Array<CommandAction> | null;
  additionalPermissions: AdditionalPermissionProfile | null;
  /** What `acceptWithExecpolicyAmendment` may add: words with which commands begin. */
  proposedExecpolicyAmendment: Array<string> | null;
  proposedNetworkPolicyAmendments: Array<NetworkPolicyAmendment> | null;
  /** What to offer the user, in this order. */
  availableDecisions: Array<CommandExecutionApprovalDecision> | null;
};

/** The user's decision about the command. */
export type CommandExecutionRequestApprovalResponse = {
  decision: CommandExecutionApprovalDecision;
};

/** Who ran a command: the model, the user, or a terminal that the model keeps open. */
export type CommandExecutionSource = "agent" | "userShell" | "unifiedExecStartup" | "unifiedExecInteraction";

/** How far a command has come; `declined` means that it was not allowed. */
export type CommandExecutionStatus = "inProgress" | "completed" | "failed" | "declined";

/** A command of another agent. */
export type CommandMigration = {
  name: string;
};

/** Which apps the agent may operate. */
export type ComputerUseConfig = {
  /** For apps that are not named. */
  default_app_access: AllowDenyRequirement | null;
  macos: ComputerUseMacosConfig | null;
  windows: ComputerUseWindowsConfig | null;
};

/** Which macOS apps the agent may operate. */
export type ComputerUseMacosConfig = {
  /** By bundle identifier. */
  bundle_ids: { [key: string]: AllowDenyRequirement } | null;
};

/** Which macOS apps the agent may operate, as the administrator sets it. */
export type ComputerUseMacosRequirements = {
  /** By bundle identifier. */
  bundleIds: { [key: string]: AllowDenyRequirement } | null;
};

/** Demands on the agent's use of apps. */
export type ComputerUseRequirements = {
  /** Whether the agent may work while the machine is locked. */
  allowLockedComputerUse: boolean | null;
  allowPersistentApproval: boolean | null;
  /** For apps that are not named. */
  defaultAppAccess: AllowDenyRequirement | null;
  macos: ComputerUseMacosRequirements | null;
  windows: ComputerUseWindowsRequirements | null;
};

/** Which Windows apps the agent may operate. */
export type ComputerUseWindowsConfig = {
  /** By application user model id. */
  aumids: { [key: string]: AllowDenyRequirement } | null;
  /** Programs that are recognised by publisher and product. */
  exes: Array<ComputerUseWindowsExeConfig> | null;
};

/** A Windows program that the agent may or may not operate. */
export type ComputerUseWindowsExeConfig = {
  publisher_name: string;
  product_name: string;
  /** File name of the program; null when not given. */
  binary_name: string | null;
  access: AllowDenyRequirement;
};

/** A Windows program that the administrator allows or denies to the agent. */
export type ComputerUseWindowsExeRequirement = {
  publisherName: string;
  productName: string;
  /** File name of the program; null when not given. */
  binaryName: string | null;
  access: AllowDenyRequirement;
};

/** Which Windows apps the agent may operate, as the administrator sets it. */
export type ComputerUseWindowsRequirements = {
  /** By application user model id. */
  aumids: { [key: string]: AllowDenyRequirement } | null;
  /** Programs that are recognised by publisher and product. */
  exes: Array<ComputerUseWindowsExeRequirement> | null;
};

/**
 * Settings in force, under their names in `config.toml`.
 *
 * All others that are known are members too, in the form of the file; null where nothing is set.
 */
export type Config = {
  model: string | null;
  /** Model for `review/start`; null means the thread's own. */
  review_model: string | null;
  /** Tokens. */
  model_context_window: number | null;
  /** Tokens at which a thread's history is compacted. */
  model_auto_compact_token_limit: number | null;
  model_auto_compact_token_limit_scope: AutoCompactTokenLimitScope | null;
  /** Id of an entry in `model_providers`, or of a built-in provider. */
  model_provider: string | null;
  approval_policy: AskForApproval | null;
  approvals_reviewer: ApprovalsReviewer | null;
  sandbox_mode: SandboxMode | null;
  /** Used when `sandbox_mode` is `workspace-write`. */
  sandbox_workspace_write: SandboxWorkspaceWrite | null;
  forced_chatgpt_workspace_id: ForcedChatgptWorkspaceIds | null;
  /** The only way to sign in; null allows all. */
  forced_login_method: ForcedLoginMethod | null;
  web_search: WebSearchMode | null;
  /** A provider that the model itself selects comes first. */
  client_search_provider: WebSearchProvider | null;
  tools: ToolsV2 | null;
  /** System instructions. */
  instructions: string | null;
  developer_instructions: string | null;
  /** Replaces the prompt that asks the model to summarise a history. */
  compact_prompt: string | null;
  model_reasoning_effort: ReasoningEffort | null;
  model_reasoning_summary: ReasoningSummary | null;
  model_verbosity: Verbosity | null;
  service_tier: string | null;
  analytics: AnalyticsConfig | null;
  apps: AppsConfig | null;
  browser_use: BrowserUseConfig | null;
  computer_use: ComputerUseConfig | null;
  /** Settings of a desktop client: carried, not interpreted. */
  desktop: { [key: string]: JsonValue } | null;
  [key: string]: unknown;
};

/** Write several settings in one step. */
export type ConfigBatchWriteParams = {
  _meta?: RequestMeta | null;
  edits: Array<ConfigEdit>;
  /** File to write; null means the user's `config.toml`. */
  filePath?: string | null;
  /** Version that the file must still have, from `config/read`; null skips the check. */
  expectedVersion?: string | null;
  /** Also hand the new settings to loaded threads; their model, effort and service tier stay. */
  reloadUserConfig?: boolean;
};

/** One setting to write. */
export type ConfigEdit = {
  /** Dotted path of the setting in the file, as `sandbox_workspace_write.network_access`. */
  keyPath: string;
  /** New value; null removes the setting. */
  value: JsonValue;
  mergeStrategy: MergeStrategy;
};

/** One layer's own settings. */
export type ConfigLayer = {
  name: ConfigLayerSource;
  /** Opaque; changes with the layer's content. */
  version: string;
  config: JsonValue;
  /** Why the layer does not count; null when it does. */
  disabledReason?: string | null;
};

/** A layer and the state it was read in. */
export type ConfigLayerMetadata = {
  name: ConfigLayerSource;
  /** Opaque; changes with the layer's content. */
  version: string;
};

/** Where a layer of settings comes from. */
export type ConfigLayerSource = {
  type: "packagedDefaults";
  file: AbsolutePathBuf;
} | {
  type: "mdm";
  /** Preferences domain that holds the settings. */
  domain: string;
  /** Key inside `domain`. */
  key: string;
} | {
  type: "system";
  /** The file may not exist. */
  file: AbsolutePathBuf;
} | {
  type: "enterpriseManaged";
  id: string;
  /** Shown in diagnostics, so that an administrator can be told which layer is at fault. */
  name: string;
} | {
  type: "user";
  /** The file may not exist. */
  file: AbsolutePathBuf;
  /** Profile whose settings lie over the base file; null for the base file itself. */
  profile: string | null;
} | {
  type: "project";
  /** The `.codex` folder, somewhere between the working directory and the project's root. */
  dotCodexFolder: AbsolutePathBuf;
} | {
  type: "sessionFlags";
} | {
  type: "legacyManagedConfigTomlFromFile";
  file: AbsolutePathBuf;
} | {
  type: "legacyManagedConfigTomlFromMdm";
};

/** Ask for the settings in force. */
export type ConfigReadParams = {
  /** Also return each layer by itself. */
  includeLayers?: boolean;
  /** Directory whose project layers count too; null leaves project layers out. */
  cwd?: string | null;
};

/** The settings in force, with `[redacted]` in the place of each secret. */
export type ConfigReadResponse = {
  config: Config;
  /** The layer that decided a setting, by the setting's dotted path. */
  origins: { [key: string]: ConfigLayerMetadata };
  /** Absent unless `includeLayers` asked for them. */
  layers?: Array<ConfigLayer> | null;
};

/** What an administrator demands; a member that is null demands nothing. */
export type ConfigRequirements = {
  /** The only provider that may be used. */
  modelProvider: string | null;
  /** Complete definitions, under their names in `config.toml`. */
  modelProviders: { [key: string]: JsonValue } | null;
  /** Ways to sign in that remain after all restrictions; an empty list leaves none. */
  allowedLoginMethods: Array<ForcedLoginMethod> | null;
  cliAuthCredentialsStore: CliAuthCredentialsStoreMode | null;
  chatgptBaseUrl: string | null;
  /** Added to what every thread tells the model. */
  additionalDeveloperInstructions: string | null;
  allowedApprovalPolicies: Array<AskForApproval> | null;
  allowedApprovalsReviewers: Array<ApprovalsReviewer> | null;
  allowedSandboxModes: Array<SandboxMode> | null;
  allowedWindowsSandboxImplementations: Array<WindowsSandboxImplementation> | null;
  /** By profile id; `permissionProfile/list` shows the outcome. */
  allowedPermissionProfiles: { [key: string]: boolean } | null;
  /** Id of the permission profile that is used unless another is chosen. */
  defaultPermissions: string | null;
  allowedWebSearchModes: Array<WebSearchMode> | null;
  /** Ignore hooks that others than the administrator configured. */
  allowManagedHooksOnly: boolean | null;
  allowBrowserAndComputerUse: boolean | null;
  /** Whether pictures of app windows may be taken. */
  allowAppshots: boolean | null;
  allowRemoteControl: boolean | null;
  computerUse: ComputerUseRequirements | null;
  browserUse: BrowserUseRequirements | null;
  inAppBrowser: InAppBrowserRequirements | null;
  /** Features that are forced on or off, by name. */
  featureRequirements: { [key: string]: boolean } | null;
  /** Hooks that always run. */
  hooks: ManagedHooksRequirements | null;
  enforceResidency: ResidencyRequirement | null;
  network: NetworkRequirements | null;
  application: ApplicationRequirements | null;
  autoReview: AutoReviewRequirements | null;
  models: ModelsRequirements | null;
  /** Directory of the databases. */
  sqliteHome: string | null;
  logDir: string | null;
  /** Path of a file that lists the models. */
  modelCatalogJson: string | null;
  checkForUpdateOnStartup: boolean | null;
  /** Whether commands may run in a login shell. */
  allowLoginShell: boolean | null;
  feedback: FeedbackRequirements | null;
  otel: OtelRequirements | null;
};

/** What an administrator demands; null when nobody does. */
export type ConfigRequirementsReadResponse = {
  /**
   * Whether the speed modes are restricted one by one; absent or null on servers that treat them
   * as one.
   */
  supportsIndependentSpeedModes: boolean | null;
  /** Null when nothing is demanded. */
  requirements: ConfigRequirements | null;
};

/** Write one setting. */
export type ConfigValueWriteParams = {
  _meta?: RequestMeta | null;
  /** Dotted path of the setting in the file. */
  keyPath: string;
  /** New value; null removes the setting. */
  value: JsonValue;
  mergeStrategy: MergeStrategy;
  /** File to write; null means the user's `config.toml`. */
  filePath?: string | null;
  /** Version that the file must still have, from `config/read`; null skips the check. */
  expectedVersion?: string | null;
};

/** A setting that was ignored or is doubtful. */
export type ConfigWarningNotification = {
  summary: string;
  /** What to do about it, or the error. */
  details: string | null;
  /** The file; absent when no file is to blame. */
  path?: string | null;
  /** Place in the file; absent when unknown. */
  range?: TextRange | null;
};

/** What was written, and whether it counts. */
export type ConfigWriteResponse = {
  status: WriteStatus;
  /** The file's new version, for the next `expectedVersion`. */
  version: string;
  filePath: AbsolutePathBuf;
  /** Only with `status` `okOverridden`. */
  overriddenMetadata: OverriddenMetadata | null;
};

/** Reasoning settings for the model. */
export type ConfigurationReasoning = {
  effort: ReasoningEffort;
};

/** What a hook does. */
export type ConfiguredHookHandler = {
  type: "command";
  command: string;
  /** Used on Windows; null means `command` there too. */
  commandWindows: string | null;
  /** Seconds. */
  timeoutSec: number | null;
  /** Do not wait for the command. */
  async: boolean;
  /** Shown while it runs. */
  statusMessage: string | null;
  /** Tokens of added context from which on the rest goes to a file: null means 2500, 0 never. */
  additionalContextLimit: number | null;
} | {
  type: "mcp_tool";
  /** Name of a configured MCP server. */
  server: string;
  tool: string;
  /** Arguments of the call. */
  input: { [key: string]: JsonValue };
  /** Seconds. */
  timeoutSec: number | null;
  /** Shown while it runs. */
  statusMessage: string | null;
} | {
  type: "prompt";
} | {
  type: "agent";
};

/** Hooks that share a condition. */
export type ConfiguredHookMatcherGroup = {
  /** Pattern for what the event is about, as a tool's name; null matches everything. */
  matcher: string | null;
  hooks: Array<ConfiguredHookHandler>;
};

/** What there is to show about one app. */
export type ConnectorMetadata = {
  id: string;
  name: string;
  description: string | null;
  iconUrl: string | null;
  iconUrlDark: string | null;
  distributionChannel: string | null;
  /** Page where the user connects the app. */
  installUrl: string | null;
  /** Plugins that use the app. */
  pluginDisplayNames: Array<string>;
  /** Null unless `includeTools` was true. */
  toolSummaries: Array<AppToolSummary> | null;
};

/** One part of a message. */
export type ContentItem = {
  type: "input_text";
  text: string;
} | {
  type: "input_image";
  detail?: ImageDetail | null;
} & ({
  image_url: string;
} | {
  file_id: string;
}) | {
  type: "input_audio";
} & ({
  audio_url: string;
} | {
  file_id: string;
}) | {
  type: "output_text";
  text: string;
  /** The provider's notes on the text, citations for example. */
  annotations?: Array<JsonValue> | null;
  /** Log probabilities of the tokens. */
  logprobs?: Array<JsonValue> | null;
};

/** A thread was compacted; deprecated for the `contextCompaction` item. */
export type ContextCompactedNotification = {
  threadId: string;
  turnId: string;
};

/** Where the conversation's directory stood in its repository. */
export type ConversationGitInfo = {
  sha: string | null;
  branch: string | null;
  origin_url: string | null;
};

/** A stored conversation, without what was said. */
export type ConversationSummary = {
  conversationId: ThreadId;
  /** The conversation's file. */
  path: string;
  /** The first user message. */
  preview: string;
  /** When it began, RFC 3339. */
  timestamp: string | null;
  /** When it last changed, RFC 3339. */
  updatedAt: string | null;
  modelProvider: string;
  cwd: string;
  /** Version of the program that began it. */
  cliVersion: string;
  source: SessionSource;
  gitInfo: ConversationGitInfo | null;
};

/** Credits that an account has. */
export type CreditsSnapshot = {
  hasCredits: boolean;
  unlimited: boolean;
  /** Amount as text; null when unknown. */
  balance: string | null;
};

/** Tell the time by the client's clock. */
export type CurrentTimeReadParams = {
  threadId: string;
};

/** The client's time. */
export type CurrentTimeReadResponse = {
  /** Unix seconds. */
  currentTimeAt: number;
};

/** How a turn asks to be treated in cyber security work; the provider decides. */
export type CyberAccessProgram = "standard" | "daybreakBlue" | "daybreakRed";

/** Something in use will go away. */
export type DeprecationNoticeNotification = {
  summary: string;
  /** Why, or what to use instead. */
  details: string | null;
};

/** Which introduction a desktop client should begin with. */
export type DesktopOnboardingEntrypoint = "life_sciences";

/** One part of what a client's tool returned. */
export type DynamicToolCallOutputContentItem = {
  type: "inputText";
  text: string;
} | {
  type: "inputImage";
  /** May be a `data:` URL that holds the image. */
  imageUrl: string;
} | {
  type: "inputAudio";
  audioUrl: string;
};

/** Run a tool that the client declared in `dynamicTools` of `thread/start`. */
export type DynamicToolCallParams = {
  threadId: string;
  turnId: string;
  /** The model's id of the call. */
  callId: string;
  /** Null for a tool that was declared on its own. */
  namespace: string | null;
  tool: string;
  /** As the model wrote them. */
  arguments: JsonValue;
};

/** The tool's outcome. */
export type DynamicToolCallResponse = {
  /** What the model gets to see. */
  contentItems: Array<DynamicToolCallOutputContentItem>;
  success: boolean;
};

/** How far a call of a client's tool has come. */
export type DynamicToolCallStatus = "inProgress" | "completed" | "failed";

/** What a namespace can hold. */
export type DynamicToolNamespaceTool = {
  type: "function";
  /** Tell the model of it only when it looks for tools. */
  deferLoading?: boolean;
  description: string;
  /** JSON Schema of the arguments. */
  inputSchema: JsonValue;
  name: string;
};

/** A tool that the client runs, or a namespace of them. */
export type DynamicToolSpec = {
  type: "function";
  /** Tell the model of it only when it looks for tools. */
  deferLoading?: boolean;
  description: string;
  /** JSON Schema of the arguments. */
  inputSchema: JsonValue;
  name: string;
} | {
  type: "namespace";
  description: string;
  name: string;
  tools: Array<DynamicToolNamespaceTool>;
};

/** Make another machine known, by its exec server. */
export type EnvironmentAddParams = {
  _meta?: RequestMeta | null;
  /** Names the environment from now on. */
  environmentId: string;
  execServerUrl: string;
  /** Sent at every connect; only for a secure or a loopback address. */
  authBearerToken?: string | null;
  /** Sent as `X-Request-ID` at every connect; same rule as `authBearerToken`. */
  websocketRequestId?: string | null;
  /** Null means the server's default. */
  connectTimeoutMs?: number | null;
  skills?: EnvironmentSkillsParams | null;
};

/** Nothing. */
export type EnvironmentAddResponse = { [key: string]: JsonValue };

/** A thread's environment came or went; the method says which. */
export type EnvironmentConnectionNotification = {
  threadId: string;
  environmentId: string;
};

/** Ask an environment about itself. */
export type EnvironmentInfoParams = {
  environmentId: string;
};

/** What an environment says about itself. */
export type EnvironmentInfoResponse = {
  shell: EnvironmentShellInfo;
  /** Default working directory, as a file URI; null if it named none. */
  cwd: PathUri | null;
};

/** The shell of an environment. */
export type EnvironmentShellInfo = {
  /** Such as `zsh`, `bash`, `powershell`, `sh` or `cmd`. */
  name: string;
  /** Path in the environment's own style, or a command name. */
  path: string;
};

/** Skills that an environment has to offer. */
export type EnvironmentSkillsParams = {
  /** Exact catalog names; checked before a model is called. */
  required?: Array<string> | null;
};

/** Whether an environment answers, is not connected yet, failed, or is not configured. */
export type EnvironmentStatusKind = "ready" | "pending" | "disconnected" | "unknown";

/** Look at how an environment is, without connecting to it. */
export type EnvironmentStatusParams = {
  environmentId: string;
};

/** How an environment is at the moment. */
export type EnvironmentStatusResponse = {
  status: EnvironmentStatusKind;
  /** Why it is `disconnected` or `unknown`; absent otherwise. */
  error?: string | null;
};

/** What a program needs to know of an error; further members are its facts. */
export type ErrorData = {
  /** A stable camelCase word, such as `threadNotFound`. */
  code: string;
  [key: string]: unknown;
};

/** A model call failed; with `willRetry` the turn goes on. */
export type ErrorNotification = {
  error: TurnError;
  willRetry: boolean;
  threadId: string;
  turnId: string;
};

/** Ask the user to let the agent run a command. */
export type ExecCommandApprovalParams = {
  conversationId: ThreadId;
  /** Id of the tool call that wants the command. */
  callId: string;
  /** Tells several approvals of one call apart; null when there is one. */
  approvalId: string | null;
  /** Program and arguments. */
  command: Array<string>;
  cwd: string;
  /** Why the agent asks; null when it gave no reason. */
  reason: string | null;
  /** For display only: what the command seems to do, part by part. */
  parsedCmd: Array<ParsedCommand>;
};

/** Whether the command may run. */
export type ExecCommandApprovalResponse = {
  decision: ReviewDecision;
};

/** One feature that can be switched. */
export type ExperimentalFeature = {
  /** Key in `config.toml` and in `experimentalFeature/enablement/set`. */
  name: string;
  stage: ExperimentalFeatureStage;
  /** For people; null outside beta. */
  displayName: string | null;
  /** Null outside beta. */
  description: string | null;
  /** Text that introduces the feature to users; null outside beta. */
  announcement: string | null;
  enabled: boolean;
  defaultEnabled: boolean;
};

/** Switch features on or off while the server runs. */
export type ExperimentalFeatureEnablementSetParams = {
  _meta?: RequestMeta | null;
  /** By feature name; features that are not named stay as they are. */
  enablement: { [key: string]: boolean };
};

/** What was switched. */
export type ExperimentalFeatureEnablementSetResponse = {
  /** By feature name; only those that the request changed. */
  enablement: { [key: string]: boolean };
};

/** Page through the features that can be switched. */
export type ExperimentalFeatureListParams = {
  /** Opaque, from `nextCursor` of the page before. */
  cursor?: string | null;
  /** Features a page; null lets the server choose. */
  limit?: number | null;
  /** Loaded thread whose settings decide what is enabled; null means the server's settings. */
  threadId?: string | null;
};

/** One page; `nextCursor` is null at the end. */
export type ExperimentalFeatureListResponse = {
  data: Array<ExperimentalFeature>;
  nextCursor: string | null;
};

/** How far a feature has come; `removed` is a name kept for old configurations. */
export type ExperimentalFeatureStage = "beta" | "underDevelopment" | "stable" | "deprecated" | "removed";

/** Look for what other agents have. */
export type ExternalAgentConfigDetectParams = {
  /** Also look in the user's home. */
  includeHome?: boolean;
  /** Folders to look in. */
  cwds?: Array<string> | null;
  maxSessionAgeDays?: number | null;
  maxSessions?: number | null;
  /** Ignored; older clients send it. */
  source?: string | null;
  /** Which agent; null means the usual one. */
  migrationSource?: string | null;
};

/** What was found. */
export type ExternalAgentConfigDetectResponse = {
  items: Array<ExternalAgentConfigMigrationItem>;
  connectors: Array<ExternalAgentDetectedConnectorCandidate>;
};

/** The imports of this server, the oldest first. */
export type ExternalAgentConfigImportHistoriesReadResponse = {
  data: Array<ExternalAgentConfigImportHistory>;
  connectors: Array<ExternalAgentImportedConnectorCandidate>;
};

/** One import. */
export type ExternalAgentConfigImportHistory = {
  importId: string;
  providerId: string | null;
  /** Unix time in milliseconds. */
  completedAtMs: number;
  successes: Array<ExternalAgentConfigImportItemTypeSuccess>;
  failures: Array<ExternalAgentConfigImportItemTypeFailure>;
};

/** Something that could not be taken over. */
export type ExternalAgentConfigImportItemTypeFailure = {
  itemType: ExternalAgentConfigMigrationItemType;
  errorType: string | null;
  subErrorType: string | null;
  failureStage: string;
  message: string;
  cwd: string | null;
  source: string | null;
};

/** Something that was taken over. */
export type ExternalAgentConfigImportItemTypeSuccess = {
  itemType: ExternalAgentConfigMigrationItemType;
  cwd: string | null;
  source: string | null;
  target: string | null;
  /** Of a conversation. */
  title: string | null;
};

/** Something that can be taken over. */
export type ExternalAgentConfigMigrationItem = {
  itemType: ExternalAgentConfigMigrationItemType;
  description: string;
  /** Folder that it belongs to; null or empty means the user's home. */
  cwd: string | null;
  details: MigrationDetails | null;
};

/** What can be taken over. */
export type ExternalAgentConfigMigrationItemType = "AGENTS_MD" | "CONFIG" | "SKILLS" | "PLUGINS" | "MCP_SERVER_CONFIG" | "SUBAGENTS" | "HOOKS" | "COMMANDS" | "MEMORY" | "SESSIONS";

/** A connector that another agent uses. */
export type ExternalAgentDetectedConnectorCandidate = {
  name: string;
  sessionCount: number;
  source: ExternalAgentDetectedConnectorSource;
};

/** Where a connector was found. */
export type ExternalAgentDetectedConnectorSource = "remoteMcpServersConfig" | "sessionToolUse";

/** A connector that an import brought. */
export type ExternalAgentImportedConnectorCandidate = {
  name: string;
  sessionCount: number;
  source: ExternalAgentImportedConnectorSource;
};

/** Where a connector that was taken over was found. */
export type ExternalAgentImportedConnectorSource = "remoteMcpServersConfig";

/** Whether users may send feedback. */
export type FeedbackRequirements = {
  enabled: boolean | null;
};

/** Save a report of a problem as a ZIP file on the server's machine; nothing is sent. */
export type FeedbackSaveParams = {
  _meta?: RequestMeta | null;
  /**
   * Absolute path of a ZIP file that does not exist yet; the caller looks after it from then
   * on.
   */
  savePath: LegacyAppPathString;
  /** Kind of report, in the client's words. */
  classification: string;
  reason?: string | null;
  /** Thread that the report is about; null for none. */
  threadId?: string | null;
  includeLogs?: boolean;
  /** Paths on the server's machine. */
  extraLogFiles?: Array<string> | null;
  tags?: { [key: string]: string } | null;
};

/** Where the report is. */
export type FeedbackSaveResponse = {
  savedPath: LegacyAppPathString;
  threadId: string;
  /** Hash of the prompt; null when it is not known. */
  promptHash: string | null;
};

/** What happens to one file. */
export type FileChange = {
  type: "add";
  /** All of it. */
  content: string;
} | {
  type: "delete";
  /** What the file held. */
  content: string;
} | {
  type: "update";
  unified_diff: string;
  /** Where it moves; null when it stays. */
  move_path: string | null;
};

/** The user's word on a change: after `decline` the turn goes on, `cancel` ends it too. */
export type FileChangeApprovalDecision = "accept" | "acceptForSession" | "decline" | "cancel";

/** Text output of a file change; an older form that is no longer sent. */
export type FileChangeOutputDeltaNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  delta: string;
};

/** The changes of a file change item, as they are now. */
export type FileChangePatchUpdatedNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  /** All of them, in place of those sent before. */
  changes: Array<FileUpdateChange>;
};

/** Ask the user whether files may be changed. */
export type FileChangeRequestApprovalParams = {
  threadId: string;
  turnId: string;
  itemId: string;
  /** Unix milliseconds when the question was first asked. */
  startedAtMs: number;
  reason: string | null;
  /** Folder below which writes would be allowed for the rest of the session. */
  grantRoot: string | null;
};

/** The user's decision about the change. */
export type FileChangeRequestApprovalResponse = {
  decision: FileChangeApprovalDecision;
};

/** What may be done with a path. */
export type FileSystemAccessMode = "read" | "write" | "deny";

/** What an entry speaks of: a path, a pattern or a special place. */
export type FileSystemPath = {
  type: "path";
  path: LegacyAppPathString;
} | {
  type: "glob_pattern";
  pattern: string;
} | {
  type: "special";
  value: FileSystemSpecialPath;
};

/** Access to one path, pattern or special place. */
export type FileSystemSandboxEntry = {
  path: FileSystemPath;
  access: FileSystemAccessMode;
};

/** A place that means something else on each machine or in each project. */
export type FileSystemSpecialPath = {
  kind: "root";
} | {
  kind: "minimal";
} | {
  kind: "project_roots";
  /** A place below each root; null means the whole root. */
  subpath?: LegacyAppPathString | null;
} | {
  kind: "tmpdir";
} | {
  kind: "slash_tmp";
} | {
  kind: "unknown";
  /** Its name, as it was given. */
  path: string;
  subpath?: LegacyAppPathString | null;
};

/** A change to one file. */
export type FileUpdateChange = {
  path: string;
  kind: PatchChangeKind;
  /** A unified diff for an update; the file's text if it is added or deleted. */
  diff: string;
};

/** What has to happen to a file. */
export type FileWakeChange = "created" | "modified" | "deleted" | "any";

/** The ChatGPT workspace, or workspaces, that a login must belong to. */
export type ForcedChatgptWorkspaceIds = string | Array<string>;

/** A way to sign in: a ChatGPT account or an API key. */
export type ForcedLoginMethod = "chatgpt" | "api";

/** Something changed at a watched path. */
export type FsChangedNotification = {
  /** The one given to `fs/watch`. */
  watchId: string;
  changedPaths: Array<AbsolutePathBuf>;
};

/** Copy a file, or a directory with all that is in it. */
export type FsCopyParams = {
  _meta?: RequestMeta | null;
  sourcePath: AbsolutePathBuf;
  destinationPath: AbsolutePathBuf;
  /** Needed for directories; ignored for files. */
  recursive?: boolean;
};

/** Nothing. */
export type FsCopyResponse = { [key: string]: JsonValue };

/** Create a directory. */
export type FsCreateDirectoryParams = {
  _meta?: RequestMeta | null;
  path: AbsolutePathBuf;
  /** Create missing parents too; null means true. */
  recursive?: boolean | null;
};

/** Nothing. */
export type FsCreateDirectoryResponse = { [key: string]: JsonValue };

/** Ask what is at a path. */
export type FsGetMetadataParams = {
  path: AbsolutePathBuf;
};

/** What is at the path. */
export type FsGetMetadataResponse = {
  /** After following a symbolic link. */
  isDirectory: boolean;
  /** A regular file, after following a symbolic link. */
  isFile: boolean;
  /** Whether the path itself is a link. */
  isSymlink: boolean;
  /** Unix milliseconds; 0 if not known. */
  createdAtMs: number;
  /** Unix milliseconds; 0 if not known. */
  modifiedAtMs: number;
};

/** One file or directory in a directory. */
export type FsReadDirectoryEntry = {
  /** Without the path of the directory. */
  fileName: string;
  /** After following a symbolic link. */
  isDirectory: boolean;
  isFile: boolean;
};

/** List what is directly in a directory. */
export type FsReadDirectoryParams = {
  path: AbsolutePathBuf;
};

/** What is directly in the directory. */
export type FsReadDirectoryResponse = {
  entries: Array<FsReadDirectoryEntry>;
};

/** Read a whole file. */
export type FsReadFileParams = {
  path: AbsolutePathBuf;
};

/** The bytes of the file. */
export type FsReadFileResponse = {
  dataBase64: string;
};

/** Delete a file or a directory. */
export type FsRemoveParams = {
  _meta?: RequestMeta | null;
  path: AbsolutePathBuf;
  /** Delete what is in the directory too; null means true. */
  recursive?: boolean | null;
  /** Accept that there is nothing at the path; null means true. */
  force?: boolean | null;
};

/** Nothing. */
export type FsRemoveResponse = { [key: string]: JsonValue };

/** Stop watching a path. */
export type FsUnwatchParams = {
  /** The one given to `fs/watch`. */
  watchId: string;
};

/** Nothing. */
export type FsUnwatchResponse = { [key: string]: JsonValue };

/** Watch a file or directory: changes arrive as `fs/changed`. */
export type FsWatchParams = {
  /** Chosen by the client, for its connection. */
  watchId: string;
  path: AbsolutePathBuf;
};

/** What is being watched. */
export type FsWatchResponse = {
  /** The canonical form of the path that was given. */
  path: AbsolutePathBuf;
};

/** Write a file. */
export type FsWriteFileParams = {
  _meta?: RequestMeta | null;
  path: AbsolutePathBuf;
  /** All that the file is to hold. */
  dataBase64: string;
};

/** Nothing. */
export type FsWriteFileResponse = { [key: string]: JsonValue };

/** What a tool returned: one text, or a list of parts. */
export type FunctionCallOutputBody = string | Array<FunctionCallOutputContentItem>;

/** One part of what a tool returned. */
export type FunctionCallOutputContentItem = {
  type: "input_text";
  text: string;
} | {
  type: "input_image";
  detail?: ImageDetail | null;
} & ({
  image_url: string;
} | {
  file_id: string;
}) | {
  type: "input_audio";
} & ({
  audio_url: string;
} | {
  file_id: string;
}) | {
  type: "encrypted_content";
  encrypted_content: string;
};

/** What was found. */
export type FuzzyFileSearchMatchType = "file" | "directory";

/** Find files and directories whose paths have the letters of a query. */
export type FuzzyFileSearchParams = {
  query: string;
  /** Directories to search; best given as absolute paths. */
  roots: Array<string>;
  /** A later search with the same token cancels this one. */
  cancellationToken?: string | null;
};

/** What matches, best first. */
export type FuzzyFileSearchResponse = {
  files: Array<FuzzyFileSearchResult>;
};

/** A file or directory that matches. */
export type FuzzyFileSearchResult = {
  /** The directory of `roots` that it is in. */
  root: string;
  /** Relative to `root`. */
  path: string;
  match_type: FuzzyFileSearchMatchType;
  /** Last part of `path`. */
  file_name: string;
  /** Higher is better. */
  score: number;
  /** Positions of the matching characters in `path`, ascending; null if not known. */
  indices: Array<number> | null;
};

/** The session has finished with its latest query. */
export type FuzzyFileSearchSessionCompletedNotification = {
  sessionId: string;
};

/** Begin a search that follows the user's typing. */
export type FuzzyFileSearchSessionStartParams = {
  /** Chosen by the client. */
  sessionId: string;
  roots: Array<string>;
};

/** Nothing: the session waits for its first query. */
export type FuzzyFileSearchSessionStartResponse = { [key: string]: JsonValue };

/** End a search session. */
export type FuzzyFileSearchSessionStopParams = {
  sessionId: string;
};

/** Nothing. */
export type FuzzyFileSearchSessionStopResponse = { [key: string]: JsonValue };

/** Change what a session searches for. */
export type FuzzyFileSearchSessionUpdateParams = {
  sessionId: string;
  query: string;
};

/** Nothing: matches arrive as `fuzzyFileSearch/sessionUpdated`. */
export type FuzzyFileSearchSessionUpdateResponse = { [key: string]: JsonValue };

/** What a session has found so far, in place of what it sent before. */
export type FuzzyFileSearchSessionUpdatedNotification = {
  sessionId: string;
  /** The query that `files` answers. */
  query: string;
  files: Array<FuzzyFileSearchResult>;
};

/** How the server identifies itself to a gateway. */
export type GatewayAuth = {
  mode: "none";
} | {
  mode: "environmentVariable";
  /** The variable's name, not its value. */
  envKey: string;
} | {
  mode: "externallyConfigured";
  envKey: string | null;
};

/** The built-in provider that reaches Google Cloud. */
export type GcpProviderId = "gcp";

/** Ask who is signed in. */
export type GetAccountParams = {
  /** Renew the token first; ignored when the client keeps the tokens. */
  refreshToken?: boolean;
};

/** Read how much of the account's usage limits is spent. */
export type GetAccountRateLimitsParams = {
  /** Whether the client can fall back to Luna Reserve when ordinary usage is blocked. */
  supportsLunaReserve?: boolean;
  /** Leave out the list of reset credits, which costs a request; the count stays. */
  excludeResetCreditDetails?: boolean;
};

/** The account's usage limits, and what can be done about them. */
export type GetAccountRateLimitsResponse = {
  /** The backend's verdict; null means unknown, and percentages do not replace it. */
  ordinaryUsageAllowed: boolean | null;
  /** The one limit that older clients know. */
  rateLimits: RateLimitSnapshot;
  /** All limits, by `limitId`. */
  rateLimitsByLimitId: { [key: string]: RateLimitSnapshot } | null;
  rateLimitResetCredits: RateLimitResetCreditsSummary | null;
  /** Account that the figures belong to, if the backend says so. */
  accountId: string | null;
  /** A banner in the backend's own snake_case; null changes nothing on display. */
  rateLimitUpsell: JsonValue;
};

/** The account, or null, and whether the chosen provider needs one. */
export type GetAccountResponse = {
  account: Account | null;
  /** ChatGPT user id, if known. */
  userId: string | null;
  requiresOpenaiAuth: boolean;
  workspaceRouting: WorkspaceRouting | null;
};

/** Read how many tokens the account used, or how much a thread did. */
export type GetAccountTokenUsageParams = {
  /** Thread to estimate; null reads the account's activity. */
  threadId?: string | null;
};

/** Token use of the account, and of a thread if one was named. */
export type GetAccountTokenUsageResponse = {
  summary: AccountTokenUsageSummary;
  dailyUsageBuckets: Array<AccountTokenUsageDailyBucket> | null;
  /** Absent unless a thread was named and its billing can be read. */
  threadUsage: ThreadUsage | null;
};

/** Ask how the server signs in; newer clients use `account/read`. */
export type GetAuthStatusParams = {
  /** Also return the token itself. */
  includeToken?: boolean | null;
  /** Renew the token first. */
  refreshToken?: boolean | null;
};

/** How the server signs in; all null when nobody is. */
export type GetAuthStatusResponse = {
  authMethod: AuthMode | null;
  /** Only when `includeToken` asked for it. */
  authToken: string | null;
  /** Whether the provider in use needs an OpenAI login. */
  requiresOpenaiAuth: boolean | null;
};

/** Ask what a stored conversation is about; newer clients use `thread/read`. */
export type GetConversationSummaryParams = {
  /** File of the stored conversation, on the server's machine. */
  rolloutPath: string;
} | {
  conversationId: ThreadId;
};

/** The conversation. */
export type GetConversationSummaryResponse = {
  summary: ConversationSummary;
};

/** Compare a checkout with the nearest commit that a remote has. */
export type GitDiffToRemoteParams = {
  cwd: string;
};

/** The commit that the remote has, and what lies between it and the working tree. */
export type GitDiffToRemoteResponse = {
  sha: GitSha;
  /** Unified diff, untracked files included. */
  diff: string;
};

/** Where the repository stood when the thread was created. */
export type GitInfo = {
  sha: string | null;
  branch: string | null;
  originUrl: string | null;
};

/** A commit id: 40 or 64 hexadecimal digits. */
export type GitSha = string;

/** The permissions that the user grants; what is not named is not granted. */
export type GrantedPermissionProfile = {
  network?: AdditionalNetworkPermissions | null;
  fileSystem?: AdditionalFileSystemPermissions | null;
};

/** What the reviewer found. */
export type GuardianApprovalReview = {
  status: GuardianApprovalReviewStatus;
  riskLevel: GuardianRiskLevel | null;
  userAuthorization: GuardianUserAuthorization | null;
  /** The reviewer's reasons, for people to read. */
  rationale: string | null;
};

/** What is being reviewed. */
export type GuardianApprovalReviewAction = {
  type: "command";
  source: GuardianCommandSource;
  command: string;
  cwd: LegacyAppPathString;
} | {
  type: "execve";
  source: GuardianCommandSource;
  program: string;
  argv: Array<string>;
  cwd: AbsolutePathBuf;
} | {
  type: "writeStdin";
  /** Tells this approval from the one of the command itself. */
  approvalId: string;
  processId: string;
  stdin: string;
  cwd: LegacyAppPathString;
} | {
  type: "applyPatch";
  cwd: LegacyAppPathString;
  files: Array<LegacyAppPathString>;
} | {
  type: "networkAccess";
  target: string;
  host: string;
  protocol: NetworkApprovalProtocol;
  port: number;
} | {
  type: "mcpToolCall";
  server: string;
  toolName: string;
  /** The app that the tool belongs to; null if none. */
  connectorId: string | null;
  connectorName: string | null;
  toolTitle: string | null;
} | {
  type: "requestPermissions";
  /** Why the model wants them, in its words. */
  reason: string | null;
  permissions: RequestPermissionProfile;
};

/** How far an automatic review has come, or how it ended. */
export type GuardianApprovalReviewStatus = "inProgress" | "approved" | "denied" | "timedOut" | "aborted";

/** The tool through which a command is run. */
export type GuardianCommandSource = "shell" | "unifiedExec";

/** How much harm the reviewer expects from an action. */
export type GuardianRiskLevel = "low" | "medium" | "high" | "critical";

/** How clearly the user asked for an action, in the reviewer's eyes. */
export type GuardianUserAuthorization = "unknown" | "low" | "medium" | "high";

/** The automatic review of approvals has something to tell the user. */
export type GuardianWarningNotification = {
  threadId: string;
  message: string;
};

/** A hook has run. */
export type HookCompletedNotification = {
  threadId: string;
  /** Null when the hook runs outside a turn. */
  turnId: string | null;
  run: HookRunSummary;
};

/** A file whose hooks could not be read. */
export type HookErrorInfo = {
  path: string;
  message: string;
};

/** The moments at which hooks run. */
export type HookEventName = "preModelRequest" | "postModelRequest" | "preToolUse" | "permissionRequest" | "postToolUse" | "preCompact" | "postCompact" | "sessionStart" | "sessionEnd" | "userPromptSubmit" | "subagentStart" | "subagentStop" | "stop" | "interrupt";

/** Whether the turn waits for a hook. */
export type HookExecutionMode = "sync" | "async";

/** What a hook runs. */
export type HookHandlerType = "command" | "mcpTool" | "prompt" | "agent";

/** A hook, by what it runs. */
export type HookMetadata = {
  key: string;
  eventName: HookEventName;
  /** Pattern that limits the events it runs for. */
  matcher: string | null;
  /** Seconds that a run may take. */
  timeoutSec: number;
  /** Shown while the hook runs. */
  statusMessage: string | null;
  /** Tokens of `additionalContext` before it spills; null means 2,500, 0 never. */
  additionalContextLimit: number | null;
  /** File that declares it. */
  sourcePath: AbsolutePathBuf;
  source: HookSource;
  pluginId: string | null;
  /** Environment whose requirements declare it, if one does. */
  environmentId: string | null;
  displayOrder: number;
  enabled: boolean;
  /** Set by an administrator. */
  isManaged: boolean;
  /** Hash of the hook as it is now, by which a change is noticed. */
  currentHash: string;
  trustStatus: HookTrustStatus;
  handlerType: "command";
  command: string;
  /** Whether the turn goes on without waiting for it. */
  async: boolean;
} | {
  key: string;
  eventName: HookEventName;
  /** Pattern that limits the events it runs for. */
  matcher: string | null;
  /** Seconds that a run may take. */
  timeoutSec: number;
  /** Shown while the hook runs. */
  statusMessage: string | null;
  /** Tokens of `additionalContext` before it spills; null means 2,500, 0 never. */
  additionalContextLimit: number | null;
  /** File that declares it. */
  sourcePath: AbsolutePathBuf;
  source: HookSource;
  pluginId: string | null;
  /** Environment whose requirements declare it, if one does. */
  environmentId: string | null;
  displayOrder: number;
  enabled: boolean;
  /** Set by an administrator. */
  isManaged: boolean;
  /** Hash of the hook as it is now, by which a change is noticed. */
  currentHash: string;
  trustStatus: HookTrustStatus;
  handlerType: "mcpTool";
  server: string;
  tool: string;
} | {
  key: string;
  eventName: HookEventName;
  /** Pattern that limits the events it runs for. */
  matcher: string | null;
  /** Seconds that a run may take. */
  timeoutSec: number;
  /** Shown while the hook runs. */
  statusMessage: string | null;
  /** Tokens of `additionalContext` before it spills; null means 2,500, 0 never. */
  additionalContextLimit: number | null;
  /** File that declares it. */
  sourcePath: AbsolutePathBuf;
  source: HookSource;
  pluginId: string | null;
  /** Environment whose requirements declare it, if one does. */
  environmentId: string | null;
  displayOrder: number;
  enabled: boolean;
  /** Set by an administrator. */
  isManaged: boolean;
  /** Hash of the hook as it is now, by which a change is noticed. */
  currentHash: string;
  trustStatus: HookTrustStatus;
  handlerType: "prompt";
} | {
  key: string;
  eventName: HookEventName;
  /** Pattern that limits the events it runs for. */
  matcher: string | null;
  /** Seconds that a run may take. */
  timeoutSec: number;
  /** Shown while the hook runs. */
  statusMessage: string | null;
  /** Tokens of `additionalContext` before it spills; null means 2,500, 0 never. */
  additionalContextLimit: number | null;
  /** File that declares it. */
  sourcePath: AbsolutePathBuf;
  source: HookSource;
  pluginId: string | null;
  /** Environment whose requirements declare it, if one does. */
  environmentId: string | null;
  displayOrder: number;
  enabled: boolean;
  /** Set by an administrator. */
  isManaged: boolean;
  /** Hash of the hook as it is now, by which a change is noticed. */
  currentHash: string;
  trustStatus: HookTrustStatus;
  handlerType: "agent";
};

/** A hook of another agent. */
export type HookMigration = {
  name: string;
};

/** Something that a hook said. */
export type HookOutputEntry = {
  kind: HookOutputEntryKind;
  text: string;
};

/** What a line of a hook's output is for. */
export type HookOutputEntryKind = "warning" | "stop" | "feedback" | "context" | "error";

/** Text from one run of a hook. */
export type HookPromptFragment = {
  text: string;
  hookRunId: string;
};

/** Where the run of a hook stands; all but `running` are final. */
export type HookRunStatus = "running" | "completed" | "failed" | "blocked" | "stopped";

/** One run of a hook. */
export type HookRunSummary = {
  id: string;
  eventName: HookEventName;
  handlerType: HookHandlerType;
  executionMode: HookExecutionMode;
  scope: HookScope;
  sourcePath: LegacyAppPathString;
  source: HookSource;
  displayOrder: number;
  status: HookRunStatus;
  /** To show while it runs. */
  statusMessage: string | null;
  /** Unix seconds. */
  startedAt: number;
  /** Unix seconds; null while it runs. */
  completedAt: number | null;
  /** Null while it runs. */
  durationMs: number | null;
  entries: Array<HookOutputEntry>;
};

/** Whether a hook runs for a whole thread or for one turn. */
export type HookScope = "thread" | "turn";

/** What kind of configuration a hook comes from. */
export type HookSource = "system" | "user" | "project" | "mdm" | "sessionFlags" | "plugin" | "cloudRequirements" | "cloudManagedConfig" | "legacyManagedConfigFile" | "legacyManagedConfigMdm" | "unknown";

/** A hook runs. */
export type HookStartedNotification = {
  threadId: string;
  /** Null when the hook runs outside a turn. */
  turnId: string | null;
  run: HookRunSummary;
};

/** Whether the user trusts a hook as it is now; `managed` ones need no trust. */
export type HookTrustStatus = "managed" | "untrusted" | "trusted" | "modified";

/** The hooks of one folder. */
export type HooksListEntry = {
  cwd: string;
  hooks: Array<HookMetadata>;
  warnings: Array<string>;
  errors: Array<HookErrorInfo>;
};

/** List the hooks of some folders or of a thread. */
export type HooksListParams = {
  /** Folders to look in; empty means the server's own. Leave it out with `threadId`. */
  cwds?: Array<string>;
  /** Loaded thread; its environments' hooks are listed too. */
  threadId?: string | null;
};

/** The hooks, folder by folder. */
export type HooksListResponse = {
  data: Array<HooksListEntry>;
};

/** How closely the model looks at an image; `original` does not shrink it. */
export type ImageDetail = "auto" | "low" | "high" | "original";

/** Why no image was made. */
export type ImageGenerationFailure = {
  type: "usageLimitExceeded";
  limitId: string;
  /** When the limit starts over, Unix seconds; null if unknown. */
  resetsAt: number | null;
};

/** An image file that went into making another. */
export type ImageGenerationInputImage = {
  path: AbsolutePathBuf;
  /** Of the file as it was read, in lower-case hex. */
  sha256: string;
};

/** Demands on the browser inside the desktop application. */
export type InAppBrowserRequirements = {
  /** Whether settings may be taken over from another browser. */
  allowExternalBrowserSettingsImport: boolean | null;
};

/** What the client asks for and can do. */
export type InitializeCapabilities = {
  /** A person answers `humanCommand` approvals, each for one time; needs `experimentalApi`. */
  requiredHumanApproval?: boolean;
  /**
   * Never open a browser unasked to sign in to the gateway; holds for the whole server from then
   * on.
   */
  explicitGatewayOauth?: boolean;
  /** Opens methods, fields and variants that are marked experimental. */
  experimentalApi?: boolean;
  /** The client answers `attestation/generate` requests. */
  requestAttestation?: boolean;
  /** Older way to declare the extension `openai/form`; newer clients use `extensions`. */
  mcpServerOpenaiFormElicitation?: boolean;
  /** Exact names of notifications that this connection does not want. */
  optOutNotificationMethods?: Array<string> | null;
  /** MCP extensions that the client has, by name, each with its settings. */
  extensions?: { [key: string]: JsonValue } | null;
};

/** The first request of every connection. */
export type InitializeParams = {
  clientInfo: ClientInfo;
  /** Null means none. */
  capabilities?: InitializeCapabilities | null;
};

/** Who answers, and where it keeps its files. */
export type InitializeResponse = {
  /** Begins with `<client name>/<protocol version>`. */
  userAgent: string;
  /** Absolute path of the home directory. */
  codexHome: AbsolutePathBuf;
  /** `unix` or `windows`. */
  platformFamily: string;
  /** `linux`, `macos` or `windows`. */
  platformOs: string;
};

/** A kind of input that a model takes. */
export type InputModality = "text" | "image" | "audio";

/** An app with tools, and whether they can be used. */
export type InstalledApp = {
  id: string;
  /** As the tool list names the app; the display name comes from `app/read`. */
  runtimeName: string | null;
  /** By all configuration that applies: global, workspace, local and managed. */
  enabled: boolean;
  /** Enabled, with at least one tool that the model may see and policy allows. */
  callable: boolean;
};

/** Notes on an item that the model provider carries along. */
export type InternalChatMessageMetadataPassthrough = {
  turn_id?: string | null;
};

/** An item will not change any more, and is in the log. */
export type ItemCompletedNotification = {
  item: ThreadItem;
  threadId: string;
  turnId: string;
  /**
   * Tokens of a finished agent message, as the model counts; absent if unknown. It is not stored.
   *
   */
  contentTokenCount: number | null;
  /** Unix milliseconds. */
  completedAtMs: number;
};

/** An automatic review has ended. */
export type ItemGuardianApprovalReviewCompletedNotification = {
  threadId: string;
  turnId: string;
  /** Unix milliseconds. */
  startedAtMs: number;
  /** Unix milliseconds. */
  completedAtMs: number;
  /** The same as in `item/autoApprovalReview/started`. */
  reviewId: string;
  /**
   * The item under review; null if there is none, as for network access. Several reviews may have
   * the same one.
   */
  targetItemId: string | null;
  decisionSource: AutoReviewDecisionSource;
  review: GuardianApprovalReview;
  action: GuardianApprovalReviewAction;
};

/** An automatic review of an action has begun. */
export type ItemGuardianApprovalReviewStartedNotification = {
  threadId: string;
  turnId: string;
  /** Unix milliseconds. */
  startedAtMs: number;
  reviewId: string;
  /**
   * The item under review; null if there is none, as for network access. Several reviews may have
   * the same one.
   */
  targetItemId: string | null;
  review: GuardianApprovalReview;
  action: GuardianApprovalReviewAction;
};

/** An item exists from now on. */
export type ItemStartedNotification = {
  item: ThreadItem;
  threadId: string;
  turnId: string;
  /** Unix milliseconds. */
  startedAtMs: number;
};

/** The answer to a request that failed. */
export type JSONRPCError = {
  id: RequestId;
  error: JSONRPCErrorError;
};

/** Why a request failed. */
export type JSONRPCErrorError = {
  code: number;
  message: string;
  /** An `ErrorData`; what an MCP server refused comes with whatever that server said. */
  data?: JsonValue;
};

/** Anything that can stand in a frame. */
export type JSONRPCMessage = JSONRPCRequest | JSONRPCNotification | JSONRPCResponse | JSONRPCError;

/** News that has no answer. */
export type JSONRPCNotification = {
  method: string;
  params?: JsonValue;
};

/** A question that has one answer. */
export type JSONRPCRequest = {
  id: RequestId;
  method: string;
  params?: JsonValue;
  trace?: W3cTraceContext | null;
};

/** The answer to a request that went well. */
export type JSONRPCResponse = {
  id: RequestId;
  result: JsonValue;
};

/** A path as plain text, in the form of the machine that it is on. */
export type LegacyAppPathString = string;

/** Page through the MCP servers, by raw name. */
export type ListMcpServerStatusParams = {
  /** Decimal offset, from `nextCursor` of the page before. */
  cursor?: string | null;
  /** Servers a page; null means all, 0 counts as 1. */
  limit?: number | null;
  /** `full` (also when null) lists resources and resource templates too. */
  detail?: McpServerStatusDetail | null;
  /** Thread whose connections to report on; null opens temporary ones. */
  threadId?: string | null;
  /** Report on this server alone; a name that nobody has gives an empty list. */
  serverName?: string | null;
};

/** One page; `next_cursor` is null at the end. */
export type ListMcpServerStatusResponse = {
  data: Array<McpServerStatus>;
  nextCursor: string | null;
};

/** What a local shell call does. */
export type LocalShellAction = {
  type: "exec";
  /** The program and its arguments. */
  command: Array<string>;
  env?: { [key: string]: string } | null;
  /** Milliseconds. */
  timeout_ms?: number | null;
  /** The system user to run it as; null names none. */
  user?: string | null;
  working_directory?: string | null;
};

/** How far a local shell call has come. */
export type LocalShellStatus = "completed" | "in_progress" | "incomplete";

/** Sign in, in one of several ways. */
export type LoginAccountParams = {
  _meta?: RequestMeta | null;
  type: "apiKey";
  apiKey: string;
} | {
  _meta?: RequestMeta | null;
  type: "chatgpt";
  codexStreamlinedLogin?: boolean;
  /** Whether the browser ends on a page of the service. */
  useHostedLoginSuccessPage?: boolean;
  appBrand?: LoginAppBrand | null;
} | {
  _meta?: RequestMeta | null;
  type: "chatgptDeviceCode";
} | {
  _meta?: RequestMeta | null;
  type: "chatgptAuthTokens";
  /** A JWT; the server keeps it in memory only. */
  accessToken: string;
  /** Workspace that the token is for. */
  chatgptAccountId: string;
  /** Null takes the plan from the token. */
  chatgptPlanType?: string | null;
} | {
  _meta?: RequestMeta | null;
  type: "amazonBedrock";
  apiKey: string;
  /** AWS region, as `us-east-1`. */
  region: string;
} | {
  _meta?: RequestMeta | null;
  type: "amazonBedrockAccessKeys";
  accessKeyId: string;
  secretAccessKey: string;
  /** Only temporary keys have one. */
  sessionToken?: string | null;
  /** AWS region, as `us-east-1`. */
  region: string;
};

/** What the chosen way to sign in needs next, if anything. */
export type LoginAccountResponse = {
  type: "apiKey";
} | {
  type: "chatgpt";
  /** Names this attempt, for the notification and to cancel it. */
  loginId: string;
  /** To be opened in a browser. */
  authUrl: string;
} | {
  type: "chatgptDeviceCode";
  /** Names this attempt, for the notification and to cancel it. */
  loginId: string;
  verificationUrl: string;
  /** To be shown to the user; good for one login. */
  userCode: string;
} | {
  type: "chatgptAuthTokens";
} | {
  type: "amazonBedrock";
};

/** Product that the sign-in goes by. */
export type LoginAppBrand = "codex" | "chatgpt";

/** Nothing. */
export type LogoutAccountResponse = { [key: string]: JsonValue };

/** Hooks that the administrator installs, by event. */
export type ManagedHooksRequirements = {
  PreModelRequest: Array<ConfiguredHookMatcherGroup>;
  PostModelRequest: Array<ConfiguredHookMatcherGroup>;
  /** Directory of the hooks' files. */
  managedDir: string | null;
  /** The same on Windows. */
  windowsManagedDir: string | null;
  PreToolUse: Array<ConfiguredHookMatcherGroup>;
  PermissionRequest: Array<ConfiguredHookMatcherGroup>;
  PostToolUse: Array<ConfiguredHookMatcherGroup>;
  PreCompact: Array<ConfiguredHookMatcherGroup>;
  PostCompact: Array<ConfiguredHookMatcherGroup>;
  SessionStart: Array<ConfiguredHookMatcherGroup>;
  SessionEnd: Array<ConfiguredHookMatcherGroup>;
  UserPromptSubmit: Array<ConfiguredHookMatcherGroup>;
  SubagentStart: Array<ConfiguredHookMatcherGroup>;
  SubagentStop: Array<ConfiguredHookMatcherGroup>;
  Stop: Array<ConfiguredHookMatcherGroup>;
  Interrupt: Array<ConfiguredHookMatcherGroup>;
};

/** Configure a marketplace. */
export type MarketplaceAddParams = {
  _meta?: RequestMeta | null;
  /** Folder of the server's machine, or a Git repository. */
  source: string;
  /** Branch or tag; repositories only. */
  refName?: string | null;
  /** The only folders to check out; repositories only. */
  sparsePaths?: Array<string> | null;
};

/** The marketplace is configured. */
export type MarketplaceAddResponse = {
  marketplaceName: string;
  /** The folder that it is read from. */
  installedRoot: AbsolutePathBuf;
  alreadyAdded: boolean;
};

/** How to show a marketplace. */
export type MarketplaceInterface = {
  displayName: string | null;
};

/** A marketplace file that could not be loaded. */
export type MarketplaceLoadErrorInfo = {
  marketplacePath: AbsolutePathBuf;
  message: string;
};

/** Configure a marketplace no longer. */
export type MarketplaceRemoveParams = {
  _meta?: RequestMeta | null;
  marketplaceName: string;
};

/** The marketplace is not configured any more. */
export type MarketplaceRemoveResponse = {
  marketplaceName: string;
  /** The copy that was deleted; null if there was none. */
  installedRoot: AbsolutePathBuf | null;
};

/** A marketplace that could not be fetched. */
export type MarketplaceUpgradeErrorInfo = {
  marketplaceName: string;
  message: string;
};

/** Fetch marketplaces of Git repositories again. */
export type MarketplaceUpgradeParams = {
  _meta?: RequestMeta | null;
  /** Null means all of them. */
  marketplaceName?: string | null;
};

/** What was fetched, and what could not be. */
export type MarketplaceUpgradeResponse = {
  selectedMarketplaces: Array<string>;
  upgradedRoots: Array<AbsolutePathBuf>;
  errors: Array<MarketplaceUpgradeErrorInfo>;
};

/** How much room the user interface of a tool gets. */
export type McpAppDisplayMode = "inline" | "fullscreen";

/** The user interface that an MCP tool brings along. */
export type McpAppUi = {
  /** The resource of the MCP server that holds it. */
  resourceUri: string;
  preferredModelDisplayMode: McpAppDisplayMode;
};

/** What authentication an MCP server has or lacks. */
export type McpAuthStatus = "unknown" | "unsupported" | "notLoggedIn" | "bearerToken" | "oAuth";

/** The `type` of a field that holds several choices. */
export type McpElicitationArrayType = "array";

/** A yes-or-no field. */
export type McpElicitationBooleanSchema = {
  type: McpElicitationBooleanType;
  title?: string | null;
  description?: string | null;
  /** Value to show at first. */
  default?: boolean | null;
};

/** The `type` of a yes-or-no field. */
export type McpElicitationBooleanType = "boolean";

/** A choice with a label. */
export type McpElicitationConstOption = {
  /** The value to send back. */
  const: string;
  /** The label to show. */
  title: string;
};

/** A field with fixed choices. */
export type McpElicitationEnumSchema = McpElicitationSingleSelectEnumSchema | McpElicitationMultiSelectEnumSchema | McpElicitationLegacyTitledEnumSchema;

/** One choice from a list, with labels beside it: the old form. */
export type McpElicitationLegacyTitledEnumSchema = {
  type: McpElicitationStringType;
  title?: string | null;
  description?: string | null;
  enum: Array<string>;
  /** Labels, in the order of `enum`; absent means that the values are their own. */
  enumNames?: Array<string> | null;
  default?: string | null;
};

/** Any number of choices, with labels or without. */
export type McpElicitationMultiSelectEnumSchema = McpElicitationUntitledMultiSelectEnumSchema | McpElicitationTitledMultiSelectEnumSchema;

/** A number field. */
export type McpElicitationNumberSchema = {
  type: McpElicitationNumberType;
  title?: string | null;
  description?: string | null;
  /** Inclusive. */
  minimum?: number | null;
  /** Inclusive. */
  maximum?: number | null;
  default?: number | null;
};

/** The `type` of a number field; `integer` takes whole numbers only. */
export type McpElicitationNumberType = "number" | "integer";

/** The `type` of a form. */
export type McpElicitationObjectType = "object";

/** One field of a form. */
export type McpElicitationPrimitiveSchema = McpElicitationEnumSchema | McpElicitationStringSchema | McpElicitationNumberSchema | McpElicitationBooleanSchema;

/** A flat form: the restricted JSON Schema of MCP 2025-11-25. */
export type McpElicitationSchema = {
  /** JSON Schema dialect, if the MCP server names one. */
  $schema?: string | null;
  type: McpElicitationObjectType;
  /** Fields by name; the answer's `content` has the same names. */
  properties: { [key: string]: McpElicitationPrimitiveSchema };
  /** Names of the fields that must be filled in. */
  required?: Array<string> | null;
};

/** One choice, with labels or without. */
export type McpElicitationSingleSelectEnumSchema = McpElicitationUntitledSingleSelectEnumSchema | McpElicitationTitledSingleSelectEnumSchema;

/** What a text must look like. */
export type McpElicitationStringFormat = "email" | "uri" | "date" | "date-time";

/** A free text field. */
export type McpElicitationStringSchema = {
  type: McpElicitationStringType;
  title?: string | null;
  description?: string | null;
  /** In characters. */
  minLength?: number | null;
  /** In characters. */
  maxLength?: number | null;
  format?: McpElicitationStringFormat | null;
  default?: string | null;
};

/** The `type` of a field that holds one text. */
export type McpElicitationStringType = "string";

/** Choices with labels. */
export type McpElicitationTitledEnumItems = {
  anyOf: Array<McpElicitationConstOption>;
};

/** Any number of choices from a labelled list. */
export type McpElicitationTitledMultiSelectEnumSchema = {
  type: McpElicitationArrayType;
  title?: string | null;
  description?: string | null;
  /** Fewest choices; absent means no bound. */
  minItems?: number | null;
  /** Most choices; absent means no bound. */
  maxItems?: number | null;
  items: McpElicitationTitledEnumItems;
  /** Values chosen at first. */
  default?: Array<string> | null;
};

/** One choice from a labelled list. */
export type McpElicitationTitledSingleSelectEnumSchema = {
  type: McpElicitationStringType;
  title?: string | null;
  description?: string | null;
  oneOf: Array<McpElicitationConstOption>;
  /** Value chosen at first. */
  default?: string | null;
};

/** Choices without labels. */
export type McpElicitationUntitledEnumItems = {
  type: McpElicitationStringType;
  enum: Array<string>;
};

/** Any number of choices from a plain list. */
export type McpElicitationUntitledMultiSelectEnumSchema = {
  type: McpElicitationArrayType;
  title?: string | null;
  description?: string | null;
  /** Fewest choices; absent means no bound. */
  minItems?: number | null;
  /** Most choices; absent means no bound. */
  maxItems?: number | null;
  items: McpElicitationUntitledEnumItems;
  /** Values chosen at first. */
  default?: Array<string> | null;
};

/** One choice from a plain list. */
export type McpElicitationUntitledSingleSelectEnumSchema = {
  type: McpElicitationStringType;
  title?: string | null;
  description?: string | null;
  enum: Array<string>;
  /** Value chosen at first. */
  default?: string | null;
};

/** Read one resource; without a thread over a connection of its own. */
export type McpResourceReadParams = {
  /** Added to the MCP request; keys that route by account or turn are reserved. */
  _meta?: { [key: string]: JsonValue } | null;
  /** Thread whose connection to use; null opens a temporary one. */
  threadId?: string | null;
  /** Id of the MCP tool call whose app the resource belongs to. */
  originCallId?: string | null;
  server: string;
  uri: string;
  connectorId?: string | null;
  /** App and account to use; null lets the server find the resource's owner. */
  target?: McpResourceReadTarget | null;
};

/** The contents as the server sent them. */
export type McpResourceReadResponse = {
  contents: Array<ResourceContent>;
  /** The call that chose the app, if one did. */
  originCallId: string | null;
};

/** The app, and the account in it, to read a resource through. */
export type McpResourceReadTarget = {
  connectorId: string;
  /** Linked account; null asks for access without one. */
  linkId: string | null;
};

/** State of a thread's connection to an MCP server. */
export type McpServerConnectionStatus = "notStarted" | "starting" | "connected" | "authenticationRequired" | "failed" | "cancelled" | "disabled";

/** Yes, no, or closed without a choice. */
export type McpServerElicitationAction = "accept" | "decline" | "cancel";

/** Ask the user something for an MCP server. */
export type McpServerElicitationRequestParams = {
  threadId: string;
  /** Turn that runs meanwhile; null when no turn caused the question. */
  turnId: string | null;
  serverName: string;
  mode: "openai/userVerification";
  _meta: JsonValue;
  title: string;
  description: string;
  /** What to prove; the proof goes into the answer's `content`. */
  challenge: string;
} | {
  threadId: string;
  /** Turn that runs meanwhile; null when no turn caused the question. */
  turnId: string | null;
  serverName: string;
  mode: "form";
  /** From the MCP server; for an approval, what is to be approved and how long it may last. */
  _meta: JsonValue;
  message: string;
  requestedSchema: McpElicitationSchema;
} | {
  threadId: string;
  /** Turn that runs meanwhile; null when no turn caused the question. */
  turnId: string | null;
  serverName: string;
  mode: "openai/form";
  _meta: JsonValue;
  message: string;
  /** In the extended schema; not checked here. */
  requestedSchema: JsonValue;
} | {
  threadId: string;
  /** Turn that runs meanwhile; null when no turn caused the question. */
  turnId: string | null;
  serverName: string;
  mode: "openaiForm";
  _meta: JsonValue;
  message: string;
  /** In the extended schema; not checked here. */
  requestedSchema: JsonValue;
} | {
  threadId: string;
  /** Turn that runs meanwhile; null when no turn caused the question. */
  turnId: string | null;
  serverName: string;
  mode: "url";
  _meta: JsonValue;
  message: string;
  url: string;
  /** The MCP server's own id for the question. */
  elicitationId: string;
};

/** The user's answer. */
export type McpServerElicitationRequestResponse = {
  action: McpServerElicitationAction;
  /** The values filled in, by field name; null unless `action` is `accept`. */
  content?: JsonValue;
  /** To the MCP server; an approval is kept with `persist` as `session` or `always`. */
  _meta?: JsonValue;
};

/** A notification of an MCP server, as it came. */
export type McpServerEventNotification = {
  method: string;
  params: JsonValue;
};

/** An event arrived on a stream that this client subscribed to. */
export type McpServerEventStreamNotification = {
  subscriptionId: string;
  notification: McpServerEventNotification;
};

/** Subscribe to events of an MCP server; hosted apps only. */
export type McpServerEventStreamStartParams = {
  threadId: string;
  server: string;
  /** Chosen by the client; every event of the stream carries it. */
  subscriptionId: string;
  /** Which of the server's events to stream. */
  name: string;
  arguments: JsonValue;
  /** `_meta` of the request to the MCP server. */
  _meta?: JsonValue;
};

/** Nothing: events follow as notifications. */
export type McpServerEventStreamStartResponse = { [key: string]: JsonValue };

/** End an event stream. */
export type McpServerEventStreamStopParams = {
  subscriptionId: string;
};

/** Nothing. */
export type McpServerEventStreamStopResponse = { [key: string]: JsonValue };

/** What a server says of itself. */
export type McpServerInfo = {
  name: string;
  title: string | null;
  version: string;
  description: string | null;
  /** MCP icon objects, as the server sent them. */
  icons: Array<JsonValue> | null;
  websiteUrl: string | null;
};

/** An MCP server of another agent. */
export type McpServerMigration = {
  name: string;
};

/** How to register with the authorization server; `auto` takes what it supports. */
export type McpServerOauthClientRegistration = "auto" | "cimd" | "dcr";

/** A sign-in to an MCP server ended, well or not. */
export type McpServerOauthLoginCompletedNotification = {
  name: string;
  /** As the login was asked for. */
  threadId: string | null;
  /** From the response to `mcpServer/oauth/login`; older servers leave it out. */
  loginId: string | null;
  success: boolean;
  /** For people; absent on success. */
  error?: string | null;
};

/** Sign in to an MCP server in the browser; streamable HTTP servers only. */
export type McpServerOauthLoginParams = {
  _meta?: RequestMeta | null;
  name: string;
  /** Thread whose configuration has the server; null for the global one. */
  threadId?: string | null;
  /** For this login alone; null means `auto`. */
  clientRegistration?: McpServerOauthClientRegistration | null;
  /** Null takes the configured scopes, or else those that the server offers. */
  scopes?: Array<string> | null;
  /** Seconds to wait for the browser to come back; null lets the server choose. */
  timeoutSecs?: number | null;
};

/** Where to send the user; `mcpServer/oauthLogin/completed` tells how it ended. */
export type McpServerOauthLoginResponse = {
  /** To be opened in a browser on the user's machine. */
  authorizationUrl: string;
  /** Names this attempt, here and in the notification; older servers leave it out. */
  loginId?: string | null;
};

/** What a server of one thread wrote: its processes, and the messages of its log. */
export type McpServerOutput = {
  threadId: string;
  /** The newest whole lines, without secrets. */
  text: string;
  /** The thread's connection, as in `mcpServerStatus/list`. */
  runtimeStatus: McpServerConnectionStatus;
  /** Unix time at which it became ready last; null if it has never run. */
  startedAtMs: number | null;
  /** Why it did not start or ended last, with its command; without secrets. */
  lastError: string | null;
};

/** Ask what a server wrote to stderr, and logged. */
export type McpServerOutputReadParams = {
  name: string;
  /** Thread whose server is meant; null means all loaded threads that have it. */
  threadId?: string | null;
};

/** Each thread that has the server, in the order in which they were loaded. */
export type McpServerOutputReadResponse = {
  data: Array<McpServerOutput>;
};

/** Nothing: startup notifications tell how the servers fare. */
export type McpServerRefreshResponse = { [key: string]: JsonValue };

/** Start a server afresh; calls that run end on the old one. */
export type McpServerRestartParams = {
  _meta?: RequestMeta | null;
  name: string;
  /** Thread whose server is meant; null means all loaded threads that have it. */
  threadId?: string | null;
};

/** Startup notifications tell how the new starts fare. */
export type McpServerRestartResponse = {
  /** Threads in which it was restarted. */
  threadIds: Array<string>;
};

/** Switch a server on or off, or change its settings: exactly one of both. */
export type McpServerSetParams = {
  _meta?: RequestMeta | null;
  name: string;
  /** Thread that alone has the change, until it is unloaded; null writes the user's file. */
  threadId?: string | null;
  enabled?: boolean | null;
  /** Keys of `[mcp_servers.NAME]`; null removes one, those that are left out stay. */
  settings?: { [key: string]: JsonValue } | null;
};

/** The change is written; loaded threads have it between two model requests. */
export type McpServerSetResponse = {
  /** The file that was written; null for a change of one thread. */
  filePath: string | null;
  /** Whether settings above the file keep the change from having an effect. */
  overridden: boolean;
};

/** A cause of failure that the client can do something about. */
export type McpServerStartupFailureReason = "reauthenticationRequired";

/** How far the start of an MCP server has come; all but `starting` are final. */
export type McpServerStartupState = "starting" | "ready" | "failed" | "cancelled";

/** One MCP server as configured and as it is now. */
export type McpServerStatus = {
  name: string;
  /** The thread's connection; null when no thread was named. */
  runtimeStatus: McpServerConnectionStatus | null;
  /** Plugin that brought the server; null for a configured one. */
  pluginId: string | null;
  /** Scheme, host and port of the endpoint; null unless the server speaks HTTP. */
  httpOrigin: string | null;
  serverInfo: McpServerInfo | null;
  /** From the MCP handshake; null when there was none. */
  serverCapabilities: JsonValue;
  /** `_meta` of the first page of the tool list; opaque. */
  toolListMeta: JsonValue;
  /** Raw tool name to the tool as the server listed it. */
  tools: { [key: string]: Tool };
  /** Why `tools` is empty; null when a list came, even an empty or an old one. */
  toolsError: string | null;
  /** Empty when `detail` is `toolsAndAuthOnly`. */
  resources: Array<Resource>;
  /** Empty when `detail` is `toolsAndAuthOnly`. */
  resourceTemplates: Array<ResourceTemplate>;
  authStatus: McpAuthStatus;
  /** Revision of MCP that is spoken; null before the first connection. */
  protocolVersion: string | null;
  /** Process on the server's machine; null where there is none, or elsewhere. */
  pid: number | null;
  /** Resident memory of the process and of those it started; null where it is not known. */
  rssBytes: number | null;
  /** Threads that use the process or session; null without a thread. */
  sharedBy: number | null;
  /** Unix time at which it became ready last. */
  startedAtMs: number | null;
  /** Starts after the first one in this thread; null without a thread. */
  restarts: number | null;
  /** Why it did not start or ended last, with its command; without secrets. */
  lastError: string | null;
  /** What it did last against MCP, as a text that begins with a verb; without secrets. */
  lastFault: string | null;
  /** Unix time at which `tools` was listed, if it comes from the cache; else null. */
  toolsCachedAtMs: number | null;
};

/** How much to ask each MCP server for. */
export type McpServerStatusDetail = "full" | "toolsAndAuthOnly";

/** How far the start of one server of one thread has come. */
export type McpServerStatusUpdatedNotification = {
  threadId: string | null;
  name: string;
  status: McpServerStartupState;
  /** For people; null unless `status` is `failed`. */
  error: string | null;
  failureReason: McpServerStartupFailureReason | null;
};

/** Call a tool without a model, an approval or an item. */
export type McpServerToolCallParams = {
  /** Forwarded as the request's `_meta`; `threadId` and `progressToken` are overwritten. */
  _meta?: JsonValue;
  threadId: string;
  server: string;
  /** Raw name, as the server lists it. */
  tool: string;
  /** A JSON object; null for a tool without arguments. */
  arguments?: JsonValue;
};

/** What the tool returned; members that it left out stay out. */
export type McpServerToolCallResponse = {
  /** MCP content blocks. */
  content: Array<JsonValue>;
  structuredContent?: JsonValue;
  /** True when the tool ran and says that it failed. */
  isError?: boolean | null;
  _meta?: JsonValue;
};

/** A server says that it has other tools: the thread's next model request has them. */
export type McpServerToolsChangedNotification = {
  threadId: string;
  name: string;
};

/** The app behind a tool call. */
export type McpToolCallAppContext = {
  connectorId: string;
  /** The user's link to the app. */
  linkId: string | null;
  /** The user interface of the tool; null if it has none. */
  resourceUri: string | null;
  appName: string | null;
  /** The tool's name within the app. */
  actionName: string | null;
};

/** Why there is no result. */
export type McpToolCallError = {
  message: string;
};

/** An MCP server said how far a call has come. */
export type McpToolCallProgressNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  message: string;
};

/** What an MCP tool returned, as it returned it. */
export type McpToolCallResult = {
  content: Array<JsonValue>;
  /** Null if the tool gave none. */
  structuredContent: JsonValue;
  _meta: JsonValue;
};

/** How far an MCP tool call has come. */
export type McpToolCallStatus = "inProgress" | "completed" | "failed";

/** The memories that an answer relies on. */
export type MemoryCitation = {
  entries: Array<MemoryCitationEntry>;
  /** The threads that those memories come from. */
  threadIds: Array<string>;
};

/** Lines of a memory file that an answer relies on. */
export type MemoryCitationEntry = {
  path: string;
  lineStart: number;
  lineEnd: number;
  /** What they were used for. */
  note: string;
};

/** The store of memories across threads is empty. */
export type MemoryResetResponse = { [key: string]: JsonValue };

/** What a write does with a table that is there already: replace it, or merge into it. */
export type MergeStrategy = "replace" | "upsert";

/**
 * What a text of the model is to its turn: a remark on the way, a part of the answer, or the end of
 * it.
 */
export type MessagePhase = "commentary" | "partial_answer" | "final_answer";

/** What one entry consists of. */
export type MigrationDetails = {
  plugins: Array<PluginsMigration>;
  skills: Array<SkillMigration>;
  sessions: Array<SessionMigration>;
  mcpServers: Array<McpServerMigration>;
  hooks: Array<HookMigration>;
  subagents: Array<SubagentMigration>;
  commands: Array<CommandMigration>;
  memory: Array<string>;
};

/** Why the model was stopped as misaligned, and what the user can do about it. */
export type MisalignmentErrorDetails = {
  /** An open set of words. */
  errorType: string | null;
  /** For the user, in their language; without it do not offer to go on. */
  detailedExplanation: string | null;
  steer: MisalignmentSteer | null;
  /** Opaque; names the block. */
  reviewTarget: string | null;
};

/** How the conversation can go on after a block. */
export type MisalignmentSteer = {
  /** Send it as the input of the next turn if the user wants to go on. */
  message: string;
};

/** How a thread works: `plan` proposes before it acts, `default` just works. */
export type ModeKind = "plan" | "default";

/** One model. */
export type Model = {
  id: string;
  /** The value for `model` of `thread/start` and `turn/start`. */
  model: string;
  /** Model that is recommended in its place. */
  upgrade: string | null;
  upgradeInfo: ModelUpgradeInfo | null;
  availabilityNux: ModelAvailabilityNux | null;
  displayName: string;
  description: string;
  modelSpecialty: string | null;
  /** Left out of `model/list` unless `includeHidden` is set. */
  hidden: boolean;
  supportedReasoningEfforts: Array<ReasoningEffortOption>;
  defaultReasoningEffort: ReasoningEffort;
  /** Text and images when absent. */
  inputModalities: Array<InputModality>;
  /** Always false; kept for older clients. */
  supportsPersonality: boolean;
  multiAgentVersion: MultiAgentVersion | null;
  /** Older form of `serviceTiers`. */
  additionalSpeedTiers: Array<string>;
  serviceTiers: Array<ModelServiceTier>;
  /** Id of one of `serviceTiers`. */
  defaultServiceTier: string | null;
  /** Null when nothing is known about them. */
  availableAccessPrograms: ModelAccessPrograms | null;
  /** Used when nobody names a model. */
  isDefault: boolean;
};

/** Special access that this caller can choose for a model. */
export type ModelAccessPrograms = {
  cyber: Array<CyberAccessProgram>;
};

/** A note to users that a model has become available. */
export type ModelAvailabilityNux = {
  message: string;
};

/** Page through the models that can be chosen. */
export type ModelListParams = {
  /** Id of a configured provider; null means the default one. */
  modelProvider?: string | null;
  /** Opaque, from `nextCursor` of the page before. */
  cursor?: string | null;
  /** Models a page; null lets the server choose. */
  limit?: number | null;
  /** Also list models whose `hidden` is true. */
  includeHidden?: boolean | null;
};

/** One page; `nextCursor` is null at the end. */
export type ModelListResponse = {
  data: Array<Model>;
  nextCursor: string | null;
};

/** Ask what the model provider in use can do. */
export type ModelProviderCapabilitiesReadParams = { [key: string]: JsonValue };

/** What the model provider in use can do besides text. */
export type ModelProviderCapabilitiesReadResponse = {
  imageGeneration: boolean;
  webSearch: boolean;
};

/** Add a model provider, or change one. */
export type ModelProviderConfigWriteParams = {
  _meta?: RequestMeta | null;
  settings: ProviderSettingsPatch;
};

/** The provider as it is now. */
export type ModelProviderConfigWriteResponse = {
  provider: ModelProviderSummary;
};

/** List the model providers. */
export type ModelProviderListParams = { [key: string]: JsonValue };

/** All model providers. */
export type ModelProviderListResponse = {
  data: Array<ModelProviderSummary>;
  /** The provider of threads that name none. */
  defaultProviderId: string;
  /** Whether the user's settings can name another default. */
  canChangeDefault: boolean;
};

/** One model provider, without its secrets. */
export type ModelProviderSummary = {
  id: string;
  name: string;
  /** Whether `modelProvider/config/write` can change it. */
  canEdit: boolean;
  /** Null when there is none, or when it may hold a secret. */
  baseUrl: string | null;
  settings: ProviderSettings;
};

/** Why another model took over. */
export type ModelRerouteReason = "highRiskCyberActivity";

/** Another model answers than the one that was asked for. */
export type ModelReroutedNotification = {
  threadId: string;
  turnId: string;
  fromModel: string;
  toModel: string;
  reason: ModelRerouteReason;
};

/** Whether the model's output is held back for safety checks has changed. */
export type ModelSafetyBufferingUpdatedNotification = {
  threadId: string;
  turnId: string;
  model: string;
  useCases: Array<string>;
  reasons: Array<string>;
  /** The user should be told to wait. */
  showBufferingUi: boolean;
  /** A model to offer instead; null when there is none. */
  fasterModel: string | null;
};

/** A class of service that a model can be run in, such as a faster one. */
export type ModelServiceTier = {
  /** The value for `serviceTier` of `thread/start` and `turn/start`. */
  id: string;
  name: string;
  description: string;
};

/** A model that is recommended in place of this one. */
export type ModelUpgradeInfo = {
  model: string;
  upgradeCopy: string | null;
  modelLink: string | null;
  /** Advice for the change, in Markdown. */
  migrationMarkdown: string | null;
  /** Unix seconds of this model's planned end; null when none is known. */
  retirementAt: number | null;
};

/** A way in which an account can be verified. */
export type ModelVerification = "trustedAccessForCyber";

/** The model's API advises to have the account verified. */
export type ModelVerificationNotification = {
  threadId: string;
  turnId: string;
  verifications: Array<ModelVerification>;
};

/** The administrator's choice of models. */
export type ModelsRequirements = {
  newThread: NewThreadModelDefaults | null;
};

/** An amount of money. */
export type MoneyAmount = {
  /** Three capital letters. */
  currency: string;
  /** A decimal number, exact. */
  amount: string;
};

/** When the model may give work to other agents: if told to, of its own accord, or by a text. */
export type MultiAgentMode = "explicitRequestOnly" | "proactive" | {
  /** The text that tells the model when to delegate. */
  custom: string;
};

/** The way a model works with several agents, if at all. */
export type MultiAgentVersion = "disabled" | "v1" | "v2";

/** Whether programs may use the network. */
export type NetworkAccess = "restricted" | "enabled";

/** The connection that a command wants to make. */
export type NetworkApprovalContext = {
  host: string;
  protocol: NetworkApprovalProtocol;
};

/** The protocol of a connection that needs approval. */
export type NetworkApprovalProtocol = "http" | "https" | "socks5Tcp" | "socks5Udp";

/** Whether a domain may be reached. */
export type NetworkDomainPermission = "allow" | "deny";

/** A rule for one host, to be added to the network policy. */
export type NetworkPolicyAmendment = {
  host: string;
  action: NetworkPolicyRuleAction;
};

/** What a rule does with connections to a host. */
export type NetworkPolicyRuleAction = "allow" | "deny";

/** Demands on the network that sandboxed commands see. */
export type NetworkRequirements = {
  enabled: boolean | null;
  /** Port of the HTTP proxy that they go through. */
  httpPort: number | null;
  /** Port of the SOCKS proxy that they go through. */
  socksPort: number | null;
  /** Whether that proxy may use another one. */
  allowUpstreamProxy: boolean | null;
  /** Let the proxy listen beyond this machine. */
  dangerouslyAllowNonLoopbackProxy: boolean | null;
  dangerouslyAllowAllUnixSockets: boolean | null;
  /** By host pattern; this is what counts, not `allowedDomains` and `deniedDomains`. */
  domains: { [key: string]: NetworkDomainPermission } | null;
  /** Host patterns that need approval even when a rule allows them. */
  reviewDomains: Array<string> | null;
  /** Ignore domains that others than the administrator allowed. */
  managedAllowedDomainsOnly: boolean | null;
  /** What `domains` allows, for older clients. */
  allowedDomains: Array<string> | null;
  /** What `domains` denies, for older clients. */
  deniedDomains: Array<string> | null;
  /** By path; this is what counts, not `allowUnixSockets`. */
  unixSockets: { [key: string]: NetworkUnixSocketPermission } | null;
  /** What `unixSockets` allows, for older clients. */
  allowUnixSockets: Array<string> | null;
  /** Whether commands may listen on local ports. */
  allowLocalBinding: boolean | null;
};

/** Whether a Unix socket may be connected to. */
export type NetworkUnixSocketPermission = "allow" | "deny";

/** What a new thread starts with unless it is told otherwise. */
export type NewThreadModelDefaults = {
  model: string | null;
  modelReasoningEffort: ReasoningEffort | null;
  serviceTier: string | null;
};

/** A kind of turn that takes no further input. */
export type NonSteerableTurnKind = "review" | "compact";

/** One event for one receiver, without its body. */
export type NotificationEntry = {
  /** As the receiver knows it. */
  id: string;
  /** Its name in the settings, or its kind and host or program. */
  receiver: string;
  event: string;
  threadId: string;
  state: NotificationState;
  /** Unix milliseconds of the event. */
  createdAtMs: number;
  /** Unix milliseconds; null while it waits. */
  endedAtMs: number | null;
  attempts: number;
  /** Failure of the last attempt. */
  error: string | null;
};

/** Page through notifications, newest first. */
export type NotificationListParams = {
  /** Null lists all. */
  state?: NotificationState | null;
  /** Opaque, from `nextCursor` of the page before. */
  cursor?: string | null;
  /** Notifications a page; null lets the server choose, 0 counts as 1. */
  limit?: number | null;
};

/** One page; `next_cursor` is null at the end. */
export type NotificationListResponse = {
  data: Array<NotificationEntry>;
  nextCursor: string | null;
};

/** `waiting` is tried until it is `delivered`, or `dead` after 3 days or as nobody wants it. */
export type NotificationState = "waiting" | "delivered" | "dead";

/** Where telemetry goes. */
export type OtelExporter = "none" | "statsig" | {
  /** A collector that speaks OTLP over HTTP. */
  "otlp-http": {
    endpoint: string;
    /** The names are real, the values masked. */
    headers: { [key: string]: string };
    protocol: OtelHttpProtocol;
    tls: OtelTlsConfig | null;
  };
} | {
  /** A collector that speaks OTLP over gRPC. */
  "otlp-grpc": {
    endpoint: string;
    /** The names are real, the values masked. */
    headers: { [key: string]: string };
    tls: OtelTlsConfig | null;
  };
};

/** Encoding of OTLP over HTTP. */
export type OtelHttpProtocol = "binary" | "json";

/** Demands on telemetry. */
export type OtelRequirements = {
  tool_result: OtelToolResultLogConfig | null;
  /** Log each fragment of a model's streamed answer. */
  log_sse_deltas: boolean | null;
  log_user_prompt: boolean | null;
  log_agent_responses: boolean | null;
  /** Log the verdicts of the automatic review. */
  log_guardian_assessments: boolean | null;
  /** Label such as `production`. */
  environment: string | null;
  exporter: OtelExporter | null;
  trace_exporter: OtelExporter | null;
  metrics_exporter: OtelExporter | null;
  /** Added to every span. */
  span_attributes: { [key: string]: string } | null;
  /** W3C trace state: a vendor's name, then its members. */
  tracestate: { [key: string]: { [key: string]: string } } | null;
};

/** Certificates for a telemetry connection, as paths of files. */
export type OtelTlsConfig = {
  "ca-certificate": string | null;
  "client-certificate": string | null;
  "client-private-key": string | null;
};

/** How much of a tool's result is logged. */
export type OtelToolResultLogConfig = {
  /** Bytes kept of one result. */
  max_bytes: number;
};

/** Why a written setting has no effect. */
export type OverriddenMetadata = {
  message: string;
  /** The higher layer that sets it too. */
  overridingLayer: ConfigLayerMetadata;
  /** The value in force. */
  effectiveValue: JsonValue;
};

/** What a shell command seems to do. */
export type ParsedCommand = {
  type: "read";
  cmd: string;
  /** Short name of the file, to show. */
  name: string;
  /** A best guess; a relative one starts at the command's `cwd`. */
  path: string;
} | {
  type: "list_files";
  cmd: string;
  /** Directory; null when it could not be told. */
  path: string | null;
} | {
  type: "search";
  cmd: string;
  /** What it looks for; null when it could not be told. */
  query: string | null;
  /** Where it looks; null when it could not be told. */
  path: string | null;
} | {
  type: "unknown";
  cmd: string;
};

/** How far a file change has come; `declined` means that it was not allowed. */
export type PatchApplyStatus = "inProgress" | "completed" | "failed" | "declined";

/** What happens to a file. */
export type PatchChangeKind = {
  type: "add";
} | {
  type: "delete";
} | {
  type: "update";
  /** Where the file moves to; null if it stays. */
  move_path: string | null;
};

/** A path as a `file:` URI, the same form on every platform. */
export type PathUri = string;

/** How long a grant lasts. */
export type PermissionGrantScope = "turn" | "session";

/** Page through the permission profiles that can be chosen. */
export type PermissionProfileListParams = {
  /** Opaque, from `nextCursor` of the page before. */
  cursor?: string | null;
  /** Profiles a page; null means all. */
  limit?: number | null;
  /** Directory whose project layers count too. */
  cwd?: string | null;
};

/** One page; `nextCursor` is null at the end. */
export type PermissionProfileListResponse = {
  data: Array<PermissionProfileSummary>;
  nextCursor: string | null;
};

/** One permission profile. */
export type PermissionProfileSummary = {
  id: string;
  description: string | null;
  /** Whether the administrator's demands leave it open to choose. */
  allowed: boolean;
};

/** Ask the user for permissions that the model wants. */
export type PermissionsRequestApprovalParams = {
  threadId: string;
  turnId: string;
  itemId: string;
  environmentId: string | null;
  /** Unix milliseconds when the question was first asked. */
  startedAtMs: number;
  cwd: LegacyAppPathString;
  reason: string | null;
  permissions: RequestPermissionProfile;
};

/** What the user grants, and for how long. */
export type PermissionsRequestApprovalResponse = {
  permissions: GrantedPermissionProfile;
  scope?: PermissionGrantScope;
  /** Review every further command of this turn before it runs. */
  strictAutoReview?: boolean | null;
};

/** Tone of the answers; the model is told of `friendly` and `pragmatic`. */
export type Personality = "none" | "friendly" | "pragmatic";

/** More text of a plan. */
export type PlanDeltaNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  /** For display meanwhile: the finished item may read differently. */
  delta: string;
};

/** Plan of a ChatGPT account. */
export type PlanType = "free" | "go" | "plus" | "pro" | "prolite" | "promax" | "team" | "self_serve_business_prolite" | "self_serve_business_usage_based" | "business" | "ent26" | "enterprise_cbp_automation" | "enterprise_cbp_usage_based" | "enterprise" | "edu" | "edu_plus" | "edu_pro" | "sci" | "sci_plus" | "unknown";

/** When the user has to sign in to a plugin's apps. */
export type PluginAuthPolicy = "ON_INSTALL" | "ON_USE";

/** Whether a plugin may be installed and used. */
export type PluginAvailability = "DISABLED_BY_ADMIN" | "AVAILABLE";

/** All there is to show about a plugin. */
export type PluginDetail = {
  marketplaceName: string;
  /** The marketplace file; null for a remote catalog. */
  marketplacePath: AbsolutePathBuf | null;
  summary: PluginSummary;
  shareUrl: string | null;
  description: string | null;
  skills: Array<SkillSummary>;
  /** The skill to begin with; null unless plugin and skill are enabled. */
  onboardingSkill: SkillSummary | null;
  hooks: Array<PluginHookSummary>;
  apps: Array<AppSummary>;
  appTemplates: Array<AppTemplateSummary>;
  /** Names of the MCP servers that it brings. */
  mcpServers: Array<string>;
  scheduledTasks: Array<ScheduledTaskSummary> | null;
};

/** Why a remote plugin is not available. */
export type PluginDisabledReason = "disabled_by_admin" | "plan_not_eligible" | "required_app_unavailable" | "unknown";

/** A hook that a plugin brings. */
export type PluginHookSummary = {
  key: string;
  eventName: HookEventName;
};

/** Install a plugin from a marketplace. */
export type PluginInstallParams = {
  _meta?: RequestMeta | null;
  /** Local marketplace file that lists the plugin. */
  marketplacePath?: AbsolutePathBuf | null;
  /** Remote marketplace that lists it, in place of `marketplacePath`. */
  remoteMarketplaceName?: string | null;
  /** Chosen by the client, to tell its attempts apart. */
  installAttemptId?: string | null;
  pluginName: string;
};

/** Whether a plugin can be installed, or is from the start. */
export type PluginInstallPolicy = "NOT_AVAILABLE" | "AVAILABLE" | "INSTALLED_BY_DEFAULT";

/** Where an install policy comes from. */
export type PluginInstallPolicySource = "WORKSPACE_SETTING" | "IMPLICIT_CANONICAL_APP";

/** The plugin is installed; some of its apps may need a sign-in. */
export type PluginInstallResponse = {
  authPolicy: PluginAuthPolicy;
  /** Empty also when it is not known which apps are connected. */
  appsNeedingAuth: Array<AppSummary>;
};

/** List the plugins that are installed. */
export type PluginInstalledParams = {
  /** Folders whose repositories are searched for marketplaces. */
  cwds?: Array<AbsolutePathBuf> | null;
  /** Plugins to list although they are not installed, if a local marketplace has them. */
  installSuggestionPluginNames?: Array<string> | null;
};

/** The installed plugins, by marketplace. */
export type PluginInstalledResponse = {
  marketplaces: Array<PluginMarketplaceEntry>;
  marketplaceLoadErrors: Array<MarketplaceLoadErrorInfo>;
};

/** How to show a plugin. */
export type PluginInterface = {
  displayName: string | null;
  shortDescription: string | null;
  longDescription: string | null;
  developerName: string | null;
  category: string | null;
  capabilities: Array<string>;
  websiteUrl: string | null;
  privacyPolicyUrl: string | null;
  termsOfServiceUrl: string | null;
  /** Prompts to start with; at most 3, of at most 512 characters each. */
  defaultPrompt: Array<string> | null;
  brandColor: string | null;
  /** File in the installed plugin. */
  composerIcon: AbsolutePathBuf | null;
  /** Remote, from the catalog. */
  composerIconUrl: string | null;
  /** File in the installed plugin. */
  logo: AbsolutePathBuf | null;
  logoDark: AbsolutePathBuf | null;
  /** Remote, from the catalog. */
  logoUrl: string | null;
  logoUrlDark: string | null;
  /** Files in the installed plugin. */
  screenshots: Array<AbsolutePathBuf>;
  /** Remote, from the catalog. */
  screenshotUrls: Array<string>;
};

/** A kind of marketplace to ask for. */
export type PluginListMarketplaceKind = "local" | "vertical" | "workspace-directory" | "shared-with-me" | "created-by-me-remote";

/** List the plugins that marketplaces offer. */
export type PluginListParams = {
  /** Folders whose repositories are searched for marketplaces; null searches none. */
  cwds?: Array<AbsolutePathBuf> | null;
  /** Null means local ones, and the default remote catalog where it is switched on. */
  marketplaceKinds?: Array<PluginListMarketplaceKind> | null;
  /** Ask the remote catalog again. */
  forceRefetch?: boolean;
};

/** The plugins on offer, by marketplace. */
export type PluginListResponse = {
  marketplaces: Array<PluginMarketplaceEntry>;
  marketplaceLoadErrors: Array<MarketplaceLoadErrorInfo>;
  featuredPluginIds: Array<string>;
};

/** A marketplace and its plugins. */
export type PluginMarketplaceEntry = {
  name: string;
  /** The marketplace file; null for a remote catalog. */
  path: AbsolutePathBuf | null;
  interface: MarketplaceInterface | null;
  plugins: Array<PluginSummary>;
};

/** Read about one plugin of a marketplace. */
export type PluginReadParams = {
  /** Local marketplace file that lists the plugin. */
  marketplacePath?: AbsolutePathBuf | null;
  /** Remote marketplace that lists it, in place of `marketplacePath`. */
  remoteMarketplaceName?: string | null;
  pluginName: string;
};

/** The plugin. */
export type PluginReadResponse = {
  plugin: PluginDetail;
};

/** An installed plugin that this changed. */
export type PluginReconcileChangedPlugin = {
  id: string;
  hasMcps: boolean;
  hasApps: boolean;
  hasHooks: boolean;
  hasSkills: boolean;
};

/** Bring what is installed into line with the hosted catalog. */
export type PluginReconcileParams = {
  _meta?: RequestMeta | null;
  /** For the log of the catalog. */
  reason?: string | null;
};

/** What changed; nothing where no plugin is of a hosted catalog. */
export type PluginReconcileResponse = {
  changedPlugins: Array<PluginReconcileChangedPlugin>;
  failedRemotePluginIds: Array<string>;
  failedMaterializationRemotePluginIds: Array<string>;
};

/** How a plugin is shared. */
export type PluginShareContext = {
  remotePluginId: string;
  /** Version of the shared release, if known. */
  remoteVersion: string | null;
  discoverability: PluginShareDiscoverability | null;
  shareUrl: string | null;
  /** The creator's user id within the account. */
  creatorAccountUserId: string | null;
  creatorName: string | null;
  sharePrincipals: Array<PluginSharePrincipal> | null;
  canPublishToWorkspace: boolean | null;
};

/** Who can find a shared plugin. */
export type PluginShareDiscoverability = "LISTED" | "UNLISTED" | "PRIVATE";

/** A party that a plugin is shared with. */
export type PluginSharePrincipal = {
  principalType: PluginSharePrincipalType;
  principalId: string;
  role: PluginSharePrincipalRole;
  name: string;
};

/** What someone may do with a shared plugin. */
export type PluginSharePrincipalRole = "reader" | "editor" | "owner";

/** What kind of party a plugin is shared with. */
export type PluginSharePrincipalType = "user" | "group" | "workspace";

/** Where a plugin comes from. */
export type PluginSource = {
  type: "local";
  path: AbsolutePathBuf;
} | {
  type: "git";
  url: string;
  /** Folder within the repository. */
  path: string | null;
  /** Branch or tag. */
  refName: string | null;
  /** Commit. */
  sha: string | null;
} | {
  type: "npm";
  package: string;
  /** Version or range. */
  version: string | null;
  /** HTTPS URL; credentials stay in the user's npm configuration. */
  registry: string | null;
} | {
  type: "remote";
};

/** A plugin as a marketplace lists it, and its state here. */
export type PluginSummary = {
  /** `name@marketplace`. */
  id: string;
  /** Its id in the remote catalog. */
  remotePluginId: string | null;
  /** Version that the remote catalog offers. */
  version: string | null;
  /** Version of the files on the server's machine. */
  localVersion: string | null;
  name: string;
  shareContext: PluginShareContext | null;
  source: PluginSource;
  installed: boolean;
  /** Unix seconds; remote plugins only. */
  installedAt: number | null;
  enabled: boolean;
  installPolicy: PluginInstallPolicy;
  installPolicySource: PluginInstallPolicySource | null;
  /** Whether to show the user a page before the plugin is installed. */
  mustShowInstallationInterstitial: boolean | null;
  authPolicy: PluginAuthPolicy;
  availability: PluginAvailability;
  disabledReason: PluginDisabledReason | null;
  /** Plans that may install it, by the catalog's own names. */
  eligiblePlanTypes: Array<string> | null;
  interface: PluginInterface | null;
  keywords: Array<string>;
};

/** Remove an installed plugin. */
export type PluginUninstallParams = {
  _meta?: RequestMeta | null;
  /** `id` of the plugin's summary. */
  pluginId: string;
};

/** Nothing. */
export type PluginUninstallResponse = { [key: string]: JsonValue };

/** Plugins of another agent, of one marketplace. */
export type PluginsMigration = {
  marketplaceName: string;
  pluginNames: Array<string>;
};

/** A process has ended. */
export type ProcessExitedNotification = {
  /** The one given to `process/spawn`. */
  processHandle: string;
  exitCode: number;
  /** True if the output did not end in time after the exit; some may be missing. */
  outputDrainTimedOut: boolean | null;
  /** Empty if it was streamed. */
  stdout: string;
  /** Whether the output reached `outputBytesCap`. */
  stdoutCapReached: boolean;
  /** Empty if it was streamed. */
  stderr: string;
  /** Whether the output reached `outputBytesCap`. */
  stderrCapReached: boolean;
};

/** End a running process. */
export type ProcessKillParams = {
  _meta?: RequestMeta | null;
  /** The one given to `process/spawn`. */
  processHandle: string;
};

/** Nothing: the end arrives as `process/exited`. */
export type ProcessKillResponse = { [key: string]: JsonValue };

/** A piece of a process's output. */
export type ProcessOutputDeltaNotification = {
  /** The one given to `process/spawn`. */
  processHandle: string;
  stream: ProcessOutputStream;
  deltaBase64: string;
  /** True on the last piece of a stream that `outputBytesCap` cut off. */
  capReached: boolean;
};

/** Where output comes from; with a terminal it is all `stdout`. */
export type ProcessOutputStream = "stdout" | "stderr";

/** Change the size of a running process's terminal. */
export type ProcessResizePtyParams = {
  _meta?: RequestMeta | null;
  /** The one given to `process/spawn`. */
  processHandle: string;
  size: ProcessTerminalSize;
};

/** Nothing. */
export type ProcessResizePtyResponse = { [key: string]: JsonValue };

/** Start a program on the server's machine, outside any sandbox. */
export type ProcessSpawnParams = {
  _meta?: RequestMeta | null;
  /** Program and arguments; at least one. */
  command: Array<string>;
  /** Chosen by the client, for its connection; free again when the process has exited. */
  processHandle: string;
  cwd: AbsolutePathBuf;
  /** Give it a terminal; implies `streamStdin` and `streamStdoutStderr`. */
  tty?: boolean;
  /** Accept `process/writeStdin`. */
  streamStdin?: boolean;
  /** Send output as `process/outputDelta`, not in `process/exited`. */
  streamStdoutStderr?: boolean;
  /** Bytes kept of each stream; absent means the server's default, null no limit. */
  outputBytesCap?: number | null;
  /** Absent means the server's default, null no limit. */
  timeoutMs?: number | null;
  /** Laid over the server's own; null unsets a variable. */
  env?: { [key: string]: string | null } | null;
  /** Only with `tty`. */
  size?: ProcessTerminalSize | null;
};

/** Nothing: the process runs, and its end arrives as `process/exited`. */
export type ProcessSpawnResponse = { [key: string]: JsonValue };

/** Size of a terminal, in characters. */
export type ProcessTerminalSize = {
  rows: number;
  cols: number;
};

/** Write to the input of a running process, close it, or both. */
export type ProcessWriteStdinParams = {
  _meta?: RequestMeta | null;
  /** The one given to `process/spawn`. */
  processHandle: string;
  deltaBase64?: string | null;
  /** Close it after `deltaBase64`, if there is any. */
  closeStdin?: boolean;
};

/** Nothing. */
export type ProcessWriteStdinResponse = { [key: string]: JsonValue };

/** A named set of directories that threads can belong to. Times are Unix seconds. */
export type Project = {
  id: string;
  name: string;
  roots: Array<ProjectRoot>;
  metadata: { [key: string]: string };
  /** Place in the manual order. */
  position: number;
  createdAt: number;
  updatedAt: number;
  /** When an unarchived thread of it was last active; null if it has none. */
  recencyAt: number | null;
};

/** What happened to a project. */
export type ProjectChangeType = "created" | "updated" | "deleted";

/** A project was created, changed or deleted. */
export type ProjectChangedNotification = {
  projectId: string;
  changeType: ProjectChangeType;
};

/** Create a project. */
export type ProjectCreateParams = {
  _meta?: RequestMeta | null;
  name: string;
  /** The order is kept. */
  roots: Array<ProjectRoot>;
  /** Strings for the client's own use; the server only keeps them. */
  metadata?: { [key: string]: string } | null;
  /** Opaque, made by the client; a key used before returns the project it made. */
  idempotencyKey: string;
};

/** The new project, or the one that the key made before. */
export type ProjectCreateResponse = {
  project: Project;
};

/** Delete a project; its threads and files stay. */
export type ProjectDeleteParams = {
  _meta?: RequestMeta | null;
  projectId: string;
};

/** Nothing. */
export type ProjectDeleteResponse = { [key: string]: JsonValue };

/** Create a project and put existing threads into it. */
export type ProjectImportParams = {
  _meta?: RequestMeta | null;
  name: string;
  roots: Array<ProjectRoot>;
  metadata?: { [key: string]: string } | null;
  /** Ids of the threads that go in. */
  threads?: Array<string> | null;
  /** As in `project/create`; a key used before assigns no threads again. */
  idempotencyKey: string;
};

/** The new project, or the one that the key made before. */
export type ProjectImportResponse = {
  project: Project;
};

/** Page through the projects. */
export type ProjectListParams = {
  /** Opaque: `nextCursor` of the page before; null starts over. */
  cursor?: string | null;
  /** Projects a page; null lets the server choose. */
  limit?: number | null;
  /** Null means `position`; `recencyAt` puts projects without threads last. */
  sortKey?: ProjectSortKey | null;
  /** Needs `sortKey`; null means `asc` for `position`, `desc` for `recencyAt`. */
  sortDirection?: SortDirection | null;
};

/** One page of projects. */
export type ProjectListResponse = {
  data: Array<Project>;
  /** Null at the end. */
  nextCursor: string | null;
};

/** Move a project within the manual order. */
export type ProjectMoveParams = {
  _meta?: RequestMeta | null;
  projectId: string;
  /** The project to insert it before; null moves it to the end. */
  beforeProjectId?: string | null;
};

/** Nothing. */
export type ProjectMoveResponse = { [key: string]: JsonValue };

/** Look at one project. */
export type ProjectReadParams = {
  projectId: string;
};

/** The project that was asked for. */
export type ProjectReadResponse = {
  project: Project;
};

/** A directory that belongs to a project. */
export type ProjectRoot = {
  path: AbsolutePathBuf;
};

/** What projects are ordered by: the manual order, or the last activity. */
export type ProjectSortKey = "position" | "recencyAt";

/** Change a project; members that are left out stay as they are. */
export type ProjectUpdateParams = {
  _meta?: RequestMeta | null;
  projectId: string;
  name?: string | null;
  roots?: Array<ProjectRoot> | null;
  metadata?: { [key: string]: string } | null;
};

/** The project after the change. */
export type ProjectUpdateResponse = {
  project: Project;
};

/** How a provider is reached, by its kind. */
export type ProviderSettings = {
  type: "openai";
} | {
  type: "customGateway";
  auth: GatewayAuth;
} | {
  type: "bedrock";
  /** AWS profile. */
  profile: string | null;
  /** AWS region. */
  region: string | null;
} | {
  type: "gcp";
  projectId: string | null;
  location: string | null;
  /** Path on the server's machine; the content is never shown. */
  credentialFile: string | null;
};

/** Changes to one provider: absent members stay, null clears. */
export type ProviderSettingsPatch = {
  type: "customGateway";
  /** Absent keeps it, null clears it. */
  baseUrl?: string | null;
  /** Environment variable that holds the API key; absent keeps it, null clears it. */
  envKey?: string | null;
  name?: string;
  /** Absent or null adds a provider under a new id. */
  providerId?: string | null;
} | {
  type: "bedrock";
  /** AWS profile; absent keeps it, null clears it. */
  profile?: string | null;
  providerId: BedrockProviderId;
  /** AWS region; absent keeps it, null clears it. */
  region?: string | null;
} | {
  type: "gcp";
  /** Path on the server's machine; absent keeps it, null clears it. */
  credentialFile?: string | null;
  /** Absent keeps it, null clears it. */
  location?: string | null;
  /** Absent keeps it, null clears it. */
  projectId?: string | null;
  providerId: GcpProviderId;
};

/** Input that waits until the thread is idle. */
export type QueuedSubmission = {
  id: string;
  input: Array<UserInput>;
  clientUserMessageId: string;
  /** Stays with the input for as long as it waits. */
  responsesapiClientMetadata: { [key: string]: string } | null;
};

/** Which limit stopped the account. */
export type RateLimitReachedType = "rate_limit_reached" | "workspace_owner_credits_depleted" | "workspace_member_credits_depleted" | "workspace_owner_usage_limit_reached" | "workspace_member_usage_limit_reached";

/** A credit that resets a usage limit once. */
export type RateLimitResetCredit = {
  /** Opaque. */
  id: string;
  resetType: RateLimitResetType;
  status: RateLimitResetCreditStatus;
  /** Unix seconds. */
  grantedAt: number;
  /** Unix seconds; null for one that does not expire. */
  expiresAt: number | null;
  title: string | null;
  description: string | null;
};

/** Where a reset credit stands. */
export type RateLimitResetCreditStatus = "available" | "redeeming" | "redeemed" | "unknown";

/** The reset credits that an account has. */
export type RateLimitResetCreditsSummary = {
  availableCount: number;
  /** May be shorter than `availableCount`; null when only the count is known. */
  credits: Array<RateLimitResetCredit> | null;
};

/** What a reset credit resets. */
export type RateLimitResetType = "codexRateLimits" | "unknown";

/** One metered limit, and where the account stands with it. */
export type RateLimitSnapshot = {
  limitId: string | null;
  limitName: string | null;
  /** Model that describes this quota: its display name and reasoning options apply. */
  normalModelSlug: string | null;
  primary: RateLimitWindow | null;
  secondary: RateLimitWindow | null;
  credits: CreditsSnapshot | null;
  /** Spending limit of this user. */
  individualLimit: SpendControlLimitSnapshot | null;
  /** Null means unknown, not that the limit is clear. */
  spendControlReached: boolean | null;
  planType: PlanType | null;
  /** Null while no limit is reached. */
  rateLimitReachedType: RateLimitReachedType | null;
};

/** Use of a limit within a period of time. */
export type RateLimitWindow = {
  /** 100 when nothing is left. */
  usedPercent: number;
  /** Length of the period in minutes. */
  windowDurationMins: number | null;
  /** Unix seconds. */
  resetsAt: number | null;
};

/** A voice of the provider's. */
export type RealtimeVoice = "alloy" | "arbor" | "ash" | "aube" | "ballad" | "breeze" | "bubbie" | "cedar" | "coral" | "cove" | "echo" | "ember" | "haetsal" | "hanul" | "himari" | "juniper" | "leher" | "maple" | "marin" | "miko" | "neer" | "porto" | "rindo" | "rio" | "rivage" | "sage" | "selva" | "shimmer" | "sol" | "sonna" | "spruce" | "tinta" | "vale" | "verse" | "viola";

/** Voices by the version of the provider's interface. */
export type RealtimeVoicesList = {
  v1: Array<RealtimeVoice>;
  v2: Array<RealtimeVoice>;
  v3: Array<RealtimeVoice>;
  defaultV1: RealtimeVoice;
  defaultV2: RealtimeVoice;
};

/** How much a model reasons: one of the words that the model itself offers. */
export type ReasoningEffort = string;

/** One effort a model can be asked for. */
export type ReasoningEffortOption = {
  reasoningEffort: ReasoningEffort;
  description: string;
};

/** One part of the raw reasoning. */
export type ReasoningItemContent = {
  type: "reasoning_text";
  text: string;
} | {
  type: "text";
  text: string;
};

/** One part of a reasoning summary. */
export type ReasoningItemReasoningSummary = {
  type: "summary_text";
  text: string;
};

/** How long a summary of its reasoning the model writes; `none` turns it off. */
export type ReasoningSummary = "auto" | "concise" | "detailed" | "none";

/** A new paragraph of the reasoning summary begins. */
export type ReasoningSummaryPartAddedNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  /** Its place in the item's `summary`. */
  summaryIndex: number;
};

/** More text of one paragraph of the reasoning summary. */
export type ReasoningSummaryTextDeltaNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  delta: string;
  /** The entry of the item's `summary` to append to. */
  summaryIndex: number;
};

/** More raw reasoning text. */
export type ReasoningTextDeltaNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  delta: string;
  /** The entry of the item's `content` to append to. */
  contentIndex: number;
};

/** What the thread was when the signal came; the last two refuse it. */
export type RecipientState = "idle" | "active" | "notLoaded" | "archived" | "unknown";

/** Whether the server can be used from another machine through its provider. */
export type RemoteControlConnectionStatus = "disabled" | "connecting" | "connected" | "errored";

/** How the server is reached from other machines. */
export type RemoteControlStatusReadResponse = {
  status: RemoteControlConnectionStatus;
  /** Name of the machine. */
  serverName: string;
  /** UUID of the home on this machine. */
  installationId: string;
  /** Null unless it is connected. */
  environmentId: string | null;
};

/** A header added to web requests. */
export type RequestHeader = {
  name: string;
  value: string;
};

/** Chosen by whoever asks, and sent back with the answer. */
export type RequestId = string | number;

/** About a request that changes something. Source: docs/sending_again.md, "Operations". */
export type RequestMeta = {
  /**
   * Names the request for sending it again: 1 to 128 printable characters, chosen by the client,
   * for 24 hours or the 10,000 newest of a home.
   */
  operationId?: string | null;
};

/** The permissions that the model asks for. */
export type RequestPermissionProfile = {
  /** Null asks for no more network access. */
  network: AdditionalNetworkPermissions | null;
  /** Null asks for no more access to files. */
  fileSystem: AdditionalFileSystemPermissions | null;
};

/** Region where data must stay. */
export type ResidencyRequirement = "us";

/** A resource as an MCP server lists it. */
export type Resource = {
  /** MCP hints on audience, priority and age. */
  annotations?: JsonValue;
  description?: string | null;
  mimeType?: string | null;
  name: string;
  /** Bytes of the raw content, if the server knows. */
  size?: number | null;
  title?: string | null;
  uri: string;
  icons?: Array<JsonValue> | null;
  _meta?: JsonValue;
};

/** One piece of a resource, as text or as bytes. */
export type ResourceContent = {
  uri: string;
  mimeType?: string | null;
  text: string;
  _meta?: JsonValue;
} | {
  uri: string;
  mimeType?: string | null;
  _meta?: JsonValue;
  /** The bytes, in base64. */
  blob: string;
};

/** A pattern of resource addresses, as an MCP server lists it. */
export type ResourceTemplate = {
  annotations?: JsonValue;
  /** URI template as in RFC 6570. */
  uriTemplate: string;
  name: string;
  title?: string | null;
  description?: string | null;
  mimeType?: string | null;
};

/** One item of the history that the model sees. */
export type ResponseItem = {
  type: "additional_tools";
  id?: string | null;
  role: string;
  /** Tool definitions in the provider's format. */
  tools: Array<JsonValue>;
} | {
  type: "message";
  encrypted_content?: string | null;
  status?: string | null;
  id?: string | null;
  /** Who speaks, `user` or `assistant` for example. */
  role: string;
  content: Array<ContentItem>;
  /** Null means unknown: not every model tells. */
  phase?: MessagePhase | null;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "agent_message";
  id?: string | null;
  author: string;
  recipient: string;
  content: Array<AgentMessageInputContent>;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "reasoning";
  id?: string | null;
  summary: Array<ReasoningItemReasoningSummary>;
  /** The raw reasoning; null if the provider keeps it to itself. */
  content?: Array<ReasoningItemContent> | null;
  /** The reasoning in a form that only the model provider can read. */
  encrypted_content?: string | null;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "local_shell_call";
  encrypted_content?: string | null;
  /** The id in older items; newer ones have `call_id`. */
  id?: string | null;
  /** The output names it to say which call it answers. */
  call_id?: string | null;
  status: LocalShellStatus;
  action: LocalShellAction;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "function_call";
  /** Opaque; only the model provider can read it. */
  encrypted_content?: string | null;
  status?: string | null;
  id?: string | null;
  name: string;
  /** The group that the function belongs to; null if none. */
  namespace?: string | null;
  /** JSON, as text. */
  arguments: string;
  encrypted_function_args?: Array<string> | null;
  /** The output names it to say which call it answers. */
  call_id: string;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "tool_search_call";
  encrypted_content?: string | null;
  id?: string | null;
  call_id?: string | null;
  status?: string | null;
  /** Which side runs the search, `client` or `server`. */
  execution: string;
  arguments: JsonValue;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "function_call_output";
  id?: string | null;
  /** The `call_id` of the call that this answers. */
  call_id?: string | null;
  name?: string | null;
  namespace?: string | null;
  output: FunctionCallOutputBody;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "custom_tool_call";
  /** Opaque; only the model provider can read it. */
  encrypted_content?: string | null;
  id?: string | null;
  status?: string | null;
  call_id: string;
  name: string;
  /** The group that the tool belongs to; null if none. */
  namespace?: string | null;
  /** Free text, not JSON. */
  input: string;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "custom_tool_call_output";
  id?: string | null;
  /** The `call_id` of the call that this answers. */
  call_id: string;
  name?: string | null;
  output: FunctionCallOutputBody;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "tool_search_output";
  id?: string | null;
  /** The `call_id` of the search that this answers. */
  call_id?: string | null;
  status: string;
  execution: string;
  /** Tool definitions in the provider's format. */
  tools: Array<JsonValue>;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "web_search_call";
  encrypted_content?: string | null;
  id?: string | null;
  status?: string | null;
  /** Null if the provider did not say what it did. */
  action?: ResponsesApiWebSearchAction | null;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "image_generation_call";
  encrypted_content?: string | null;
  id?: string | null;
  status: string;
  /** The prompt as the provider rewrote it. */
  revised_prompt?: string | null;
  /** The image in base64. */
  result: string;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "compaction";
  id?: string | null;
  /** Opaque; only the model provider can read it. */
  encrypted_content: string;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "configuration_update";
  reasoning: ConfigurationReasoning;
} | {
  type: "compaction_trigger";
} | {
  type: "context_compaction";
  id?: string | null;
  /** Opaque; only the model provider can read it. */
  encrypted_content?: string | null;
  internal_chat_message_metadata_passthrough?: InternalChatMessageMetadataPassthrough | null;
} | {
  type: "other";
};

/** One step of a web search, in the provider's words. */
export type ResponsesApiWebSearchAction = {
  type: "search";
  /** All queries, if there are several. */
  queries?: Array<string> | null;
  query?: string | null;
} | {
  type: "open_page";
  url?: string | null;
} | {
  type: "find_in_page";
  pattern?: string | null;
  url?: string | null;
} | {
  type: "other";
};

/** The answer to a request for approval; `abort` also ends the turn. */
export type ReviewDecision = "approved" | "approved_for_session" | "approved_mcp_policy_amendment" | "timed_out" | "abort" | {
  /** A rule for commands, as approved. */
  approved_execpolicy_amendment: {
    /** First words of the commands that need no approval any more. */
    proposed_execpolicy_amendment: Array<string>;
  };
} | {
  /** A network rule, as decided. */
  network_policy_amendment: {
    network_policy_amendment: NetworkPolicyAmendment;
  };
} | {
  /** Why something was refused. */
  denied: {
    /** Told to the agent. */
    rejection: string;
  };
};

/** Where a review runs: on the thread that asked for it. */
export type ReviewDelivery = "inline";

/** Have the model review code, in a turn of its own. */
export type ReviewStartParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  target: ReviewTarget;
  /** Null means `inline`. */
  delivery?: ReviewDelivery | null;
};

/** The turn in which the review runs. */
export type ReviewStartResponse = {
  turn: Turn;
  /** The thread that was named in the request. */
  reviewThreadId: string;
};

/** What a review looks at. */
export type ReviewTarget = {
  type: "uncommittedChanges";
} | {
  type: "baseBranch";
  branch: string;
} | {
  type: "commit";
  sha: string;
  /** What to call the commit on screen, such as its subject. */
  title?: string | null;
} | {
  type: "custom";
  instructions: string;
};

/** How far commands are confined, in one word. */
export type SandboxMode = "read-only" | "workspace-write" | "danger-full-access";

/** How far commands are confined, with the details. */
export type SandboxPolicy = {
  type: "dangerFullAccess";
} | {
  type: "readOnly";
  networkAccess?: boolean;
} | {
  type: "externalSandbox";
  networkAccess?: NetworkAccess;
} | {
  type: "workspaceWrite";
  /** Folders to write in besides the working directory. */
  writableRoots?: Array<AbsolutePathBuf>;
  networkAccess?: boolean;
  /** True keeps the folder that `TMPDIR` names unwritable. */
  excludeTmpdirEnvVar?: boolean;
  /** True keeps `/tmp` unwritable. */
  excludeSlashTmp?: boolean;
};

/** Details of the sandbox mode `workspace-write`. */
export type SandboxWorkspaceWrite = {
  /** Directories that may be written besides the working directory. */
  writable_roots: Array<string>;
  network_access: boolean;
  /** Keep the directory that `TMPDIR` names read-only. */
  exclude_tmpdir_env_var: boolean;
  /** Keep `/tmp` read-only. */
  exclude_slash_tmp: boolean;
};

/** When a task runs. */
export type ScheduledTaskSchedule = {
  type: "hourly";
  intervalHours: number;
  /** The only days on which it runs, where it is so limited. */
  days: Array<ScheduledTaskWeekday> | null;
} | {
  type: "daily";
  /** Time of day, as text. */
  time: string;
} | {
  type: "weekdays";
  /** Time of day, as text. */
  time: string;
} | {
  type: "weekly";
  days: Array<ScheduledTaskWeekday>;
  /** Time of day, as text. */
  time: string;
};

/** A task that a plugin would run by the clock. */
export type ScheduledTaskSummary = {
  key: string;
  name: string;
  /** What the model is told to do. */
  prompt: string;
  schedule: ScheduledTaskSchedule;
};

/** First two letters of a day of the week. */
export type ScheduledTaskWeekday = "MO" | "TU" | "WE" | "TH" | "FR" | "SA" | "SU";

/** A folder that the user chose and that brings capabilities with it. */
export type SelectedCapabilityRoot = {
  /** Chosen by the platform that offers the root. */
  id: string;
  location: CapabilityRootLocation;
};

/** The part of a histogram between the bucket before and a bound. */
export type ServerDiagnosticsBucket = {
  /** Microseconds. */
  upToUs: number;
  count: number;
};

/** One client that is connected now. */
export type ServerDiagnosticsConnection = {
  /** Counted from 1 since the start. */
  id: number;
  /** Null before `initialize`; so is the version. */
  clientName: string | null;
  clientVersion: string | null;
  requestsInFlight: number;
  /** That wait to be sent. */
  waitingMessages: number;
  /** Of these messages. */
  waitingChars: number;
};

/** Failures of one kind since the start; texts of errors are not kept. */
export type ServerDiagnosticsFailure = {
  source: "request" | "turn";
  /** `data.code` of a request's error, or the word of `codexErrorInfo` of a turn's. */
  kind: string;
  count: number;
  /** Unix milliseconds. */
  lastAtMs: number;
  /** The method that failed last; null for turns, and for methods that do not exist. */
  lastMethod: string | null;
};

/** One measured number. */
export type ServerDiagnosticsGauge = {
  name: string;
  value: number;
};

/** How many MCP servers of loaded threads have one status. */
export type ServerDiagnosticsMcpServers = {
  /** As `mcpServerStatus/list` has it. */
  status: string;
  count: number;
  /** Their names, each once, sorted; at most 64. */
  names: Array<string>;
};

/**
 * The answers to one method since the start.
 *
 * A time is that from when the request was read to when its answer was ready. Quantiles are at
 * most 19 % too high.
 */
export type ServerDiagnosticsMethod = {
  method: string;
  count: number;
  /** Answers that are errors. */
  failed: number;
  p50Us: number;
  p99Us: number;
  maxUs: number;
  /** Without empty ones; at most 109. */
  buckets: Array<ServerDiagnosticsBucket>;
};

/** Ask how the server's process is doing. */
export type ServerDiagnosticsParams = { [key: string]: JsonValue };

/** The server's own process. */
export type ServerDiagnosticsProcess = {
  /** Process id of the operating system. */
  id: number;
  /** Null where it cannot be measured. */
  residentMemoryBytes: number | null;
  /** Memory as macOS accounts for it; null where it cannot be measured. */
  physicalFootprintBytes: number | null;
};

/** Something that has a bound, and how full it is. Of some queues there are several. */
export type ServerDiagnosticsQueue = {
  name: string;
  /** What is counted: `requests`, `characters`, `messages`, `bytes`, … */
  unit: string;
  /** Of one queue; null where the system has none. */
  bound: number | null;
  /** How much the fullest one holds. */
  fullest: number;
  /** How much all hold together. */
  total: number;
  /** How many there are. */
  owners: number;
};

/** How the server's process is doing: figures, and no text, path or id of a thread. */
export type ServerDiagnosticsResponse = {
  process: ServerDiagnosticsProcess;
  gauges: Array<ServerDiagnosticsGauge>;
  server?: ServerDiagnosticsServer | null;
  /** The oldest first; at most 256. */
  connections?: Array<ServerDiagnosticsConnection> | null;
  threads?: ServerDiagnosticsThreads | null;
  queues?: Array<ServerDiagnosticsQueue> | null;
  /** By status. */
  mcpServers?: Array<ServerDiagnosticsMcpServers> | null;
  /** Those that were called, by name. */
  methods?: Array<ServerDiagnosticsMethod> | null;
  /** By stage; empty where no signal was used since the start. */
  signals?: Array<ServerDiagnosticsSignals> | null;
  /** The newest kind first; at most 64. */
  failures?: Array<ServerDiagnosticsFailure> | null;
  /** What was used since the start, by name, at most 513 counters; absent unless it is counted. */
  analytics?: Array<ServerDiagnosticsGauge> | null;
};

/** Which server this is, and since when it runs. */
export type ServerDiagnosticsServer = {
  /** Of the program. */
  version: string;
  /** The Codex app-server version whose wire this is. */
  protocolVersion: string;
  /** Unix milliseconds. */
  startedAtMs: number;
  /** Changes of the machine's clock do not count. */
  uptimeMs: number;
};

/** How many signals of the ledger are at one stage. */
export type ServerDiagnosticsSignals = {
  stage: string;
  count: number;
};

/** Loaded threads, and the turns that have ended since the start. */
export type ServerDiagnosticsThreads = {
  loaded: number;
  /** With a turn that runs. */
  running: number;
  /** Of those that run: waiting for an approval or for another answer of the user. */
  waitingForUser: number;
  turnsCompleted: number;
  turnsFailed: number;
  turnsInterrupted: number;
};

/** A notification of the server. */
export type ServerNotification = {
  /** When the server sent it, Unix milliseconds. */
  emittedAtMs: number;
  /** The number of an event in the stream of its thread. */
  seq: number;
} & ({
  method: "account/login/completed";
  params: AccountLoginCompletedNotification;
} | {
  method: "account/rateLimits/updated";
  params: AccountRateLimitsUpdatedNotification;
} | {
  method: "account/updated";
  params: AccountUpdatedNotification;
} | {
  method: "app/list/updated";
  params: AppListUpdatedNotification;
} | {
  method: "autoApprovalReview/strictReviewRequired";
  params: StrictReviewRequiredNotification;
} | {
  method: "command/exec/outputDelta";
  params: CommandExecOutputDeltaNotification;
} | {
  method: "configWarning";
  params: ConfigWarningNotification;
} | {
  method: "deprecationNotice";
  params: DeprecationNoticeNotification;
} | {
  method: "error";
  params: ErrorNotification;
} | {
  method: "fs/changed";
  params: FsChangedNotification;
} | {
  method: "fuzzyFileSearch/sessionCompleted";
  params: FuzzyFileSearchSessionCompletedNotification;
} | {
  method: "fuzzyFileSearch/sessionUpdated";
  params: FuzzyFileSearchSessionUpdatedNotification;
} | {
  method: "guardianWarning";
  params: GuardianWarningNotification;
} | {
  method: "hook/completed";
  params: HookCompletedNotification;
} | {
  method: "hook/started";
  params: HookStartedNotification;
} | {
  method: "item/agentMessage/delta";
  params: AgentMessageDeltaNotification;
} | {
  method: "item/autoApprovalReview/completed";
  params: ItemGuardianApprovalReviewCompletedNotification;
} | {
  method: "item/autoApprovalReview/started";
  params: ItemGuardianApprovalReviewStartedNotification;
} | {
  method: "item/commandExecution/outputDelta";
  params: CommandExecutionOutputDeltaNotification;
} | {
  method: "item/commandExecution/terminalInteraction";
  params: TerminalInteractionNotification;
} | {
  method: "item/completed";
  params: ItemCompletedNotification;
} | {
  method: "item/fileChange/outputDelta";
  params: FileChangeOutputDeltaNotification;
} | {
  method: "item/fileChange/patchUpdated";
  params: FileChangePatchUpdatedNotification;
} | {
  method: "item/mcpToolCall/progress";
  params: McpToolCallProgressNotification;
} | {
  method: "item/plan/delta";
  params: PlanDeltaNotification;
} | {
  method: "item/reasoning/summaryPartAdded";
  params: ReasoningSummaryPartAddedNotification;
} | {
  method: "item/reasoning/summaryTextDelta";
  params: ReasoningSummaryTextDeltaNotification;
} | {
  method: "item/reasoning/textDelta";
  params: ReasoningTextDeltaNotification;
} | {
  method: "item/started";
  params: ItemStartedNotification;
} | {
  method: "mcpServer/event/stream/notification";
  params: McpServerEventStreamNotification;
} | {
  method: "mcpServer/oauthLogin/completed";
  params: McpServerOauthLoginCompletedNotification;
} | {
  method: "mcpServer/startupStatus/updated";
  params: McpServerStatusUpdatedNotification;
} | {
  method: "mcpServer/tools/changed";
  params: McpServerToolsChangedNotification;
} | {
  method: "model/rerouted";
  params: ModelReroutedNotification;
} | {
  method: "model/safetyBuffering/updated";
  params: ModelSafetyBufferingUpdatedNotification;
} | {
  method: "model/verification";
  params: ModelVerificationNotification;
} | {
  method: "modelProvider/authRecoveryCompleted";
  params: AuthRecoveryNotification;
} | {
  method: "modelProvider/authRecoveryStarted";
  params: AuthRecoveryNotification;
} | {
  method: "process/exited";
  params: ProcessExitedNotification;
} | {
  method: "process/outputDelta";
  params: ProcessOutputDeltaNotification;
} | {
  method: "project/changed";
  params: ProjectChangedNotification;
} | {
  method: "serverRequest/resolved";
  params: ServerRequestResolvedNotification;
} | {
  method: "signal/updated";
  params: SignalUpdatedNotification;
} | {
  method: "skills/changed";
  params: SkillsChangedNotification;
} | {
  method: "thread/budget/updated";
  params: ThreadBudgetUpdatedNotification;
} | {
  method: "thread/archived";
  params: ThreadArchivedNotification;
} | {
  method: "thread/attachment/updated";
  params: ThreadAttachmentUpdatedNotification;
} | {
  method: "thread/closed";
  params: ThreadClosedNotification;
} | {
  method: "thread/compacted";
  params: ContextCompactedNotification;
} | {
  method: "thread/deleted";
  params: ThreadDeletedNotification;
} | {
  method: "thread/environment/connected";
  params: EnvironmentConnectionNotification;
} | {
  method: "thread/environment/disconnected";
  params: EnvironmentConnectionNotification;
} | {
  method: "thread/goal/cleared";
  params: ThreadGoalClearedNotification;
} | {
  method: "thread/goal/updated";
  params: ThreadGoalUpdatedNotification;
} | {
  method: "thread/name/updated";
  params: ThreadNameUpdatedNotification;
} | {
  method: "thread/project/updated";
  params: ThreadProjectUpdatedNotification;
} | {
  method: "thread/queue/changed";
  params: ThreadQueueChangedNotification;
} | {
  method: "thread/readState/changed";
  params: ThreadReadStateChangedNotification;
} | {
  method: "thread/reverted";
  params: ThreadRevertedNotification;
} | {
  method: "thread/section/changed";
  params: ThreadSectionChangedNotification;
} | {
  method: "thread/settings/updated";
  params: ThreadSettingsUpdatedNotification;
} | {
  method: "thread/started";
  params: ThreadStartedNotification;
} | {
  method: "thread/status/changed";
  params: ThreadStatusChangedNotification;
} | {
  method: "thread/tokenUsage/updated";
  params: ThreadTokenUsageUpdatedNotification;
} | {
  method: "thread/unarchived";
  params: ThreadUnarchivedNotification;
} | {
  method: "thread/wake/changed";
  params: ThreadWakeChangedNotification;
} | {
  method: "turn/completed";
  params: TurnCompletedNotification;
} | {
  method: "turn/diff/updated";
  params: TurnDiffUpdatedNotification;
} | {
  method: "turn/moderationMetadata";
  params: TurnModerationMetadataNotification;
} | {
  method: "turn/plan/updated";
  params: TurnPlanUpdatedNotification;
} | {
  method: "turn/started";
  params: TurnStartedNotification;
} | {
  method: "warning";
  params: WarningNotification;
});

/** A request of the server to a client. */
export type ServerRequest = {
  method: "account/chatgptAuthTokens/refresh";
  id: RequestId;
  params: ChatgptAuthTokensRefreshParams;
} | {
  method: "applyPatchApproval";
  id: RequestId;
  params: ApplyPatchApprovalParams;
} | {
  method: "attestation/generate";
  id: RequestId;
  params: AttestationGenerateParams;
} | {
  method: "currentTime/read";
  id: RequestId;
  params: CurrentTimeReadParams;
} | {
  method: "execCommandApproval";
  id: RequestId;
  params: ExecCommandApprovalParams;
} | {
  method: "item/commandExecution/requestApproval";
  id: RequestId;
  params: CommandExecutionRequestApprovalParams;
} | {
  method: "item/fileChange/requestApproval";
  id: RequestId;
  params: FileChangeRequestApprovalParams;
} | {
  method: "item/permissions/requestApproval";
  id: RequestId;
  params: PermissionsRequestApprovalParams;
} | {
  method: "item/tool/call";
  id: RequestId;
  params: DynamicToolCallParams;
} | {
  method: "item/tool/requestUserInput";
  id: RequestId;
  params: ToolRequestUserInputParams;
} | {
  method: "mcpServer/elicitation/request";
  id: RequestId;
  params: McpServerElicitationRequestParams;
};

/** A question of ours is settled; clients take it off their screens. */
export type ServerRequestResolvedNotification = {
  threadId: string;
  /** The `id` under which the question was asked. */
  requestId: RequestId;
};

/** A conversation of another agent. */
export type SessionMigration = {
  path: string;
  cwd: string;
  title: string | null;
};

/** The kind of program that created a thread. */
export type SessionSource = "cli" | "vscode" | "exec" | "appServer" | "unknown" | {
  custom: string;
} | {
  subAgent: SubAgentSource;
};

/** What a collaboration mode sets. */
export type Settings = {
  model: string;
  /** Null leaves the choice to the model. */
  reasoning_effort?: ReasoningEffort | null;
  /** Null takes the instructions that come with the mode. */
  developer_instructions?: string | null;
};

/** One message of an outside sender; `source` and `id` together name it for ever. */
export type Signal = {
  id: string;
  /** The system that it comes from. */
  source: string;
  /** What kind of message it is, in the words of its source. */
  type: string;
  /** Who in that system wrote it. */
  sender: string;
  /** What the model reads; at most 4 KiB of UTF-8. */
  summary: string;
  /** The whole message; at most 256 KiB as JSON. It does not go into the thread. */
  payload?: JsonValue;
  /** When it was written, Unix seconds. */
  createdAt?: number | null;
  /** How long after `created_at` it may still enter history; null means always. */
  ttlSeconds?: number | null;
};

/** Put a signal into a thread; saying it again changes nothing. */
export type SignalDeliverParams = {
  _meta?: RequestMeta | null;
  signal: Signal;
  target: SignalTarget;
  mode: SignalMode;
  /** Null means `queue`. */
  onBusy?: SignalOnBusy | null;
  /**
   * An MCP tool that gives the whole signal when it is called with its `id`; the text for the
   * model names it if the thread has that tool. It is no part of what the signal is.
   */
  payloadTool?: string | null;
};

/** The receipt; the signal is on disk. */
export type SignalDeliverResponse = {
  receipt: SignalReceipt;
};

/** Why a signal failed, did not wake its thread, or got no answer from its turn. */
export type SignalError = {
  code: string;
  message: string;
};

/** Page through receipts, newest first. */
export type SignalListParams = {
  threadId?: string | null;
  stage?: SignalStage | null;
  /** Opaque, from `nextCursor` of the page before. */
  cursor?: string | null;
  /** Receipts a page; null lets the server choose, 0 counts as 1. */
  limit?: number | null;
};

/** One page; `next_cursor` is null at the end. */
export type SignalListResponse = {
  data: Array<SignalReceipt>;
  nextCursor: string | null;
};

/** `passive` waits for the next model request; `wake` gives an idle thread a turn. */
export type SignalMode = "passive" | "wake";

/** Where a `wake` goes while a turn runs: after that turn, or into its next model request. */
export type SignalOnBusy = "queue" | "steer";

/** Ask what has become of a signal. */
export type SignalReadParams = {
  source: string;
  id: string;
};

/** The receipt as it is now. */
export type SignalReadResponse = {
  receipt: SignalReceipt;
};

/** Take a signal back; possible until a model has seen it. */
export type SignalRecallParams = {
  _meta?: RequestMeta | null;
  source: string;
  id: string;
};

/** The receipt, its stage `recalled`. */
export type SignalRecallResponse = {
  receipt: SignalReceipt;
};

/** What has become of a signal. */
export type SignalReceipt = {
  signalId: string;
  source: string;
  threadId: string;
  stage: SignalStage;
  /** The item in the thread, from `inHistory` on. */
  itemId: string | null;
  /** The turn whose model saw it, from `seen` on. */
  turnId: string | null;
  /** Whether it started a turn. */
  woken: boolean;
  recipientState: RecipientState;
  /** When the stage was reached, Unix seconds. */
  at: number;
  error: SignalError | null;
};

/**
 * How far a signal has come.
 *
 * The first four follow each other: it is in the ledger, in the thread's log, in a model request, and
 * in a turn that has ended. The last three are ends that can come before `seen`.
 */
export type SignalStage = "accepted" | "inHistory" | "seen" | "answered" | "expired" | "recalled" | "failed";

/** Which thread a signal is for. */
export type SignalTarget = {
  threadId: string;
} | {
  cwd: string;
} | {
  name: string;
};

/** A signal has come further. */
export type SignalUpdatedNotification = {
  receipt: SignalReceipt;
};

/** What a skill needs. */
export type SkillDependencies = {
  tools: Array<SkillToolDependency>;
};

/** A file whose skill could not be read. */
export type SkillErrorInfo = {
  path: string;
  message: string;
};

/** How to show a skill. */
export type SkillInterface = {
  displayName?: string | null;
  shortDescription?: string | null;
  iconSmall?: AbsolutePathBuf | null;
  iconLarge?: AbsolutePathBuf | null;
  /** Remote, from the plugin catalog. */
  iconSmallUrl: string | null;
  /** Remote, from the plugin catalog. */
  iconLargeUrl: string | null;
  brandColor?: string | null;
  /** Prompt to start with. */
  defaultPrompt?: string | null;
};

/** A skill that the model can be given. */
export type SkillMetadata = {
  name: string;
  description: string;
  /** From an older form of skill; `interface` has the current one. */
  shortDescription?: string | null;
  interface?: SkillInterface | null;
  dependencies?: SkillDependencies | null;
  /** The skill's file. */
  path: LegacyAppPathString;
  scope: SkillScope;
  enabled: boolean;
  /** `id` of the plugin that brings it, if one does. */
  pluginId: string | null;
};

/** A skill of another agent. */
export type SkillMigration = {
  name: string;
};

/** Whom a skill is there for. */
export type SkillScope = "user" | "repo" | "system" | "admin";

/** A skill that a plugin brings. */
export type SkillSummary = {
  name: string;
  description: string;
  shortDescription: string | null;
  interface: SkillInterface | null;
  /** The skill's file, if it is on this machine. */
  path: LegacyAppPathString | null;
  enabled: boolean;
};

/** A tool that a skill needs. */
export type SkillToolDependency = {
  /** Kind of tool, an MCP server for instance. */
  type: string;
  /** Names the tool within its kind. */
  value: string;
  description?: string | null;
  transport?: string | null;
  /** How to start it, if it is a program. */
  command?: string | null;
  /** Where to reach it, if it is a service. */
  url?: string | null;
};

/** Skill files changed: ask `skills/list` again. */
export type SkillsChangedNotification = { [key: string]: JsonValue };

/** Switch a skill on or off for good; name it by `path` or by `name`. */
export type SkillsConfigWriteParams = {
  _meta?: RequestMeta | null;
  /** File of the skill. */
  path?: AbsolutePathBuf | null;
  name?: string | null;
  enabled: boolean;
};

/** Whether the skill is on, now that the change is written. */
export type SkillsConfigWriteResponse = {
  effectiveEnabled: boolean;
};

/** Set the further folders in which skills are looked for. */
export type SkillsExtraRootsSetParams = {
  _meta?: RequestMeta | null;
  /** The whole list: it replaces the one before. */
  extraRoots: Array<AbsolutePathBuf>;
};

/** Nothing. */
export type SkillsExtraRootsSetResponse = { [key: string]: JsonValue };

/** The skills of one folder. */
export type SkillsListEntry = {
  cwd: string;
  skills: Array<SkillMetadata>;
  errors: Array<SkillErrorInfo>;
};

/** Ask for the skills of some folders. */
export type SkillsListParams = {
  /** Empty means the server's own folder. */
  cwds?: Array<string>;
  /** Read the files again, past the cache. */
  forceReload?: boolean;
};

/** An entry for each folder that was asked for. */
export type SkillsListResponse = {
  data: Array<SkillsListEntry>;
};

/** Which end of a list comes first. */
export type SortDirection = "asc" | "desc";

/** Use of a spending limit. */
export type SpendControlLimitSnapshot = {
  /** Amount as text. */
  limit: string;
  /** Amount as text, in the unit of `limit`. */
  used: string;
  remainingPercent: number;
  /** Unix seconds. */
  resetsAt: number;
};

/** A turn now needs a strict review of what it does. */
export type StrictReviewRequiredNotification = {
  threadId: string;
  turnId: string;
  /** When the review began, Unix milliseconds. */
  startedAtMs: number;
};

/** What happened with another agent. */
export type SubAgentActivityKind = "started" | "interacted" | "interrupted" | "completed";

/** What started a sub-agent. */
export type SubAgentSource = "review" | "compact" | "memory_consolidation" | {
  /** Which agent started a sub-agent, and as what. */
  thread_spawn: {
    agent_nickname: string | null;
    agent_path: AgentPath | null;
    agent_role: string | null;
    /** How deep in the tree of agents. */
    depth: number;
    parent_thread_id: ThreadId;
  };
} | {
  other: string;
};

/** A subagent of another agent. */
export type SubagentMigration = {
  name: string;
};

/** The model sent input to a running command. */
export type TerminalInteractionNotification = {
  threadId: string;
  turnId: string;
  itemId: string;
  /** The `processId` of the command's item. */
  processId: string;
  stdin: string;
};

/** A stretch of the text that the client shows in its own way. */
export type TextElement = {
  /** Where it is in `text`. */
  byteRange: ByteRange;
  /** What to show in its place; null leaves that to the client. */
  placeholder?: string | null;
};

/** A place in a text file. */
export type TextPosition = {
  /** From 1. */
  line: number;
  /** From 1, in Unicode characters. */
  column: number;
};

/** Part of a text file. */
export type TextRange = {
  start: TextPosition;
  end: TextPosition;
};

/** One conversation. Times are Unix seconds. */
export type Thread = {
  id: string;
  /** The current one first; null when the thread is not in memory. */
  environments: Array<ThreadEnvironment> | null;
  extra: ThreadExtra | null;
  /** Shared by all threads of one tree. */
  sessionId: string;
  /** The thread that this one was copied from. */
  forkedFromId: string | null;
  /** The thread that this one is a part of; not in ordinary lists. */
  attachedToThreadId: string | null;
  /** For a sub-agent, its parent's thread. */
  parentThreadId: string | null;
  /** The first user message, cut to 1,024 characters. */
  preview: string;
  ephemeral: boolean;
  section: ThreadSection | null;
  /** When it was put into its section. */
  sectionEnteredAt: number | null;
  /** Null when it belongs to no project. */
  projectId: string | null;
  historyMode: ThreadHistoryMode;
  modelProvider: string;
  /** The one set now, or the last one stored; null when it is not known. */
  model: string | null;
  reasoningEffort: ReasoningEffort | null;
  createdAt: number;
  updatedAt: number;
  /** When its last turn began, or it was created. */
  recencyAt: number | null;
  status: ThreadStatus;
  /** The rollout file; null for ephemeral threads. */
  path: string | null;
  cwd: AbsolutePathBuf;
  /** Protocol version of the server that created it. */
  cliVersion: string;
  /** Name of the client that created it; null when it is not known. */
  originator: string | null;
  source: SessionSource;
  /** Null when the thread is not in memory. */
  canAcceptDirectInput: boolean | null;
  threadSource: ThreadSource | null;
  /** Set for sub-agents. */
  agentNickname: string | null;
  agentRole: string | null;
  gitInfo: GitInfo | null;
  name: string | null;
  /** As the client stored it, without effect on turns; null when it never did. */
  daybreakEnabled: boolean | null;
  /** Filled in the answers of resume and fork, and of `thread/read` with `includeTurns`. */
  turns: Array<Turn>;
};

/** What a running turn waits for. */
export type ThreadActiveFlag = "waitingOnApproval" | "waitingOnUserInput";

/** Unload a thread and move it out of the default list. */
export type ThreadArchiveParams = {
  _meta?: RequestMeta | null;
  threadId: string;
};

/** Nothing. */
export type ThreadArchiveResponse = { [key: string]: JsonValue };

/** A thread was archived. */
export type ThreadArchivedNotification = {
  threadId: string;
};

/** Something that was attached to a thread. */
export type ThreadAttachment = {
  id: string;
  attachmentType: string;
  identityKey: string;
  payload: JsonValue;
  /** Unix seconds. */
  createdAt: number;
};

/** Whether the attachment is new or was there already. */
export type ThreadAttachmentAddOutcome = "created" | "existing";

/** Attach something to a thread, unless the thread has it already. */
export type ThreadAttachmentAddParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  attachmentType: string;
  /** Together with `attachmentType` it is unique within the thread. */
  identityKey: string;
  payload: JsonValue;
};

/** The attachment, new or found. */
export type ThreadAttachmentAddResponse = {
  outcome: ThreadAttachmentAddOutcome;
  attachment: ThreadAttachment;
};

/** Page through a thread's attachments. */
export type ThreadAttachmentListParams = {
  threadId: string;
  cursor?: string | null;
  /** Attachments a page; null lets the server choose. */
  limit?: number | null;
};

/** One page of a thread's attachments. */
export type ThreadAttachmentListResponse = {
  data: Array<ThreadAttachment>;
  /** Null at the end. */
  nextCursor: string | null;
};

/** What happened to an attachment. */
export type ThreadAttachmentOperation = "created" | "deleted";

/** A thread that has the attachment. */
export type ThreadAttachmentOwner = {
  threadId: string;
  archived: boolean;
};

/** Page through the threads that have a given attachment. */
export type ThreadAttachmentOwnerListParams = {
  attachmentType: string;
  identityKey: string;
  /** False leaves out archived threads; null means all threads. */
  archived?: boolean | null;
  cursor?: string | null;
  /** Threads a page; null lets the server choose. */
  limit?: number | null;
};

/** One page of threads that have the attachment. */
export type ThreadAttachmentOwnerListResponse = {
  data: Array<ThreadAttachmentOwner>;
  /** Null at the end. */
  nextCursor: string | null;
};

/** Take an attachment off a thread. */
export type ThreadAttachmentRemoveParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  attachmentType: string;
  identityKey: string;
};

/** Nothing. */
export type ThreadAttachmentRemoveResponse = { [key: string]: JsonValue };

/** A thread gained or lost an attachment. */
export type ThreadAttachmentUpdatedNotification = {
  threadId: string;
  attachmentType: string;
  identityKey: string;
  attachmentId: string;
  operation: ThreadAttachmentOperation;
};

/** A command that goes on running in the background of a thread. */
export type ThreadBackgroundTerminal = {
  itemId: string;
  /** The server's own id, for `thread/backgroundTerminals/terminate`. */
  processId: string;
  command: string;
  cwd: LegacyAppPathString;
  /** The operating system's id; null if not known. */
  osPid: number | null;
  /** Null if not known. */
  cpuPercent: number | null;
  /** Resident memory in kilobytes; null if not known. */
  rssKb: number | null;
};

/** End all background terminals of a thread. */
export type ThreadBackgroundTerminalsCleanParams = {
  _meta?: RequestMeta | null;
  threadId: string;
};

/** Nothing. */
export type ThreadBackgroundTerminalsCleanResponse = { [key: string]: JsonValue };

/** Page through the background terminals of a loaded thread. */
export type ThreadBackgroundTerminalsListParams = {
  threadId: string;
  cursor?: string | null;
  /** Terminals a page; null lets the server choose. */
  limit?: number | null;
};

/** One page of background terminals. */
export type ThreadBackgroundTerminalsListResponse = {
  data: Array<ThreadBackgroundTerminal>;
  /** Null at the end. */
  nextCursor: string | null;
};

/** End one background terminal. */
export type ThreadBackgroundTerminalsTerminateParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** From `thread/backgroundTerminals/list`. */
  processId: string;
};

/** Whether a process was ended. */
export type ThreadBackgroundTerminalsTerminateResponse = {
  terminated: boolean;
};

/** A thread's budget, and how far it is used. */
export type ThreadBudget = {
  limits: BudgetLimits;
  used: BudgetUse;
  /** Of the limit that is used most; of what was counted, without a request that runs. */
  percent: number;
};

/** Give a thread a budget; a turn that the budget has ended goes on. */
export type ThreadBudgetSetParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** Null removes it; absent keeps what it is. */
  budget?: BudgetLimits | null;
};

/** The budget as it is now. */
export type ThreadBudgetSetResponse = {
  budget: ThreadBudget | null;
};

/** A budget was set, is used by half, by 80 % or wholly, or has ended a turn. */
export type ThreadBudgetUpdatedNotification = {
  /** The thread whose request or client changed it. */
  threadId: string;
  turnId: string | null;
  scope: BudgetScope;
  /** The day or the folder. */
  name: string | null;
  /** Null: the thread has none any more. */
  budget: ThreadBudget | null;
  /** 50, 80 or 100: the percentage that was just reached. */
  threshold: number | null;
  /** Whether a turn has ended, as its next request might have passed the budget. */
  exceeded: boolean;
};

/** A thread left memory. */
export type ThreadClosedNotification = {
  threadId: string;
};

/** Compact a thread's history, in a turn of its own. */
export type ThreadCompactStartParams = {
  _meta?: RequestMeta | null;
  threadId: string;
};

/** Nothing: the work shows as a turn with a `contextCompaction` item. */
export type ThreadCompactStartResponse = { [key: string]: JsonValue };

/** Say that a question to the user outside of this protocol is settled. */
export type ThreadDecrementElicitationParams = {
  _meta?: RequestMeta | null;
  threadId: string;
};

/** How many such questions are still open. */
export type ThreadDecrementElicitationResponse = {
  count: number;
  /** Timeouts still do not count. */
  paused: boolean;
};

/** Remove a thread for good. */
export type ThreadDeleteParams = {
  _meta?: RequestMeta | null;
  threadId: string;
};

/** Nothing: the thread is gone. */
export type ThreadDeleteResponse = { [key: string]: JsonValue };

/** A thread was removed for good. */
export type ThreadDeletedNotification = {
  threadId: string;
};

/** Where the thread's tools run. */
export type ThreadEnvironment = {
  /** Says nothing about whether the environment is connected. */
  environmentId: string;
  cwd: LegacyAppPathString;
  runtimeWorkspaceRoots: Array<LegacyAppPathString>;
};

/** Room for what a server wants to add; nothing is defined. */
export type ThreadExtra = { [key: string]: JsonValue };

/** Copy the history of a thread into a new one. */
export type ThreadForkParams = {
  _meta?: RequestMeta | null;
  model?: string | null;
  modelProvider?: string | null;
  serviceTier?: string | null;
  /** Relative paths count from the server's working directory. */
  cwd?: string | null;
  /** Replaces the thread's roots. */
  runtimeWorkspaceRoots?: Array<AbsolutePathBuf> | null;
  approvalPolicy?: AskForApproval | null;
  approvalsReviewer?: ApprovalsReviewer | null;
  sandbox?: SandboxMode | null;
  /** Id of a named permission profile; not together with `sandbox`. */
  permissions?: string | null;
  /** Overrides of config.toml for this thread; keys may be dotted paths. */
  config?: { [key: string]: JsonValue } | null;
  /** Name of a file `NAME.config.toml` in the home folder whose settings lie below `config`. */
  profile?: string | null;
  baseInstructions?: string | null;
  developerInstructions?: string | null;
  threadId: string;
  /** Copy the loaded source's settings too, to reuse its prompt cache; only when ephemeral. */
  experimentalPredictionMode?: boolean;
  /** Without MCP servers; needs `experimentalPredictionMode`. */
  experimentalDisablePredictionMcp?: boolean;
  /** What the new thread may use; null is no limit, whatever the source has. */
  budget?: BudgetLimits | null;
  /** The last turn to copy, which must have ended; null copies all. */
  lastTurnId?: string | null;
  /** The first turn not to copy; not together with `lastTurnId`. */
  beforeTurnId?: string | null;
  /** Rollout file to copy from in place of `threadId`; empty counts as null. */
  path?: string | null;
  /** Keep the new thread in memory only. */
  ephemeral?: boolean;
  /** Keep it out of ordinary lists, as a part of its source; not for ephemeral threads. */
  attachToSource?: boolean;
  threadSource?: ThreadSource | null;
  /** Leave `thread.turns` empty. */
  excludeTurns?: boolean;
  /** Take over the source's goal, but do not work on it before a turn is started. */
  deferGoalContinuation?: boolean;
};

/** The new thread; the caller is subscribed to it. */
export type ThreadForkResponse = {
  thread: Thread;
  model: string;
  modelProvider: string;
  serviceTier: string | null;
  /** Stored with the thread. */
  disabledPluginIds: Array<string>;
  cwd: AbsolutePathBuf;
  runtimeWorkspaceRoots: Array<AbsolutePathBuf>;
  /** Instruction files that the thread has read. */
  instructionSources: Array<LegacyAppPathString>;
  approvalPolicy: AskForApproval;
  approvalsReviewer: ApprovalsReviewer;
  /** Clients that may see `activePermissionProfile` should go by that. */
  sandbox: SandboxPolicy;
  activePermissionProfile: ActivePermissionProfile | null;
  reasoningEffort: ReasoningEffort | null;
  /** Outdated: always `explicitRequestOnly`. */
  multiAgentMode: MultiAgentMode;
  /** Opaque; which stream of the thread's events the caller is subscribed to. */
  streamId?: string | null;
  /** The last event of that stream that the answer takes into account. */
  seq?: number | null;
};

/** What a thread works towards, turn after turn. Times are Unix seconds. */
export type ThreadGoal = {
  threadId: string;
  objective: string;
  status: ThreadGoalStatus;
  /** Tokens that the goal may cost; null means no limit. */
  tokenBudget: number | null;
  tokensUsed: number;
  timeUsedSeconds: number;
  createdAt: number;
  updatedAt: number;
};

/** Remove a thread's goal. */
export type ThreadGoalClearParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** Without it the change does not count as one that the user asked for. */
  origin?: ThreadGoalMutationOrigin | null;
};

/** Whether there was a goal to remove. */
export type ThreadGoalClearResponse = {
  cleared: boolean;
};

/** A thread's goal was removed. */
export type ThreadGoalClearedNotification = {
  threadId: string;
};

/** Look at a thread's goal. */
export type ThreadGoalGetParams = {
  threadId: string;
};

/** The thread's goal. */
export type ThreadGoalGetResponse = {
  /** Null if the thread has none. */
  goal: ThreadGoal | null;
};

/** Whether the user asked for a change of the goal, or it came about by itself. */
export type ThreadGoalMutationOrigin = "user" | "automatic";

/** Give a thread a goal, or change the one it has. */
export type ThreadGoalSetParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** Without it the change does not count as one that the user asked for. */
  origin?: ThreadGoalMutationOrigin | null;
  objective?: string | null;
  status?: ThreadGoalStatus | null;
  /** Tokens that the goal may cost; absent keeps the limit, null removes it. */
  tokenBudget?: number | null;
};

/** The goal as it is now. */
export type ThreadGoalSetResponse = {
  goal: ThreadGoal;
};

/** How a goal stands: pursued, held up for some reason, or reached. */
export type ThreadGoalStatus = "active" | "paused" | "blocked" | "usageLimited" | "budgetLimited" | "complete";

/** A thread's goal is new or has changed. */
export type ThreadGoalUpdatedNotification = {
  threadId: string;
  /** The turn in which it changed, if it was in one. */
  turnId: string | null;
  goal: ThreadGoal;
};

/** How the history is kept: read whole, or in pages. */
export type ThreadHistoryMode = "legacy" | "paginated";

/** Id of a thread: a UUID. */
export type ThreadId = string;

/** Say that the user is asked something outside of this protocol: timeouts pause. */
export type ThreadIncrementElicitationParams = {
  _meta?: RequestMeta | null;
  threadId: string;
};

/** How many such questions are open now. */
export type ThreadIncrementElicitationResponse = {
  count: number;
  /** Timeouts do not count. */
  paused: boolean;
};

/** Append raw Responses API items to what the model sees, without a turn. */
export type ThreadInjectItemsParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** At least one; an invalid one refuses them all. */
  items: Array<JsonValue>;
};

/** Nothing: the items are in the log. */
export type ThreadInjectItemsResponse = { [key: string]: JsonValue };

/** One thing that happened in a turn: a message, a tool call, a change of files. */
export type ThreadItem = {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "userMessage";
  id: string;
  /** The `clientUserMessageId` that the client sent along; null if none. */
  clientId: string | null;
  content: Array<UserInput>;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "hookPrompt";
  id: string;
  fragments: Array<HookPromptFragment>;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "agentMessage";
  moderation: AgentMessageModeration | null;
  id: string;
  text: string;
  /** Null means unknown: not every model tells. */
  phase: MessagePhase | null;
  memoryCitation: MemoryCitation | null;
  delivery: AgentMessageDelivery | null;
  /** Questions to the user; null if there are none. */
  questions: Array<AsyncUserInputQuestion> | null;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "functionCallOutput";
  id: string;
  name: string;
  /** The group that the function belongs to; null if none. */
  namespace: string | null;
  output: FunctionCallOutputBody;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "plan";
  id: string;
  /** On completion this counts, not the deltas that came before. */
  text: string;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "reasoning";
  id: string;
  /** One text for each paragraph of the summary. */
  summary: Array<string>;
  /** The raw reasoning, if the model gives it out. */
  content: Array<string>;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "commandExecution";
  id: string;
  /** The plugin whose script this runs; null if none is known. */
  pluginId: string | null;
  /** That script, relative to the plugin's folder. */
  scriptPath: string | null;
  command: string;
  cwd: LegacyAppPathString;
  /** Names the running process; null if there is none to name. */
  processId: string | null;
  source: CommandExecutionSource;
  status: CommandExecutionStatus;
  /** A guess at what the command does, in one or more steps, for display. */
  commandActions: Array<CommandAction>;
  /** Standard output and standard error together; null if there is none yet. */
  aggregatedOutput: string | null;
  /** Null until the command has ended. */
  exitCode: number | null;
  /** Milliseconds. */
  durationMs: number | null;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "fileChange";
  id: string;
  changes: Array<FileUpdateChange>;
  status: PatchApplyStatus;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "mcpToolCall";
  id: string;
  server: string;
  tool: string;
  status: McpToolCallStatus;
  arguments: JsonValue;
  /** Null if the tool belongs to no app. */
  appContext: McpToolCallAppContext | null;
  /** Older form of `mcpAppUi.resourceUri`. */
  mcpAppResourceUri?: string | null;
  mcpAppUi: McpAppUi | null;
  /** The plugin that the server comes from; null if none. */
  pluginId: string | null;
  /** What the server says about the tool; null if it says nothing. */
  readOnlyHint: boolean | null;
  /** Null until the tool has answered. */
  result: McpToolCallResult | null;
  /** Null unless the call failed without an answer of the tool. */
  error: McpToolCallError | null;
  /** Milliseconds, without the wait for approval. */
  durationMs: number | null;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "dynamicToolCall";
  id: string;
  namespace: string | null;
  tool: string;
  arguments: JsonValue;
  status: DynamicToolCallStatus;
  /** What the tool returned; null until then. */
  contentItems: Array<DynamicToolCallOutputContentItem> | null;
  /** What the client said of it; null until then. */
  success: boolean | null;
  /** Milliseconds. */
  durationMs: number | null;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "collabAgentToolCall";
  id: string;
  tool: CollabAgentTool;
  status: CollabAgentToolCallStatus;
  /** The thread that makes the call. */
  senderThreadId: string;
  /** The threads it is for; for `spawnAgent` the new one. */
  receiverThreadIds: Array<string>;
  /** The text for the other agents; null if the call has none. */
  prompt: string | null;
  /** The model asked for when an agent is started. */
  model: string | null;
  reasoningEffort: ReasoningEffort | null;
  /** The last known state of the other agents, by thread id. */
  agentsStates: { [key: string]: CollabAgentState };
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "subAgentActivity";
  /** What the agent runs with, if it was started here; else null. */
  model: string | null;
  reasoningEffort: ReasoningEffort | null;
  id: string;
  kind: SubAgentActivityKind;
  agentThreadId: string;
  /** The agent's place in the tree of agents. */
  agentPath: string;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "webSearch";
  /** Null until it is known. */
  action: WebSearchAction | null;
  id: string;
  query: string;
  /** What was found, in the search's own format; null if it was not passed on. */
  results: Array<JsonValue> | null;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "imageView";
  id: string;
  path: LegacyAppPathString;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "sleep";
  /** Milliseconds. */
  durationMs: number;
  id: string;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "imageGeneration";
  /** Null if nothing went wrong. */
  failure: ImageGenerationFailure | null;
  /** The image backend's own id for the image. */
  generationId: string | null;
  id: string;
  inputImages: Array<ImageGenerationInputImage>;
  /** The prompt as the provider rewrote it. */
  revisedPrompt: string | null;
  /** Where the server put the image; null if nowhere. */
  savedPath: AbsolutePathBuf | null;
  /** In the provider's words. */
  status: string;
  transparentBackground: boolean | null;
} & ({
  fileId: string;
} | {
  result: string;
}) | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "enteredReviewMode";
  id: string;
  /** What is reviewed, for people to read. */
  review: string;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "exitedReviewMode";
  id: string;
  /** What the review found, for people to read. */
  review: string;
} | {
  /** Unix milliseconds. */
  startedAtMs: number | null;
  /** Unix milliseconds. */
  completedAtMs: number | null;
  type: "contextCompaction";
  id: string;
};

/** An item with its turn and times. */
export type ThreadItemEntry = {
  turnId: string;
  item: ThreadItem;
  /** True if the output was left out: get it with `thread/items/read`. */
  outputDeferred: boolean;
  /** Unix milliseconds; null if it was not recorded. */
  startedAtMs: number | null;
  /** Unix milliseconds; null if it was not recorded. */
  completedAtMs: number | null;
};

/** Outputs to leave out of the page, for `thread/items/read` to fetch. */
export type ThreadItemOutputDeferral = {
  /** Leave out what successful commands printed. */
  commandExecution?: boolean;
  /** Leave out plain-text results of successful calls. */
  mcpToolCall?: boolean;
};

/** A place within a turn to start from. */
export type ThreadItemsListAnchor = {
  type: "item";
  /** An item of the turn that `turnId` names. */
  itemId: string;
};

/** Where a page starts: at an opaque `nextCursor`, or at an anchor. */
export type ThreadItemsListCursor = string | ThreadItemsListAnchor;

/** Page through a thread's items, oldest first unless asked otherwise. */
export type ThreadItemsListParams = {
  threadId: string;
  /** Only items of this turn; null means all turns. */
  turnId?: string | null;
  /** Null starts over; an anchor needs `turnId` and is for the first page. */
  cursor?: ThreadItemsListCursor | null;
  /** Items a page; null lets the server choose. */
  limit?: number | null;
  /** Null means `asc`. */
  sortDirection?: SortDirection | null;
  /** Only for a single turn: needs `turnId`. */
  deferOutput?: ThreadItemOutputDeferral | null;
};

/** One page of items. */
export type ThreadItemsListResponse = {
  data: Array<ThreadItemEntry>;
  /** Opaque; null at the end. */
  nextCursor: string | null;
  /** Pass it as `cursor` with the other `sortDirection`; null for an empty page. */
  backwardsCursor: string | null;
};

/** Read some items of one turn in full. */
export type ThreadItemsReadParams = {
  threadId: string;
  turnId: string;
  /** From 1 to 100. */
  itemIds: Array<string>;
};

/** The items, in the order in which they are stored. */
export type ThreadItemsReadResponse = {
  data: Array<ThreadItemEntry>;
};

/** One folder or several; a thread's working directory must equal one of them. */
export type ThreadListCwdFilter = string | Array<string>;

/** Page through stored threads, newest first. */
export type ThreadListParams = {
  /** With `searchTerm`: find threads that are parts of others too. */
  includeAttachedThreads?: boolean;
  currentAccountOnly?: boolean;
  /** Opaque, from the page before; null starts at the newest. */
  cursor?: string | null;
  /** Threads a page, at most 100; null means 25. */
  limit?: number | null;
  /** At most 100; send the same with each page. */
  excludedThreadIds?: Array<string> | null;
  /** Null means `created_at`. */
  sortKey?: ThreadSortKey | null;
  /** Null means `desc`. */
  sortDirection?: SortDirection | null;
  /** Only these providers; null or empty means all. */
  modelProviders?: Array<string> | null;
  /** Only these kinds of source; null or empty means all. */
  sourceKinds?: Array<ThreadSourceKind> | null;
  /** Only threads that these clients created; null or empty means all. */
  originators?: Array<string> | null;
  /** True lists the archived threads, and only them. */
  archived?: boolean | null;
  /** Leave out for all sections; null means threads that are in none. */
  sectionId?: string | null;
  /** Leave out for all projects; null means threads that are in none. */
  projectId?: string | null;
  cwd?: ThreadListCwdFilter | null;
  /** Trust the index; do not look into the logs. */
  useStateDbOnly?: boolean;
  /** Case-insensitive part of the name or the preview. */
  searchTerm?: string | null;
  /** Only direct sub-agents of it; not together with `ancestorThreadId`. */
  parentThreadId?: string | null;
  /** Only sub-agents below it, at any depth. */
  ancestorThreadId?: string | null;
  /** Only threads that are parts of it; not together with the two above. */
  attachedToThreadId?: string | null;
};

/** One page; `nextCursor` is null at the end. */
export type ThreadListResponse = {
  data: Array<Thread>;
  /** By thread id, for the threads that have one; null when none are kept. */
  readStates: { [key: string]: ThreadReadState } | null;
  nextCursor: string | null;
  /** Opaque; as `cursor` with the opposite `sortDirection`. Null when the page is empty. */
  backwardsCursor: string | null;
};

/** Page through the ids of threads in memory. */
export type ThreadLoadedListParams = {
  cursor?: string | null;
  /** Ids a page; null means all. */
  limit?: number | null;
};

/** Ids in the order in which the threads were loaded. */
export type ThreadLoadedListResponse = {
  data: Array<string>;
  nextCursor: string | null;
};

/** Whether a thread takes part in memories. */
export type ThreadMemoryMode = "enabled" | "disabled";

/** Switch memories on or off for a thread. */
export type ThreadMemoryModeSetParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  mode: ThreadMemoryMode;
};

/** Nothing. */
export type ThreadMemoryModeSetResponse = { [key: string]: JsonValue };

/** Read what is remembered for a loaded thread. */
export type ThreadMemoryReadParams = {
  threadId: string;
};

/** The memory, summed up. */
export type ThreadMemoryReadResponse = {
  /** Null when memories are off or there are none. */
  summary: string | null;
};

/** What to change of the stored Git data: left out keeps, null clears. */
export type ThreadMetadataGitInfoUpdateParams = {
  sha?: string | null;
  branch?: string | null;
  originUrl?: string | null;
};

/** Change what is stored about a thread; what is left out stays. */
export type ThreadMetadataUpdateParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** An existing project; empty takes the thread out of its project. */
  projectId?: string | null;
  gitInfo?: ThreadMetadataGitInfoUpdateParams | null;
  /** Only kept for the client; turns do not go by it. */
  daybreakEnabled?: boolean | null;
};

/** The thread as it is now. */
export type ThreadMetadataUpdateResponse = {
  thread: Thread;
};

/** A thread has a new name. */
export type ThreadNameUpdatedNotification = {
  threadId: string;
  /** Absent when the thread has no name any more. */
  threadName?: string | null;
};

/** Get an approved plan ready for the first turn of a fresh thread. */
export type ThreadPrepareApprovedPlanParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** The plan itself. */
  markdown: string;
  /** Absolute path of the server's copy of the plan, if there is one. */
  attachmentPath?: string | null;
};

/** What to begin the first turn with. */
export type ThreadPrepareApprovedPlanResponse = {
  /** The first user message; a plan without a readable attachment is in the context. */
  prompt: string;
};

/** A thread changed its project. */
export type ThreadProjectUpdatedNotification = {
  threadId: string;
  /** Null if the thread is in none now. */
  projectId: string | null;
};

/** Keep input until the thread is idle; it then starts a turn. */
export type ThreadQueueAddParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  input: Array<UserInput>;
  /** Chosen by the client, for the user message that comes of it. */
  clientUserMessageId: string;
  /** Goes to the model's API with this input. */
  responsesapiClientMetadata?: { [key: string]: string } | null;
};

/** The input as it was queued. */
export type ThreadQueueAddResponse = {
  queuedSubmission: QueuedSubmission;
};

/** A thread's queue changed: read it again with `thread/queue/list`. */
export type ThreadQueueChangedNotification = {
  threadId: string;
};

/** Take an input out of a thread's queue. */
export type ThreadQueueDeleteParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  queuedSubmissionId: string;
};

/** Whether the input was still in the queue. */
export type ThreadQueueDeleteResponse = {
  deleted: boolean;
};

/** Page through a thread's queue. */
export type ThreadQueueListParams = {
  threadId: string;
  cursor?: string | null;
  /** Inputs a page; null lets the server choose. */
  limit?: number | null;
};

/** One page of queued inputs. */
export type ThreadQueueListResponse = {
  data: Array<QueuedSubmission>;
  /** Null at the end. */
  nextCursor: string | null;
};

/** Put a thread's queue into another order. */
export type ThreadQueueReorderParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** In the new order. */
  queuedSubmissionIds: Array<string>;
};

/** Nothing. */
export type ThreadQueueReorderResponse = { [key: string]: JsonValue };

/** Start a turn with a queued input; the thread must be idle. */
export type ThreadQueueStartParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** Null takes the first in the queue. */
  queuedSubmissionId?: string | null;
};

/** The turn that took the input. */
export type ThreadQueueStartResponse = {
  turn: Turn;
};

/** Change a queued input; its ids and its place stay. */
export type ThreadQueueUpdateParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  queuedSubmissionId: string;
  input: Array<UserInput>;
  /** Replaces what the input has; absent or empty keeps it. */
  responsesapiClientMetadata?: { [key: string]: string } | null;
};

/** The input after the change. */
export type ThreadQueueUpdateResponse = {
  queuedSubmission: QueuedSubmission;
};

/** Look at a thread without loading it. */
export type ThreadReadParams = {
  threadId: string;
  /** Long histories come cut; `thread/turns/list` has them in pages. */
  includeTurns?: boolean;
};

/** The thread; its turns too if they were asked for. */
export type ThreadReadResponse = {
  thread: Thread;
  /** Null when none is kept. */
  readState: ThreadReadState | null;
};

/** How far the user has read a thread. */
export type ThreadReadState = {
  /** Null when all is read. */
  firstUnread: ThreadUnreadPosition | null;
  /** Opaque; for `expectedRevision` of `thread/readState/update`. */
  revision: string;
};

/** How far a thread has been read changed. */
export type ThreadReadStateChangedNotification = {
  threadId: string;
  readState: ThreadReadState;
};

/** How to mark a thread. */
export type ThreadReadStateOperation = {
  type: "read";
} | {
  type: "unread";
};

/** Mark a thread as read or unread. */
export type ThreadReadStateUpdateParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  operation: ThreadReadStateOperation;
  /** `revision` of the state that the user saw; any other is a conflict. */
  expectedRevision: string;
};

/** The state after the change. */
export type ThreadReadStateUpdateResponse = {
  readState: ThreadReadState;
};

/** How an agent's item appears in a realtime conversation. */
export type ThreadRealtimeBemItemPresentation = {
  type: "wholeItem";
} | {
  type: "inlineMarkdown";
} | {
  type: "inlineVisualization";
  /** Which visualization it is. */
  index: number;
};

/** Something that happened in a realtime session. */
export type ThreadRealtimeItem = {
  id: string;
  realtimeSessionId: string;
  type: "realtimeSessionStarted";
} | {
  id: string;
  realtimeSessionId: string;
  type: "transcriptSegment";
  role: ThreadRealtimeTranscriptRole;
  text: string;
} | {
  id: string;
  realtimeSessionId: string;
  type: "bemItemPromoted";
  presentation: ThreadRealtimeBemItemPresentation;
  item_id: string;
  turn_id: string;
} | {
  id: string;
  realtimeSessionId: string;
  type: "realtimeSessionClosed";
  outcome: ThreadRealtimeSessionOutcome;
};

/** Ask for the names of voices. */
export type ThreadRealtimeListVoicesParams = { [key: string]: JsonValue };

/** The names of voices. */
export type ThreadRealtimeListVoicesResponse = {
  voices: RealtimeVoicesList;
};

/** How a realtime session came to its end. */
export type ThreadRealtimeSessionOutcome = "ended" | "failed";

/** End the voice session of a thread. */
export type ThreadRealtimeStopParams = {
  _meta?: RequestMeta | null;
  threadId: string;
};

/** The thread has no voice session. */
export type ThreadRealtimeStopResponse = { [key: string]: JsonValue };

/** Who spoke. */
export type ThreadRealtimeTranscriptRole = "user" | "assistant";

/** Which turns to put into the answer. */
export type ThreadResumeInitialTurnsPageParams = {
  limit?: number | null;
  /** Null means `desc`. */
  sortDirection?: SortDirection | null;
  /** Null means `summary`. */
  itemsView?: TurnItemsView | null;
};

/** Load a stored thread, or join a loaded one; the caller is subscribed to it. */
export type ThreadResumeParams = {
  model?: string | null;
  modelProvider?: string | null;
  serviceTier?: string | null;
  /** Relative paths count from the server's working directory. */
  cwd?: string | null;
  /** Replaces the thread's roots. */
  runtimeWorkspaceRoots?: Array<AbsolutePathBuf> | null;
  approvalPolicy?: AskForApproval | null;
  approvalsReviewer?: ApprovalsReviewer | null;
  sandbox?: SandboxMode | null;
  /** Id of a named permission profile; not together with `sandbox`. */
  permissions?: string | null;
  /** Overrides of config.toml for this thread; keys may be dotted paths. */
  config?: { [key: string]: JsonValue } | null;
  /** Name of a file `NAME.config.toml` in the home folder whose settings lie below `config`. */
  profile?: string | null;
  baseInstructions?: string | null;
  developerInstructions?: string | null;
  threadId: string;
  /** Resume from these items in place of the log. */
  history?: Array<ResponseItem> | null;
  /** Rollout file to load in place of `threadId`; for a loaded thread it must be its own. */
  path?: string | null;
  /** Outdated in the reference, where `friendly` and `pragmatic` choose no style any more. */
  personality?: Personality | null;
  /** Leave `thread.turns` empty. */
  excludeTurns?: boolean;
  /** Puts a page of turns into the answer; null puts none. */
  initialTurnsPage?: ThreadResumeInitialTurnsPageParams | null;
  /** The stream that `afterSeq` counts in, from an earlier answer. */
  streamId?: string | null;
  /** The last event that the client has seen; what came after it is sent again. */
  afterSeq?: number | null;
  /** When to unload the thread once it is quiet; null leaves that as it is. */
  unloadAfterSecs?: number | null;
};

/** The thread with its turns, unless they were excluded. */
export type ThreadResumeResponse = {
  thread: Thread;
  model: string;
  modelProvider: string;
  serviceTier: string | null;
  /** Stored with the thread. */
  disabledPluginIds: Array<string>;
  cwd: AbsolutePathBuf;
  runtimeWorkspaceRoots: Array<AbsolutePathBuf>;
  /** Instruction files that the thread has read. */
  instructionSources: Array<LegacyAppPathString>;
  approvalPolicy: AskForApproval;
  approvalsReviewer: ApprovalsReviewer;
  /** Clients that may see `activePermissionProfile` should go by that. */
  sandbox: SandboxPolicy;
  activePermissionProfile: ActivePermissionProfile | null;
  reasoningEffort: ReasoningEffort | null;
  /** Outdated: always `explicitRequestOnly`. */
  multiAgentMode: MultiAgentMode;
  /** Opaque; which stream of the thread's events the caller is subscribed to. */
  streamId?: string | null;
  /** The last event of that stream that the answer takes into account. */
  seq?: number | null;
  /** Null from older servers. */
  collaborationMode: CollaborationMode | null;
  initialTurnsPage: TurnsPage | null;
  /**
   * Answers `afterSeq`. False: the events follow, and `thread.turns` is empty.
   *
   * True: they cannot be told any more, and `thread.turns` has what there is now.
   */
  resyncRequired?: boolean | null;
  /** Opaque `cursor` for `thread/turns/list` with `desc`; the turn that it names comes along. */
  turnsBackwardsCursor: string | null;
  /** Opaque `cursor` for `thread/items/list` with `desc`; the item that it names comes along. */
  itemsBackwardsCursor: string | null;
};

/** Drop a turn and all after it from the history; files stay as they are. */
export type ThreadRevertParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** The first turn to drop. */
  beforeTurnId: string;
};

/** The thread without its turns, and where to read those that are left. */
export type ThreadRevertResponse = {
  /** Its `turns` is empty. */
  thread: Thread;
  /** Opaque `cursor` for `thread/turns/list` with `desc`; the turn that it names comes along. */
  turnsBackwardsCursor: string | null;
  /** Opaque `cursor` for `thread/items/list` with `desc`; the item that it names comes along. */
  itemsBackwardsCursor: string | null;
};

/** A thread lost its last turns; what clients show of them is out of date. */
export type ThreadRevertedNotification = {
  threadId: string;
};

/** One place where the text occurs. */
export type ThreadSearchOccurrence = {
  turnId: string;
  itemId: string;
  snippet: string;
  /** Where in `snippet` the match is. */
  snippetMatchRange: ThreadSearchTextRange;
  /** Opaque: as `cursor` of `thread/turns/list` it starts at this turn. */
  turnCursor: string;
};

/** Find where in one thread's messages a text occurs. */
export type ThreadSearchOccurrencesParams = {
  threadId: string;
  /** Taken literally, without regard to case. */
  searchTerm: string;
  /** Opaque, from the page before: same thread, same `searchTerm`. */
  cursor?: string | null;
  /** Places a page; null lets the server choose. */
  limit?: number | null;
};

/** One page of places, oldest message first. */
export type ThreadSearchOccurrencesResponse = {
  data: Array<ThreadSearchOccurrence>;
  /** Null at the end. */
  nextCursor: string | null;
};

/** Search the stored threads. */
export type ThreadSearchParams = {
  /** Find threads too that are attached to a parent. */
  includeAttachedThreads?: boolean;
  /** Only local history that the current ChatGPT account may see. */
  currentAccountOnly?: boolean;
  cursor?: string | null;
  /** Threads a page; null lets the server choose. */
  limit?: number | null;
  /** Null means `created_at`. */
  sortKey?: ThreadSearchSortKey | null;
  /** Null means `desc`: newest first. */
  sortDirection?: SortDirection | null;
  /** Only these kinds of source; null or empty means all. */
  sourceKinds?: Array<ThreadSourceKind> | null;
  /** True searches the archived threads, and only them. */
  archived?: boolean | null;
  searchTerm: string;
};

/** One page of matching threads. */
export type ThreadSearchResponse = {
  data: Array<ThreadSearchResult>;
  /** Opaque; null at the end. */
  nextCursor: string | null;
  /** Pass it as `cursor` with the other `sortDirection`; null for an empty page. */
  backwardsCursor: string | null;
};

/** A thread that matches. */
export type ThreadSearchResult = {
  thread: Thread;
  /** The text around the match. */
  snippet: string;
};

/** What found threads are ordered by. */
export type ThreadSearchSortKey = "created_at" | "updated_at" | "recency_at";

/** Half-open range of UTF-16 code units. */
export type ThreadSearchTextRange = {
  start: number;
  end: number;
};

/** A group of threads that the user made. */
export type ThreadSection = {
  /** Stays the same when the section is renamed. */
  id: string;
  name: string;
  appearance: ThreadSectionAppearance | null;
};

/** How a section looks. */
export type ThreadSectionAppearance = {
  icon?: string | null;
  color?: string | null;
};

/** A thread was moved into, within or out of a section. */
export type ThreadSectionChangedNotification = {
  threadId: string;
  /** Null if the thread is in none now. */
  sectionId: string | null;
};

/** Create a section to file threads in. */
export type ThreadSectionCreateParams = {
  _meta?: RequestMeta | null;
  /** Not empty. */
  name: string;
  appearance?: ThreadSectionAppearance | null;
};

/** The new section. */
export type ThreadSectionCreateResponse = {
  section: ThreadSection;
};

/** Delete a section; its threads stay, without one. */
export type ThreadSectionDeleteParams = {
  _meta?: RequestMeta | null;
  sectionId: string;
};

/** Nothing. */
export type ThreadSectionDeleteResponse = { [key: string]: JsonValue };

/** Page through the sections. */
export type ThreadSectionListParams = {
  cursor?: string | null;
  /** Sections a page; null lets the server choose. */
  limit?: number | null;
};

/** One page of sections. */
export type ThreadSectionListResponse = {
  data: Array<ThreadSection>;
  /** Null at the end. */
  nextCursor: string | null;
};

/** Put a thread into a section, move it within one, or take it out. */
export type ThreadSectionMoveParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** Null takes the thread out of its section. */
  sectionId: string | null;
  /** The thread to insert it before; null puts it at the end. */
  beforeThreadId?: string | null;
};

/** Nothing. */
export type ThreadSectionMoveResponse = { [key: string]: JsonValue };

/** Rename a section, and change how it looks if asked to. */
export type ThreadSectionUpdateParams = {
  _meta?: RequestMeta | null;
  sectionId: string;
  name: string;
  /** Absent keeps it, null removes it. */
  appearance?: ThreadSectionAppearance | null;
};

/** The section after the change. */
export type ThreadSectionUpdateResponse = {
  section: ThreadSection;
};

/** Give a thread a name of at least one visible character. */
export type ThreadSetNameParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  name: string;
};

/** Nothing: the name is in the log. */
export type ThreadSetNameResponse = { [key: string]: JsonValue };

/** The settings in force for a thread. */
export type ThreadSettings = {
  disabledPluginIds: Array<string>;
  cwd: AbsolutePathBuf;
  /** The current one first; null when the server does not tell. */
  environments: Array<ThreadEnvironment> | null;
  approvalPolicy: AskForApproval;
  approvalsReviewer: ApprovalsReviewer;
  sandboxPolicy: SandboxPolicy;
  activePermissionProfile: ActivePermissionProfile | null;
  model: string;
  modelProvider: string;
  serviceTier: string | null;
  effort: ReasoningEffort | null;
  summary: ReasoningSummary | null;
  collaborationMode: CollaborationMode;
  /** Outdated: always `explicitRequestOnly`. */
  multiAgentMode: MultiAgentMode;
  /** Outdated in the reference, where `friendly` and `pragmatic` choose no style any more. */
  personality: Personality | null;
};

/** Change a thread's settings from the next turn on; null keeps what there is. */
export type ThreadSettingsUpdateParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** Replaces the list; `[]` clears it. */
  disabledPluginIds?: Array<string> | null;
  cwd?: string | null;
  /** Replaces the selection; `[]` clears it. With `cwd` alone, the defaults for that folder. */
  environments?: Array<TurnEnvironmentParams> | null;
  approvalPolicy?: AskForApproval | null;
  approvalsReviewer?: ApprovalsReviewer | null;
  sandboxPolicy?: SandboxPolicy | null;
  /** Id of a named permission profile; not together with `sandboxPolicy`. */
  permissions?: string | null;
  model?: string | null;
  /** Null clears the tier; leave it out to keep it. */
  serviceTier?: string | null;
  effort?: ReasoningEffort | null;
  summary?: ReasoningSummary | null;
  collaborationMode?: CollaborationMode | null;
  /** Outdated and ignored; set `effort` instead. */
  multiAgentMode?: MultiAgentMode | null;
  /** Outdated in the reference, where `friendly` and `pragmatic` choose no style any more. */
  personality?: Personality | null;
};

/** Nothing. */
export type ThreadSettingsUpdateResponse = { [key: string]: JsonValue };

/** A turn's overrides became the thread's. */
export type ThreadSettingsUpdatedNotification = {
  threadId: string;
  threadSettings: ThreadSettings;
};

/** Run a shell command for the user in a thread, without a sandbox. */
export type ThreadShellCommandParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** A line for the thread's shell: pipes, redirections and quotes work. */
  command: string;
  /** Not negative; null means one hour, and 0 leaves no time at all. */
  timeoutMs?: number | null;
};

/** Nothing: the command shows as a `commandExecution` item. */
export type ThreadShellCommandResponse = { [key: string]: JsonValue };

/** What a list of threads is sorted by. */
export type ThreadSortKey = "created_at" | "updated_at" | "recency_at" | "section_position";

/** What the client says a thread is for, in a word of its own; for statistics. */
export type ThreadSource = string;

/** A kind of `source` to filter threads by. */
export type ThreadSourceKind = "cli" | "vscode" | "exec" | "appServer" | "subAgent" | "subAgentReview" | "subAgentCompact" | "subAgentThreadSpawn" | "subAgentOther" | "unknown";

/** Begin a conversation. What is null comes from the configuration. */
export type ThreadStartParams = {
  _meta?: RequestMeta | null;
  model?: string | null;
  modelProvider?: string | null;
  serviceTier?: string | null;
  /** Relative paths count from the server's working directory. */
  cwd?: string | null;
  /** Replaces the thread's roots. */
  runtimeWorkspaceRoots?: Array<AbsolutePathBuf> | null;
  approvalPolicy?: AskForApproval | null;
  approvalsReviewer?: ApprovalsReviewer | null;
  sandbox?: SandboxMode | null;
  /** Id of a named permission profile; not together with `sandbox`. */
  permissions?: string | null;
  /** Overrides of config.toml for this thread; keys may be dotted paths. */
  config?: { [key: string]: JsonValue } | null;
  /** Name of a file `NAME.config.toml` in the home folder whose settings lie below `config`. */
  profile?: string | null;
  baseInstructions?: string | null;
  developerInstructions?: string | null;
  /** A UUID that the client chose, in small letters; the same request again starts no other. */
  threadId?: string | null;
  /** When to unload the thread once it is quiet; null means the server's delay. */
  unloadAfterSecs?: number | null;
  /** What the thread may use; null is no limit. */
  budget?: BudgetLimits | null;
  /** If the provider's list has no such model, take its default. */
  allowProviderModelFallback?: boolean;
  serviceName?: string | null;
  /** Outdated in the reference, where `friendly` and `pragmatic` choose no style any more. */
  personality?: Personality | null;
  /** Outdated and ignored; set the reasoning effort instead. */
  multiAgentMode?: MultiAgentMode | null;
  /** Keep it in memory only. */
  ephemeral?: boolean | null;
  historyMode?: ThreadHistoryMode | null;
  sessionStartSource?: ThreadStartSource | null;
  threadSource?: ThreadSource | null;
  /** Project to put the thread into. */
  projectId?: string | null;
  /** Only kept for the client; not for ephemeral threads. */
  daybreakEnabled?: boolean | null;
  /** The first one is the current one; null means the default, `[]` none. */
  environments?: Array<TurnEnvironmentParams> | null;
  /** Tools that the client runs, at `item/tool/call`. */
  dynamicTools?: Array<DynamicToolSpec> | null;
  selectedCapabilityRoots?: Array<SelectedCapabilityRoot> | null;
  /** For tests of the opt-in; without effect. */
  mockExperimentalField?: string | null;
  /** Tell of raw Responses API items as well. */
  experimentalRawEvents?: boolean;
};

/** The new thread; the caller is subscribed to it. */
export type ThreadStartResponse = {
  thread: Thread;
  model: string;
  modelProvider: string;
  serviceTier: string | null;
  /** Stored with the thread. */
  disabledPluginIds: Array<string>;
  cwd: AbsolutePathBuf;
  runtimeWorkspaceRoots: Array<AbsolutePathBuf>;
  /** Instruction files that the thread has read. */
  instructionSources: Array<LegacyAppPathString>;
  approvalPolicy: AskForApproval;
  approvalsReviewer: ApprovalsReviewer;
  /** Clients that may see `activePermissionProfile` should go by that. */
  sandbox: SandboxPolicy;
  activePermissionProfile: ActivePermissionProfile | null;
  reasoningEffort: ReasoningEffort | null;
  /** Outdated: always `explicitRequestOnly`. */
  multiAgentMode: MultiAgentMode;
  /** Opaque; which stream of the thread's events the caller is subscribed to. */
  streamId?: string | null;
  /** The last event of that stream that the answer takes into account. */
  seq?: number | null;
};

/** What the user did to get a new thread: started the program, or cleared the old one. */
export type ThreadStartSource = "startup" | "clear";

/** A thread was started or loaded. */
export type ThreadStartedNotification = {
  thread: Thread;
};

/** Whether a thread is in memory, and what it does there. */
export type ThreadStatus = {
  type: "notLoaded";
} | {
  type: "idle";
} | {
  type: "systemError";
} | {
  type: "active";
  activeFlags: Array<ThreadActiveFlag>;
};

/** A thread became active, idle, or left memory. */
export type ThreadStatusChangedNotification = {
  threadId: string;
  status: ThreadStatus;
};

/** One item, or the start or end of a turn. */
export type ThreadTimelineEntry = {
  type: "item";
  /** Orders the entries of a thread. */
  position: number;
  turnId: string;
  item: ThreadItem;
} | {
  type: "realtime";
  position: number;
  item: ThreadRealtimeItem;
} | {
  type: "turnStarted";
  position: number;
  /** Unix seconds; null if it was not recorded. */
  started_at: number | null;
  turn_id: string;
} | {
  type: "turnCompleted";
  position: number;
  status: TurnStatus;
  error: TurnError | null;
  /** Unix seconds, as `started_at`; null if it was not recorded. */
  completed_at: number | null;
  duration_ms: number | null;
  started_at: number | null;
  turn_id: string;
};

/** Page through a thread's history in log order, realtime sessions included. */
export type ThreadTimelineListParams = {
  threadId: string;
  cursor?: string | null;
  /** Entries a page; null lets the server choose. */
  limit?: number | null;
};

/** One page of the timeline. */
export type ThreadTimelineListResponse = {
  data: Array<ThreadTimelineEntry>;
  /** Null at the end. */
  nextCursor: string | null;
  /** Id of the session that is open where the page begins; null if none is. */
  activeRealtimeSessionAtPageStart: string | null;
};

/** The thread's account: all calls, and the last one. */
export type ThreadTokenUsage = {
  total: TokenUsageBreakdown;
  last: TokenUsageBreakdown;
  /** Tokens that the model can take; null when that is not known. */
  modelContextWindow: number | null;
};

/** A model call was paid for. */
export type ThreadTokenUsageUpdatedNotification = {
  threadId: string;
  turnId: string;
  tokenUsage: ThreadTokenUsage;
};

/** Page through a thread's turns, newest first unless asked otherwise. */
export type ThreadTurnsListParams = {
  threadId: string;
  /** Opaque: `nextCursor` of the page before; null starts over. */
  cursor?: string | null;
  /** Turns a page; null lets the server choose. */
  limit?: number | null;
  /** Null means `desc`. */
  sortDirection?: SortDirection | null;
  /** How much of each turn's items to send; null means `summary`. */
  itemsView?: TurnItemsView | null;
};

/** One page of turns. */
export type ThreadTurnsListResponse = {
  data: Array<Turn>;
  /** Null at the end. */
  nextCursor: string | null;
  /** Pass it as `cursor` with the other `sortDirection`; its own turn comes again. */
  backwardsCursor: string | null;
};

/** Bring an archived thread back into the default list. */
export type ThreadUnarchiveParams = {
  _meta?: RequestMeta | null;
  threadId: string;
};

/** The thread, not loaded. */
export type ThreadUnarchiveResponse = {
  thread: Thread;
};

/** A thread was brought back. */
export type ThreadUnarchivedNotification = {
  threadId: string;
};

/** Where the unread part of a thread begins. */
export type ThreadUnreadPosition = {
  type: "threadStart";
} | {
  type: "turn";
  turnId: string;
};

/** Stop hearing of a thread on this connection. */
export type ThreadUnsubscribeParams = {
  threadId: string;
  /** True lets go of the thread at once, if nobody else listens and nothing runs. */
  unload?: boolean | null;
};

/** What there was to leave. */
export type ThreadUnsubscribeResponse = {
  status: ThreadUnsubscribeStatus;
  /** Whether the thread is out of memory, and another process may write it; if that was asked. */
  unloaded?: boolean | null;
};

/** What became of the caller's subscription. */
export type ThreadUnsubscribeStatus = "notLoaded" | "notSubscribed" | "unsubscribed";

/** Estimated usage of a thread. */
export type ThreadUsage = {
  threadId: string;
  /** Millionths of a credit. */
  estimatedUsageCreditsMicros: number;
  /** Millionths of a US dollar. */
  estimatedUsageUsdMicros: number | null;
  /** Millionths of a US dollar, not derived from credits; absent means unknown, not zero. */
  nativeUsageUsdMicros: number | null;
  groups: Array<ThreadUsageBreakdownGroup>;
};

/** Share of a thread's usage with the same model, effort and speed. */
export type ThreadUsageBreakdownGroup = {
  model: string | null;
  reasoningEffort: string | null;
  speed: string | null;
  /** Millionths of a credit. */
  estimatedUsageCreditsMicros: number;
  /** Input tokens that are new; see `cachedInputTokens` for the others. */
  netNewInputTokens: number | null;
  cachedInputTokens: number | null;
  inputTokens: number | null;
  outputTokens: number | null;
  totalTokens: number | null;
};

/** Cancel a wake; a second time it changes nothing. */
export type ThreadWakeCancelParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  wakeId: string;
};

/** The wake, its state `cancelled`. */
export type ThreadWakeCancelResponse = {
  wake: Wake;
};

/** A wake has come further. */
export type ThreadWakeChangedNotification = {
  threadId: string;
  wakeId: string;
  state: "armed" | "fired" | "delivered" | "cancelled" | "lost";
  /** When, Unix milliseconds. */
  atMs: number;
  signalId: string | null;
  error: SignalError | null;
};

/** Page through wakes, newest first. */
export type ThreadWakeListParams = {
  /** Null lists those of all threads. */
  threadId?: string | null;
  state?: WakeState | null;
  /** Opaque, from `nextCursor` of the page before. */
  cursor?: string | null;
  /** Wakes a page; null lets the server choose, 0 counts as 1. */
  limit?: number | null;
};

/** One page; `next_cursor` is null at the end. */
export type ThreadWakeListResponse = {
  data: Array<Wake>;
  nextCursor: string | null;
};

/** Have a thread woken by an event. */
export type ThreadWakeSetParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  source: WakeSource;
  /** What the model reads of it; at most 1 KiB of UTF-8. */
  note?: string;
  mode?: WakeMode;
};

/** The wake, armed and on disk. */
export type ThreadWakeSetResponse = {
  wake: Wake;
};

/** Tokens as the model's API counts them. */
export type TokenUsageBreakdown = {
  totalTokens: number;
  inputTokens: number;
  /** Part of `inputTokens`. */
  cachedInputTokens: number;
  cacheWriteInputTokens: number;
  outputTokens: number;
  /** Part of `outputTokens`. */
  reasoningOutputTokens: number;
};

/** A tool as an MCP server lists it. */
export type Tool = {
  name: string;
  title?: string | null;
  description?: string | null;
  /** JSON Schema of the arguments. */
  inputSchema: JsonValue;
  /** JSON Schema of the structured content. */
  outputSchema?: JsonValue;
  /** MCP hints, such as `readOnlyHint`; they decide whether a call needs approval. */
  annotations?: JsonValue;
  icons?: Array<JsonValue> | null;
  _meta?: JsonValue;
};

/** The answer to one question. */
export type ToolRequestUserInputAnswer = {
  answers: Array<string>;
};

/** One answer to choose. */
export type ToolRequestUserInputOption = {
  label: string;
  description: string;
};

/** Put the model's questions to the user. */
export type ToolRequestUserInputParams = {
  threadId: string;
  turnId: string;
  itemId: string;
  questions: Array<ToolRequestUserInputQuestion>;
  /** The turn waits for the answers. */
  isBlocking: boolean;
  /** Outdated; go by `isBlocking`. */
  autoResolutionMs: number | null;
};

/** One question to the user. */
export type ToolRequestUserInputQuestion = {
  /** Key of the answer in the response. */
  id: string;
  /** A short title. */
  header: string;
  question: string;
  /** An answer besides the options may be given. */
  isOther: boolean;
  /** Do not show the answer while it is typed. */
  isSecret: boolean;
  /** Null when there is nothing to choose from. */
  options: Array<ToolRequestUserInputOption> | null;
};

/** The user's answers. */
export type ToolRequestUserInputResponse = {
  /** By the `id` of the question. */
  answers: { [key: string]: ToolRequestUserInputAnswer };
};

/** Settings of built-in tools. */
export type ToolsV2 = {
  web_search: WebSearchToolConfig | null;
};

/** One run of the model loop. Times are Unix seconds. */
export type Turn = {
  id: string;
  /** The first turn of the chain of work that led here; its own id if it began one. */
  rootTurnId: string | null;
  items: Array<ThreadItem>;
  /** How much of the items is here; `summary` is the last agent message. */
  itemsView: TurnItemsView;
  status: TurnStatus;
  /** Set for failed turns, and for interrupted ones that have a reason. */
  error: TurnError | null;
  startedAt: number | null;
  /** Null while the turn runs. */
  completedAt: number | null;
  durationMs: number | null;
};

/** The turn is over, and its end is in the log. */
export type TurnCompletedNotification = {
  threadId: string;
  turn: Turn;
};

/** The turn changed files again. */
export type TurnDiffUpdatedNotification = {
  threadId: string;
  turnId: string;
  /** Unified diff of all that the turn has changed so far. */
  diff: string;
};

/** An environment for tools to run in, and where in it. */
export type TurnEnvironmentParams = {
  environmentId: string;
  cwd: LegacyAppPathString;
  /** Paths inside the environment; null means `cwd` alone. */
  runtimeWorkspaceRoots?: Array<LegacyAppPathString> | null;
};

/** Why a turn or a model call failed. */
export type TurnError = {
  /** For the user to read. */
  message: string;
  /** A camelCase word, or an object with one such key and its facts. */
  codexErrorInfo: CodexErrorInfo | null;
  additionalDetails: string | null;
  /** Set when the model was stopped as misaligned. */
  misalignment: MisalignmentErrorDetails | null;
};

/** Stop a turn; an empty `turnId` without a running turn stops MCP start-up. */
export type TurnInterruptParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  turnId: string;
};

/** Nothing: the end arrives as `turn/completed`. */
export type TurnInterruptResponse = { [key: string]: JsonValue };

/** How much of a turn's items is there: none, what a summary shows, or all. */
export type TurnItemsView = "notLoaded" | "summary" | "full";

/** The model's API sent moderation data for the turn. */
export type TurnModerationMetadataNotification = {
  threadId: string;
  turnId: string;
  /** As the API sent it. */
  metadata: JsonValue;
};

/** One step of the model's plan. */
export type TurnPlanStep = {
  step: string;
  status: TurnPlanStepStatus;
};

/** How far a step of the plan is. */
export type TurnPlanStepStatus = "pending" | "inProgress" | "completed";

/** The model has a new plan, in place of the one before. */
export type TurnPlanUpdatedNotification = {
  threadId: string;
  turnId: string;
  /** Why the plan changed, if the model said so. */
  explanation: string | null;
  plan: Array<TurnPlanStep>;
};

/** Change settings of the running turn, and of that turn alone. */
export type TurnSettingsUpdateParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  turnId: string;
  /** Questions that are already open stay with their reviewer. */
  approvalsReviewer?: ApprovalsReviewer | null;
  /** For the steps that follow; `[]` leaves the turn without any. */
  environments?: Array<TurnEnvironmentParams> | null;
  model?: string | null;
  effort?: ReasoningEffort | null;
  summary?: ReasoningSummary | null;
  /** Null clears the tier; leave it out to keep it. */
  serviceTier?: string | null;
};

/** What became of the change. */
export type TurnSettingsUpdateResponse = {
  status: TurnSettingsUpdateStatus;
};

/** Whether the turn's next steps use the settings, or it was no longer there. */
export type TurnSettingsUpdateStatus = "applied" | "targetUnavailable";

/** Give the model something to do; settings become the thread's. */
export type TurnStartParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  /** Replaces the thread's list; `[]` clears it. */
  disabledPluginIds?: Array<string> | null;
  /** Comes back as `clientId` of the user message. */
  clientUserMessageId?: string | null;
  input: Array<UserInput>;
  /** What made the client start the turn; ignored when the input joins a running turn. */
  turnTrigger?: string | null;
  /** The turn that caused this one, perhaps in another thread; null for work of the user. */
  parentTurnId?: string | null;
  /** The parent's `rootTurnId`; null makes the new turn its own root. */
  rootTurnId?: string | null;
  toolOutput?: TurnToolOutput | null;
  /** Goes to the model's API as `client_metadata`, and nowhere else. */
  responsesapiClientMetadata?: { [key: string]: string } | null;
  /** Merged into those entries, after `responsesapiClientMetadata`. */
  responsesapiClientMetadataPatch?: { [key: string]: string } | null;
  /** By a name of the source, which is opaque to the server. */
  additionalContext?: { [key: string]: AdditionalContextEntry } | null;
  /** The first one is the current one; `[]` leaves the turn without any. */
  environments?: Array<TurnEnvironmentParams> | null;
  cwd?: string | null;
  /** Replaces the thread's roots. */
  runtimeWorkspaceRoots?: Array<AbsolutePathBuf> | null;
  approvalPolicy?: AskForApproval | null;
  approvalsReviewer?: ApprovalsReviewer | null;
  sandboxPolicy?: SandboxPolicy | null;
  /** Id of a named permission profile; not together with `sandboxPolicy`. */
  permissions?: string | null;
  model?: string | null;
  serviceTier?: string | null;
  /** For a new turn alone; `default` means the ordinary speed. */
  serviceTierForTurn?: string | null;
  effort?: ReasoningEffort | null;
  summary?: ReasoningSummary | null;
  personality?: Personality | null;
  /** JSON Schema that the last agent message of this turn must satisfy. */
  outputSchema?: JsonValue;
  /** Wins over `model` and `effort`. */
  collaborationMode?: CollaborationMode | null;
  /** Outdated and ignored; set `effort` instead. */
  multiAgentMode?: MultiAgentMode | null;
  /** For this turn; grants nothing that the account does not have. */
  cyberAccessProgram?: CyberAccessProgram | null;
  /** Extra `_meta` for MCP calls that the model makes in this turn. */
  mcpMetaByServer?: { [key: string]: { [key: string]: JsonValue } } | null;
};

/** The turn that took the input. */
export type TurnStartResponse = {
  turn: Turn;
};

/** The turn runs. */
export type TurnStartedNotification = {
  threadId: string;
  turn: Turn;
};

/** How a turn ended, or that it runs. */
export type TurnStatus = "inProgress" | "completed" | "failed" | "interrupted";

/** Give the running turn more to think about. */
export type TurnSteerParams = {
  _meta?: RequestMeta | null;
  threadId: string;
  clientUserMessageId?: string | null;
  input: Array<UserInput>;
  /** Replaces the client's entries in the turn metadata of model calls; `{}` clears them. */
  responsesapiClientMetadata?: { [key: string]: string } | null;
  /** Merged into those entries, after `responsesapiClientMetadata`. */
  responsesapiClientMetadataPatch?: { [key: string]: string } | null;
  /** By a name of the source, which is opaque to the server. */
  additionalContext?: { [key: string]: AdditionalContextEntry } | null;
  /** The turn that the caller believes is running. */
  expectedTurnId: string;
  /** Replaces the turn's entries, server by server. */
  mcpMetaByServer?: { [key: string]: { [key: string]: JsonValue } } | null;
};

/** The turn that took the input. */
export type TurnSteerResponse = {
  turnId: string;
};

/** Output of a tool that comes with the input of a turn. */
export type TurnToolOutput = {
  name: string;
  namespace?: string | null;
  output: FunctionCallOutputBody;
  /** Keep it in the thread's model-visible history. */
  retain?: boolean;
};

/** A page of turns, as `thread/turns/list` gives it. */
export type TurnsPage = {
  data: Array<Turn>;
  nextCursor: string | null;
  /** Opaque; as `cursor` with the opposite `sortDirection`. Null when the page is empty. */
  backwardsCursor: string | null;
};

/** Tokens, requests, time and cost. */
export type UsageFigures = {
  inputTokens: number;
  /** Part of `inputTokens`. */
  cachedInputTokens: number;
  outputTokens: number;
  /** Part of `outputTokens`. */
  reasoningOutputTokens: number;
  /** Requests that were sent to models, those that failed too. */
  requests: number;
  /** Of these, requests whose tokens the model has not reported. */
  unreportedRequests: number;
  modelMs: number;
  /** Without the time in which the user was asked something. */
  toolMs: number;
  /** A sum for each currency, as far as prices are known. */
  cost: Array<MoneyAmount>;
  /** Tokens of models without a price, which `cost` does not have. */
  unpricedTokens: number;
};

/** What usage is summed up by; `turn` needs a thread. */
export type UsageGroupBy = "thread" | "turn" | "model" | "day" | "origin" | "folder";

/** Sum up the usage of all threads, or of one. */
export type UsageReadParams = {
  /** Null: of all threads that are stored. */
  threadId?: string | null;
  /** The first day, `YYYY-MM-DD` in UTC. */
  since?: string | null;
  /** The last day; it counts too. */
  until?: string | null;
  groupBy?: UsageGroupBy;
  cursor?: string | null;
  /** Groups a page; null lets the server choose. */
  limit?: number | null;
};

/** One page of groups, in their order. */
export type UsageReadResponse = {
  data: Array<UsageRow>;
  /** Of all groups, on this page or not. */
  total: UsageFigures;
  /** The file that has the prices; absent where there are none. */
  pricesSource?: string | null;
  /** Null at the end. */
  nextCursor: string | null;
};

/** The usage of one group. */
export type UsageRow = {
  /** A thread's or turn's id, a model, a day, an origin or a folder. */
  group: string;
  usage: UsageFigures;
};

/** One part of what the user gives to a turn. */
export type UserInput = {
  type: "text";
  text: string;
  /** Stretches of `text` to show in a special way; empty means none. */
  text_elements?: Array<TextElement>;
} | {
  type: "image";
  detail?: ImageDetail | null;
} & ({
  url: string;
} | {
  fileId: string;
}) | {
  type: "localImage";
  detail?: ImageDetail | null;
  path: string;
} | {
  type: "audio";
} & ({
  url: string;
} | {
  fileId: string;
}) | {
  type: "localAudio";
  path: string;
} | {
  type: "skill";
  name: string;
  /** The `path` that `skills/list` gives. */
  path: string;
} | {
  type: "mention";
  name: string;
  /** What it points to: a path, or a URI such as `app://<id>`. */
  path: string;
};

/** Ask whether the platform can verify its user. */
export type UserVerificationStatusParams = Record<string, never>;

/** Whether it can. */
export type UserVerificationStatusResponse = {
  credentialId: string | null;
  unavailableReason: UserVerificationUnavailableReason | null;
  /** For people. */
  unavailableMessage: string | null;
};

/** Why the platform cannot verify its user. */
export type UserVerificationUnavailableReason = "credentialMissing" | "biometricsUnavailable" | "providerUnavailable";

/** How long the model's answers are. */
export type Verbosity = "low" | "medium" | "high";

/** W3C Trace Context of the caller. */
export type W3cTraceContext = {
  traceparent: string | null;
  tracestate: string | null;
};

/** One wake of a thread. Times are Unix milliseconds. */
export type Wake = {
  id: string;
  threadId: string;
  source: WakeSource;
  note: string;
  mode: WakeMode;
  state: WakeState;
  setAtMs: number;
  changedAtMs: number;
  /** When a timer wakes; null for others, and once it is over. */
  nextAtMs: number | null;
  /** Id of its last signal, of the source `app-server wake`: `signal/read` has the receipt. */
  signalId: string | null;
  /** Why it was cancelled, or is lost. */
  error: SignalError | null;
};

/** `wake` begins a turn, behind the one that runs; `queue` waits for the next model request. */
export type WakeMode = "wake" | "queue";

/** Which event wakes a thread. */
export type WakeSource = {
  type: "timer";
  /** Unix milliseconds; with `everySecs` the first time, which is one interval away if null. */
  atMs?: number | null;
  /** Seconds between two wakes, at least 60; null wakes once. */
  everySecs?: number | null;
  /** With `everySecs`: nothing wakes after this; Unix milliseconds. */
  untilMs?: number | null;
} | {
  type: "process";
  /** From `thread/backgroundTerminals/list`. */
  processId: string;
} | {
  type: "file";
  /** Absolute; a folder changes when something directly in it comes or goes. */
  path: string;
  change: FileWakeChange;
};

/**
 * How far a wake has come.
 *
 * It waits for its event; the event came, which is on disk; its signal is in the history of the
 * thread. The last two are other ends: a client or the end of the thread cancelled it, or its process
 * has gone with its server. A timer with `everySecs` is armed again once it was delivered.
 */
export type WakeState = "armed" | "fired" | "delivered" | "cancelled" | "lost";

/** Something the user should know that stopped nothing. */
export type WarningNotification = {
  /** Null when no single thread is concerned. */
  threadId: string | null;
  message: string;
};

/** One step of a web search. */
export type WebSearchAction = {
  type: "search";
  query: string | null;
  /** All queries, if there are several. */
  queries: Array<string> | null;
} | {
  type: "openPage";
  url: string | null;
} | {
  type: "findInPage";
  url: string | null;
  pattern: string | null;
} | {
  type: "other";
};

/** How much of what a search finds goes to the model. */
export type WebSearchContextSize = "low" | "medium" | "high";

/** Where the user is, roughly, so that results fit. */
export type WebSearchLocation = {
  country: string | null;
  region: string | null;
  city: string | null;
  /** IANA name. */
  timezone: string | null;
};

/** Whether web search is on, and how fresh its pages are. */
export type WebSearchMode = "disabled" | "cached" | "indexed" | "live";

/** What should carry out web searches. */
export type WebSearchProvider = "standalone" | "search_mcp";

/** Settings of the web search tool. */
export type WebSearchToolConfig = {
  context_size: WebSearchContextSize | null;
  /** Search these alone; null means everywhere. */
  allowed_domains: Array<string> | null;
  location: WebSearchLocation | null;
};

/** A way to confine commands on Windows. */
export type WindowsSandboxImplementation = "elevated" | "unelevated" | "mxc";

/** Whether commands can be confined on Windows. */
export type WindowsSandboxReadiness = "ready" | "notConfigured" | "updateRequired";

/** Whether commands can be confined on Windows. */
export type WindowsSandboxReadinessResponse = {
  status: WindowsSandboxReadiness;
};

/** Where requests of a workspace go. */
export type WorkspaceRouting = {
  chatgptAccountId: string;
  /** Scheme and host of the backend. */
  backendOrigin: string;
  accountRoutingOverride: AccountRoutingOverride;
};

/** Whether a written setting is in force, or overridden by a higher layer. */
export type WriteStatus = "ok" | "okOverridden";

/** Params and result of each request of a client. */
export interface ClientRequests {
  "account/bedrock/checkGovCloudRequirements": { params: BedrockCheckGovCloudRequirementsParams; result: BedrockCheckGovCloudRequirementsResponse };
  "account/login/cancel": { params: CancelLoginAccountParams; result: CancelLoginAccountResponse };
  "account/login/start": { params: LoginAccountParams; result: LoginAccountResponse };
  "account/logout": { params: null; result: LogoutAccountResponse };
  "account/rateLimits/read": { params: GetAccountRateLimitsParams; result: GetAccountRateLimitsResponse };
  "account/read": { params: GetAccountParams; result: GetAccountResponse };
  "account/usage/read": { params: GetAccountTokenUsageParams; result: GetAccountTokenUsageResponse };
  "app/installed": { params: AppsInstalledParams; result: AppsInstalledResponse };
  "app/list": { params: AppsListParams; result: AppsListResponse };
  "app/read": { params: AppsReadParams; result: AppsReadResponse };
  "collaborationMode/list": { params: CollaborationModeListParams; result: CollaborationModeListResponse };
  "command/exec": { params: CommandExecParams; result: CommandExecResponse };
  "command/exec/resize": { params: CommandExecResizeParams; result: CommandExecResizeResponse };
  "command/exec/terminate": { params: CommandExecTerminateParams; result: CommandExecTerminateResponse };
  "command/exec/write": { params: CommandExecWriteParams; result: CommandExecWriteResponse };
  "config/batchWrite": { params: ConfigBatchWriteParams; result: ConfigWriteResponse };
  "config/mcpServer/reload": { params: null; result: McpServerRefreshResponse };
  "config/read": { params: ConfigReadParams; result: ConfigReadResponse };
  "config/value/write": { params: ConfigValueWriteParams; result: ConfigWriteResponse };
  "configRequirements/read": { params: null; result: ConfigRequirementsReadResponse };
  "environment/add": { params: EnvironmentAddParams; result: EnvironmentAddResponse };
  "environment/info": { params: EnvironmentInfoParams; result: EnvironmentInfoResponse };
  "environment/status": { params: EnvironmentStatusParams; result: EnvironmentStatusResponse };
  "experimentalFeature/enablement/set": { params: ExperimentalFeatureEnablementSetParams; result: ExperimentalFeatureEnablementSetResponse };
  "experimentalFeature/list": { params: ExperimentalFeatureListParams; result: ExperimentalFeatureListResponse };
  "externalAgentConfig/detect": { params: ExternalAgentConfigDetectParams; result: ExternalAgentConfigDetectResponse };
  "externalAgentConfig/import/readHistories": { params: null; result: ExternalAgentConfigImportHistoriesReadResponse };
  "feedback/save": { params: FeedbackSaveParams; result: FeedbackSaveResponse };
  "fs/copy": { params: FsCopyParams; result: FsCopyResponse };
  "fs/createDirectory": { params: FsCreateDirectoryParams; result: FsCreateDirectoryResponse };
  "fs/getMetadata": { params: FsGetMetadataParams; result: FsGetMetadataResponse };
  "fs/readDirectory": { params: FsReadDirectoryParams; result: FsReadDirectoryResponse };
  "fs/readFile": { params: FsReadFileParams; result: FsReadFileResponse };
  "fs/remove": { params: FsRemoveParams; result: FsRemoveResponse };
  "fs/unwatch": { params: FsUnwatchParams; result: FsUnwatchResponse };
  "fs/watch": { params: FsWatchParams; result: FsWatchResponse };
  "fs/writeFile": { params: FsWriteFileParams; result: FsWriteFileResponse };
  "fuzzyFileSearch": { params: FuzzyFileSearchParams; result: FuzzyFileSearchResponse };
  "fuzzyFileSearch/sessionStart": { params: FuzzyFileSearchSessionStartParams; result: FuzzyFileSearchSessionStartResponse };
  "fuzzyFileSearch/sessionStop": { params: FuzzyFileSearchSessionStopParams; result: FuzzyFileSearchSessionStopResponse };
  "fuzzyFileSearch/sessionUpdate": { params: FuzzyFileSearchSessionUpdateParams; result: FuzzyFileSearchSessionUpdateResponse };
  "getAuthStatus": { params: GetAuthStatusParams; result: GetAuthStatusResponse };
  "getConversationSummary": { params: GetConversationSummaryParams; result: GetConversationSummaryResponse };
  "gitDiffToRemote": { params: GitDiffToRemoteParams; result: GitDiffToRemoteResponse };
  "hooks/list": { params: HooksListParams; result: HooksListResponse };
  "initialize": { params: InitializeParams; result: InitializeResponse };
  "marketplace/add": { params: MarketplaceAddParams; result: MarketplaceAddResponse };
  "marketplace/remove": { params: MarketplaceRemoveParams; result: MarketplaceRemoveResponse };
  "marketplace/upgrade": { params: MarketplaceUpgradeParams; result: MarketplaceUpgradeResponse };
  "mcpServer/event/stream/start": { params: McpServerEventStreamStartParams; result: McpServerEventStreamStartResponse };
  "mcpServer/event/stream/stop": { params: McpServerEventStreamStopParams; result: McpServerEventStreamStopResponse };
  "mcpServer/oauth/login": { params: McpServerOauthLoginParams; result: McpServerOauthLoginResponse };
  "mcpServer/output/read": { params: McpServerOutputReadParams; result: McpServerOutputReadResponse };
  "mcpServer/resource/read": { params: McpResourceReadParams; result: McpResourceReadResponse };
  "mcpServer/restart": { params: McpServerRestartParams; result: McpServerRestartResponse };
  "mcpServer/set": { params: McpServerSetParams; result: McpServerSetResponse };
  "mcpServer/tool/call": { params: McpServerToolCallParams; result: McpServerToolCallResponse };
  "mcpServerStatus/list": { params: ListMcpServerStatusParams; result: ListMcpServerStatusResponse };
  "memory/reset": { params: null; result: MemoryResetResponse };
  "model/list": { params: ModelListParams; result: ModelListResponse };
  "modelProvider/capabilities/read": { params: ModelProviderCapabilitiesReadParams; result: ModelProviderCapabilitiesReadResponse };
  "modelProvider/config/write": { params: ModelProviderConfigWriteParams; result: ModelProviderConfigWriteResponse };
  "modelProvider/list": { params: ModelProviderListParams; result: ModelProviderListResponse };
  "permissionProfile/list": { params: PermissionProfileListParams; result: PermissionProfileListResponse };
  "notification/list": { params: NotificationListParams; result: NotificationListResponse };
  "plugin/install": { params: PluginInstallParams; result: PluginInstallResponse };
  "plugin/installed": { params: PluginInstalledParams; result: PluginInstalledResponse };
  "plugin/list": { params: PluginListParams; result: PluginListResponse };
  "plugin/read": { params: PluginReadParams; result: PluginReadResponse };
  "plugin/reconcile": { params: PluginReconcileParams; result: PluginReconcileResponse };
  "plugin/uninstall": { params: PluginUninstallParams; result: PluginUninstallResponse };
  "process/kill": { params: ProcessKillParams; result: ProcessKillResponse };
  "process/resizePty": { params: ProcessResizePtyParams; result: ProcessResizePtyResponse };
  "process/spawn": { params: ProcessSpawnParams; result: ProcessSpawnResponse };
  "process/writeStdin": { params: ProcessWriteStdinParams; result: ProcessWriteStdinResponse };
  "project/create": { params: ProjectCreateParams; result: ProjectCreateResponse };
  "project/delete": { params: ProjectDeleteParams; result: ProjectDeleteResponse };
  "project/import": { params: ProjectImportParams; result: ProjectImportResponse };
  "project/list": { params: ProjectListParams; result: ProjectListResponse };
  "project/move": { params: ProjectMoveParams; result: ProjectMoveResponse };
  "project/read": { params: ProjectReadParams; result: ProjectReadResponse };
  "project/update": { params: ProjectUpdateParams; result: ProjectUpdateResponse };
  "remoteControl/status/read": { params: null; result: RemoteControlStatusReadResponse };
  "review/start": { params: ReviewStartParams; result: ReviewStartResponse };
  "server/diagnostics": { params: ServerDiagnosticsParams; result: ServerDiagnosticsResponse };
  "signal/deliver": { params: SignalDeliverParams; result: SignalDeliverResponse };
  "signal/list": { params: SignalListParams; result: SignalListResponse };
  "signal/read": { params: SignalReadParams; result: SignalReadResponse };
  "signal/recall": { params: SignalRecallParams; result: SignalRecallResponse };
  "skills/config/write": { params: SkillsConfigWriteParams; result: SkillsConfigWriteResponse };
  "skills/extraRoots/set": { params: SkillsExtraRootsSetParams; result: SkillsExtraRootsSetResponse };
  "skills/list": { params: SkillsListParams; result: SkillsListResponse };
  "thread/archive": { params: ThreadArchiveParams; result: ThreadArchiveResponse };
  "thread/attachment/add": { params: ThreadAttachmentAddParams; result: ThreadAttachmentAddResponse };
  "thread/attachment/list": { params: ThreadAttachmentListParams; result: ThreadAttachmentListResponse };
  "thread/attachment/remove": { params: ThreadAttachmentRemoveParams; result: ThreadAttachmentRemoveResponse };
  "thread/attachmentOwner/list": { params: ThreadAttachmentOwnerListParams; result: ThreadAttachmentOwnerListResponse };
  "thread/backgroundTerminals/clean": { params: ThreadBackgroundTerminalsCleanParams; result: ThreadBackgroundTerminalsCleanResponse };
  "thread/backgroundTerminals/list": { params: ThreadBackgroundTerminalsListParams; result: ThreadBackgroundTerminalsListResponse };
  "thread/backgroundTerminals/terminate": { params: ThreadBackgroundTerminalsTerminateParams; result: ThreadBackgroundTerminalsTerminateResponse };
  "thread/budget/set": { params: ThreadBudgetSetParams; result: ThreadBudgetSetResponse };
  "thread/compact/start": { params: ThreadCompactStartParams; result: ThreadCompactStartResponse };
  "thread/decrement_elicitation": { params: ThreadDecrementElicitationParams; result: ThreadDecrementElicitationResponse };
  "thread/delete": { params: ThreadDeleteParams; result: ThreadDeleteResponse };
  "thread/fork": { params: ThreadForkParams; result: ThreadForkResponse };
  "thread/goal/clear": { params: ThreadGoalClearParams; result: ThreadGoalClearResponse };
  "thread/goal/get": { params: ThreadGoalGetParams; result: ThreadGoalGetResponse };
  "thread/goal/set": { params: ThreadGoalSetParams; result: ThreadGoalSetResponse };
  "thread/increment_elicitation": { params: ThreadIncrementElicitationParams; result: ThreadIncrementElicitationResponse };
  "thread/inject_items": { params: ThreadInjectItemsParams; result: ThreadInjectItemsResponse };
  "thread/items/list": { params: ThreadItemsListParams; result: ThreadItemsListResponse };
  "thread/items/read": { params: ThreadItemsReadParams; result: ThreadItemsReadResponse };
  "thread/list": { params: ThreadListParams; result: ThreadListResponse };
  "thread/loaded/list": { params: ThreadLoadedListParams; result: ThreadLoadedListResponse };
  "thread/memory/read": { params: ThreadMemoryReadParams; result: ThreadMemoryReadResponse };
  "thread/memoryMode/set": { params: ThreadMemoryModeSetParams; result: ThreadMemoryModeSetResponse };
  "thread/metadata/update": { params: ThreadMetadataUpdateParams; result: ThreadMetadataUpdateResponse };
  "thread/name/set": { params: ThreadSetNameParams; result: ThreadSetNameResponse };
  "thread/prepareApprovedPlan": { params: ThreadPrepareApprovedPlanParams; result: ThreadPrepareApprovedPlanResponse };
  "thread/queue/add": { params: ThreadQueueAddParams; result: ThreadQueueAddResponse };
  "thread/queue/delete": { params: ThreadQueueDeleteParams; result: ThreadQueueDeleteResponse };
  "thread/queue/list": { params: ThreadQueueListParams; result: ThreadQueueListResponse };
  "thread/queue/reorder": { params: ThreadQueueReorderParams; result: ThreadQueueReorderResponse };
  "thread/queue/start": { params: ThreadQueueStartParams; result: ThreadQueueStartResponse };
  "thread/queue/update": { params: ThreadQueueUpdateParams; result: ThreadQueueUpdateResponse };
  "thread/read": { params: ThreadReadParams; result: ThreadReadResponse };
  "thread/readState/update": { params: ThreadReadStateUpdateParams; result: ThreadReadStateUpdateResponse };
  "thread/realtime/listVoices": { params: ThreadRealtimeListVoicesParams; result: ThreadRealtimeListVoicesResponse };
  "thread/realtime/stop": { params: ThreadRealtimeStopParams; result: ThreadRealtimeStopResponse };
  "thread/resume": { params: ThreadResumeParams; result: ThreadResumeResponse };
  "thread/revert": { params: ThreadRevertParams; result: ThreadRevertResponse };
  "thread/search": { params: ThreadSearchParams; result: ThreadSearchResponse };
  "thread/searchOccurrences": { params: ThreadSearchOccurrencesParams; result: ThreadSearchOccurrencesResponse };
  "thread/section/move": { params: ThreadSectionMoveParams; result: ThreadSectionMoveResponse };
  "thread/settings/update": { params: ThreadSettingsUpdateParams; result: ThreadSettingsUpdateResponse };
  "thread/shellCommand": { params: ThreadShellCommandParams; result: ThreadShellCommandResponse };
  "thread/start": { params: ThreadStartParams; result: ThreadStartResponse };
  "thread/timeline/list": { params: ThreadTimelineListParams; result: ThreadTimelineListResponse };
  "thread/turns/list": { params: ThreadTurnsListParams; result: ThreadTurnsListResponse };
  "thread/unarchive": { params: ThreadUnarchiveParams; result: ThreadUnarchiveResponse };
  "thread/unsubscribe": { params: ThreadUnsubscribeParams; result: ThreadUnsubscribeResponse };
  "thread/wake/cancel": { params: ThreadWakeCancelParams; result: ThreadWakeCancelResponse };
  "thread/wake/list": { params: ThreadWakeListParams; result: ThreadWakeListResponse };
  "thread/wake/set": { params: ThreadWakeSetParams; result: ThreadWakeSetResponse };
  "threadSection/create": { params: ThreadSectionCreateParams; result: ThreadSectionCreateResponse };
  "threadSection/delete": { params: ThreadSectionDeleteParams; result: ThreadSectionDeleteResponse };
  "threadSection/list": { params: ThreadSectionListParams; result: ThreadSectionListResponse };
  "threadSection/update": { params: ThreadSectionUpdateParams; result: ThreadSectionUpdateResponse };
  "turn/interrupt": { params: TurnInterruptParams; result: TurnInterruptResponse };
  "turn/settings/update": { params: TurnSettingsUpdateParams; result: TurnSettingsUpdateResponse };
  "turn/start": { params: TurnStartParams; result: TurnStartResponse };
  "turn/steer": { params: TurnSteerParams; result: TurnSteerResponse };
  "usage/read": { params: UsageReadParams; result: UsageReadResponse };
  "userVerification/status": { params: UserVerificationStatusParams; result: UserVerificationStatusResponse };
  "windowsSandbox/readiness": { params: null; result: WindowsSandboxReadinessResponse };
}

/** Params and result of each request of the server. */
export interface ServerRequests {
  "account/chatgptAuthTokens/refresh": { params: ChatgptAuthTokensRefreshParams; result: ChatgptAuthTokensRefreshResponse };
  "applyPatchApproval": { params: ApplyPatchApprovalParams; result: ApplyPatchApprovalResponse };
  "attestation/generate": { params: AttestationGenerateParams; result: AttestationGenerateResponse };
  "currentTime/read": { params: CurrentTimeReadParams; result: CurrentTimeReadResponse };
  "execCommandApproval": { params: ExecCommandApprovalParams; result: ExecCommandApprovalResponse };
  "item/commandExecution/requestApproval": { params: CommandExecutionRequestApprovalParams; result: CommandExecutionRequestApprovalResponse };
  "item/fileChange/requestApproval": { params: FileChangeRequestApprovalParams; result: FileChangeRequestApprovalResponse };
  "item/permissions/requestApproval": { params: PermissionsRequestApprovalParams; result: PermissionsRequestApprovalResponse };
  "item/tool/call": { params: DynamicToolCallParams; result: DynamicToolCallResponse };
  "item/tool/requestUserInput": { params: ToolRequestUserInputParams; result: ToolRequestUserInputResponse };
  "mcpServer/elicitation/request": { params: McpServerElicitationRequestParams; result: McpServerElicitationRequestResponse };
}

/** Params of each notification of the server. */
export interface ServerNotifications {
  "account/login/completed": AccountLoginCompletedNotification;
  "account/rateLimits/updated": AccountRateLimitsUpdatedNotification;
  "account/updated": AccountUpdatedNotification;
  "app/list/updated": AppListUpdatedNotification;
  "autoApprovalReview/strictReviewRequired": StrictReviewRequiredNotification;
  "command/exec/outputDelta": CommandExecOutputDeltaNotification;
  "configWarning": ConfigWarningNotification;
  "deprecationNotice": DeprecationNoticeNotification;
  "error": ErrorNotification;
  "fs/changed": FsChangedNotification;
  "fuzzyFileSearch/sessionCompleted": FuzzyFileSearchSessionCompletedNotification;
  "fuzzyFileSearch/sessionUpdated": FuzzyFileSearchSessionUpdatedNotification;
  "guardianWarning": GuardianWarningNotification;
  "hook/completed": HookCompletedNotification;
  "hook/started": HookStartedNotification;
  "item/agentMessage/delta": AgentMessageDeltaNotification;
  "item/autoApprovalReview/completed": ItemGuardianApprovalReviewCompletedNotification;
  "item/autoApprovalReview/started": ItemGuardianApprovalReviewStartedNotification;
  "item/commandExecution/outputDelta": CommandExecutionOutputDeltaNotification;
  "item/commandExecution/terminalInteraction": TerminalInteractionNotification;
  "item/completed": ItemCompletedNotification;
  "item/fileChange/outputDelta": FileChangeOutputDeltaNotification;
  "item/fileChange/patchUpdated": FileChangePatchUpdatedNotification;
  "item/mcpToolCall/progress": McpToolCallProgressNotification;
  "item/plan/delta": PlanDeltaNotification;
  "item/reasoning/summaryPartAdded": ReasoningSummaryPartAddedNotification;
  "item/reasoning/summaryTextDelta": ReasoningSummaryTextDeltaNotification;
  "item/reasoning/textDelta": ReasoningTextDeltaNotification;
  "item/started": ItemStartedNotification;
  "mcpServer/event/stream/notification": McpServerEventStreamNotification;
  "mcpServer/oauthLogin/completed": McpServerOauthLoginCompletedNotification;
  "mcpServer/startupStatus/updated": McpServerStatusUpdatedNotification;
  "mcpServer/tools/changed": McpServerToolsChangedNotification;
  "model/rerouted": ModelReroutedNotification;
  "model/safetyBuffering/updated": ModelSafetyBufferingUpdatedNotification;
  "model/verification": ModelVerificationNotification;
  "modelProvider/authRecoveryCompleted": AuthRecoveryNotification;
  "modelProvider/authRecoveryStarted": AuthRecoveryNotification;
  "process/exited": ProcessExitedNotification;
  "process/outputDelta": ProcessOutputDeltaNotification;
  "project/changed": ProjectChangedNotification;
  "serverRequest/resolved": ServerRequestResolvedNotification;
  "signal/updated": SignalUpdatedNotification;
  "skills/changed": SkillsChangedNotification;
  "thread/budget/updated": ThreadBudgetUpdatedNotification;
  "thread/archived": ThreadArchivedNotification;
  "thread/attachment/updated": ThreadAttachmentUpdatedNotification;
  "thread/closed": ThreadClosedNotification;
  "thread/compacted": ContextCompactedNotification;
  "thread/deleted": ThreadDeletedNotification;
  "thread/environment/connected": EnvironmentConnectionNotification;
  "thread/environment/disconnected": EnvironmentConnectionNotification;
  "thread/goal/cleared": ThreadGoalClearedNotification;
  "thread/goal/updated": ThreadGoalUpdatedNotification;
  "thread/name/updated": ThreadNameUpdatedNotification;
  "thread/project/updated": ThreadProjectUpdatedNotification;
  "thread/queue/changed": ThreadQueueChangedNotification;
  "thread/readState/changed": ThreadReadStateChangedNotification;
  "thread/reverted": ThreadRevertedNotification;
  "thread/section/changed": ThreadSectionChangedNotification;
  "thread/settings/updated": ThreadSettingsUpdatedNotification;
  "thread/started": ThreadStartedNotification;
  "thread/status/changed": ThreadStatusChangedNotification;
  "thread/tokenUsage/updated": ThreadTokenUsageUpdatedNotification;
  "thread/unarchived": ThreadUnarchivedNotification;
  "thread/wake/changed": ThreadWakeChangedNotification;
  "turn/completed": TurnCompletedNotification;
  "turn/diff/updated": TurnDiffUpdatedNotification;
  "turn/moderationMetadata": TurnModerationMetadataNotification;
  "turn/plan/updated": TurnPlanUpdatedNotification;
  "turn/started": TurnStartedNotification;
  "warning": WarningNotification;
}
