"""Providers of models, requests to a model, the events of its response, and its failures.

Source: docs/config.md, "Models"; the public Responses and Chat Completions references, "Errors";
for servers on one's own machine the sources of llama.cpp (`exceed_context_size_error`) and vLLM
(its words for the same).
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pydantic_core import from_json, to_json

from app_server.runtime.http.event_stream import SseEvent
from protocol.model import Json, JsonObject, WireModel
from protocol.server.account import RateLimitSnapshot
from protocol.turns.turn import TokenUsageBreakdown

WireApi: TypeAlias = Literal["responses", "chat"]
"""The Responses API, or Chat Completions."""

WIRE_APIS: Sequence[WireApi] = ("responses", "chat")


@dataclass(frozen=True, slots=True)
class Provider:
    """Provider of models: its address, API, credentials and retries."""

    id: str
    name: str
    base_url: str | None
    """None for the offline model, whose address is known when it runs."""
    wire_api: WireApi = "responses"
    """Which API it speaks."""
    env_key: str | None = None
    """Environment variable that holds the bearer token."""
    bearer_token: str | None = field(default=None, repr=False)
    http_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    env_http_headers: Mapping[str, str] = field(default_factory=dict)
    query_params: Mapping[str, str] = field(default_factory=dict, repr=False)
    request_max_retries: int = 4
    """Tries after the first for a request that got no stream."""
    stream_max_retries: int = 5
    """Tries after the first for a stream that broke; each is announced."""
    stream_idle_timeout_s: float = 300.0
    requires_openai_auth: bool = False
    """Requests are made as the account that is signed in."""
    chatgpt_url: str | None = None
    """Base URL for requests of ChatGPT accounts; None: `base_url`."""
    spare_env_key: str | None = None
    """Environment variable with the bearer token for use without a sign-in."""


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """The model begins an output item."""

    item: JsonObject


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of a message."""

    item_id: str | None
    """None: the item that began last."""
    delta: str


@dataclass(frozen=True, slots=True)
class SummaryPartAdded:
    """A new paragraph of a reasoning summary."""

    item_id: str | None
    index: int


@dataclass(frozen=True, slots=True)
class SummaryDelta:
    """More text of a reasoning summary."""

    item_id: str | None
    index: int
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More raw reasoning."""

    item_id: str | None
    index: int
    delta: str


@dataclass(frozen=True, slots=True)
class CallInputDelta:
    """More of the plain text that a tool is called with."""

    item_id: str | None
    delta: str


@dataclass(frozen=True, slots=True)
class ItemDone:
    """An output item is complete."""

    item: JsonObject


@dataclass(frozen=True, slots=True)
class ResponseCompleted:
    """The response is complete."""

    usage: TokenUsageBreakdown | None


@dataclass(frozen=True, slots=True)
class LimitsReported:
    """The provider says where the account stands with its usage limits; before all else."""

    limits: Sequence[RateLimitSnapshot]


ModelEvent: TypeAlias = (
    LimitsReported
    | ItemAdded
    | TextDelta
    | SummaryPartAdded
    | SummaryDelta
    | ReasoningDelta
    | CallInputDelta
    | ItemDone
    | ResponseCompleted
)


OTHER = "other"
MAX_WORD_CHARS = 64


def kind_of(info: Json) -> str:
    """Return the word of a `codexErrorInfo`; `other` for what is no word, as it may be a text."""
    if isinstance(info, WireModel):
        info = info.model_dump()
    word = next(iter(info), OTHER) if isinstance(info, dict) else info
    is_word = isinstance(word, str) and word.isalpha() and len(word) <= MAX_WORD_CHARS
    return word if is_word else OTHER


class ModelFailure(Exception):
    """A model call failed.

    `info` is the wire's `codexErrorInfo`. `retry_after_s` is the shortest sensible wait, None when
    trying again makes no sense. `limits` are the usage limits that a refusal came with.
    """

    def __init__(
        self,
        message: str,
        info: Json = "other",
        *,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.info = info
        self.retry_after_s = retry_after_s
        self.limits: Sequence[RateLimitSnapshot] = ()
        self.is_cut_short = False
        """Whether the response was as long as it may be."""
        self.usage: TokenUsageBreakdown | None = None
        """Tokens of the failed call, as the model reports them."""
        self.names_bound = False
        """Whether the refusal is about the bound of the response, `max_output_tokens`."""
        self.sends_again = False
        """Whether the request is sent again at once, as it is to have no such bound then."""

    @property
    def kind(self) -> str:
        """The word of `info`, which is no text of anybody's."""
        return kind_of(self.info)

    @property
    def http_status(self) -> int | None:
        """The HTTP status in `info`, if there is one."""
        if isinstance(self.info, dict):
            for facts in self.info.values():
                status = facts.get("httpStatusCode")
                return status if isinstance(status, int) else None
        return None


EventBatches: TypeAlias = AsyncIterator[Sequence[ModelEvent]]


class Model(Protocol):
    """Interface for calls to a model; `LazyModel` is one."""

    def stream(
        self, provider: Provider, body: JsonObject
    ) -> AbstractAsyncContextManager[EventBatches]:
        """Make one call with a body of the Responses API, and give its events in batches.

        They come as they arrive; completion is the last.

        Raises:
            ModelFailure: on entering or while iterating.
        """


class EventReader(Protocol):
    """Reads the stream of one response."""

    def read(self, sse: SseEvent) -> Sequence[ModelEvent]:
        """Read one event; ResponseCompleted comes last of all.

        Raises:
            ModelFailure: the event reports one, or makes no sense.
        """

    def end(self) -> Sequence[ModelEvent]:
        """End reading with the body, and return the events that complete the response.

        Raises:
            ModelFailure: the response is not complete.
        """


class ModelApi(Protocol):
    """Interface for one API of models: translate a request, read its response."""

    @property
    def path(self) -> str:
        """Path of requests, behind the base URL of a provider."""

    def begin(self, body: JsonObject) -> tuple[JsonObject, EventReader]:
        """Translate a body of the Responses API; gives what is sent, and who reads the answer."""


RETRY_BASE_S = 0.2
MAX_RETRY_S = 30.0

RETRIED_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})

_TOO_LONG_WORDS = ("context_length_exceeded", "exceed_context_size_error")
_TOO_LONG_TEXT = "maximum context length is"
_USED_UP_WORDS = ("insufficient_quota", "usage_limit_reached", "usage_not_included")


def with_status(word: str, status: int | None = None) -> JsonObject:
    """Make a `codexErrorInfo` that has an HTTP status."""
    return {word: {"httpStatusCode": status}}


def broken(reason: str) -> ModelFailure:
    """Make the failure of a stream that ended before its answer did."""
    return ModelFailure(
        f"stream disconnected before completion: {reason}",
        with_status("responseStreamDisconnected"),
        retry_after_s=RETRY_BASE_S,
    )


def idle() -> ModelFailure:
    """Make the failure of a stream that says nothing for too long."""
    return broken("idle timeout waiting for the model")


def malformed(exc: Exception) -> ModelFailure:
    """Make the failure of an event that cannot be read."""
    return ModelFailure(
        f"the model sent an event that makes no sense: {type(exc).__name__}: {exc}",
        with_status("responseStreamDisconnected"),
        retry_after_s=RETRY_BASE_S,
    )


def incomplete(reason: str) -> ModelFailure:
    """Make the failure of an answer that the model did not finish."""
    failure = ModelFailure(f"Incomplete response returned, reason: {reason}")
    failure.is_cut_short = reason in ("max_output_tokens", "length")
    return failure


def known_failure(error: JsonObject) -> ModelFailure | None:
    """Recognize the failures that have a name, wherever an error is reported."""
    message = error.get("message")
    text = message if isinstance(message, str) else ""
    words = error.get("code"), error.get("type")
    if any(word in _TOO_LONG_WORDS for word in words) or _TOO_LONG_TEXT in text:
        return ModelFailure(
            text or "the conversation no longer fits the model's context window",
            "contextWindowExceeded",
        )
    if any(word in _USED_UP_WORDS for word in words):
        return ModelFailure(text or "the usage limit is reached", "usageLimitExceeded")
    if any(word in ("server_is_overloaded", "slow_down") for word in words):
        return ModelFailure(text or "the model is at capacity", "serverOverloaded")
    return None


_BOUNDS = re.compile(r"max_(?:output_|completion_)?tokens|in the completion\b")
"""How providers name the bound of a response that they refuse, or add to the input of a request."""


def names_bound(text: str) -> bool:
    """Whether the text of a refusal names the bound of the response, `max_output_tokens`."""
    return _BOUNDS.search(text) is not None


def reported(error: JsonObject) -> ModelFailure:
    """Make the failure that a stream reports, after it had begun with success."""
    failure = known_failure(error) or _unnamed(error)
    # Limits of usage may name it too, and are not about the request.
    is_of_request = failure.kind in (
        "badRequest",
        "contextWindowExceeded",
        "responseStreamDisconnected",
    )
    failure.names_bound = is_of_request and names_bound(to_json(error).decode())
    return failure


def _unnamed(error: JsonObject) -> ModelFailure:
    code = error.get("code")
    text = error.get("message")
    message = text if isinstance(text, str) and text else "the model failed without a reason"
    if code == "rate_limit_exceeded":
        return ModelFailure(
            f"rate limit exceeded: {message}", "rateLimitExceeded", retry_after_s=RETRY_BASE_S
        )
    if code in ("invalid_prompt", "invalid_request_error") or _is_bad_request(code):
        return ModelFailure(message, "badRequest")
    return ModelFailure(
        message, with_status("responseStreamDisconnected"), retry_after_s=RETRY_BASE_S
    )


def error_object(body: bytes) -> JsonObject:
    """Return the error of an HTTP answer; empty where the body has none."""
    try:
        content = from_json(body)
    except ValueError:
        return {}
    if not isinstance(content, dict):
        return {}
    # Older versions of vLLM send the error itself.
    error = content if content.get("object") == "error" else content.get("error")
    return error if isinstance(error, dict) else {}


def _is_bad_request(code: Json) -> bool:
    return isinstance(code, int) and 400 <= code < 500 and code not in RETRIED_STATUSES
