"""JSON-RPC envelopes: text to message and message to text, without I/O.

`parse_message` never raises: what is not a valid message comes back as an `Invalid` that carries
the answer it deserves. Rendering leaves the `jsonrpc` member out unless the peer asked for it.
Source: JSON-RPC 2.0; docs/wire.md, "Framing".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydantic_core import to_json

from protocol.contract.gate import stable_exclude
from protocol.jsonrpc.errors import PARSE_ERROR, ErrorObject, RpcError, invalid_request
from protocol.jsonrpc.lone_surrogates import read_json
from protocol.model import STABLE, Json, JsonObject, WireModel

RequestId: TypeAlias = str | int

INT64 = range(-(2**63), 2**63)

MAX_ID_CHARS = 1024
"""Of an id that is a string: it comes back in the answer."""

MAX_BATCH = 1000
"""Messages of one batch."""


@dataclass(slots=True)
class Request:
    """A call that gets exactly one answer; it never changes.

    It is not frozen, as making one would take three times as long, and there is one for each.
    """

    id: RequestId
    method: str
    params: Json
    jsonrpc: bool = False
    """The caller sent `"jsonrpc":"2.0"`."""
    trace: Json = None
    """The W3C trace context of the caller, as it came."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A message that gets no answer."""

    method: str
    params: Json


@dataclass(frozen=True, slots=True)
class Answer:
    """The other side's answer to one of our requests; `error` is None when it went well."""

    id: RequestId
    result: Json
    error: Json


@dataclass(frozen=True, slots=True)
class Invalid:
    """What is not a message, with the answer that says why. `id` is None when it has none."""

    id: RequestId | None
    error: RpcError


@dataclass(frozen=True, slots=True)
class Batch:
    """Several messages in one text; their answers travel together."""

    messages: Sequence["Message"]


Message: TypeAlias = Request | Notification | Answer | Invalid


_LOOKED_INTO = frozenset({float, dict, list})
"""Types of values that are infinity, or may hold it."""


def parse_message(text: str) -> Message | Batch:
    """Read one text: a message, a batch of at least one, or an `Invalid`."""
    try:
        value = read_json(text, allow_inf_nan=False)
    except TypeError:
        # Bytes that are no UTF-8 stand in the text as surrogates.
        return Invalid(None, _parse_error("not UTF-8"))
    except ValueError as exc:
        return Invalid(None, _parse_error(str(exc)))
    if _holds_infinity(value):
        return Invalid(None, _parse_error("number out of range"))
    if not isinstance(value, list):
        return _parse_object(value)
    if not value:
        return refused(None, "a batch must hold at least one message")
    if len(value) > MAX_BATCH:
        return refused(None, f"a batch may hold at most {MAX_BATCH} messages")
    return Batch([_parse_object(element) for element in value])


def _parse_object(value: Json) -> Message:
    if not isinstance(value, dict):
        return refused(None, "a message must be a JSON object")
    request_id = value.get("id")
    if type(request_id) is str:
        if len(request_id) > MAX_ID_CHARS:
            return refused(None, f"`id` may have at most {MAX_ID_CHARS} characters")
    # To `isinstance` a boolean is an integer.
    elif type(request_id) is not int or request_id not in INT64:
        if "id" in value:
            return refused(None, "`id` must be a string or an integer of 64 bits")
        request_id = None
    method = value.get("method")
    if not isinstance(method, str):
        if "method" in value:
            return refused(request_id, "`method` must be a string")
        if request_id is not None and ("result" in value or "error" in value):
            return Answer(request_id, value.get("result"), value.get("error"))
        return refused(request_id, "`method` is missing")
    params = value.get("params")
    if request_id is None:
        return Notification(method, params)
    return Request(request_id, method, params, value.get("jsonrpc") == "2.0", value.get("trace"))


def _holds_infinity(value: Json) -> bool:
    """Whether a number was too large: it is read as infinity, which JSON cannot say back."""
    if type(value) is float:
        return math.isinf(value)
    inner = value.values() if type(value) is dict else value if type(value) is list else ()
    for one in inner:  # noqa: SIM110 (`any` takes twice as long)
        if one and type(one) in _LOOKED_INTO and _holds_infinity(one):
            return True
    return False


def refused(request_id: RequestId | None, rule: str) -> Invalid:
    """Refuse what is no message that is taken; `rule` says why."""
    return Invalid(
        request_id, invalid_request(f"Invalid request: {rule}", "invalidRequest", rule=rule)
    )


def _parse_error(reason: str) -> RpcError:
    return RpcError(PARSE_ERROR, f"Parse error: {reason}", "parseError", reason=reason)


_PREFIX = {False: "{", True: '{"jsonrpc":"2.0",'}


def render_result(
    request_id: RequestId,
    result: WireModel | JsonObject,
    *,
    jsonrpc: bool = False,
    experimental: bool = True,
) -> str:
    """Write the answer to a request that went well.

    Without `experimental` the members that need the opt-in are left out.
    """
    body = render_value(result, experimental)
    return f'{_PREFIX[jsonrpc]}"id":{_render(request_id)},"result":{body}}}'


def render_prepared(request_id: RequestId, result: str, *, jsonrpc: bool = False) -> str:
    """Write the answer to a request whose result is JSON already."""
    return f'{_PREFIX[jsonrpc]}"id":{_render(request_id)},"result":{result}}}'


def render_error(request_id: RequestId | None, error: ErrorObject, *, jsonrpc: bool = False) -> str:
    """Write the answer to a request that failed; `request_id` None renders as null."""
    body = render_value(error, experimental=True)
    return f'{_PREFIX[jsonrpc]}"id":{_render(request_id)},"error":{body}}}'


def render_request(
    request_id: RequestId,
    method: str,
    params: WireModel,
    *,
    jsonrpc: bool = False,
    experimental: bool = True,
) -> str:
    """Write a request of ours to a client; no method of ours has a character to escape."""
    body = render_value(params, experimental)
    return f'{_PREFIX[jsonrpc]}"method":"{method}","id":{_render(request_id)},"params":{body}}}'


def render_notification(
    method: str,
    params: WireModel,
    emitted_at_ms: int,
    *,
    jsonrpc: bool = False,
    experimental: bool = True,
    seq: int | None = None,
) -> str:
    """Write a notification; `emitted_at_ms` is Unix milliseconds and travels beside `params`.

    So does `seq`, the number of the event in the stream of its thread. No method of ours has a
    character to escape.
    """
    body = render_value(params, experimental)
    numbers = f'"emittedAtMs":{emitted_at_ms}' + ("" if seq is None else f',"seq":{seq}')
    return f'{_PREFIX[jsonrpc]}"method":"{method}","params":{body},{numbers}}}'


_NO_THREAD = '"threadId":""'
"""The first member of the parameters; no text in JSON has this in it, as quotes are escaped."""


class RepeatedNotifications:
    """Notifications of one method that thread after thread is sent alike, and rendered once."""

    def __init__(self, method: str, *events: WireModel) -> None:
        """Take events, one at least, whose first member is their thread, here the empty text."""
        self.method = method
        self._events = events
        self._around: dict[tuple[bool, bool], list[tuple[str, str]]] = {}
        """What stands before and behind the thread's id, by `experimental` and `jsonrpc`."""

    def __len__(self) -> int:
        return len(self._events)

    def render(
        self,
        thread_id: str,
        emitted_at_ms: int,
        *,
        jsonrpc: bool = False,
        experimental: bool = True,
        seqs: Sequence[int] | None = None,
    ) -> list[str]:
        """Write them for a thread, as `render_notification` does; `seqs` has a number for each."""
        around = self._around.get((experimental, jsonrpc))
        if around is None:
            texts = (
                render_notification(
                    self.method, event, 0, jsonrpc=jsonrpc, experimental=experimental
                )
                for event in self._events
            )
            around = self._around[experimental, jsonrpc] = [_split(text) for text in texts]
        thread = _render(thread_id)
        if seqs is None:
            return [f"{head}{thread}{tail}{emitted_at_ms}}}" for head, tail in around]
        return [
            f'{head}{thread}{tail}{emitted_at_ms},"seq":{seq}}}'
            for (head, tail), seq in zip(around, seqs, strict=True)
        ]


def _split(text: str) -> tuple[str, str]:
    head, _, tail = text.partition(_NO_THREAD)
    return head + _NO_THREAD[:-2], tail.removesuffix("0}")


def render_batch(answers: Sequence[str]) -> str:
    """Join rendered answers into the one array that answers a batch."""
    return f"[{','.join(answers)}]"


RECORD_SEPARATOR = "\x1e"
"""No JSON has this character in it as it is (RFC 8259, section 7; RFC 7464 uses it likewise)."""


def join_messages(texts: Sequence[str]) -> str:
    """Join messages into one frame between nodes; one is its own frame."""
    return RECORD_SEPARATOR.join(texts)


def split_messages(frame: str) -> Sequence[str]:
    """Split a frame between nodes into its messages, without parsing them."""
    return frame.split(RECORD_SEPARATOR)


def _render(value: RequestId | None) -> str:
    return str(value) if type(value) is int else to_json(value).decode()


def render_value(value: WireModel | JsonObject, experimental: bool) -> str:
    """Write a value as JSON; see `render_result`."""
    # Bytes put together before they are text would be one more copy, of up to 64 MiB.
    # To ask whether something is a WireModel would take a sixth of the time of writing it.
    if isinstance(value, dict):
        return to_json(value, by_alias=True, inf_nan_mode="null").decode()
    if experimental:
        return value.__pydantic_serializer__.to_json(value, by_alias=True).decode()
    return value.__pydantic_serializer__.to_json(
        value, by_alias=True, exclude=stable_exclude(type(value)), context=STABLE
    ).decode()
