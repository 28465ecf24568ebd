"""From a request to its rendered answer, by jsonrpcserver; all failures end here, as errors.

jsonrpcserver calls the method and shapes the outcome. It gets messages that are parsed already, one
at a time (batches are split before, so that order and bounds hold for each element); its JSON
Schema check is not used, and its own error texts never reach a client.
Source: docs/wire.md, "Errors".
"""

import errno
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import anyio
from jsonrpcserver import JsonRpcError, Result, Success
from jsonrpcserver.async_dispatcher import call as call_method
from jsonrpcserver.request import Request as Call
from jsonrpcserver.result import SuccessResult
from pydantic import TypeAdapter, ValidationError

from app_server.observability.log_context import THREAD
from app_server.observability.telemetry.metrics import ServerMetrics
from app_server.observability.telemetry.spans import is_on, span
from app_server.rpc.context import (
    Handler,
    InitializedClient,
    PreparedResult,
    RequestContext,
)
from app_server.rpc.operations import MEMBER, Named, Operations, operation_of
from app_server.runtime.files.disk import FULL_OR_READ_ONLY
from app_server.runtime.loader import LoadFailed, load
from app_server.threads.failures import StoreUnavailable
from protocol.contract.gate import used_experimental
from protocol.contract.methods import METHODS
from protocol.contract.specs import MethodSpec, ParamsMissing, type_adapter
from protocol.contract.unserved import UNSERVED
from protocol.jsonrpc.envelope import Request, render_error, render_prepared, render_result
from protocol.jsonrpc.errors import (
    MAX_ANSWER_CHARS,
    MAX_LARGE_ANSWER_CHARS,
    METHOD_NOT_FOUND,
    RpcError,
    answer_too_large,
    internal_error,
    invalid_params,
    invalid_request,
)
from protocol.model import Json, JsonObject, WireModel
from protocol.thread_ids import is_thread_id

logger = logging.getLogger(__name__)

CHOOSING = frozenset({"thread/start"})
"""Methods whose `threadId` names no thread, but is the id that a new one is to have."""
OWN_META = frozenset({"mcpServer/tool/call"})
"""Methods whose `_meta` is for others; they are not sent the name of the request."""


class Dispatcher:
    """Answers requests: finds the handler of each, calls it, and renders what comes of it."""

    def __init__(
        self,
        find_handler: Callable[[str], Handler | None],
        services: object = None,
        metrics: ServerMetrics | None = None,
        operations: Operations | None = None,
    ) -> None:
        """Take what finds the handler of a method, by importing it; None if there is none.

        `services` is what handlers get with each request. Answers are counted in `metrics`.
        Without `operations` names of requests mean nothing.
        """
        self.services = services
        self._find_handler = find_handler
        self._metrics = metrics or ServerMetrics()
        self._operations = operations
        self._methods: dict[str, _Method] = {}
        self._loading: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        """By area. Held while a method of it is loaded: its requests begin in their order."""

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        """Answer one request; never raises but for cancellation."""
        # Most servers have no collector, and this is done for every request.
        answer = self._answer_in_span if is_on() else self._answer
        text = await answer(context, request)
        seconds, failure = perf_counter() - context.read_at_s, context.failure
        if request.method in METHODS:
            self._metrics.answered(request.method, seconds, failure)
        else:
            self.refused(failure or "methodNotFound")
        if logger.isEnabledFor(logging.INFO):
            logger.info("answered in %.2f ms%s", seconds * 1000, f": {failure}" if failure else "")
        return text

    def refused(self, failure: str) -> None:
        """Count an error to what was not dispatched; `failure` is its word."""
        self._metrics.refused(failure)

    async def _answer_in_span(self, context: RequestContext[Any], request: Request) -> str:
        method = request.method if request.method in METHODS else None
        with span(
            "request",
            method or "unknown method",
            request.trace,
            rpc__system="jsonrpc",
            rpc__method=method,
            jsonrpc__request__id=str(request.id),
            appserver__connection__id=context.connection_id,
        ) as work:
            text = await self._answer(context, request)
            if context.failure is not None:
                work.fail(context.failure)
        return text

    async def _answer(self, context: RequestContext[Any], request: Request) -> str:
        context.error = None
        refusal = self._refusal(context, request.method)
        if refusal is not None:
            return _render_failure(context, request, refusal)
        # The list hands the parameters over as one argument instead of one keyword each.
        call = Call(request.method, [request.params], request.id)
        outcome = await call_method(call, context, self._call)
        if context.error is None:
            text: str = outcome.bind(partial(_render, context, request))
        else:
            text = _render_failure(context, request, context.error)
        limit = MAX_ANSWER_CHARS
        if len(text) > limit and METHODS[request.method].large:
            limit = MAX_LARGE_ANSWER_CHARS
        if len(text) <= limit:
            return text
        logger.warning("answer to %s is too large: %d characters", request.method, len(text))
        return _render_failure(context, request, answer_too_large(len(text), limit))

    def _refusal(self, context: RequestContext[Any], method: str) -> RpcError | None:
        if context.initialized is None and method != "initialize":
            return invalid_request("Not initialized", "notInitialized")
        spec = METHODS.get(method)
        if spec is None:
            return _not_found(method)
        if spec.experimental and not context.client.experimental:
            return experimental_required(method)
        return None

    def is_immediate(self, method: str) -> bool:
        """Whether the handler of a method is loaded, so that no call waits for that."""
        loaded = self._methods.get(method)
        return loaded is not None and not loaded.loading.locked()

    async def _call(self, context: RequestContext[Any], params: Json) -> Result:
        """Have a method's handler answer: parameters in their type, failures in their wire form."""
        name = context.method
        try:
            method = self._methods.get(name)
            # What comes when it is loaded goes behind those that still wait for their turn.
            if method is None or method.loading.locked():
                method = await self.load(name)
            named = None
            if type(params) is dict and "_meta" in params and method.spec.takes_operation:
                named = self._named(context, params)
                params = params if named is None else named.params
            try:
                request = method.spec.parse_params(params, method.adapter)
            except ParamsMissing as exc:
                raise _missing_params() from exc
            except ValidationError as exc:
                raise first_problem(exc, params) from exc
            _require_allowed(name, context.initialized, request)
            if named is not None and self._operations is not None:
                perform = self._operations.perform
                return Success(await perform(context, method.spec, method.handler, request, named))
            return Success(await method.handler(context, request))
        except RpcError as exc:
            error = exc
        except LoadFailed as exc:
            error = load_failed(name, exc)
        except StoreUnavailable as exc:
            # Foreseen, and as often as clients ask: a line each.
            logger.warning("%s: %s", name, exc)
            error = storage_failed(exc, "the request cannot be served")
        except Exception as exc:
            logger.exception("handler failed: %s", name)
            if isinstance(exc, OSError) and exc.errno in FULL_OR_READ_ONLY:
                error = storage_failed(exc, "the home folder cannot be used")
            else:
                error = internal_error("Internal error")
        context.error = error
        raise JsonRpcError(error.code, error.message, error.data)

    def _named(self, context: RequestContext[Any], params: JsonObject) -> Named | None:
        """Read the name that a client gave a request; None: it has none."""
        client = context.initialized
        if client is not None and client.experimental:
            return operation_of(params)
        if context.method in OWN_META:
            # To a client without the opt-in the member is what its MCP server says.
            return None
        if operation_of(params) is None:
            return None
        raise experimental_required(f"{context.method}.{MEMBER}")

    async def load(self, name: str) -> "_Method":
        """Import the handler and the types of a method, if that is not done.

        Raises:
            LoadFailed: they cannot be imported now; the next request tries again.
            RpcError: no handler serves the method.
        """
        spec = METHODS[name]
        loading = self._loading[spec.area]
        async with loading:
            if name not in self._methods:
                handler = await load(self._find, name)
                if handler is None:
                    raise _not_built(name)
                self._methods[name] = _Method(spec, handler, type_adapter(spec.params), loading)
            return self._methods[name]

    def _find(self, name: str) -> Handler | None:
        METHODS[name].build()
        return self._find_handler(name)


@dataclass(frozen=True, slots=True)
class _Method:
    """A method that can be called."""

    spec: MethodSpec
    handler: Handler
    adapter: TypeAdapter[Any]
    """Of the type of its params."""
    loading: anyio.Lock
    """Held while a method of its area is loaded."""


def _not_built(method: str) -> RpcError:
    return RpcError(
        METHOD_NOT_FOUND, f"method not built yet: {method}", "methodNotBuilt", method=method
    )


def _not_found(method: str) -> RpcError:
    reason = UNSERVED.get(method)
    if reason is None:
        return RpcError(
            METHOD_NOT_FOUND, f"method not found: {method}", "methodNotFound", method=method
        )
    return RpcError(
        METHOD_NOT_FOUND,
        f"method not served: {method}: {reason}",
        "methodNotServed",
        method=method,
        reason=reason,
    )


def experimental_required(descriptor: str) -> RpcError:
    """Refuse what needs the experimental opt-in."""
    return invalid_request(
        f"{descriptor} requires experimentalApi capability",
        "experimentalApiRequired",
        descriptor=descriptor,
    )


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


def _require_allowed(method: str, client: InitializedClient | None, request: WireModel) -> None:
    """Refuse members that need the opt-in, and ids that cannot be those of threads."""
    if client is not None and not client.experimental:
        used = used_experimental(method, request)
        if used is not None:
            raise experimental_required(used)
    thread_id = request.__dict__.get("thread_id")
    if thread_id is None or method in CHOOSING:
        return
    if not is_thread_id(thread_id):
        raise invalid_request(
            f"invalid thread id: {thread_id}", "invalidThreadId", threadId=thread_id
        )
    THREAD.set(thread_id)


def storage_failed(error: OSError, what: str, **facts: Json) -> RpcError:
    """Say that the disk or the database refuses, and what to do; `what` cannot be done."""
    if isinstance(error, StoreUnavailable):
        return internal_error(
            f"{what}: {error}",
            "storageFailed",
            **facts,
            reason=error.reason,
            retriable=error.retriable,
            detail=str(error),
        )
    if error.errno in _FULL:
        reason, todo = "diskFull", "make room on the disk of the home folder, then try again"
    elif error.errno in _NOT_WRITABLE:
        reason, todo = "notWritable", "let the server write to its home folder, then try again"
    else:
        reason, todo = "ioError", "app-server doctor says what is wrong with the home folder"
    return internal_error(
        f"{what}: {error.strerror}; {todo}",
        "storageFailed",
        **facts,
        reason=reason,
        detail=str(error.strerror),
    )


def kind_of(error: RpcError) -> str:
    """Return the word of an error; one that a peer sent counts by its number alone."""
    return error.word or f"code {error.code}"


def load_failed(method: str, failure: LoadFailed) -> RpcError:
    """Say that what a method needs could not be imported; the next request tries again."""
    return internal_error(
        f"{method} needs what cannot be loaded: {failure}",
        "loadFailed",
        method=method,
        detail=str(failure),
    )


def _missing_params() -> RpcError:
    rule = "missing field `params`"
    return invalid_params(f"Invalid params: {rule}", field="params", rule=rule)


def first_problem(error: ValidationError, params: Json) -> RpcError:
    """Name the field and the rule of the first thing wrong with the parameters."""
    problem = error.errors(include_url=False, include_input=False)[0]
    missing = problem["type"] == "missing"
    field = ".".join(_path(problem["loc"], params, missing=missing))
    rule = problem["msg"].removeprefix("Value error, ")
    if missing:
        rule = f"missing field `{field}`"
    if problem["type"] == "model_type":
        rule = "must be a JSON object"
    where = f" `{field}`:" if field else ""
    return invalid_params(f"Invalid params:{where} {rule}", field=field, rule=rule)


def _path(loc: Sequence[int | str], params: Json, *, missing: bool) -> Iterator[str]:
    """Keep of pydantic's path what is in the params: it also names alternatives of unions."""
    value = params
    for position, part in enumerate(loc):
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        elif not (missing and position == len(loc) - 1):
            continue
        yield str(part)


def _render(context: RequestContext[Any], request: Request, outcome: SuccessResult) -> str:
    """Write the answer that a handler has given."""
    result: WireModel | PreparedResult = outcome.result
    client = context.initialized
    if isinstance(result, PreparedResult):
        return render_prepared(request.id, result.text, jsonrpc=context.jsonrpc)
    return render_result(
        request.id,
        result,
        jsonrpc=context.jsonrpc,
        experimental=client is None or client.experimental,
    )


def _render_failure(context: RequestContext[Any], request: Request, error: RpcError) -> str:
    context.failure = kind_of(error)
    return render_error(request.id, error.to_wire(), jsonrpc=context.jsonrpc)
