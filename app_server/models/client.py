"""Model calls over HTTP: limits, the events of the Responses API, requests, retries, accounts.

Chat Completions of servers of local models are in chat_completions.py.
Importing this module imports httpx, which takes a while: lazy.py does it when a model is needed.
Source: docs/config.md, "Models"; the public Responses API reference, "Streaming".
"""

import math
import os
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Literal

import anyio
import anyio.lowlevel
import httpcore  # noqa: F401
import httpx
from pydantic_core import to_json

from app_server.accounts.account_errors import OTHER_ACCOUNT, AccountError, RefreshFailed
from app_server.accounts.accounts import Accounts
from app_server.accounts.credentials import Credentials
from app_server.config.values import ConfigError
from app_server.models.chat_completions import ChatCompletions
from app_server.models.interface import (
    MAX_RETRY_S,
    RETRIED_STATUSES,
    RETRY_BASE_S,
    CallInputDelta,
    EventBatches,
    EventReader,
    ItemAdded,
    ItemDone,
    ModelApi,
    ModelEvent,
    ModelFailure,
    Provider,
    ReasoningDelta,
    ResponseCompleted,
    SummaryDelta,
    SummaryPartAdded,
    TextDelta,
    WireApi,
    broken,
    error_object,
    idle,
    incomplete,
    known_failure,
    malformed,
    names_bound,
    reported,
    with_status,
)
from app_server.models.response_stream import event_batches
from app_server.observability.telemetry.spans import trace_context
from app_server.runtime.http.bounded_body import read_beginning
from app_server.runtime.http.event_stream import SseEvent
from app_server.runtime.http.loopback_address import LOOPBACK_PATTERNS
from app_server.runtime.loader import Lazy
from app_server.runtime.loop_share import LoopShare
from protocol.jsonrpc.lone_surrogates import read_json
from protocol.model import Json, JsonObject
from protocol.server.account import CreditsSnapshot, RateLimitSnapshot, RateLimitWindow
from protocol.server.lifecycle import PROTOCOL_VERSION
from protocol.turns.turn import TokenUsageBreakdown

MAX_LIMITS = 16
"""Of one response; more are passed over."""
MAX_TEXT_CHARS = 256
"""Of a name or a balance; longer ones are passed over."""

_USED = "-primary-used-percent"
_FAMILY = re.compile(rf"x-([a-z0-9-]{{1,64}}){_USED}")
_DEFAULT = "codex"
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_REACHED = frozenset(
    {
        "rate_limit_reached",
        "workspace_owner_credits_depleted",
        "workspace_member_credits_depleted",
        "workspace_owner_usage_limit_reached",
        "workspace_member_usage_limit_reached",
    }
)
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def rate_limits(headers: Mapping[str, str]) -> Sequence[RateLimitSnapshot]:
    """Read the limits that a response reports, the default one first; none where it reports none.

    `headers` has names in lower case, or finds them whatever their case. What cannot be read is
    left out: a model call does not fail for it.
    """
    if not any(name.lower().startswith("x-") for name in headers):
        return ()
    others = {match[1] for name in headers if (match := _FAMILY.fullmatch(name.lower()))}
    families = [_DEFAULT, *sorted(others - {_DEFAULT})[: MAX_LIMITS - 1]]
    return [limit for family in families if (limit := _limit(headers, family)) is not None]


def _limit(headers: Mapping[str, str], family: str) -> RateLimitSnapshot | None:
    limit = RateLimitSnapshot(
        limit_id=family.replace("-", "_"),
        limit_name=_header_text(headers, f"x-{family}-limit-name"),
        primary=_window(headers, f"x-{family}-primary"),
        secondary=_window(headers, f"x-{family}-secondary"),
        credits=_credits(headers),
        rate_limit_reached_type=_reached(headers) if family == _DEFAULT else None,
    )
    parts = limit.primary, limit.secondary, limit.rate_limit_reached_type
    has_credits = family == _DEFAULT and limit.credits is not None
    return limit if has_credits or any(part is not None for part in parts) else None


def _window(headers: Mapping[str, str], prefix: str) -> RateLimitWindow | None:
    try:
        used = float(headers.get(f"{prefix}-used-percent", ""))
    except ValueError:
        return None
    if not 0 <= used < 2**31:
        return None
    minutes = _header_integer(headers, f"{prefix}-window-minutes")
    resets_at = _header_integer(headers, f"{prefix}-reset-at")
    if not used and not minutes and resets_at is None:
        # A provider without this limit sends zeros.
        return None
    return RateLimitWindow(
        used_percent=math.floor(used + 0.5), window_duration_mins=minutes, resets_at=resets_at
    )


def _credits(headers: Mapping[str, str]) -> CreditsSnapshot | None:
    has_credits = _TRUTHS.get(headers.get("x-codex-credits-has-credits", "").lower())
    unlimited = _TRUTHS.get(headers.get("x-codex-credits-unlimited", "").lower())
    if has_credits is None or unlimited is None:
        return None
    return CreditsSnapshot(
        has_credits=has_credits,
        unlimited=unlimited,
        balance=_header_text(headers, "x-codex-credits-balance"),
    )


def _reached(headers: Mapping[str, str]) -> str | None:
    word = headers.get("x-codex-rate-limit-reached-type", "")
    return word if word in _REACHED else None


def _header_integer(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name, "")
    return int(text) if _INTEGER.fullmatch(text) else None


def _header_text(headers: Mapping[str, str], name: str) -> str | None:
    text = headers.get(name, "").strip()
    return text if text and len(text) <= MAX_TEXT_CHARS else None


class ResponsesApi:
    """The API `responses`."""

    path = "responses"

    def begin(self, body: JsonObject) -> tuple[JsonObject, EventReader]:
        """Send a body as it is, but for reasoning that another API has left in the history."""
        if any(map(_is_foreign, body["input"])):
            body = {**body, "input": [item for item in body["input"] if not _is_foreign(item)]}
        return body, _Reader()


def _is_foreign(item: JsonObject) -> bool:
    """Whether it is raw reasoning that no Responses API has given a name."""
    is_named = item.get("id") or item.get("encrypted_content")
    return item.get("type") == "reasoning" and bool(item.get("content")) and not is_named


class _Reader:
    def read(self, sse: SseEvent) -> Sequence[ModelEvent]:
        event = parse_event(sse)
        return () if event is None else (event,)

    def end(self) -> Sequence[ModelEvent]:
        raise broken("stream closed before response.completed")


def parse_event(sse: SseEvent) -> ModelEvent | None:
    """Read one event of the Responses API; None for kinds that are not used.

    Raises:
        ModelFailure: the event reports one, or is not JSON.
    """
    try:
        event = read_json(sse.data)
        match event["type"]:
            case "response.output_text.delta":
                return TextDelta(_item_id(event), _text(event, "delta"))
            case "response.output_item.added":
                return ItemAdded(_item(event))
            case "response.output_item.done":
                return ItemDone(_item(event))
            case "response.reasoning_summary_part.added":
                return SummaryPartAdded(_item_id(event), _index(event, "summary_index"))
            case "response.reasoning_summary_text.delta":
                index = _index(event, "summary_index")
                return SummaryDelta(_item_id(event), index, _text(event, "delta"))
            case "response.reasoning_text.delta":
                index = _index(event, "content_index")
                return ReasoningDelta(_item_id(event), index, _text(event, "delta"))
            case "response.custom_tool_call_input.delta":
                return CallInputDelta(_item_id(event), _text(event, "delta"))
            case "response.completed":
                return ResponseCompleted(_usage(event["response"].get("usage")))
            case "response.failed" | "error":
                raise _with_usage(reported(_error(event)), event)
            case "response.incomplete":
                details = event["response"].get("incomplete_details") or {}
                raise _with_usage(incomplete(details.get("reason") or "unknown"), event)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise malformed(exc) from exc
    return None


def _with_usage(failure: ModelFailure, event: JsonObject) -> ModelFailure:
    """Add what a failed response has used to its failure, where the event says it."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        failure.usage = _usage(event["response"].get("usage"))
    return failure


def _text(event: JsonObject, key: str) -> str:
    value = event[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a string")
    return value


def _index(event: JsonObject, key: str) -> int:
    index = int(event[key])
    if not -(2**63) <= index < 2**63:
        # As many as clients can be sent.
        raise ValueError(f"{key} must have at most 64 bits")
    return index


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


def _error(event: JsonObject) -> JsonObject:
    error: JsonObject = event.get("error") or (event.get("response") or {}).get("error") or event
    return error


CONNECT_S = 15.0
WRITE_S = 60.0
MAX_ERROR_BYTES = 64 * 1024
MAX_LIST_BYTES = 4 * 1024 * 1024
"""Of a provider's list of models."""
MAX_RENEWALS = 2
"""Other tokens that one call tries: one renewed elsewhere, and one that it renews itself."""

ACCEPTED = {"POST": "text/event-stream", "GET": "application/json"}

APIS: Mapping[WireApi, ModelApi] = {"responses": ResponsesApi(), "chat": ChatCompletions()}


class ModelClient:
    """APIs of models over one pool of HTTP connections."""

    def __init__(
        self,
        offline_url: Lazy[str],
        accounts: Accounts,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`offline_url` is the base URL of the offline model, which is started with it.

        `trusted` verifies servers; without it it is made now, which takes 20 ms.
        """
        self._offline_url = offline_url
        self._accounts = accounts
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
    async def stream(self, provider: Provider, body: JsonObject) -> AsyncIterator[EventBatches]:
        """Make one call and give its events in batches as they arrive.

        Requests that get no stream are tried again, silently, `request_max_retries` times.

        Raises:
            ModelFailure: on entering or while iterating.
        """
        api = APIS[provider.wire_api]
        sent, reader = api.begin(body)
        response = await self._send(provider, api.path, sent)
        try:
            with _model_errors():
                batches = event_batches(
                    response.aiter_bytes(),
                    reader,
                    rate_limits(response.headers),
                    provider.stream_idle_timeout_s,
                    self._share,
                )
                async with aclosing(batches):
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
            raise ModelFailure(
                f"status {response.status_code}, {len(body)} bytes",
                with_status("httpConnectionFailed", response.status_code),
            )
        return body

    async def _send(self, provider: Provider, path: str, body: JsonObject) -> httpx.Response:
        content = await encode(body)
        account = await self._account(provider)
        tries_left, renewals_left = provider.request_max_retries, MAX_RENEWALS
        while True:
            try:
                request = await self._request(provider, account, "POST", path, content)
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
                await anyio.sleep(min(failure.retry_after_s, MAX_RETRY_S))

    async def _request(
        self,
        provider: Provider,
        account: Credentials | None,
        method: Literal["GET", "POST"],
        path: str,
        content: bytes | None = None,
    ) -> httpx.Request:
        base_url = provider.base_url or await self._offline_url.get()
        if account is not None and account.is_chatgpt:
            base_url = provider.chatgpt_url or base_url
        idle_s = provider.stream_idle_timeout_s
        try:
            return self._http.build_request(
                method,
                f"{base_url.rstrip('/')}/{path}",
                params=dict(provider.query_params) or None,
                headers=_headers(provider, account, ACCEPTED[method]),
                content=content,
                timeout=httpx.Timeout(idle_s, connect=CONNECT_S, write=WRITE_S),
            )
        except httpx.InvalidURL as exc:
            raise ModelFailure(
                f"the base_url of provider `{provider.id}` is no URL: {exc}"
            ) from exc

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
                str(exc), with_status("responseStreamDisconnected"), retry_after_s=RETRY_BASE_S
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
                failure = _refused(response, body)
                failure.limits = rate_limits(response.headers)
                raise failure
            finally:
                await response.aclose()


class _Unauthorized(ModelFailure):
    """HTTP 401."""


def _headers(provider: Provider, account: Credentials | None, accepted: str) -> httpx.Headers:
    headers = httpx.Headers({"accept": accepted, "content-type": "application/json"})
    headers.update(trace_context())
    headers.update(provider.http_headers)
    for name, source in provider.env_http_headers.items():
        if value := os.environ.get(source):
            headers[name] = value
    if account is not None:
        headers.update(account.headers())
        return headers
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
            with_status("httpConnectionFailed"),
            retry_after_s=RETRY_BASE_S,
        ) from exc
    except httpx.ReadTimeout as exc:
        raise idle() from exc
    except (httpx.TransportError, httpx.StreamError) as exc:
        raise broken(str(exc) or type(exc).__name__) from exc


def _refused(response: httpx.Response, body: bytes) -> ModelFailure:
    failure = _described(response, body)
    is_bad = response.status_code in (400, 422)
    failure.names_bound = is_bad and names_bound(body.decode(errors="replace"))
    return failure


def _described(response: httpx.Response, body: bytes) -> ModelFailure:
    status = response.status_code
    error = error_object(body)
    if (known := known_failure(error)) is not None:
        return known
    message = error.get("message")
    where = response.request.url.copy_with(query=None)
    reason = message or body.decode(errors="replace").strip() or response.reason_phrase
    text = f"unexpected status {status} {response.reason_phrase}: {reason}, url: {where}"
    if request_id := response.headers.get("x-request-id"):
        text += f", request id: {request_id}"
    info: Json = with_status("httpConnectionFailed", status)
    match status:
        case 400:
            info = "badRequest"
        case 429:
            info = with_status("responseTooManyFailedAttempts", status)
        case 500:
            info = "internalServerError"
    if status == httpx.codes.UNAUTHORIZED:
        return _Unauthorized(text, info)
    wait = _retry_after(response.headers) if status in RETRIED_STATUSES else None
    return ModelFailure(text, info, retry_after_s=wait)


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", RETRY_BASE_S)))
    except ValueError:
        return RETRY_BASE_S


PIECE_BYTES = 64 * 1024
"""Bytes to encode before a checkpoint, at the end of an element of a list: about 0.3 ms."""


async def encode(body: JsonObject, piece_bytes: int = PIECE_BYTES) -> bytes:
    """Write a body; the lists in it are not to change meanwhile."""
    members = []
    for name, value in body.items():
        text = await _list(value, piece_bytes) if isinstance(value, list) else _json(value)
        members.append(_json(name) + b":" + text)
    return b"{%b}" % b",".join(members)


async def _list(elements: list[Json], piece_bytes: int) -> bytes:
    texts = []
    unyielded = 0
    for element in elements:
        text = _json(element)
        texts.append(text)
        unyielded += len(text)
        if unyielded >= piece_bytes:
            unyielded = 0
            await anyio.lowlevel.checkpoint()
    return b"[%b]" % b",".join(texts)


def _json(value: Json) -> bytes:
    return to_json(value, inf_nan_mode="null")
