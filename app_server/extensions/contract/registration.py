"""One server that an extension registers, and what keeps it alive.

Source: docs/extensions.md, "Registrations".
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import SecretStr

from app_server.extensions.contract.metadata import NO_METADATA, RuntimeMetadata
from protocol.model import Json, JsonObject

Mode: TypeAlias = Literal["current", "discover"]
"""`current`: what is known now, without any work. `discover`: background work may be started."""


class Tier(IntEnum):
    """Tier of a server by its origin; the higher one wins a name."""

    PLUGIN = 0
    SELECTED_PLUGIN = 1
    """Of a plugin that was chosen for the thread."""
    CONFIGURED = 2
    RUNTIME = 3


class Lease(Protocol):
    """One holder's share in what serves a registration."""

    def release(self) -> None:
        """Give it back; called once."""


class Owner(ABC):
    """Owner of a registration, as a token: two of one id are equal."""

    def __init__(self, id_: str) -> None:
        self.id = id_

    @abstractmethod
    def lease(self) -> Lease:
        """Keep the registration served until the lease is released."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Owner) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return "Owner(…)"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Manifest:
    """The answers of one server to `initialize` and `tools/list`. Equal by value.

    One that has not changed is best given as the very same object: nothing of it is read again.
    """

    hello: JsonObject = field(repr=False)
    """The result of `initialize`."""
    tools: Sequence[JsonObject] = field(repr=False)
    """All tools, in the server's order."""

    def __hash__(self) -> int:
        # The tools are left out: thousands of them take some ms.
        return hash(repr(self.hello))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Registration:
    """One server. Equal by value; neither the bearer nor the owner is ever shown."""

    name: str
    config: Mapping[str, Json] = field(repr=False)
    """The table that `[mcp_servers.NAME]` would have."""
    bearer: SecretStr | None = None
    """Sent with every request; lives in memory alone."""
    owner: Owner | None = None
    """Leased by every thread that has the server, and until its connection has ended."""
    metadata: RuntimeMetadata = NO_METADATA
    tier: Tier = Tier.RUNTIME
    manifest: Manifest | None = None
    """Manifest of the server; with one the connection is made at the first use."""

    def __hash__(self) -> int:
        return hash((self.name, self.tier, self.owner))

    def __post_init__(self) -> None:
        if self.tier is Tier.CONFIGURED:
            raise ValueError("the configured tier is that of config.toml")
        if self.tier < Tier.RUNTIME and (self.bearer or self.owner or self.manifest):
            raise ValueError("a bearer, an owner or a manifest belongs to the runtime tier")
        if self.bearer is None:
            return
        if not self.bearer.get_secret_value():
            raise ValueError("an empty bearer")
        if "url" not in self.config or "command" in self.config:
            raise ValueError("a bearer needs a server behind a url")
        if "bearer_token_env_var" in self.config or _names_authorization(self.config):
            raise ValueError("a bearer beside a configured authorization")


def _names_authorization(config: Mapping[str, Json]) -> bool:
    tables = (config.get("http_headers"), config.get("env_http_headers"))
    names = [name for table in tables if isinstance(table, Mapping) for name in table]
    return "http_headers_helper" in config or any(n.lower() == "authorization" for n in names)


@dataclass(frozen=True, slots=True)
class ContributionContext:
    """For whom servers are resolved."""

    mode: Mode
    config: Mapping[str, Any] = field(repr=False)
    """The settings in force, as config.toml has them; not to be changed."""
    thread_id: str | None = None
    """None: for a question that no thread asks."""
    requirements: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Requirements of an administrator, as in requirements.toml; not to be changed."""


class Contributor(Protocol):
    """Contributor of servers. Nothing here may block or wait, but for `refresh`."""

    @property
    def id(self) -> str:
        """Id that no other contributor has."""

    def revision(self) -> int:
        """Return a number that grows whenever `contribute` would say something else."""

    def contribute(self, context: ContributionContext) -> Sequence[Registration]:
        """Return the servers there are for a thread now, in a stable order."""

    async def discovered(self, context: ContributionContext) -> None:
        """Look for what `contribute` will say, unless that was done; wait until it is known.

        It returns as well when the look has failed for the first time, and is not waited for again
        then; the caller bounds the wait.
        """

    def looking_since(self, context: ContributionContext) -> float | None:
        """Return when the look began that `discovered` would wait for now; None: there is none.

        It is in seconds on the clock of the event loop. Threads wait for a look together: one that
        comes later waits for what is left of the time.
        """

    async def refresh(self, context: ContributionContext) -> None:
        """Look anew at where the servers come from; at most `REFRESH_S` are waited for it."""


class LateContributor(Protocol):
    """Starter of a contributor that joins the registry once there is a reason to."""

    @property
    def id(self) -> str:
        """Id that no other contributor has."""

    async def join(self, context: ContributionContext) -> None:
        """Start the contributor, and wait until it has joined, if a thread wants it."""
