"""requirements.toml: requirements of the administrator for every configuration.

Knows: the file, its keys, and which of them this server enforces. The others are named, so that
nobody believes that they hold. Does not know: how a demand is enforced.
Source: docs/config.md, "Requirements".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app_server.config.config_toml import read_config
from app_server.config.values import Config, ConfigError, ConfigView
from app_server.runtime.loader import load_from_worker

if TYPE_CHECKING:
    from protocol.turns.policy import AskForApproval, GranularAskForApproval

SYSTEM_REQUIREMENTS = Path("/etc/codex/requirements.toml")

APPROVAL_POLICIES = ("untrusted", "on-failure", "on-request", "granular", "never")
SANDBOX_MODES = ("read-only", "workspace-write", "danger-full-access", "external-sandbox")

NETWORK = "experimental_network"
ENFORCED = ("allowed_approval_policies", "allowed_sandbox_modes", "mcp_servers", NETWORK)
ENFORCED_OF_NETWORK = (
    "allow_local_binding",
    "domains",
    "enabled",
    "managed_allowed_domains_only",
)

MAX_NAMED_KEYS = 20
MAX_KEY_CHARS = 80
"""Of the keys in a warning; the file may have more, and longer ones."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Required identity of an MCP server; the configured one is compared verbatim."""

    command: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDemand:
    """Required network of commands, where they have one: the proxy, and its hosts."""

    domains: Mapping[str, str]
    """`allow` or `deny` by pattern (docs/config.md, "Network of commands")."""
    allow_local_binding: bool | None = None
    """None leaves it to the settings."""
    allowed_domains_only: bool = False
    """Whether these hosts are final: no setting, rule or user adds any."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """All requirements; None and empty ones restrict nothing."""

    source: str = ""
    """The file, for texts."""
    approval_policies: "Sequence[AskForApproval] | None" = None
    """Allowed values; the first replaces others."""
    sandbox_modes: Sequence[str] | None = None
    """Allowed values; `read-only` is always among them and replaces others."""
    servers: Mapping[str, ServerIdentity] | None = None
    """The MCP servers that may run, by raw name."""
    network: NetworkDemand | None = None
    unenforced: Sequence[str] = ()
    """Keys of the file that nothing here enforces, as dotted paths."""

    @property
    def demands_anything(self) -> bool:
        """Whether the file has any key that is enforced."""
        known = (self.approval_policies, self.sandbox_modes, self.servers, self.network)
        return any(demand is not None for demand in known)

    @property
    def warnings(self) -> Sequence[str]:
        """Describe, in at most one text, the entries of the file without effect."""
        if not self.unenforced:
            return ()
        named = [_shortened(key) for key in self.unenforced[:MAX_NAMED_KEYS]]
        left = len(self.unenforced) - len(named)
        more = f" and {left} more" if left else ""
        return (f"not enforced by this server: {', '.join(named)}{more} (set by {self.source})",)


def read_requirements(path: Path) -> Config:
    """Read the file; a missing one requires nothing. Blocks: call it in a worker thread.

    Raises:
        ConfigError: see `read_config`; or a demand that this server enforces makes no sense.
    """
    try:
        demanded = read_config(path)
        _parse(demanded.view())
    except ConfigError as exc:
        raise ConfigError(f"failed to parse requirements layer {exc}") from exc
    return demanded


def requirements_of(config: Config) -> Requirements:
    """Give the demands that lie over a configuration; they were found to make sense."""
    demanded = config.requirements
    if demanded is None or not demanded.document:
        return Requirements()
    return _parse(demanded.view())


def _parse(view: ConfigView) -> Requirements:
    return Requirements(
        source=str(view.config.source),
        approval_policies=_approval_policies(view),
        sandbox_modes=_sandbox_modes(view),
        servers=_servers(view),
        network=_network(view),
        unenforced=tuple(_unenforced(view)),
    )


def _approval_policies(view: ConfigView) -> "Sequence[AskForApproval] | None":
    key = "allowed_approval_policies"
    if key not in view:
        return None
    allowed: list[AskForApproval] = []
    for element in view.items(key):
        if isinstance(element, ConfigView):
            policy: AskForApproval = _granular(element)
        else:
            policy = _approval_policy(view, key, element)
        if policy not in allowed:
            allowed.append(policy)
    if not allowed:
        raise view.error(f"field `{key}` cannot be empty", key)
    return allowed


def _approval_policy(view: ConfigView, key: str, word: str) -> "AskForApproval":
    match word:
        case "untrusted" | "on-request" | "never":
            return word
        case "on-failure":
            return "on-request"
        case "granular":
            raise view.error("`granular` needs a table: { granular = { ... } }", key)
    raise view.unknown_variant(key, word, APPROVAL_POLICIES)


def _granular(table: ConfigView) -> "GranularAskForApproval":
    if set(table.table) != {"granular"}:
        raise table.error("expected a table with the key `granular` alone")
    granular = table.at("granular")
    defaults = {
        "mcp_elicitations": True,
        "rules": True,
        "sandbox_approval": True,
        "request_permissions": False,
        "skill_approval": False,
    }
    allowed = {name: granular.boolean(name, default=default) for name, default in defaults.items()}
    return load_from_worker(_granular_type).model_validate({"granular": allowed})


def _granular_type() -> "type[GranularAskForApproval]":
    from protocol.turns.policy import GranularAskForApproval

    return GranularAskForApproval


def _sandbox_modes(view: ConfigView) -> Sequence[str] | None:
    key = "allowed_sandbox_modes"
    if key not in view:
        return None
    allowed = list(view.choices(key, SANDBOX_MODES))
    if "read-only" not in allowed:
        raise view.error(f"`{key}` must include `read-only`", key)
    return allowed


def _servers(view: ConfigView) -> Mapping[str, ServerIdentity] | None:
    if "mcp_servers" not in view:
        return None
    return {name: _identity(table) for name, table in view.at("mcp_servers").tables()}


def _identity(server: ConfigView) -> ServerIdentity:
    if "identity" not in server:
        raise server.error("missing field `identity`")
    identity = server.at("identity")
    if (command := identity.string("command")) is not None:
        return ServerIdentity(command=command)
    if (url := identity.string("url")) is not None:
        return ServerIdentity(url=url)
    raise identity.error("an identity needs `command` or `url`")


def _network(view: ConfigView) -> NetworkDemand | None:
    table = view.at(NETWORK)
    if NETWORK not in view or not table.boolean("enabled", default=True):
        return None
    domains = table.at("domains")
    return NetworkDemand(
        domains={name: domains.choice(name, ("allow", "deny")) or "" for name in domains.table},
        allow_local_binding=(
            table.boolean("allow_local_binding", default=False)
            if "allow_local_binding" in table
            else None
        ),
        allowed_domains_only=table.boolean("managed_allowed_domains_only", default=False),
    )


def _unenforced(view: ConfigView) -> Iterator[str]:
    for key in view.table:
        if key not in ENFORCED:
            yield key
    for key in view.at(NETWORK).table:
        if key not in ENFORCED_OF_NETWORK:
            yield f"{NETWORK}.{key}"
    for name, server in view.at("mcp_servers").tables():
        prefix = f"mcp_servers.{name}"
        yield from (f"{prefix}.{key}" for key in server.table if key != "identity")
        identity: Mapping[str, Any] = server.at("identity").table
        compared = "command" if "command" in identity else "url"
        yield from (f"{prefix}.identity.{key}" for key in identity if key != compared)


def _shortened(key: str) -> str:
    return f"`{key if len(key) <= MAX_KEY_CHARS else key[:MAX_KEY_CHARS] + '…'}`"
