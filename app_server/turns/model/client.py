"""Model calls over HTTP: the Responses API as a stream of server-sent events.

Importing this module imports httpx, which takes a while: server.py does it when a model is needed.
Source: the public Responses API reference; docs/config.md, "Models".
"""

import logging
import os
import ssl
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Literal

import anyio

# httpx imports it with its first client, on the event loop.
import httpcore  # noqa: F401
import httpx
from pydantic_core import from_json

from app_server.accounts.accounts import Accounts
from app_server.accounts.credentials import Credentials
from app_server.accounts.errors import OTHER_ACCOUNT, AccountError, RefreshFailed
from app_server.config.values import ConfigError
from app_server.http.bounded_body import read_beginning
from app_server.http.event_stream import EventParser, EventTooLarge, SseEvent
from app_server.http.loopback_address import LOOPBACK_PATTERNS
from app_server.turns.model.encoding import encode
from app_server.turns.model.interface import (
    EventBatches,
    ItemAdded,
    ItemDone,
    ModelEvent,
    ModelFailure,
    ModelRequest,
    ReasoningDelta,
    ResponseCompleted,
    SummaryDelta,
    SummaryPartAdded,
    TextDelta,
)
from app_server.turns.model.loop_share import LoopShare
from app_server.turns.model.providers import Provider
from app_server.turns.model.response_bounds import ResponseBounds, too_long
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.model import Json, JsonObject
from protocol.turns import TokenUsageBreakdown

logger = logging.getLogger(__name__)

CONNECT_S = 15.0
WRITE_S = 60.0
MAX_EVENT_BYTES = 16 * 1024 * 1024
BATCH = 8
"""Events that are given out before streams of other models have their turn."""
MAX_ERROR_BYTES = 64 * 1024
MAX_LIST_BYTES = 4 * 1024 * 1024
"""Of a provider's list of models."""
RETRY_BASE_S = 0.2
MAX_RENEWALS = 2
"""How often one call tries another token: one that somebody else renewed, and one of its own."""

MAX_RETRY_S = 30.0
RETRIED_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})


class ModelClient:
    """Responses APIs over one pool of HTTP connections."""

    def __init__(
        self,
        offline_url: Callable[[], Awaitable[str]],
        accounts: Accounts,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`offline_url` starts the offline model if need be and gives its base URL.

        `trusted` verifies servers; without it it is made now, which takes 20 ms.
        """
        self._offline_url = offline_url
        self._accounts = accounts
        self._sleep = sleep
        self._share = LoopShare()
        self._http = httpx.AsyncClient(
            headers={"user-agent": f"app-server/{PROTOCOL_VERSION}"},
            mounts=dict.fromkeys(LOOPBACK_PATTERNS),
            verify=True if trusted is None else trusted,
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=32),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[EventBatches]:
        """Make one call and give its events in batches as they arrive.

        Requests that get no stream are tried again, silently, `request_max_retries` times.

        Raises:
            ModelFailure: on entering or while iterating.
        """
        response = await self._send(request.provider, request.body)
        try:
            with _model_errors():
                chunks = _DataChunks(response, request.provider.stream_idle_timeout_s, self._share)
                async with aclosing(_batches(chunks, self._share)) as batches:
                    yield batches
        finally:
            await response.aclose()

    async def list_models(self, provider: Provider) -> bytes:
        """Ask a provider for its models and return the body of the answer; never tried again.

        Raises:
            ModelFailure: there is no answer, it is no list, or it has more than MAX_LIST_BYTES.
        """
        request = await self._request(provider, await self._account(provider), "GET", "models")
        with _model_errors():
            response = await self._http.send(request, stream=True)
            try:
                body = await read_beginning(response.aiter_bytes(), MAX_LIST_BYTES + 1)
            finally:
                await response.aclose()
        if response.status_code != httpx.codes.OK or len(body) > MAX_LIST_BYTES:
            raise ModelFailure(f"status {response.status_code}, {len(body)} bytes")
        return body

    async def _send(self, provider: Provider, body: JsonObject) -> httpx.Response:
        content = await encode(body)
        account = await self._account(provider)
        tries_left, renewals_left = provider.request_max_retries, MAX_RENEWALS
        while True:
            try:
                request = await self._request(provider, account, "POST", "responses", content)
                return await self._send_once(request)
            except _Unauthorized:
                if account is None or not account.is_chatgpt or renewals_left == 0:
                    raise
                renewals_left -= 1
                account = await self._other_token(account)
            except ModelFailure as failure:
                if failure.retry_after_s is None or tries_left == 0:
                    raise
                tries_left -= 1
                await self._sleep(min(failure.retry_after_s, MAX_RETRY_S))

    async def _request(
        self,
        provider: Provider,
        account: Credentials | None,
        method: Literal["GET", "POST"],
        path: str,
        content: bytes | None = None,
    ) -> httpx.Request:
        base_url = provider.base_url or await self._offline_url()
        if account is not None and account.is_chatgpt:
            base_url = provider.chatgpt_url or base_url
        return self._http.build_request(
            method,
            f"{base_url.rstrip('/')}/{path}",
            params=dict(provider.query_params) or None,
            headers=_headers(provider, account),
            content=content,
            timeout=httpx.Timeout(provider.stream_idle_timeout_s, connect=CONNECT_S, write=WRITE_S),
        )

    async def _account(self, provider: Provider) -> Credentials | None:
        """Return the account that a provider's requests are made as, if there is one."""
        if not provider.requires_openai_auth or provider.env_key or provider.bearer_token:
            return None
        try:
            return (await self._accounts.fresh()).credentials
        except ConfigError as exc:
            raise ModelFailure(f"failed to load configuration: {exc}") from exc

    async def _other_token(self, refused: Credentials) -> Credentials:
        try:
            account = (await self._accounts.replace(refused)).credentials
        except RefreshFailed as exc:
            raise ModelFailure(str(exc), "unauthorized") from exc
        except AccountError as exc:
            raise ModelFailure(
                str(exc), _with_status("responseStreamDisconnected"), retry_after_s=RETRY_BASE_S
            ) from exc
        if account is None:
            raise ModelFailure(OTHER_ACCOUNT, "unauthorized")
        return account

    async def _send_once(self, request: httpx.Request) -> httpx.Response:
        with _model_errors():
            response = await self._http.send(request, stream=True)
            if response.status_code == httpx.codes.OK:
                return response
            try:
                body = await read_beginning(response.aiter_bytes(), MAX_ERROR_BYTES)
                raise _refused(response, body)
            finally:
                await response.aclose()


class _Unauthorized(ModelFailure):
    """HTTP 401."""


def _headers(provider: Provider, account: Credentials | None) -> dict[str, str]:
    headers = {"accept": "text/event-stream", "content-type": "application/json"}
    headers.update(provider.http_headers)
    for name, source in provider.env_http_headers.items():
        if value := os.environ.get(source):
            headers[name] = value
    if account is not None:
        return {**headers, **account.headers()}
    token = provider.bearer_token
    variable = provider.env_key or provider.spare_env_key
    if variable is not None:
        token = os.environ.get(variable)
        if not token:
            raise ModelFailure(f"Missing environment variable: `{variable}`.")
    if token:
        headers["authorization"] = f"Bearer {token}"
    return headers


@contextmanager
def _model_errors() -> Iterator[None]:
    """Translate what httpx raises, once."""
    try:
        yield
    except httpx.ConnectError as exc:
        raise ModelFailure(
            f"cannot reach the model at {exc.request.url.copy_with(query=None)}: {exc}",
            _with_status("httpConnectionFailed"),
            retry_after_s=RETRY_BASE_S,
        ) from exc
    except httpx.ReadTimeout as exc:
        raise _idle() from exc
    except (httpx.TransportError, httpx.StreamError) as exc:
        raise _broken(str(exc) or type(exc).__name__) from exc
    except EventTooLarge as exc:
        raise too_long(f"an event has more than {MAX_EVENT_BYTES} bytes") from exc


def _broken(reason: str) -> ModelFailure:
    return ModelFailure(
        f"stream disconnected before completion: {reason}",
        _with_status("responseStreamDisconnected"),
        retry_after_s=RETRY_BASE_S,
    )


def _idle() -> ModelFailure:
    return _broken("idle timeout waiting for the model")


def _with_status(word: str, status: int | None = None) -> JsonObject:
    return {word: {"httpStatusCode": status}}


def _refused(response: httpx.Response, body: bytes) -> ModelFailure:
    status = response.status_code
    error = _error_object(body)
    message = error.get("message")
    for word in (error.get("code"), error.get("type")):
        if (known := _known_failure(word, message)) is not None:
            return known
    where = response.request.url.copy_with(query=None)
    reason = message or body.decode(errors="replace").strip() or response.reason_phrase
    text = f"unexpected status {status} {response.reason_phrase}: {reason}, url: {where}"
    if request_id := response.headers.get("x-request-id"):
        text += f", request id: {request_id}"
    info: Json = _with_status("httpConnectionFailed", status)
    match status:
        case 400:
            info = "badRequest"
        case 429:
            info = _with_status("responseTooManyFailedAttempts", status)
        case 500:
            info = "internalServerError"
    if status == httpx.codes.UNAUTHORIZED:
        return _Unauthorized(text, info)
    wait = _retry_after(response.headers) if status in RETRIED_STATUSES else None
    return ModelFailure(text, info, retry_after_s=wait)


def _error_object(body: bytes) -> JsonObject:
    try:
        content = from_json(body)
    except ValueError:
        return {}
    error = content.get("error") if isinstance(content, dict) else None
    return error if isinstance(error, dict) else {}


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", RETRY_BASE_S)))
    except ValueError:
        return RETRY_BASE_S


def _known_failure(word: Json, message: Json) -> ModelFailure | None:
    """Recognize the failures that have a name, wherever they are reported."""
    match word:
        case "context_length_exceeded":
            return ModelFailure(
                message or "the conversation no longer fits the model's context window",
                "contextWindowExceeded",
            )
        case "insufficient_quota" | "usage_limit_reached" | "usage_not_included":
            return ModelFailure(message or "the usage limit is reached", "usageLimitExceeded")
        case "server_is_overloaded" | "slow_down":
            return ModelFailure(message or "the model is at capacity", "serverOverloaded")
    return None


class _DataChunks:
    """The events of a response, as many at a time as one read brings."""

    def __init__(self, response: httpx.Response, idle_s: float, share: LoopShare) -> None:
        self.bounds = ResponseBounds()
        self._chunks = response.aiter_bytes()
        self._parser = EventParser(MAX_EVENT_BYTES)
        self._idle_s = idle_s
        self._share = share

    async def next(self) -> Sequence[SseEvent] | None:
        """Wait for the next events that have data; None at the end of the stream.

        Raises:
            ModelFailure: nothing but comments, or parts of an event, came in time.
        """
        deadline = anyio.current_time() + self._idle_s
        events = await self._read()
        if events is None or events:
            return events
        # Each read has the same limit; only where one brings no event another timer is needed.
        try:
            with anyio.fail_after(deadline - anyio.current_time()):
                while events is not None and not events:
                    events = await self._read()
        except TimeoutError as exc:
            raise _idle() from exc
        return events

    async def _read(self) -> Sequence[SseEvent] | None:
        await self._share.wait()
        chunk = await anext(self._chunks, None)
        if chunk is None:
            return None
        self.bounds.read(len(chunk))
        return self._parser.feed(chunk)


async def _batches(
    chunks: _DataChunks, share: LoopShare
) -> AsyncGenerator[Sequence[ModelEvent], None]:
    while (received := await chunks.next()) is not None:
        events: list[ModelEvent] = []
        for sse in received:
            try:
                event = parse_event(sse)
                if event is not None:
                    events.extend(chunks.bounds.take(event, len(sse.data)))
            except ModelFailure:
                if events:
                    yield events
                raise
            if isinstance(event, ResponseCompleted):
                yield events
                return
            if len(events) >= BATCH:
                yield events
                events = []
                await share.wait()
        if events:
            yield events
    raise _broken("stream closed before response.completed")


def parse_event(sse: SseEvent) -> ModelEvent | None:
    """Read one event of the Responses API; None for kinds that nobody needs.

    Raises:
        ModelFailure: the event reports one, or is not JSON.
    """
    try:
        event = from_json(sse.data)
        match event["type"]:
            case "response.output_text.delta":
                return TextDelta(_item_id(event), _text(event, "delta"))
            case "response.output_item.added":
                return ItemAdded(_item(event))
            case "response.output_item.done":
                return ItemDone(_item(event))
            case "response.reasoning_summary_part.added":
                return SummaryPartAdded(_item_id(event), int(event["summary_index"]))
            case "response.reasoning_summary_text.delta":
                index = int(event["summary_index"])
                return SummaryDelta(_item_id(event), index, _text(event, "delta"))
            case "response.reasoning_text.delta":
                index = int(event["content_index"])
                return ReasoningDelta(_item_id(event), index, _text(event, "delta"))
            case "response.completed":
                return ResponseCompleted(_usage(event["response"].get("usage")))
            case "response.failed" | "error":
                raise _reported(event)
            case "response.incomplete":
                raise _incomplete(event["response"])
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ModelFailure(
            f"the model sent an event that makes no sense: {type(exc).__name__}: {exc}",
            _with_status("responseStreamDisconnected"),
            retry_after_s=RETRY_BASE_S,
        ) from exc
    return None


def _text(event: JsonObject, key: str) -> str:
    value = event[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a string")
    return value


def _item_id(event: JsonObject) -> str | None:
    return None if event.get("item_id") is None else _text(event, "item_id")


def _item(event: JsonObject) -> JsonObject:
    item = event["item"]
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        raise ValueError("an item must be an object with a type")
    return item


def _usage(usage: Json) -> TokenUsageBreakdown | None:
    if not isinstance(usage, dict):
        return None
    input_details = usage.get("input_tokens_details") or {}
    output_details = usage.get("output_tokens_details") or {}
    return TokenUsageBreakdown(
        total_tokens=usage["total_tokens"],
        input_tokens=usage["input_tokens"],
        cached_input_tokens=input_details.get("cached_tokens") or 0,
        output_tokens=usage["output_tokens"],
        reasoning_output_tokens=output_details.get("reasoning_tokens") or 0,
    )


def _reported(event: JsonObject) -> ModelFailure:
    error = event.get("error") or (event.get("response") or {}).get("error") or event
    code = error.get("code")
    if (known := _known_failure(code, error.get("message"))) is not None:
        return known
    message = error.get("message") or "the model failed without a reason"
    if code == "rate_limit_exceeded":
        return ModelFailure(
            f"rate limit exceeded: {message}", "rateLimitExceeded", retry_after_s=RETRY_BASE_S
        )
    if code in ("invalid_prompt", "invalid_request_error"):
        return ModelFailure(message, "badRequest")
    return ModelFailure(
        message, _with_status("responseStreamDisconnected"), retry_after_s=RETRY_BASE_S
    )


def _incomplete(response: JsonObject) -> ModelFailure:
    reason = (response.get("incomplete_details") or {}).get("reason") or "unknown"
    return ModelFailure(f"Incomplete response returned, reason: {reason}")
