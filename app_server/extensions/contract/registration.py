"""One MCP server that an extension registers: its metadata and its lease.

The metadata of a server and its tools, beside its transport, is a closed list. Every field has one
consumer that knows no extension. A new one needs a consumer, a bound, value equality, and a line in
docs/extensions.md.
Source: docs/extensions.md, "Registrations", "Metadata".
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    SkipValidation,
    StringConstraints,
)
from pydantic_core import to_json

from protocol.model import Json, JsonObject

MAX_IDENTITY_BYTES = 256
MAX_FORM_META_BYTES = 4096
MAX_FORM_META_KEYS = 8
MAX_LABELS = 8
MAX_PLUGIN_ID_CHARS = 512
MAX_LABEL_CHARS = 256

_LABEL_KEY = re.compile(r"[A-Za-z0-9_]{1,64}")

Text: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
ShortText: TypeAlias = Annotated[Text, StringConstraints(max_length=64)]


def _sorted_set(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


def _one_question_mark(question: str) -> str:
    if question.count("?") != 1 or not question.endswith("?"):
        raise ValueError("a question ends with its only question mark")
    return question


def _bounded_labels(labels: Mapping[str, str]) -> dict[str, str]:
    fitting = {
        key: value
        for key, value in labels.items()
        if _LABEL_KEY.fullmatch(key) and len(value) <= MAX_LABEL_CHARS
    }
    return dict(list(fitting.items())[:MAX_LABELS])


def _bounded_form(meta: JsonObject) -> JsonObject:
    if len(meta) > MAX_FORM_META_KEYS or len(to_json(meta)) > MAX_FORM_META_BYTES:
        raise ValueError(f"more than {MAX_FORM_META_KEYS} keys or {MAX_FORM_META_BYTES} bytes")
    return meta


class _Closed(BaseModel):
    # Most processes have no extension with servers: the validators are made for the first one.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ApprovalIdentity(_Closed):
    """Identity of a tool in approvals, however its server and its name change."""

    server: str
    source: str
    tool: str

    @property
    def key(self) -> tuple[tuple[bool, str], ...]:
        """Key to remember: exact texts; one above 256 bytes as its hash, marked as such."""
        return tuple(_bounded_part(part) for part in (self.server, self.source, self.tool))


def _bounded_part(text: str) -> tuple[bool, str]:
    encoded = text.encode()
    if len(encoded) <= MAX_IDENTITY_BYTES:
        return False, text
    return True, f"sha256:{hashlib.sha256(encoded).hexdigest()}"


class ApprovalSource(_Closed):
    """Owner of a tool, shown to the user who is asked for approval."""

    id: Text
    name: Text
    description: Annotated[str, StringConstraints(strip_whitespace=True)] | None = None


class ParameterLabel(_Closed):
    """Label of one argument in a question."""

    name: Text
    label: ShortText


class ApprovalPresentation(_Closed):
    """Question for approval, and the labels of its arguments."""

    question: Annotated[Text, StringConstraints(max_length=512), AfterValidator(_one_question_mark)]
    labels: Annotated[tuple[ParameterLabel, ...], Field(max_length=32)] = ()
    """Of arguments that come first, in this order; the others follow under their own names."""


class ApprovalPersistence(_Closed):
    """Place of a lasting approval, which the extension that registered `target` writes."""

    target: Text
    path: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]


class ToolMetadata(_Closed):
    """Of one tool."""

    approval_identity: ApprovalIdentity | None = None
    """None: the raw name."""
    approval_source: ApprovalSource | None = None
    approval_presentation: ApprovalPresentation | None = None
    approval_header: ShortText | None = None
    approval_form_meta: Annotated[JsonObject, AfterValidator(_bounded_form)] = {}
    """Goes into `_meta` of the question, below the keys that the server itself writes there."""
    approval_persistence: ApprovalPersistence | None = None
    """None: config.toml, if the server is defined there."""
    metric_labels: Annotated[Mapping[str, str], AfterValidator(_bounded_labels)] = {}
    """At most 8, of 256 characters; what is above is dropped."""
    search_aliases: Annotated[
        tuple[ShortText, ...], AfterValidator(_sorted_set), Field(max_length=32)
    ] = ()
    """Words by which the tool is found besides its own."""


class Telemetry(_Closed):
    """Telemetry of a server: its origin, and whether its lists are measured."""

    origin: Annotated[Text, StringConstraints(max_length=256)]
    """Scheme, host and port of what stands behind it."""
    count_list: bool = True
    """Whether listing its tools is measured."""


class RuntimeMetadata(_Closed):
    """Of one server, and of its tools by raw name."""

    telemetry: Telemetry | None = None
    plugin_display_names: Annotated[
        tuple[Text, ...], AfterValidator(_sorted_set), Field(max_length=64)
    ] = ()
    """The plugins that it belongs to; shown to the model with each tool."""
    plugin_id: Annotated[Text, StringConstraints(max_length=MAX_PLUGIN_ID_CHARS)] | None = None
    """The plugin that brought it, for items, status lists and `_meta` of calls."""
    client_meta_names: Annotated[tuple[Text, ...], Field(max_length=4)] = ()
    """Whose `mcpMetaByServer` entries apply as well, weakest first; its own comes last."""
    trusts_effective_input: bool = False
    """Whether `codex/toolInput` of a result is what the tool really got."""
    trusts_approval_context: bool = False
    """Whether `codex/approvalContext` of its tools is shown to the reviewer."""
    serves_skills: bool = False
    """Whether its resources of the type `mcp/skill` are skills."""
    sandbox_state_source: Literal["own", "primary"] = "own"
    """Which environment the sandbox state describes: the server's, or the thread's."""
    approvals_reviewer: Literal["user", "auto_review"] | None = None
    """Reviewer of approvals; None: as the thread has it."""
    tools: SkipValidation[Mapping[str, ToolMetadata]] = {}
    """Taken as it is: a mapping may make what it has when it is asked for it."""

    def of_tool(self, name: str) -> ToolMetadata:
        """Return the metadata of a tool, by raw name; the default without an entry."""
        return self.tools.get(name, _NOTHING)

    def of_named_tool(self, name: str) -> ToolMetadata:
        """Return the metadata of a tool that a server names itself.

        That is its raw name, or an alias that no other tool has; nothing is the default.
        """
        if name in self.tools:
            return self.tools[name]
        found = [tool for tool in self.tools.values() if name in tool.search_aliases]
        return found[0] if len(found) == 1 else _NOTHING


_NOTHING = ToolMetadata.model_construct()
NO_METADATA = RuntimeMetadata.model_construct()


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
    """One holder's share in the server of a registration."""

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
        """Wait until the registrations of `contribute` are known, discovering them if needed.

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
