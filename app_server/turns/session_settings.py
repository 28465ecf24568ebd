"""Configuration of a thread's turns, read when the thread is loaded.

Source: docs/config.md, "Models", "Threads".
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, cast

import anyio.to_thread

from app_server.config.values import Config, ConfigError, ConfigView
from app_server.mcp.tools.call_contents import BYTES_PER_TOKEN, DEFAULT_MODEL_BYTES
from app_server.models.catalogue.models import ModelSettings, read_model_settings
from app_server.permissions.environment import CommandSettings, read_command_settings
from app_server.permissions.network import NetworkTable, read_network_feature
from app_server.permissions.sandbox.roots import MachinePaths, with_hidden_paths
from app_server.runtime.user_paths import expand_user
from protocol.model import JsonObject

WebSearchMode: TypeAlias = Literal["disabled", "cached", "indexed", "live"]

WEB_SEARCH_MODES = ("disabled", "cached", "indexed", "live")
CONTEXT_SIZES = ("low", "medium", "high")
LOCATION = ("country", "region", "city", "timezone")


@dataclass(frozen=True, slots=True)
class WebSearchSettings:
    """Mode and members of the declaration of the search."""

    mode: WebSearchMode | None = None
    """None leaves it to the model and its provider."""
    members: JsonObject = field(default_factory=dict)
    """Of the declaration: `filters`, `user_location`, `search_context_size`."""


def read_web_search(view: ConfigView) -> WebSearchSettings:
    """Read `web_search` and `[tools.web_search]`, which may be a boolean.

    Raises:
        ConfigError: a value has the wrong type.
    """
    mode = view.choice("web_search", WEB_SEARCH_MODES)
    tools = view.at("tools")
    if isinstance(tools.table.get("web_search"), bool):
        is_wanted = tools.boolean("web_search", default=False)
        return WebSearchSettings(_web_search_mode(mode or ("live" if is_wanted else "disabled")))
    table = tools.at("web_search")
    members: JsonObject = {}
    if domains := table.strings("allowed_domains"):
        members["filters"] = {"allowed_domains": domains}
    location = table.at("location")
    if place := {key: value for key in LOCATION if (value := location.string(key)) is not None}:
        members["user_location"] = {"type": "approximate", **place}
    if size := table.choice("context_size", CONTEXT_SIZES):
        members["search_context_size"] = size
    return WebSearchSettings(_web_search_mode(mode), members)


def _web_search_mode(name: str | None) -> WebSearchMode | None:
    return cast(WebSearchMode | None, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Settings that do not change while a thread is loaded."""

    model: ModelSettings
    compact_prompt: str | None
    """Prompt for compaction; None means the built-in one."""
    output_limit_bytes: int
    requests_permissions: bool
    """Whether the model may ask for more than the sandbox allows."""
    web_search: WebSearchSettings
    asks_in_every_mode: bool
    """Whether the model may ask the user something outside of plan mode too."""
    offers_plans: bool
    """Whether the model may show its plan with a tool."""
    offers_patches: bool
    """Whether the model has a tool for patches; those in shell commands are read all the same."""
    shows_patches_early: bool
    """Whether clients see a patch while the model writes it."""
    commands: CommandSettings
    machine_paths: MachinePaths
    """Paths of this machine that a sandbox policy needs."""
    reads_server_skills: bool
    """Whether the model may read skills that MCP servers have."""
    installs_skill_servers: bool
    """Whether the user is offered MCP servers that skills need."""
    review_model: str | None
    """The model that reviews code; None: the thread's own."""
    network_proxy: NetworkTable | None
    """Proxy settings for commands that have a network; None: they have it without a proxy."""
    offers_wakes: bool
    """Whether the model may have its thread woken."""
    approval_timeout_s: float | None
    """For the user to answer a question about an action; None means without limit."""


REQUESTS_PERMISSIONS = "request_permissions_tool"
INSTALLS_SKILL_SERVERS = "skill_mcp_dependency_install"
ASKS_IN_EVERY_MODE = "default_mode_request_user_input"
SHOWS_PATCHES_EARLY = "apply_patch_streaming_events"
MAX_PROMPT_BYTES = 64 * 1024

FILE_KEY = "experimental_compact_prompt_file"


async def read_session_settings(config: Config, machine_paths: MachinePaths) -> SessionSettings:
    """Read the settings; `machine_paths` are those of the whole server.

    Raises:
        ConfigError: a value does not fit.
    """
    view = config.view()
    tokens = view.integer("tool_output_token_limit")
    features = view.at("features")
    return SessionSettings(
        review_model=view.string("review_model"),
        web_search=read_web_search(view),
        offers_plans=_is_offered(view, "update_plan"),
        offers_patches=_is_offered(view, "apply_patch"),
        asks_in_every_mode=features.boolean(ASKS_IN_EVERY_MODE, default=False),
        shows_patches_early=features.boolean(SHOWS_PATCHES_EARLY, default=False),
        reads_server_skills=view.at("orchestrator").at("skills").boolean("enabled", default=False),
        installs_skill_servers=features.boolean(INSTALLS_SKILL_SERVERS, default=True),
        requests_permissions=features.boolean(REQUESTS_PERMISSIONS, default=False),
        model=read_model_settings(config),
        compact_prompt=await read_compact_prompt(view),
        offers_wakes=view.boolean("wakes", default=False),
        approval_timeout_s=view.seconds("approval_timeout_s"),
        output_limit_bytes=(
            DEFAULT_MODEL_BYTES if tokens is None else int(tokens * BYTES_PER_TOKEN)
        ),
        commands=read_command_settings(config),
        machine_paths=with_hidden_paths(config, machine_paths),
        network_proxy=read_network_feature(config),
    )


def _is_offered(view: ConfigView, tool: str) -> bool:
    return view.at("tools").at(tool).boolean("enabled", default=True)


async def read_compact_prompt(view: ConfigView) -> str | None:
    """Read the user's own instructions for summaries: a text, else a file; None means ours.

    Raises:
        ConfigError: the file cannot be read, is blank, or is larger than MAX_PROMPT_BYTES.
    """
    text = (view.string("compact_prompt") or "").strip()
    path = view.string(FILE_KEY)
    if text or path is None:
        return text or None
    return await anyio.to_thread.run_sync(_read, view, Path(path))


def _read(view: ConfigView, path: Path) -> str:
    source = view.config.source
    file = expand_user(path) if source is None else source.parent / expand_user(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_PROMPT_BYTES + 1)
        text = content.decode().strip()
    except OSError as exc:
        raise _problem(view, file, f"cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise _problem(view, file, "is not UTF-8") from exc
    except ValueError as exc:
        # A path with a null character.
        raise _problem(view, file, f"cannot be read: {exc}") from exc
    if len(content) > MAX_PROMPT_BYTES:
        raise _problem(view, file, f"is larger than {MAX_PROMPT_BYTES} bytes")
    if not text:
        raise _problem(view, file, "is empty")
    return text


def _problem(view: ConfigView, file: Path, what: str) -> ConfigError:
    return view.error(f"experimental compact prompt file {file} {what}", FILE_KEY)
