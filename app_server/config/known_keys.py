"""Keys of config.toml that are known, here and to Codex, and the forms of their values.

Paths are dotted; `*` stands for a name that the user chooses; the reader of a path checks what lies
below it.
Source: docs/config.md, "Unknown keys"; `codex features list` and `codex-rs/core/config.schema.json`
of Codex 0.169.0.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

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


Form: TypeAlias = str | tuple[str, ...] | tuple[int, int]
"""What a reader takes: a name of FORMS in json_schema.py, one of a few words, or an integer from a
least to a greatest."""

_APPROVAL_MODES = ("auto", "prompt", "writes", "approve")
_REVIEWERS = ("user", "auto_review", "guardian_subagent")

_NETWORK: Mapping[str, Form] = {
    "allow_local_binding": "boolean",
    "allow_upstream_proxy": "boolean",
    "dangerously_allow_non_loopback_proxy": "boolean",
    "domains": "domains",
    "enable_socks5": "boolean",
    "enable_socks5_udp": "boolean",
    "enabled": "boolean",
    "mode": ("full", "limited"),
    "proxy_url": "string",
    "socks_url": "string",
}
"""Keys of a network, wherever it is described (docs/config.md, "Network of commands")."""

_BUDGET: Mapping[str, Form] = {"cost": "amount", "currency": "string", "tokens": "integer"}
"""Keys of a budget that threads share (docs/usage.md, "Budgets of a home")."""

KNOWN: Mapping[str, Form] = {
    "allow_login_shell": "boolean",
    "analytics.enabled": "boolean",
    "approval_policy.granular.mcp_elicitations": "boolean",
    "approval_policy.granular.request_permissions": "anything",
    "approval_policy.granular.rules": "boolean",
    "approval_policy.granular.sandbox_approval": "boolean",
    "approval_timeout_s": "seconds",
    "approvals_reviewer": _REVIEWERS,
    "apps.*.approvals_reviewer": _REVIEWERS,
    "apps.*.default_tools_approval_mode": _APPROVAL_MODES,
    "apps.*.default_tools_enabled": "boolean",
    "apps.*.destructive_enabled": "boolean",
    "apps.*.enabled": "boolean",
    "apps.*.links.*.approvals_reviewer": _REVIEWERS,
    "apps.*.links.*.default_tools_approval_mode": _APPROVAL_MODES,
    "apps.*.omit_tools_from": "list of surfaces",
    "apps.*.open_world_enabled": "boolean",
    "apps.*.tools.*.approval_mode": _APPROVAL_MODES,
    "apps.*.tools.*.enabled": "boolean",
    "apps_mcp_product_sku": "string",
    "apps_service.demo": "boolean",
    "apps_service.status_view": ("aggregate", "split"),
    **{
        f"budget.{scope}.{key}": form
        for scope in ("day", "folders.*", "home")
        for key, form in _BUDGET.items()
    },
    "chatgpt_base_url": "string",
    "cli_auth_credentials_store": ("file", "keyring", "auto", "ephemeral"),
    "compact_prompt": "string",
    "default_permissions": "string",
    "experimental_compact_prompt_file": "string",
    "features.apply_patch_streaming_events": "switch",
    "features.apps": "boolean",
    "features.auth_elicitation": "boolean",
    "features.connectors": "boolean",
    "features.default_mode_request_user_input": "switch",
    "features.mcp_tool_list_changed": "boolean",
    **{f"features.network_proxy.{key}": form for key, form in _NETWORK.items()},
    "features.plugins": "switch",
    "features.request_permissions_tool": "switch",
    "features.skill_mcp_dependency_install": "switch",
    "features.tool_suggest": "switch",
    "forced_chatgpt_workspace_id": "string or strings",
    "forced_login_method": ("chatgpt", "api"),
    "hooks": "anything",
    "include_apps_instructions": "boolean",
    "lease_seconds": (3, 600),
    "marketplaces.*.last_revision": "anything",
    "marketplaces.*.last_updated": "anything",
    "marketplaces.*.ref": "anything",
    "marketplaces.*.source": "string",
    "marketplaces.*.source_type": "string",
    "marketplaces.*.sparse_paths": "anything",
    "mcp_oauth_callback_port": "integer",
    "mcp_oauth_callback_url": "string",
    "mcp_oauth_credentials_store": ("auto", "file", "keyring"),
    "mcp_optional_startup_grace_ms": "integer",
    "mcp_servers.*.args": "list of strings",
    "mcp_servers.*.auth": ("oauth", "chatgpt", "ema_auth"),
    "mcp_servers.*.bearer_token": "nothing",
    "mcp_servers.*.bearer_token_env_var": "string",
    "mcp_servers.*.command": "string",
    "mcp_servers.*.cwd": "string",
    "mcp_servers.*.default_tools_approval_mode": _APPROVAL_MODES,
    "mcp_servers.*.disabled_tools": "list of strings",
    "mcp_servers.*.enabled": "boolean",
    "mcp_servers.*.enabled_tools": "list of strings",
    "mcp_servers.*.env": "map of strings",
    "mcp_servers.*.env_http_headers": "map of strings",
    "mcp_servers.*.env_vars.name": "string",
    "mcp_servers.*.env_vars.source": ("local", "remote"),
    "mcp_servers.*.environment_id": "string",
    "mcp_servers.*.http_headers": "map of strings",
    "mcp_servers.*.http_headers_helper": "string",
    "mcp_servers.*.idle_seconds": "seconds",
    "mcp_servers.*.lazy": "boolean",
    "mcp_servers.*.oauth.callback_port": "integer",
    "mcp_servers.*.oauth.callback_url": "string",
    "mcp_servers.*.oauth.client_id": "string",
    "mcp_servers.*.oauth.client_secret_env_var": "string",
    "mcp_servers.*.oauth_resource": "string",
    "mcp_servers.*.omit_tools_from": "list of surfaces",
    "mcp_servers.*.protocol": ("auto", "2025", "2026-07-28"),
    "mcp_servers.*.required": "boolean",
    "mcp_servers.*.scopes": "list of strings",
    "mcp_servers.*.share": ("thread", "folder", "home"),
    "mcp_servers.*.startup_timeout_ms": "integer",
    "mcp_servers.*.startup_timeout_sec": "seconds",
    "mcp_servers.*.supports_parallel_tool_calls": "boolean",
    "mcp_servers.*.tool_timeout_sec": "seconds",
    "mcp_servers.*.tools.*.approval_mode": _APPROVAL_MODES,
    "mcp_servers.*.tools.*.output_token_limit": "integer",
    "mcp_servers.*.url": "string",
    "mcp_switches": "map of booleans",
    "memory_budget_bytes": (1 << 20, 1 << 40),
    "model": "string",
    "model_auto_compact_token_limit": "integer",
    "model_context_window": "integer",
    "model_prices.*.cached": "amount",
    "model_prices.*.currency": "currency",
    "model_prices.*.in": "amount",
    "model_prices.*.out": "amount",
    "model_provider": "string",
    "model_providers.*.base_url": "string",
    "model_providers.*.env_http_headers": "map of strings",
    "model_providers.*.env_key": "string",
    "model_providers.*.experimental_bearer_token": "string",
    "model_providers.*.http_headers": "map of strings",
    "model_providers.*.name": "string",
    "model_providers.*.query_params": "map of strings",
    "model_providers.*.request_max_retries": "integer",
    "model_providers.*.requires_openai_auth": "boolean",
    "model_providers.*.stream_idle_timeout_ms": "integer",
    "model_providers.*.stream_max_retries": "integer",
    "model_providers.*.wire_api": ("responses", "chat"),
    "model_reasoning_effort": "string",
    "model_reasoning_summary": ("auto", "concise", "detailed", "none"),
    "model_supports_search_tool": "boolean",
    "model_verbosity": ("low", "medium", "high"),
    "node_address": "string",
    "node_secret_file": "string",
    "notification_hosts": "list of strings",
    "notification_link": "string",
    "notifications.command": "list of strings",
    "notifications.content": "boolean",
    "notifications.cwd": "string",
    "notifications.desktop": "boolean",
    "notifications.enabled": "boolean",
    "notifications.events": "list of events",
    "notifications.name": "string",
    "notifications.secret_file": "string",
    "notifications.threads": "list of strings",
    "notifications.url": "string",
    "notify": "list of strings",
    "openai_base_url": "string",
    "orchestrator.mcp.enabled": "boolean",
    "orchestrator.skills.enabled": "boolean",
    "otel.environment": "string",
    "otel.metrics_exporter": "exporter",
    "otel.span_attributes": "map of strings",
    "otel.trace_exporter": "exporter",
    "permissions.*.description": "anything",
    "permissions.*.extends": "string",
    "permissions.*.filesystem": "filesystem",
    **{f"permissions.*.network.{key}": form for key, form in _NETWORK.items()},
    "plugins.*.enabled": "boolean",
    "plugins.*.mcp_servers": "table",
    "project_doc_fallback_filenames": "list of strings",
    "project_doc_max_bytes": "integer",
    "project_root_markers": "list of strings",
    "projects.*.trust_level": ("trusted", "untrusted"),
    "refuse_other_users": "boolean",
    "review_model": "string",
    "sandbox_hidden_paths": "list of strings",
    "sandbox_mode": ("read-only", "workspace-write", "danger-full-access"),
    "sandbox_workspace_write.exclude_slash_tmp": "boolean",
    "sandbox_workspace_write.exclude_tmpdir_env_var": "boolean",
    "sandbox_workspace_write.network_access": "boolean",
    "sandbox_workspace_write.writable_roots": "list of strings",
    "service_tier": "string",
    "shell_environment_policy.exclude": "list of strings",
    "shell_environment_policy.ignore_default_excludes": "boolean",
    "shell_environment_policy.include_only": "list of strings",
    "shell_environment_policy.inherit": ("all", "core", "none"),
    "shell_environment_policy.set": "map of strings",
    "skills.config.enabled": "boolean",
    "skills.config.name": "string",
    "skills.config.path": "string",
    "store": "string",
    "thread_events_kept": (256, 4096),
    "thread_events_kept_bytes": (64 << 10, 8 << 20),
    "thread_unload_delay_secs": "integer",
    "tool_output_token_limit": "integer",
    "tool_suggest": "suggestions",
    "tools.apply_patch.enabled": "boolean",
    "tools.update_plan.enabled": "boolean",
    "tools.web_search.allowed_domains": "list of strings",
    "tools.web_search.context_size": ("low", "medium", "high"),
    "tools.web_search.location.city": "string",
    "tools.web_search.location.country": "string",
    "tools.web_search.location.region": "string",
    "tools.web_search.location.timezone": "string",
    "wakes": "boolean",
    "web_search": ("disabled", "cached", "indexed", "live"),
}
"""Keys that this server reads, with what their readers take.

tests/config/test_config_schema.py compares each shape with the check of settings, value by value.
"""

IN_PLACE_OF_TABLES: Mapping[str, Form] = {
    "approval_policy": ("untrusted", "on-request", "on-failure", "never", "granular"),
    "features.network_proxy": "boolean",
    "mcp_servers.*.env_vars": "string",
    "notifications": "string",
    "skills.config": "string",
    "tools.web_search": "boolean",
}
"""Values that may stand where KNOWN has a table, or, in a list of tables, an element."""

LISTS_OF_TABLES = ("mcp_servers.*.env_vars", "notifications", "skills.config")
"""Keys of KNOWN whose tables stand in a list."""

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
