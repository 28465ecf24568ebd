"""Failures of model calls that more than one part reports. No I/O.

Source: the public Responses and Chat Completions references, "Errors"; for servers on one's own
machine the sources of llama.cpp (`exceed_context_size_error`) and vLLM (its words for the same).
"""

from pydantic_core import from_json

from app_server.models.interface import ModelFailure
from protocol.model import Json, JsonObject

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
    return ModelFailure(f"Incomplete response returned, reason: {reason}")


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


def reported(error: JsonObject) -> ModelFailure:
    """Make the failure that a stream reports, after it had begun with success."""
    if (known := known_failure(error)) is not None:
        return known
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
