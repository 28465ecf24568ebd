"""`[mcp_servers.<name>]`: one table a server, one transport a table.

Source: docs/config.md, "MCP servers".
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pydantic_core import to_json

from app_server.config.requirements import ServerIdentity, requirements_of
from app_server.config.values import Config, ConfigError, ConfigView
from app_server.mcp.catalog.config import (
    DEFAULT_CALL_S,
    DEFAULT_GRACE_MS,
    DEFAULT_IDLE_S,
    DEFAULT_STARTUP_S,
    LOCAL,
    REMOTE,
    HttpTransport,
    McpSettings,
    OAuthSettings,
    ServerConfig,
    StdioTransport,
    Transport,
)
from protocol.model import Json

SURFACES = ("code_mode", "deferred", "direct")
AUTH_FLOWS = ("oauth", "chatgpt", "ema_auth")
PROTOCOLS = ("auto", "2025", "2026-07-28")
CREDENTIAL_STORES = ("auto", "file", "keyring")
APPROVAL_MODES = ("auto", "prompt", "writes", "approve")
SHARES = ("thread", "folder", "home")
MAX_PORT = 65_535
MIN_IDLE_S, MAX_IDLE_S = 1.0, 86_400.0

_HTTP_ONLY = (
    *("bearer_token_env_var", "bearer_token", "http_headers", "env_http_headers"),
    *("http_headers_helper", "oauth", "oauth_resource", "auth"),
)
_FOR_EVERYONE = (
    *("mcp_oauth_credentials_store", "mcp_oauth_callback_url", "mcp_oauth_callback_port"),
)
_STDIO_ONLY = ("args", "env", "env_vars", "cwd", "bearer_token")


def read_mcp_settings(config: Config) -> McpSettings:
    """Read all servers, sorted by name; disable the ones that an administrator does not allow.

    A server whose table in a file is wrong has a `problem`, so that all others start.

    Raises:
        ConfigError: a table that the command line or a client has a part in has no transport, two,
            or a value that does not fit; or a setting for all servers does not fit.
    """
    view = config.view()
    grace_ms = view.integer("mcp_optional_startup_grace_ms")
    if grace_ms is None:
        grace_ms = DEFAULT_GRACE_MS
    demanded = requirements_of(config).servers
    tables = view.at("mcp_servers")
    return McpSettings(
        _read_servers(config, tables, demanded),
        grace_ms / 1000 if grace_ms else None,
        view.at("features").boolean("mcp_tool_list_changed", default=True),
        "deferred" if view.boolean("model_supports_search_tool", default=False) else "direct",
        _read_switches(view.at("mcp_switches")),
    )


def _read_servers(
    config: Config, tables: ConfigView, demanded: Mapping[str, ServerIdentity] | None
) -> Mapping[str, ServerConfig]:
    everyone = _read_by_everyone(config)
    read_from = to_json([tables.table, everyone, demanded], inf_nan_mode="constants")
    if (known := _READ_TOGETHER.get(read_from)) is not None:
        return known
    servers = {}
    for name in sorted(tables.table):
        try:
            servers[name] = _read_server(name, tables.at(name), everyone, demanded)
        except ConfigError as exc:
            if config.source is None or _is_on_top(config, name):
                raise
            servers[name] = _unusable_server(name, tables.table[name], demanded, exc)
    # A problem names a place in a file.
    if all(server.problem is None for server in servers.values()):
        if len(_READ_TOGETHER) >= MAX_READ_TOGETHER:
            del _READ_TOGETHER[next(iter(_READ_TOGETHER))]
        _READ_TOGETHER[read_from] = servers
    return servers


def _read_switches(view: ConfigView) -> Mapping[str, bool]:
    found = {name: view.boolean(name, default=None) for name in view.table}
    return {name: enabled for name, enabled in found.items() if enabled is not None}


def _is_on_top(config: Config, name: str) -> bool:
    """Whether the command line or a client has a part in the table of a server."""
    on_top = Config({})
    for layer in config.layers:
        on_top = on_top.override(layer)
    tables = on_top.document.get("mcp_servers")
    return isinstance(tables, dict) and name in tables


def broken_servers(config: Config) -> Mapping[str, ConfigError]:
    """Return what is wrong with single tables of servers, by name."""
    contradictions: dict[str, ConfigError] = {}
    view = config.view().at("mcp_servers")
    for name in sorted(view.table):
        # A table that is none is among those that follow.
        with suppress(ConfigError):
            table = view.at(name)
            try:
                _read_life(table)
            except ConfigError as exc:
                contradictions[name] = exc
    return {**contradictions, **unreadable_servers(config)}


def unreadable_servers(config: Config) -> Mapping[str, ConfigError]:
    """Return what is wrong with tables of servers in keys that Codex has too, by name."""
    demanded = requirements_of(config).servers
    view = config.view().at("mcp_servers")
    everyone = _read_by_everyone(config)
    broken = {}
    for name in sorted(view.table):
        try:
            _read_server(name, view.at(name), everyone, demanded)
        except ConfigError as exc:
            broken[name] = exc
    return broken


def without_servers(config: Config, names: Collection[str]) -> Config:
    """Return the settings as they would be without these servers."""
    if not names:
        return config
    kept = {
        name: table for name, table in config.document["mcp_servers"].items() if name not in names
    }
    return replace(config, document={**config.document, "mcp_servers": kept})


def parse_server(
    name: str,
    table: Mapping[str, Json],
    demanded: Mapping[str, ServerIdentity] | None = None,
    everyone: Config | None = None,
) -> ServerConfig:
    """Read the table of one server that stands in no file.

    `demanded` is what an administrator lets run. `everyone` are the settings for all servers; only
    with them a sign-in to the server is kept.

    Raises:
        ConfigError: see `read_mcp_settings`.
    """
    document = {} if everyone is None else everyone.document
    source = None if everyone is None else everyone.source
    path = frozenset({("mcp_servers",)})
    config = Config({**document, "mcp_servers": {name: dict(table)}}, source, overridden=path)
    view = config.view().at("mcp_servers").at(name)
    return _read_server(name, view, _read_by_everyone(config), demanded)


_READ_TOGETHER: dict[bytes, Mapping[str, ServerConfig]] = {}
"""All servers of what was read last, by value of that: most threads have the same."""

MAX_READ_TOGETHER = 16
"""Of those; the ones that were read first go."""

_READ: dict[bytes, ServerConfig] = {}
"""What was read last, by value of all that it was read from: threads share it."""

MAX_READ = 256
"""Servers of which that is kept; the one that was read first goes."""


def _read_by_everyone(config: Config) -> list[Json]:
    """Return what each server is read from besides its table."""
    return [str(config.source), [config.document.get(key) for key in _FOR_EVERYONE]]


def _read_server(
    name: str,
    view: ConfigView,
    everyone: list[Json],
    demanded: Mapping[str, ServerIdentity] | None,
) -> ServerConfig:
    read_from = to_json(
        [name, view.table, everyone, demanded is None or demanded.get(name)],
        # Python takes a flag for a number, and JSON does not.
        inf_nan_mode="constants",
    )
    config = _READ.get(read_from)
    if config is None:
        config = _read_anew(name, view, demanded)
        # A problem names a place in a file.
        if config.problem is None:
            if len(_READ) >= MAX_READ:
                del _READ[next(iter(_READ))]
            _READ[read_from] = config
    return config


def _read_anew(
    name: str, view: ConfigView, demanded: Mapping[str, ServerIdentity] | None
) -> ServerConfig:
    transport = _read_transport(view)
    allowed = demanded is None or _is_demanded(transport, demanded.get(name))
    startup_ms = view.integer("startup_timeout_ms")
    startup_s = view.seconds("startup_timeout_sec")
    if startup_s is None:
        startup_s = DEFAULT_STARTUP_S if startup_ms is None else startup_ms / 1000
    call_s = view.seconds("tool_timeout_sec")
    tools = dict(view.at("tools").tables())
    budgets = {tool: _read_budget(table) for tool, table in tools.items()}
    modes = {tool: table.choice("approval_mode", APPROVAL_MODES) for tool, table in tools.items()}
    required = view.boolean("required", default=False)
    life, problem = _LifeSettings(), None
    try:
        life = _read_life(view)
    except ConfigError as exc:
        problem = _with_key(exc)
        # Of two settings that contradict each other neither holds, so that other servers go on.
        required = required and exc.path[-1] != "lazy"
    return ServerConfig(
        name=name,
        transport=transport,
        enabled=view.boolean("enabled", default=True) and allowed,
        allowed=allowed,
        required=required,
        protocol=life.protocol,
        share=life.share,
        lazy=life.lazy,
        idle_s=life.idle_s,
        problem=problem,
        environment_id=view.string("environment_id") or LOCAL,
        startup_timeout_s=startup_s,
        tool_timeout_s=DEFAULT_CALL_S if call_s is None else call_s,
        enabled_tools=view.strings("enabled_tools"),
        disabled_tools=view.strings("disabled_tools") or (),
        approval_mode=view.choice("default_tools_approval_mode", APPROVAL_MODES),
        tool_approval_modes={tool: mode for tool, mode in modes.items() if mode is not None},
        supports_parallel_calls=view.boolean("supports_parallel_tool_calls", default=False),
        tool_output_tokens={tool: limit for tool, limit in budgets.items() if limit is not None},
        omit_from=view.choices("omit_tools_from", SURFACES),
    )


def _unusable_server(
    name: str,
    table: Json,
    demanded: Mapping[str, ServerIdentity] | None,
    error: ConfigError,
) -> ServerConfig:
    """Keep the place of a server that cannot be started as it is configured."""
    found = table if isinstance(table, dict) else {}
    url = found.get("url")
    transport = HttpTransport(url) if isinstance(url, str) else StdioTransport("")
    allowed = demanded is None or name in demanded
    return ServerConfig(
        name=name,
        transport=transport,
        enabled=found.get("enabled") is not False and allowed,
        allowed=allowed,
        required=found.get("required") is True,
        problem=_with_key(error),
    )


@dataclass(frozen=True, slots=True)
class _LifeSettings:
    """How long a server runs, and for whom."""

    protocol: str = "auto"
    share: str | None = None
    lazy: bool = False
    idle_s: float = DEFAULT_IDLE_S


def _read_life(view: ConfigView) -> _LifeSettings:
    """Read the keys whose faults concern their own server alone.

    Raises:
        ConfigError: a value does not fit, or contradicts another one.
    """
    share = view.choice("share", SHARES)
    lazy = view.boolean("lazy", default=False)
    idle_s = view.seconds("idle_seconds")
    if idle_s is not None and not MIN_IDLE_S <= idle_s <= MAX_IDLE_S:
        text = f"invalid value: {idle_s:g}, expected {MIN_IDLE_S:g} to {MAX_IDLE_S:g} seconds"
        raise view.error(text, "idle_seconds")
    if lazy and view.boolean("required", default=False):
        raise view.error("`lazy` contradicts `required`", "lazy")
    if share == "home" and "http_headers_helper" in view:
        raise view.error(
            "`share` contradicts `http_headers_helper`, which runs in the folder of each thread; "
            "`folder` can be shared",
            "share",
        )
    return _LifeSettings(
        protocol=view.choice("protocol", PROTOCOLS) or "auto",
        share=share,
        lazy=lazy,
        idle_s=DEFAULT_IDLE_S if idle_s is None else idle_s,
    )


def _with_key(error: ConfigError) -> str:
    text, key = str(error).strip(), f"`{'.'.join(error.path)}`"
    return text if key in text else f"{text}\nin {key}"


def _is_demanded(transport: Transport, identity: ServerIdentity | None) -> bool:
    """Whether a server is what an administrator listed under its name.

    Values are compared as they are configured; arguments and variables do not matter.
    Source: docs/config.md, "Requirements".
    """
    if identity is None:
        return False
    if isinstance(transport, StdioTransport):
        return transport.command == identity.command
    return transport.url == identity.url


def _read_budget(view: ConfigView) -> int | None:
    limit = view.integer("output_token_limit")
    if limit == 0:
        raise view.error(
            "invalid value: integer `0`, expected a nonzero usize", "output_token_limit"
        )
    return limit


def _read_transport(view: ConfigView) -> Transport:
    command, url = view.string("command"), view.string("url")
    if command is not None:
        _refuse(view, ("url", *_HTTP_ONLY), "stdio")
        return StdioTransport(
            command=command,
            args=view.strings("args") or (),
            env=view.string_map("env") or {},
            env_vars=_read_env_vars(view, LOCAL),
            cwd=view.string("cwd"),
            remote_env_vars=_read_env_vars(view, REMOTE),
        )
    if url is not None:
        _refuse(view, _STDIO_ONLY, "streamable_http")
        return HttpTransport(
            url=url,
            bearer_token_env_var=view.string("bearer_token_env_var"),
            http_headers=view.string_map("http_headers") or {},
            env_http_headers=view.string_map("env_http_headers") or {},
            header_command=_read_header_command(view),
            auth=view.choice("auth", AUTH_FLOWS) or "oauth",
            oauth=_read_oauth(view),
        )
    raise view.error("invalid transport")


def _read_header_command(view: ConfigView) -> str | None:
    command = view.string("http_headers_helper")
    if command is not None and not command.strip():
        raise view.error("http_headers_helper must not be empty")
    return command


def _read_oauth(view: ConfigView) -> OAuthSettings:
    everyone, own = view.config.view(), view.at("oauth")
    source = view.config.source
    port = _port(own, "callback_port")
    client_id, secret = own.string("client_id"), own.string("client_secret_env_var")
    if secret is not None and client_id is None:
        raise own.error("client_secret_env_var needs client_id", "client_secret_env_var")
    return OAuthSettings(
        home=None if source is None else source.parent,
        store=everyone.choice("mcp_oauth_credentials_store", CREDENTIAL_STORES) or "auto",
        client_id=client_id,
        client_secret_env_var=secret,
        callback_url=own.string("callback_url") or everyone.string("mcp_oauth_callback_url"),
        callback_port=_port(everyone, "mcp_oauth_callback_port") if port is None else port,
        resource=view.string("oauth_resource"),
        scopes=view.strings("scopes"),
    )


def _port(view: ConfigView, key: str) -> int | None:
    port = view.integer(key)
    if port is not None and port > MAX_PORT:
        raise view.error(f"invalid value: integer `{port}`, expected u16", key)
    return port


def _refuse(view: ConfigView, keys: Sequence[str], transport: str) -> None:
    for key in keys:
        if key in view:
            raise view.error(f"{key} is not supported for {transport}")


def _read_env_vars(view: ConfigView, wanted: str) -> list[str]:
    names = []
    for entry in view.items("env_vars"):
        if isinstance(entry, str):
            if wanted == LOCAL:
                names.append(entry)
            continue
        name, source = entry.string("name"), entry.string("source") or LOCAL
        if source not in (LOCAL, REMOTE):
            raise entry.error(
                f"unsupported env_vars source `{source}`; expected `local` or `remote`"
            )
        if name is None:
            raise entry.error("missing field `name`")
        if source == wanted:
            names.append(name)
    return names
