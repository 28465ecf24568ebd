"""Requests that clients name with `_meta.operationId`: each has its effect once, and one answer.

From top to bottom: what a request says of its operation, the answers that are kept in memory, and
the operations of a server. The ledger says what has begun and what is done, also after a crash and
to other servers; what is under way here is joined in memory. Does not know: what any method does.
Source: docs/sending_again.md, "Operations".
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.rpc.context import Handler, PreparedResult, RequestContext
from app_server.runtime.clock import Clock
from app_server.runtime.loader import Lazy
from app_server.threads.operations import (
    MAX_ANSWER_CHARS,
    Operation,
    OperationLedger,
    OperationStore,
    running,
)
from protocol.contract.specs import LOGS, ONCE, MethodSpec
from protocol.jsonrpc.envelope import render_value
from protocol.jsonrpc.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    OVERLOADED,
    RpcError,
    internal_error,
    invalid_member,
    invalid_request,
)
from protocol.model import Json, JsonObject, WireModel

logger = logging.getLogger(__name__)

REFUSALS = frozenset({INVALID_REQUEST, INVALID_PARAMS, OVERLOADED})
"""Codes of errors of requests that had no effect: their names are free again."""
MEMBER = "_meta.operationId"
MAX_ID_CHARS = 128
LOOK_S = 0.25
"""Between looks for the end of an operation that another server works on."""
JOIN_S = 600.0
"""For that end, after which the request is refused."""
MAX_IN_MEMORY = 1_000
MAX_IN_MEMORY_CHARS = 16 << 20
"""Answers that are kept in memory alone, and their characters; the oldest go."""


class Named(NamedTuple):
    """A request that its client named."""

    operation_id: str
    params: Json
    """Without the name."""


def operation_of(params: JsonObject) -> Named | None:
    """Read the name of a request whose params have a `_meta`; None: it has none.

    Raises:
        RpcError: it is no name.
    """
    meta = params["_meta"]
    if not isinstance(meta, dict) or meta.get("operationId") is None:
        return None
    operation_id = meta["operationId"]
    if not (
        isinstance(operation_id, str)
        and 0 < len(operation_id) <= MAX_ID_CHARS
        and operation_id.isprintable()
    ):
        raise invalid_member(MEMBER, f"must be a text of 1 to {MAX_ID_CHARS} printable characters")
    rest = {name: value for name, value in params.items() if name != "_meta"}
    if others := {name: value for name, value in meta.items() if name != "operationId"}:
        rest["_meta"] = others
    return Named(operation_id, rest)


def _digest(method: str, params: Json) -> str:
    return hashlib.sha256(to_json([method, _sorted(params)])).hexdigest()


def _sorted(value: Json) -> Json:
    """Put members in one order; those that are null are as good as absent."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value) if value[name] is not None}
    if isinstance(value, list):
        return [_sorted(element) for element in value]
    return value


Outcome: TypeAlias = PreparedResult | RpcError


class KeptAnswers:
    """Answers that are not written to disk, for as long as the process runs."""

    def __init__(self) -> None:
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self._chars = 0

    def keep(self, operation_id: str, outcome: Outcome) -> None:
        """Keep an answer, and forget the oldest ones that are too much."""
        if (before := self._outcomes.pop(operation_id, None)) is not None:
            self._chars -= _chars(before)
        self._outcomes[operation_id] = outcome
        self._chars += _chars(outcome)
        while len(self._outcomes) > MAX_IN_MEMORY or self._chars > MAX_IN_MEMORY_CHARS:
            _, oldest = self._outcomes.popitem(last=False)
            self._chars -= _chars(oldest)

    def find(self, operation_id: str) -> Outcome | None:
        """Return an answer, or None."""
        return self._outcomes.get(operation_id)


def _chars(outcome: Outcome) -> int:
    return len(outcome.text) if isinstance(outcome, PreparedResult) else len(outcome.message)


FindEffect: TypeAlias = Callable[
    [RequestContext[Any], WireModel, Operation], Awaitable[WireModel | None]
]
"""Makes the answer of an operation whose effect is there; None: it is not, or cannot be told."""


@dataclass(slots=True)
class _UnderWay:
    """An operation that a request of this server works on."""

    digest: str
    over: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Outcome | None = None
    """None after `over`: it was cut off."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The request of an operation, ready to be run."""

    context: RequestContext[Any]
    spec: MethodSpec
    handler: Handler
    request: WireModel


class Operations:
    """The operations of one server."""

    def __init__(self, store: OperationStore, clock: Clock, find_effect: FindEffect) -> None:
        """Take the store of the ledger, which is opened with the first operation."""
        self._ledger = Lazy("the ledger of operations", store.open)
        self._clock = clock
        self._find_effect = find_effect
        self._under_way: dict[str, _UnderWay] = {}
        self._in_memory = KeptAnswers()

    async def perform(
        self,
        context: RequestContext[Any],
        spec: MethodSpec,
        handler: Handler,
        request: WireModel,
        named: Named,
    ) -> PreparedResult:
        """Answer a request that its client named: run it, join it, or give its answer again.

        Raises:
            RpcError: another request has the name, nobody knows what became of this one, or what
                the handler raises.
            OSError: the ledger cannot be read or written; nothing was run.
        """
        operation_id = named.operation_id
        digest = await anyio.to_thread.run_sync(_digest, context.method, named.params)
        while (under_way := self._under_way.get(operation_id)) is not None:
            if under_way.digest != digest:
                raise _taken(operation_id)
            await under_way.over.wait()
            if under_way.outcome is not None:
                return _given(under_way.outcome)
        mine = self._under_way[operation_id] = _UnderWay(digest)
        try:
            ledger = await self._ledger.get()
            now_ms = self._clock.now_ms()
            first = Operation(operation_id, context.method, digest, now_ms, ledger.own_id)
            call = _Call(context, spec, handler, request)
            result = mine.outcome = await self._settle(ledger, first, call)
        except RpcError as exc:
            mine.outcome = exc
            raise
        else:
            return result
        finally:
            del self._under_way[operation_id]
            mine.over.set()

    async def _settle(
        self, ledger: OperationLedger, operation: Operation, call: _Call
    ) -> PreparedResult:
        """Run an operation that nobody has begun; of others, give the answer or make it again."""
        known = await self._begin(ledger, operation)
        if known is None:
            return await self._run(ledger, operation, call, is_again=False)
        answer = self._in_memory.find(known.id) or (known.answer and PreparedResult(known.answer))
        if answer:
            return _given(answer)
        if call.spec.effect is ONCE:
            raise _unknown(known)
        found = await self._find_effect(call.context, call.request, known)
        if found is None:
            return await self._run(ledger, known, call, is_again=True)
        return await self._keep(ledger, known, call, found)

    async def _begin(self, ledger: OperationLedger, operation: Operation) -> Operation | None:
        """Note an operation; returns what is known of it, once no other server works on it."""
        give_up_at = anyio.current_time() + JOIN_S
        while (known := await anyio.to_thread.run_sync(ledger.begin, operation)) is not None:
            if known.digest != operation.digest:
                raise _taken(known.id)
            if known.is_done or known.holder == ledger.own_id:
                return known
            if not await anyio.to_thread.run_sync(
                ledger.is_living, known.holder
            ) and await anyio.to_thread.run_sync(ledger.take_over, known):
                return replace(known, holder=ledger.own_id)
            if anyio.current_time() > give_up_at:
                raise internal_error(
                    f"another server still works on operation {known.id}",
                    "operationUnderWay",
                    operationId=known.id,
                    retriable=True,
                )
            await anyio.sleep(LOOK_S)
        return None

    async def _run(
        self, ledger: OperationLedger, operation: Operation, call: _Call, *, is_again: bool
    ) -> PreparedResult:
        is_marked = call.spec.effect is LOGS
        with running(operation, is_marked=is_marked, is_again=is_again) as is_in_log:
            try:
                result = await call.handler(call.context, call.request)
            except RpcError as exc:
                if exc.code in REFUSALS and not is_in_log():
                    await self._forget(ledger, operation)
                elif call.spec.effect is ONCE:
                    # Nobody knows how far it came: it is not run again.
                    self._in_memory.keep(operation.id, exc)
                raise
        return await self._keep(ledger, operation, call, result)

    async def _forget(self, ledger: OperationLedger, operation: Operation) -> None:
        """Free the id of an operation that was refused, and so had no effect."""
        try:
            await anyio.to_thread.run_sync(ledger.forget, operation.id)
        except OSError as exc:
            # The client is answered why it was refused all the same.
            logger.warning("operation %s was refused, and keeps its id: %s", operation.id, exc)

    async def _keep(
        self,
        ledger: OperationLedger,
        operation: Operation,
        call: _Call,
        result: WireModel | PreparedResult,
    ) -> PreparedResult:
        """Keep an answer before it goes out."""
        if not isinstance(result, PreparedResult):
            result = PreparedResult(render_value(result, experimental=True))
        answer: str | None = result.text
        if call.spec.effect is ONCE:
            self._in_memory.keep(operation.id, result)
            answer = None
        elif len(result.text) > MAX_ANSWER_CHARS:
            answer = None
        try:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(ledger.finish, operation.id, answer)
        except OSError as exc:
            # The effect is there, and is found when the request is sent again.
            logger.warning("the answer of operation %s cannot be kept: %s", operation.id, exc)
        return result

    async def aclose(self) -> None:
        """Close the ledger, once no request is worked on."""
        ledger = await self._ledger.close()
        if ledger is not None:
            await anyio.to_thread.run_sync(ledger.close)


def _given(outcome: Outcome) -> PreparedResult:
    if isinstance(outcome, RpcError):
        raise outcome
    return outcome


def _taken(operation_id: str) -> RpcError:
    return invalid_request(
        f"operation {operation_id} is another request",
        "operationIdTaken",
        operationId=operation_id,
    )


def _unknown(operation: Operation) -> RpcError:
    what = "done, and its answer was not kept" if operation.is_done else "begun, and was cut off"
    return internal_error(
        f"operation {operation.id} was {what}; it is not run again",
        "operationOutcomeUnknown",
        operationId=operation.id,
        done=operation.is_done,
        retriable=False,
    )
