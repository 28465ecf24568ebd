"""Servers and their settings, as values.

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

from app_server.extensions.contract.registration import NO_METADATA, Owner, RuntimeMetadata
from app_server.mcp.tools.listing import Listing
from app_server.runtime.launch import Launch

DEFAULT_STARTUP_S = 30.0
DEFAULT_CALL_S = 300.0
DEFAULT_GRACE_MS = 1000
DEFAULT_IDLE_S = 600.0
LOCAL = "local"
REMOTE = "remote"

VALID_NAME = re.compile(r"[a-zA-Z0-9_:@/.-]+")

INHERITED_VARIABLES = (
    *("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("PIP_CERT", "GIT_SSL_CAINFO"),
)
"""All that a process gets of its parent's environment, unless it is configured to get more."""


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
        remote = () if environment_id == LOCAL else self.remote_env_vars
        return Launch(
            command=self.command,
            args=self.args,
            env=self.variables(),
            inherited=(*INHERITED_VARIABLES, *remote),
            cwd=self.folder(environment_id, cwd),
        )

    def variables(self) -> dict[str, str]:
        """Return the variables that it gets besides those that every process inherits."""
        if not self.env_vars:
            return dict(self.env)
        ours = {name: os.environ[name] for name in self.env_vars if name in os.environ}
        return {**ours, **self.env}

    def folder(self, environment_id: str, cwd: str) -> str | None:
        """Return its working folder there; `cwd` is where the thread works, which is here."""
        return self.cwd or (cwd if environment_id == LOCAL else None)


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The OAuth settings of a server with a URL, and the store of its token."""

    home: Path | None = None
    """The folder with the credentials; None: there is none, and no sign-in."""
    store: str = "auto"
    """`auto`, `file` or `keyring`."""
    client_id: str | None = None
    """Registered beforehand, or the address of a client metadata document; None: we register."""
    client_secret_env_var: str | None = None
    """The variable with the secret of `client_id`; None: it has none."""
    callback_url: str | None = None
    """The redirect URI of the authorization request; None: one on our own port."""
    callback_port: int | None = None
    """The port on 127.0.0.1 that listens for the redirect; None: any free port."""
    resource: str | None = None
    """The `resource` of token requests (RFC 8707); None: the one that the server names."""
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
            token = _variable(self.bearer_token_env_var, server)
            headers["Authorization"] = f"Bearer {token}"
        if self.bearer is not None:
            headers["Authorization"] = f"Bearer {self.bearer.get_secret_value()}"
        return headers

    def client_secret(self, server: str) -> str | None:
        """Return the configured secret of the OAuth client, None if there is none.

        Raises:
            ServerUnavailable: its variable is not set.
        """
        variable = self.oauth.client_secret_env_var
        return None if variable is None else _variable(variable, server)

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


def _variable(name: str, server: str) -> str:
    if not (value := os.environ.get(name)):
        raise ServerUnavailable(f"Environment variable {name} for MCP server '{server}' is not set")
    return value


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
    protocol: str = "auto"
    """Revisions of MCP to speak: `2025`, `2026-07-28`, or `auto`, the newest that it knows."""
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
    """Whether it was registered at run time: it is in no file, and has no sign-in."""
    owner: Owner | None = None
    """Keeps alive what serves it; leased for as long as it is used."""
    metadata: RuntimeMetadata = NO_METADATA
    known: Listing | None = field(default=None, repr=False)
    """The listing that its registration gave; with one, the connection is opened at first use."""
    share: str | None = None
    """Threads that use one process or session: `thread`, `folder` or `home`; None: `thread`, and
    `home` for a server behind a URL, or of a newer revision, that keeps no session."""
    lazy: bool = False
    """Whether it is started by its first call, or to be listed where its tools are unknown."""
    idle_s: float = DEFAULT_IDLE_S
    """Without use, after which a shared or lazy server is ended until it is used again."""
    problem: str | None = None
    """Why it cannot be started as it is configured, with the place; others are not concerned."""

    @property
    def folder(self) -> str | None:
        """The working folder that is configured for its process."""
        return self.transport.cwd if isinstance(self.transport, StdioTransport) else None

    def allows(self, tool: str) -> bool:
        """Whether the filters let a raw tool name through."""
        if tool in self.disabled_tools:
            return False
        return self.enabled_tools is None or tool in self.enabled_tools

    def allowed_of(self, tools: Iterable[str]) -> list[str]:
        """Return the raw tool names that the filters let through, in their order."""
        disabled = frozenset(self.disabled_tools)
        if self.enabled_tools is None:
            return [tool for tool in tools if tool not in disabled]
        enabled = frozenset(self.enabled_tools) - disabled
        return [tool for tool in tools if tool in enabled]

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
    """Seconds that the first model request waits for servers that start and extensions that look
    for servers, both together; None: until they have."""
    follows_list_changes: bool = False
    """Whether tools are listed again when a server says that they changed."""
    surface: str = "direct"
    """The model's view of tools: `direct`, all of them, or `deferred`, the ones that it finds."""
    switches: Mapping[str, bool] = field(default_factory=dict)
    """Servers of no table that the user switched on or off, by name."""


def credential_variables(servers: Iterable[ServerConfig]) -> frozenset[str]:
    """Return the names of variables that hold what servers are signed in to with."""
    names: set[str] = set()
    for server in servers:
        if isinstance(server.transport, HttpTransport):
            names.update(server.transport.env_http_headers.values())
            names.update(filter(None, [server.transport.bearer_token_env_var]))
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Ingredients:
    """Compare what connections are made of: equal ones make the same connection.

    Filters, timeouts and approval modes are not part of it; they change without a restart.
    Source: docs/mcp.md, "Reload".
    """

    transport: Transport
    environment_id: str
    resolved: dict[str, str] | None = field(repr=False)
    """Variables of the process without those that all inherit, or headers, with their secrets.

    None: they could not be found.
    """
    cwd: str | None
    """The working folder of the process; None for a URL, or for the folder of its exec server."""
    owner: Owner | None = None
    """The owner of its server, if it was registered at run time."""
    protocol: str = "auto"


def ingredients(config: ServerConfig, cwd: str) -> Ingredients:
    """Resolve what a connection would be made of now; `cwd` is for a process without its own."""
    transport, environment_id = config.transport, config.environment_id
    if isinstance(transport, StdioTransport):
        folder = transport.folder(environment_id, cwd)
        return Ingredients(
            transport, environment_id, transport.variables(), folder, protocol=config.protocol
        )
    try:
        headers = transport.headers(config.name)
    except ServerUnavailable:
        headers = None
    return Ingredients(transport, environment_id, headers, None, config.owner, config.protocol)
