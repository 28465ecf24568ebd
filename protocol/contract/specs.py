"""What one row of the tables in `methods` says.

Types are named, not imported: most processes use few areas, and importing all would cost more
than the rest of the start. A row loads its area at first use; a test loads them all.
"""

import importlib
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter

from protocol.model import REQUEST, WireModel


class Access(Enum):
    """How a request orders itself against others of its connection."""

    EXCLUSIVE = "exclusive"
    """Alone in its queue, after all that came before."""
    SHARED = "shared"
    """In its queue, beside other shared requests."""
    FREE = "free"
    """In no queue: it must not wait for others, or others for it."""
    AT_ONCE = "atOnce"
    """In no queue, and answered from memory: its handler waits for nothing."""
    BARRIER = "barrier"
    """Answered before the next message of the connection is read."""


@dataclass(frozen=True, slots=True)
class Order:
    """The queue of a request: a queue keeps its order; those of other queues may overtake."""

    access: Access
    queue: str = ""
    """Requests that the queue is for."""
    member: str = ""
    """The params member whose value tells queues apart; without one there is a single queue.

    Dots lead into objects: `signal.source`."""


FREE = Order(Access.FREE)
AT_ONCE = Order(Access.AT_ONCE)
BARRIER = Order(Access.BARRIER)
THREAD = Order(Access.EXCLUSIVE, "thread", "threadId")
THREAD_READ = Order(Access.SHARED, "thread", "threadId")
COMMAND = Order(Access.EXCLUSIVE, "command", "processId")
PROCESS = Order(Access.EXCLUSIVE, "process", "processHandle")
SEARCH = Order(Access.EXCLUSIVE, "search", "sessionId")
WATCH = Order(Access.EXCLUSIVE, "watch", "watchId")
ENVIRONMENT = Order(Access.EXCLUSIVE, "environment", "environmentId")
ENVIRONMENT_READ = Order(Access.SHARED, "environment", "environmentId")
MCP_LOGIN = Order(Access.EXCLUSIVE, "mcpLogin", "name")
ACCOUNT = Order(Access.EXCLUSIVE, "account")
ACCOUNT_READ = Order(Access.SHARED, "account")
CONFIG = Order(Access.EXCLUSIVE, "config")
CONFIG_READ = Order(Access.SHARED, "config")
PROJECTS = Order(Access.EXCLUSIVE, "projects")
PROJECTS_READ = Order(Access.SHARED, "projects")
SECTIONS = Order(Access.EXCLUSIVE, "sections")
SECTIONS_READ = Order(Access.SHARED, "sections")
SIGNAL = Order(Access.EXCLUSIVE, "signals", "signal.source")
SIGNAL_RECALL = Order(Access.EXCLUSIVE, "signals", "source")


class Takes(Enum):
    """What may stand in `params`."""

    OBJECT = "object"
    OBJECT_OR_NULL = "objectOrNull"
    NOTHING = "nothing"
    """Null, or an object without members, is as good as nothing."""


OBJECT_OR_NULL, NOTHING = Takes.OBJECT_OR_NULL, Takes.NOTHING


class Effect(Enum):
    """What a request changes, and how it is told after a crash whether it did.

    Source: docs/sending_again.md, "Operations".
    """

    READS = "reads"
    """Nothing: it is run whenever it is sent."""
    CONNECTION = "connection"
    """What its connection has, which ends with that: it is run whenever it is sent."""
    SETS = "sets"
    """What it changes is the same however often it is run: it is run again."""
    MAKES = "makes"
    """It makes something under an id of the operation, and is run again: it finds that."""
    LOGS = "logs"
    """What it writes to the log of its thread carries the operation."""
    ONCE = "once"
    """Nothing tells it: it is not run again. The answer is kept in memory alone."""


READS, CONNECTION, SETS, MAKES, LOGS, ONCE = Effect


class ParamsMissing(Exception):
    """A method that needs params was called without."""


class NoParams(WireModel, extra="forbid"):
    """The params of a method that takes none."""


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One request: where its types are, its order, and who may use it.

    A method with area `turns.requests` and stem `TurnStart` takes `TurnStartParams` of
    `protocol.turns.requests` and is answered with `TurnStartResponse`.
    """

    area: str
    stem: str
    effect: Effect
    order: Order = FREE
    takes: Takes = Takes.OBJECT
    params_stem: str = ""
    """The params' stem where it is another than the response's."""
    experimental: bool = False
    extension: bool = False
    """The reference does not have it."""
    large: bool = False
    """Answers are as large as what the client asks for, up to MAX_LARGE_ANSWER_CHARS."""
    owner: bool | None = None
    """Whether `owned` says otherwise than the order; None: it does not."""

    @property
    def takes_operation(self) -> bool:
        """Whether `_meta.operationId` names a request, so that it has its effect once."""
        return self.effect not in (READS, CONNECTION)

    @property
    def owned(self) -> bool:
        """Whether the server that has the thread of `threadId` must answer it.

        The order says so: requests that run alone in the queue of their thread change it. All
        servers that share the threads answer others.
        """
        return self.order is THREAD if self.owner is None else self.owner

    @property
    def module(self) -> str:
        """The name of the module with the types, which is imported with their first use."""
        return module_of(self.area)

    @property
    def params_name(self) -> str | None:
        """The name of the params' type; None when there is none."""
        if self.takes is Takes.NOTHING:
            return None
        return f"{self.params_stem or self.stem}Params"

    @property
    def result_name(self) -> str:
        """The name of the result's type."""
        return f"{self.stem}Response"

    @property
    def params(self) -> Any:
        """The type of the params: a WireModel, or a named union of them."""
        return NoParams if self.params_name is None else load_type(self.area, self.params_name)

    @property
    def result(self) -> Any:
        """The type of the result: a WireModel, or a named union of them."""
        return load_type(self.area, self.result_name)

    def build(self) -> None:
        """Import the types and build their validators: 20 ms for one with items of turns."""
        build_types(self.params, self.result)

    def parse_params(self, value: Any, adapter: TypeAdapter[Any] | None = None) -> Any:
        """Check params and give them their type, with the `adapter` of that if it is at hand.

        Null and absent are the same; they stand for no members where params may be left out.

        Raises:
            ParamsMissing: they may not be left out.
            pydantic.ValidationError: they do not fit.
        """
        if value is None:
            if self.takes is Takes.OBJECT:
                raise ParamsMissing
            value = {}
        adapter = adapter or type_adapter(self.params)
        # What the adapter's own method does besides is for options that are not used here.
        return adapter.validator.validate_python(value, context=REQUEST)

    def parse_result(self, value: Any) -> Any:
        """Check a result and give it its type.

        Raises:
            pydantic.ValidationError: it does not fit.
        """
        return type_adapter(self.result).validate_python(value)


@dataclass(frozen=True, slots=True)
class NotificationSpec:
    """One notification: where its type is, and who is sent it."""

    area: str
    params_name: str
    experimental: bool = False
    extension: bool = False
    """The reference does not have it."""
    opt_in: bool = False
    """Told only to clients with the opt-in, though its type is stable: as the reference does."""

    @property
    def params(self) -> type[WireModel]:
        """The type of the params."""
        params: type[WireModel] = load_type(self.area, self.params_name)
        return params


def method(
    area: str,
    stem: str,
    effect: Effect,
    order: Order = FREE,
    takes: Takes = Takes.OBJECT,
    *,
    params_stem: str = "",
    **more: bool,
) -> MethodSpec:
    """Describe a method that every client may call; `more` is for `large` and `owner`."""
    return MethodSpec(area, stem, effect, order, takes, params_stem, **more)


def trial(
    area: str,
    stem: str,
    effect: Effect,
    order: Order = FREE,
    takes: Takes = Takes.OBJECT,
    *,
    owner: bool | None = None,
) -> MethodSpec:
    """Describe a method that needs the experimental opt-in."""
    return MethodSpec(area, stem, effect, order, takes, experimental=True, owner=owner)


def ours(
    area: str, stem: str, effect: Effect, order: Order = FREE, *, owner: bool | None = None
) -> MethodSpec:
    """Describe a method that the reference does not have; it needs the opt-in too."""
    return MethodSpec(area, stem, effect, order, experimental=True, extension=True, owner=owner)


def question(area: str, stem: str, *, experimental: bool = False) -> MethodSpec:
    """Describe a request of the server."""
    return MethodSpec(area, stem, READS, experimental=experimental)


@cache
def load_type(area: str, name: str) -> Any:
    """Import a wire type by its area (a module of `protocol`) and name."""
    return getattr(importlib.import_module(module_of(area)), name)


def module_of(area: str) -> str:
    """Return the name of the module of an area."""
    return f"protocol.{area}"


@cache
def type_adapter(wire_type: Any) -> TypeAdapter[Any]:
    """Build the validator of a wire type once."""
    return TypeAdapter(wire_type)


def build_types(*wire_types: Any) -> None:
    """Build the validators and serializers of wire types, and of the types of their members first.

    Pydantic shares what is built already. In the other order each type has a copy of all that its
    members are made of, such as items of turns.
    """
    seen: set[Any] = set()
    for wire_type in wire_types:
        _build_inner_first(wire_type, seen)
        type_adapter(wire_type).rebuild()


def _build_inner_first(annotation: Any, seen: set[Any]) -> None:
    if not (isinstance(annotation, type) and issubclass(annotation, WireModel)):
        for part in get_args(getattr(annotation, "__value__", annotation)):
            _build_inner_first(part, seen)
    elif annotation not in seen:
        seen.add(annotation)
        for member in annotation.model_fields.values():
            _build_inner_first(member.annotation, seen)
        annotation.model_rebuild()
