"""Request context of a handler: the caller's connection, the client there, and the services."""

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeAlias, TypeVar, TypeVarTuple

from protocol.jsonrpc.errors import RpcError
from protocol.model import WireModel
from protocol.server.lifecycle import ClientInfo, InitializeCapabilities

ConnectionId: TypeAlias = int

Arguments = TypeVarTuple("Arguments")
Services = TypeVar("Services")


@dataclass(frozen=True, slots=True)
class InitializedClient:
    """A client, as it has introduced itself with `initialize`."""

    info: ClientInfo
    capabilities: InitializeCapabilities
    jsonrpc: bool
    """Everything to this client carries `"jsonrpc":"2.0"`."""
    opted_out: frozenset[str] = field(default=frozenset())
    experimental: bool = field(init=False)
    """Whether experimental members may be used and shown."""

    def __post_init__(self) -> None:
        # Read for every request and every event: going through two objects would show there.
        object.__setattr__(self, "experimental", self.capabilities.experimental_api)

    def has_extension(self, name: str) -> bool:
        """Whether the client declared an MCP extension."""
        if name == "openai/form" and self.capabilities.mcp_server_openai_form_elicitation:
            return True
        return name in (self.capabilities.extensions or {})


@dataclass(slots=True)
class RequestContext(Generic[Services]):
    """One request's caller, and what should follow its answer."""

    connection_id: ConnectionId
    method: str
    jsonrpc: bool
    initialized: InitializedClient | None
    """None until `initialize` sets it."""
    services: Services
    """Services of the server for its handlers."""
    is_of_batch: bool = False
    """Whether the answer waits for those of others."""
    read_at_s: float = field(default_factory=perf_counter)
    """Time at which the request was read, in seconds of `time.perf_counter`."""
    error: RpcError | None = None
    """The error of its handler."""
    failure: str | None = None
    """The word of the error that it is answered with."""
    _after: tuple[Callable[[], object], ...] = ()

    @property
    def client(self) -> InitializedClient:
        """The client as it has introduced itself; every handler but `initialize` has one."""
        assert self.initialized is not None, f"{self.method} ran before initialize"
        return self.initialized

    def after_answer(self, action: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Call `action(*arguments)` right after the answer was handed to the connection.

        So what it sends comes behind the answer, and before what other tasks send. It is called too
        when the answer is an error or the client has gone, and must not wait.
        """
        # What it begins belongs to this request, whoever runs it.
        self._after = *self._after, partial(copy_context().run, action, *arguments)

    def answered(self) -> None:
        """Call the actions of `after_answer`, in their order."""
        while self._after:
            # An action may have others follow it.
            actions, self._after = self._after, ()
            for action in actions:
                action()


@dataclass(frozen=True, slots=True)
class PreparedResult:
    """A result that is JSON already, as it is too large to be made so on the event loop."""

    text: str


Handler: TypeAlias = Callable[[RequestContext[Any], Any], Awaitable[WireModel | PreparedResult]]
"""Answers one method: takes the caller and the params in their type, gives the result."""
