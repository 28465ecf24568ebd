"""Keys of config.toml that are known, here and to Codex.

Paths are dotted; `*` stands for a name that the user chooses; the reader of a path checks what lies
below it.
Source: docs/config.md, "Unknown keys"; `codex features list` and `codex-rs/core/config.schema.json`
of Codex 0.169.0.
"""

from collections.abc import Sequence

_NAMES = """
agent_message_board agent_message_board_mcp analytics_plan_history api_key_cyber_access_programs
api_key_model_discovery app_server_websocket_compression apply_patch_freeform
apply_patch_preserve_line_endings apply_patch_streaming_events apps_early_resource_discovery
apps_mcp_path_override artifact async_compaction async_compaction_root_only
background_paginated_rollout_migration bedrock_setup_wizard browser_annotation_api browser_use
browser_use_external browser_use_full_cdp_access chronicle cli_daybreak cli_resume_account_check
code_mode code_mode_buffered_exec code_mode_host code_mode_host_grpc
code_mode_host_output_truncation code_mode_interrupt code_mode_only code_mode_only_strict_3p_tools
code_mode_prewarm code_mode_tool_description_first code_mode_tool_search codex_apps_mcp_2026_07_28
codex_git_commit codex_hooks collab collaboration_modes command_sessions_world_state
compaction_image_budget computer_use concurrent_reasoning_summaries content_item_kinds
context_management credential_masking critical_path_timing current_time_reminder
cwd_relative_turn_diffs daemon_auto_start daybreak_program_propagation defer_mailbox_preemption
deferred_executor deferred_tool_world_state elevated_windows_sandbox
enable_experimental_windows_sandbox enable_fanout enable_mcp_apps enable_request_compression
exec_permission_approvals executed_tool_call_metadata executor_capability_discovery
executor_capability_discovery_v2 experimental_use_unified_exec_tool experimental_windows_sandbox
external_agent_memory_import external_migration fast_mode gateway_setup_wizard gcp_setup_wizard
goals guardian_approval guardian_conversation_history_tools guardian_denial_reconsideration
guardian_enhanced_node_repl_transcripts guardian_ext guardian_include_additional_context
guardian_native_multi_agent_history guardian_node_repl_transcript_images guardian_recorded_items
guardian_reuse_parent_compaction guardian_root_handoff_context
guardian_trust_orchestrator_connectors guardianv2 guardianv2_decisions_comparison guardianv3 hooks
hosted_search_policy image_detail_original image_generation image_generation_animation
image_resize_notice imagegenext in_app_browser in_app_chat in_app_dictation
in_app_local_automation in_app_updates in_app_voice incremental_exec_tools incremental_tools
incremental_tools_legacy incremental_tools_legacy_gcp instant_interrupt interrupt_on_cancel
item_ids js_repl js_repl_tools_only local_thread_store_compression
local_thread_store_shared_compression login_shell_package_path mcp_2026_07_28
mcp_connection_sharing mcp_lazy_stdio_startup mcp_oauth_refresh_coordination memories memory_tool
mentions_v2 model_catalog_in_context multi_agent multi_agent_mode multi_agent_v2
multi_agent_v2_dynamic_tools multi_env_copy_file non_prefixed_mcp_tool_names
nonfatal_clock_read_errors omit_app_server_notification_media omit_skill_descriptions
output_token_replay personality plugin_discovery_prefetch plugin_hooks plugin_sharing
powershell_shell_version prediction_preserve_parent_tools prefer_mxc prevent_idle_sleep psp
realtime_conversation reasoning_effort_override recommended_plugins remote_compaction_v2
remote_control remote_models remote_plugin request_permissions request_rule resize_all_images
respect_system_proxy responses_websockets responses_websockets_v2 retain_client_developer_messages
retain_client_tool_outputs rollout_budget runtime_agent_instances runtime_metrics search_tool
secret_auth_storage send_async_message send_message_to_user_async shell_snapshot shell_snapshot_v2
shell_tool shell_zsh_fork simplified_selection_hints skill_catalog_deltas
skill_env_var_dependency_prompt skill_mcp_dependency_install skill_search
skip_host_skill_discovery sleep_tool sqlite stable_environment_tools standalone_web_search steer
step_model_switching subagent_default_context_limits subagent_thread_environments
suppress_model_change_announcements system_proxy_fallback telepathy terminal_resize_reflow
terminal_visualization_instructions token_budget tool_call_mcp_elicitation tool_search
tool_search_always_defer_mcp_tools transcript_v2 tui_app_server
tui_extensions_statusline tui_multi_backend tui_workspace ultrafast_mode unavailable_dummy_tools
unbounded_connection_retries undo unified_exec unified_exec_tty unified_exec_zsh_fork
unified_image_budget untrusted_as_tool_output use_agent_identity use_legacy_landlock
use_linux_sandbox_bwrap use_xaa view_image wake_on_agent_messages web_search web_search_cached
web_search_request windows_sandbox_service workspace_dependencies workspace_owner_usage_nudge
worktrees write_stdin_approval
"""

CODEX_FEATURES = tuple(_NAMES.split())
"""Keys of `[features]`: one of these in a file that both programs share is no mistake."""


_NETWORK = (
    "allow_local_binding",
    "allow_upstream_proxy",
    "dangerously_allow_non_loopback_proxy",
    "domains",
    "enable_socks5",
    "enable_socks5_udp",
    "enabled",
    "mode",
    "proxy_url",
    "socks_url",
)
"""Keys of a network, wherever it is described (docs/config.md, "Network of commands")."""

_BUDGET = ("cost", "currency", "tokens")
"""Keys of a budget that threads share (docs/usage.md, "Budgets of a home")."""

KNOWN: Sequence[str] = (
    "allow_login_shell",
    "analytics.enabled",
    "approval_policy.granular.mcp_elicitations",
    "approval_policy.granular.request_permissions",
    "approval_policy.granular.rules",
    "approval_policy.granular.sandbox_approval",
    "approval_timeout_s",
    "approvals_reviewer",
    "apps.*.approvals_reviewer",
    "apps.*.default_tools_approval_mode",
    "apps.*.default_tools_enabled",
    "apps.*.destructive_enabled",
    "apps.*.enabled",
    "apps.*.links.*.approvals_reviewer",
    "apps.*.links.*.default_tools_approval_mode",
    "apps.*.omit_tools_from",
    "apps.*.open_world_enabled",
    "apps.*.tools.*.approval_mode",
    "apps.*.tools.*.enabled",
    "apps_mcp_product_sku",
    "apps_service.demo",
    "apps_service.status_view",
    *(f"budget.{scope}.{key}" for scope in ("day", "folders.*", "home") for key in _BUDGET),
    "chatgpt_base_url",
    "cli_auth_credentials_store",
    "compact_prompt",
    "default_permissions",
    "experimental_compact_prompt_file",
    "features.apply_patch_streaming_events",
    "features.apps",
    "features.auth_elicitation",
    "features.connectors",
    "features.default_mode_request_user_input",
    "features.mcp_tool_list_changed",
    *(f"features.network_proxy.{key}" for key in _NETWORK),
    "features.plugins",
    "features.request_permissions_tool",
    "features.skill_mcp_dependency_install",
    "features.tool_suggest",
    "forced_chatgpt_workspace_id",
    "forced_login_method",
    "hooks",
    "include_apps_instructions",
    "lease_seconds",
    "marketplaces.*.last_revision",
    "marketplaces.*.last_updated",
    "marketplaces.*.ref",
    "marketplaces.*.source",
    "marketplaces.*.source_type",
    "marketplaces.*.sparse_paths",
    "mcp_oauth_callback_port",
    "mcp_oauth_callback_url",
    "mcp_oauth_credentials_store",
    "mcp_optional_startup_grace_ms",
    "mcp_servers.*.args",
    "mcp_servers.*.auth",
    "mcp_servers.*.bearer_token",
    "mcp_servers.*.bearer_token_env_var",
    "mcp_servers.*.command",
    "mcp_servers.*.cwd",
    "mcp_servers.*.default_tools_approval_mode",
    "mcp_servers.*.disabled_tools",
    "mcp_servers.*.enabled",
    "mcp_servers.*.enabled_tools",
    "mcp_servers.*.env",
    "mcp_servers.*.env_http_headers",
    "mcp_servers.*.env_vars.name",
    "mcp_servers.*.env_vars.source",
    "mcp_servers.*.environment_id",
    "mcp_servers.*.http_headers",
    "mcp_servers.*.http_headers_helper",
    "mcp_servers.*.idle_seconds",
    "mcp_servers.*.lazy",
    "mcp_servers.*.oauth.callback_port",
    "mcp_servers.*.oauth.callback_url",
    "mcp_servers.*.oauth.client_id",
    "mcp_servers.*.oauth.client_secret_env_var",
    "mcp_servers.*.oauth_resource",
    "mcp_servers.*.omit_tools_from",
    "mcp_servers.*.protocol",
    "mcp_servers.*.required",
    "mcp_servers.*.scopes",
    "mcp_servers.*.share",
    "mcp_servers.*.startup_timeout_ms",
    "mcp_servers.*.startup_timeout_sec",
    "mcp_servers.*.supports_parallel_tool_calls",
    "mcp_servers.*.tool_timeout_sec",
    "mcp_servers.*.tools.*.approval_mode",
    "mcp_servers.*.tools.*.output_token_limit",
    "mcp_servers.*.url",
    "mcp_switches",
    "memory_budget_bytes",
    "model",
    "model_auto_compact_token_limit",
    "model_context_window",
    "model_prices.*.cached",
    "model_prices.*.currency",
    "model_prices.*.in",
    "model_prices.*.out",
    "model_provider",
    "model_providers.*.base_url",
    "model_providers.*.env_http_headers",
    "model_providers.*.env_key",
    "model_providers.*.experimental_bearer_token",
    "model_providers.*.http_headers",
    "model_providers.*.name",
    "model_providers.*.query_params",
    "model_providers.*.request_max_retries",
    "model_providers.*.requires_openai_auth",
    "model_providers.*.stream_idle_timeout_ms",
    "model_providers.*.stream_max_retries",
    "model_providers.*.wire_api",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_supports_search_tool",
    "model_verbosity",
    "node_address",
    "node_secret_file",
    "notification_hosts",
    "notification_link",
    "notifications.command",
    "notifications.content",
    "notifications.cwd",
    "notifications.desktop",
    "notifications.enabled",
    "notifications.events",
    "notifications.name",
    "notifications.secret_file",
    "notifications.threads",
    "notifications.url",
    "notify",
    "orchestrator.mcp.enabled",
    "orchestrator.skills.enabled",
    "otel.environment",
    "otel.metrics_exporter",
    "otel.span_attributes",
    "otel.trace_exporter",
    "permissions.*.description",
    "permissions.*.extends",
    "permissions.*.filesystem",
    *(f"permissions.*.network.{key}" for key in _NETWORK),
    "plugins.*.enabled",
    "plugins.*.mcp_servers",
    "project_doc_fallback_filenames",
    "project_doc_max_bytes",
    "project_root_markers",
    "projects.*.trust_level",
    "refuse_other_users",
    "review_model",
    "sandbox_hidden_paths",
    "sandbox_mode",
    "sandbox_workspace_write.exclude_slash_tmp",
    "sandbox_workspace_write.exclude_tmpdir_env_var",
    "sandbox_workspace_write.network_access",
    "sandbox_workspace_write.writable_roots",
    "service_tier",
    "shell_environment_policy.exclude",
    "shell_environment_policy.ignore_default_excludes",
    "shell_environment_policy.include_only",
    "shell_environment_policy.inherit",
    "shell_environment_policy.set",
    "skills.config.enabled",
    "skills.config.name",
    "skills.config.path",
    "store",
    "thread_events_kept",
    "thread_events_kept_bytes",
    "thread_unload_delay_secs",
    "tool_output_token_limit",
    "tool_suggest",
    "tools.apply_patch.enabled",
    "tools.update_plan.enabled",
    "tools.web_search.allowed_domains",
    "tools.web_search.context_size",
    "tools.web_search.location.city",
    "tools.web_search.location.country",
    "tools.web_search.location.region",
    "tools.web_search.location.timezone",
    "wakes",
    "web_search",
)
"""Keys that this server reads."""

WITHOUT_EFFECT: Sequence[str] = (
    "agents",
    "allow_symlinked_codex_home",
    "auto_review",
    "background_terminal_max_timeout",
    "cloud",
    "developer_instructions",
    "experimental_thread_store",
    "experimental_thread_store_endpoint",
    "experimental_use_unified_exec_tool",
    "goals",
    "include_collaboration_mode_instructions",
    "include_environment_context",
    "include_environment_context_time",
    "include_permissions_instructions",
    "instructions",
    "mcp_enterprise_managed_auth",
    "mcp_servers.*.name",
    "memories",
    "model_auto_compact_token_limit_scope",
    "model_catalog_json",
    "model_instructions_file",
    "model_post_turn_compact_threshold_percent",
    "model_providers.*.auth",
    "model_providers.*.aws",
    "model_providers.*.capabilities",
    "model_providers.*.credential_file",
    "model_providers.*.env_key_instructions",
    "model_providers.*.gateway_oauth",
    "model_providers.*.location",
    "model_providers.*.model_catalog_url",
    "model_providers.*.project_id",
    "model_providers.*.supports_standalone_web_search",
    "model_providers.*.supports_websockets",
    "model_providers.*.websocket_connect_timeout_ms",
    "openai_base_url",
    "otel.exporter",
    "otel.log_agent_responses",
    "otel.log_guardian_assessments",
    "otel.log_sse_deltas",
    "otel.log_user_prompt",
    "otel.tool_result",
    "otel.tracestate",
    "permissions.*.workspace_roots",
    "personality",
    "plan_mode_reasoning_effort",
    "profile",
    "responses_api_metadata",
    "shell_environment_policy.experimental_use_profile",
    "shell_environment_policy.filters",
    "skills.bundled",
    "skills.include_instructions",
    "sqlite_home",
    "tools.client_search_provider",
    "tools.experimental_request_user_input",
)
"""Keys of Codex's features that this server lacks; their use is reported to the user."""

OF_OTHER_PROGRAMS: Sequence[str] = (
    "approval_policy.granular.skill_approval",
    "audio",
    "browser_use",
    "check_for_update_on_startup",
    "computer_use",
    "daybreak",
    "desktop",
    "disable_paste_burst",
    "experimental_realtime_start_instructions",
    "experimental_realtime_webrtc_call_base_url",
    "experimental_realtime_ws_backend_prompt",
    "experimental_realtime_ws_base_url",
    "experimental_realtime_ws_model",
    "experimental_realtime_ws_startup_context",
    *(f"features.{name}" for name in CODEX_FEATURES),
    "feedback",
    "file_opener",
    "ghost_snapshot",
    "hide_agent_reasoning",
    "history",
    "js_repl_node_module_dirs",
    "js_repl_node_path",
    "log_dir",
    "notice",
    "oss_provider",
    "profiles",
    "realtime",
    "show_raw_agent_reasoning",
    "suppress_unstable_features_warning",
    "tui",
    "windows",
)
"""Keys of Codex's terminal and desktop programs, and of what exists in Codex alone; both programs
may share one file, so nothing is said of these."""
