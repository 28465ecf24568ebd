"""`[mcp_servers.<name>]`: one table a server, one transport a table.

Source: docs/config.md, "MCP servers".
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from pydantic import SecretStr

from app_server.config.requirements import ServerIdentity, requirements_of
from app_server.config.values import Config, ConfigView
from app_server.extension.metadata import NO_METADATA, RuntimeMetadata
from app_server.extension.registration import Owner
from app_server.mcp.catalog.managed_policy import may_run
from app_server.mcp.tools.listing import Listing
from app_server.mcp_wire.bounds import MAX_MESSAGE_BYTES
from app_server.runtime.launch import Launch
from protocol.model import Json

DEFAULT_STARTUP_S = 30.0
DEFAULT_CALL_S = 300.0
FIRST_LOOK_S = 5.0
"""For what extensions have to read or fetch before they know their servers, unless the grace is
configured. A first turn without the tools that it needs costs more than this wait."""

DEFAULT_GRACE_MS = 1000
LOCAL = "local"
REMOTE = "remote"

VALID_NAME = re.compile(r"[a-zA-Z0-9_:@/.-]+")

SURFACES = ("code_mode", "deferred", "direct")
AUTH_FLOWS = ("oauth", "chatgpt", "ema_auth")
CREDENTIAL_STORES = ("auto", "file", "keyring")
MAX_PORT = 65_535

APPROVAL_MODES = ("auto", "prompt", "writes", "approve")

INHERITED_VARIABLES = (
    *("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("PIP_CERT", "GIT_SSL_CAINFO"),
)
"""All that a process gets of its parent's environment, unless it is configured to get more."""

_HTTP_ONLY = (
    *("bearer_token_env_var", "bearer_token", "http_headers", "env_http_headers"),
    *("http_headers_helper", "oauth", "oauth_resource", "auth"),
)
_STDIO_ONLY = ("args", "env", "env_vars", "cwd", "bearer_token")


class ServerUnavailable(Exception):
    """A server cannot be started as it is configured; the text goes into its status."""


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """A server that is a child process."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    env_vars: Sequence[str] = ()
    """Variables of ours that the process gets too."""
    cwd: str | None = None
    """None: where the thread works; in another environment where its exec server works."""
    remote_env_vars: Sequence[str] = ()
    """Variables of the exec server that the process gets too, in another environment."""

    def launch(self, environment_id: str, cwd: str) -> Launch:
        """Say what is to be started there; `cwd` is where the thread works, which is here."""
        is_local = environment_id == LOCAL
        ours = {name: os.environ[name] for name in self.env_vars if name in os.environ}
        return Launch(
            command=self.command,
            args=self.args,
            env={**ours, **self.env},
            inherited=(*INHERITED_VARIABLES, *(() if is_local else self.remote_env_vars)),
            cwd=self.cwd or (cwd if is_local else None),
            read_limit_bytes=MAX_MESSAGE_BYTES,
        )


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """How a server behind a URL is signed in to, and where its token is kept."""

    home: Path | None = None
    """The folder with the credentials; None: there is none, and no sign-in."""
    store: str = "auto"
    """`auto`, `file` or `keyring`."""
    client_id: str | None = None
    """Registered beforehand; None: we register ourselves."""
    callback_url: str | None = None
    """What the authorization server sends the browser back to; None: our own port."""
    callback_port: int | None = None
    """Where we listen for it on 127.0.0.1; None: any free port."""
    resource: str | None = None
    """What tokens are asked for; None: what the server calls itself."""
    scopes: Sequence[str] | None = None
    """None: what the server asks for."""


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """A server behind a URL, spoken to by Streamable HTTP."""

    url: str
    bearer_token_env_var: str | None = None
    http_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    env_http_headers: Mapping[str, str] = field(default_factory=dict)
    header_command: str | None = field(default=None, repr=False)
    """Prints more headers (`http_headers_helper`); it may hold a secret itself."""
    auth: str = "oauth"
    """The flow for servers without credentials in their headers; only `oauth` is known here."""
    oauth: OAuthSettings = field(default_factory=OAuthSettings)
    bearer: SecretStr | None = None
    """Of a server that was registered at run time; never from a file."""

    def headers(self, server: str) -> dict[str, str]:
        """Assemble the headers of every request.

        Raises:
            ServerUnavailable: the variable of the bearer token is not set.
        """
        headers = dict(self.http_headers)
        for name, variable in self.env_http_headers.items():
            if value := os.environ.get(variable):
                headers[name] = value
        if self.bearer_token_env_var is not None:
            token = os.environ.get(self.bearer_token_env_var)
            if not token:
                raise ServerUnavailable(
                    f"Environment variable {self.bearer_token_env_var} for MCP server "
                    f"'{server}' is not set"
                )
            headers["Authorization"] = f"Bearer {token}"
        if self.bearer is not None:
            headers["Authorization"] = f"Bearer {self.bearer.get_secret_value()}"
        return headers

    @property
    def has_credentials(self) -> bool:
        """Whether a bearer token or an Authorization header is configured, set or not."""
        if self.bearer is not None:
            return True
        names = {name.lower() for name in (*self.http_headers, *self.env_http_headers)}
        return self.bearer_token_env_var is not None or "authorization" in names

    @property
    def signs_in(self) -> bool:
        """Whether stored tokens are used for it."""
        return self.auth == "oauth" and not self.has_credentials and self.oauth.home is not None

    @property
    def origin(self) -> str | None:
        """Scheme, host and port, as status lists show it; None for what is no URL."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return None
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else None


Transport: TypeAlias = StdioTransport | HttpTransport


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server. `name` is its raw identity everywhere."""

    name: str
    transport: Transport
    enabled: bool = True
    required: bool = False
    """A thread does not start without it."""
    allowed: bool = True
    """Whether an administrator lets it run; if not it is disabled, too."""
    environment_id: str = LOCAL
    startup_timeout_s: float = DEFAULT_STARTUP_S
    """For the handshake and the first list of tools."""
    tool_timeout_s: float = DEFAULT_CALL_S
    enabled_tools: Sequence[str] | None = None
    disabled_tools: Sequence[str] = ()
    approval_mode: str | None = None
    tool_approval_modes: Mapping[str, str] = field(default_factory=dict)
    supports_parallel_calls: bool = False
    """Tools that write may run beside others, too."""
    tool_output_tokens: Mapping[str, int] = field(default_factory=dict)
    """Bounds of what the model reads of single tools, by raw name."""
    omit_from: Sequence[str] = ()
    """Surfaces on which the model does not see the server's tools."""
    is_registered: bool = False
    """Whether it was registered at run time: no file knows it, and nobody signs in to it."""
    owner: Owner | None = None
    """Keeps alive what serves it; leased for as long as it is used."""
    metadata: RuntimeMetadata = NO_METADATA
    known: Listing | None = field(default=None, repr=False)
    """What it says of itself, if whoever registered it knows; it is then connected to when used."""

    @property
    def folder(self) -> str | None:
        """The working folder that is configured for its process."""
        return self.transport.cwd if isinstance(self.transport, StdioTransport) else None

    def allows(self, tool: str) -> bool:
        """Whether the filters let a raw tool name through."""
        if self.enabled_tools is not None and tool not in self.enabled_tools:
            return False
        return tool not in self.disabled_tools

    def approval_mode_of(self, tool: str) -> str:
        """Return the approval mode in force for a raw tool name."""
        return self.tool_approval_modes.get(tool) or self.approval_mode or "auto"

    def shows_tools_on(self, surface: str) -> bool:
        """Whether the model sees the tools there: `direct` or `deferred`."""
        return surface not in self.omit_from


@dataclass(frozen=True, slots=True)
class McpSettings:
    """Everything a thread's servers need to know."""

    servers: Mapping[str, ServerConfig]
    startup_grace_s: float | None = DEFAULT_GRACE_MS / 1000
    """How long the first model request waits for servers that start; None: until they have."""
    first_look_s: float | None = FIRST_LOOK_S
    """How long it waits before for extensions to look for servers; None: until they have."""
    follows_list_changes: bool = False
    """Whether tools are listed again when a server says that they changed."""
    surface: str = "direct"
    """How the model sees tools: `direct`, all of them, or `deferred`, those that it searches."""


def credential_variables(servers: Iterable[ServerConfig]) -> frozenset[str]:
    """Return the names of variables that hold what servers are signed in to with."""
    names: set[str] = set()
    for server in servers:
        if isinstance(server.transport, HttpTransport):
            names.update(server.transport.env_http_headers.values())
            names.update(filter(None, [server.transport.bearer_token_env_var]))
    return frozenset(names)


def read_mcp_settings(config: Config) -> McpSettings:
    """Read all servers, sorted by name; those that an administrator does not allow are disabled.

    Raises:
        ConfigError: a table has no transport, two, or a value that does not fit.
    """
    view = config.view()
    grace_ms = view.integer("mcp_optional_startup_grace_ms")
    first_look_s: float | None = FIRST_LOOK_S
    if grace_ms is None:
        grace_ms = DEFAULT_GRACE_MS
    else:
        first_look_s = grace_ms / 1000 if grace_ms else None
    demanded = requirements_of(config).servers
    return McpSettings(
        {
            name: _read_server(name, table, demanded)
            for name, table in sorted(view.at("mcp_servers").tables())
        },
        grace_ms / 1000 if grace_ms else None,
        first_look_s,
        view.at("features").boolean("mcp_tool_list_changed", default=False),
        "deferred" if view.boolean("model_supports_search_tool", default=False) else "direct",
    )


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
    return _read_server(name, config.view().at("mcp_servers").at(name), demanded)


def _read_server(
    name: str, view: ConfigView, demanded: Mapping[str, ServerIdentity] | None
) -> ServerConfig:
    transport = _read_transport(view)
    allowed = may_run(name, demanded, command=view.string("command"), url=view.string("url"))
    startup_ms = view.integer("startup_timeout_ms")
    startup_s = view.seconds("startup_timeout_sec")
    if startup_s is None:
        startup_s = DEFAULT_STARTUP_S if startup_ms is None else startup_ms / 1000
    call_s = view.seconds("tool_timeout_sec")
    budgets = {
        tool: limit
        for tool, table in view.at("tools").tables()
        if (limit := _read_budget(table)) is not None
    }
    modes = {
        tool: mode
        for tool, table in view.at("tools").tables()
        if (mode := table.choice("approval_mode", APPROVAL_MODES)) is not None
    }
    return ServerConfig(
        name=name,
        transport=transport,
        enabled=view.boolean("enabled", default=True) and allowed,
        allowed=allowed,
        required=view.boolean("required", default=False),
        environment_id=view.string("environment_id") or LOCAL,
        startup_timeout_s=startup_s,
        tool_timeout_s=DEFAULT_CALL_S if call_s is None else call_s,
        enabled_tools=view.strings("enabled_tools"),
        disabled_tools=view.strings("disabled_tools") or (),
        approval_mode=view.choice("default_tools_approval_mode", APPROVAL_MODES),
        tool_approval_modes=modes,
        supports_parallel_calls=view.boolean("supports_parallel_tool_calls", default=False),
        tool_output_tokens=budgets,
        omit_from=view.choices("omit_tools_from", SURFACES),
    )


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
    return OAuthSettings(
        home=None if source is None else source.parent,
        store=everyone.choice("mcp_oauth_credentials_store", CREDENTIAL_STORES) or "auto",
        client_id=own.string("client_id"),
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
