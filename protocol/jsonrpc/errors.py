"""Error codes and the error object of an answer.

The numbers are JSON-RPC's and the peers'; the stable word that tells failures of one number apart
travels in `data.code`.
"""

from typing import Any

from protocol.model import Json, JsonObject, WireModel, absent_if_none

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
OVERLOADED = -32001

OVERLOADED_MESSAGE = "Server overloaded; retry later."
"""Clients compare this text to decide whether a request may be sent again."""

MAX_ANSWER_CHARS = 1024 * 1024 - 1
"""Of one answer, also to a batch: a common client reads no more than 1 MiB a message."""
MAX_LARGE_ANSWER_CHARS = 64 * 1024 * 1024 - 1
"""Of one answer that has what a client asked for by its size, such as a file."""
MAX_MESSAGE_CHARS = 4096
"""Of an error's message; what is longer is cut."""
MAX_FACT_CHARS = 1024
"""Of a text in `error.data`; what is longer is cut."""
MAX_FACTS = 100
"""Elements of a list in `error.data`; what comes after them is left out."""


class ErrorObject(WireModel):
    """The `error` member of an answer. Source: JSON-RPC 2.0, section 5.1."""

    code: int
    message: str
    data: Json = absent_if_none()


class RpcError(Exception):
    """A failure that has a place on the wire.

    `word` is the stable name a program can switch on, `facts` what the message says in prose; both
    travel in `error.data`. Without a word there is no `data`, unless `data` is given whole (errors
    of a peer that are passed on as they came). Messages and facts repeat what was sent, so both are
    cut to a bounded length.
    """

    def __init__(
        self,
        code: int,
        message: str,
        word: str | None = None,
        *,
        data: Json = None,
        **facts: Json,
    ) -> None:
        self.code = code
        self.word = word
        self.message = _cut(message, MAX_MESSAGE_CHARS)
        super().__init__(self.message)
        self.data: Json = data if word is None else JsonObject(code=word, **_brief(facts))

    def to_wire(self) -> ErrorObject:
        """Render as the `error` member of an answer."""
        return ErrorObject(code=self.code, message=self.message, data=self.data)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _brief(value: Json) -> Any:
    match value:
        case str():
            return _cut(value, MAX_FACT_CHARS)
        case list():
            return [_brief(element) for element in value[:MAX_FACTS]]
        case dict():
            return {name: _brief(member) for name, member in value.items()}
    return value


def invalid_request(message: str, word: str, **facts: Json) -> RpcError:
    """Refuse a request that is well formed but cannot be done (-32600)."""
    return RpcError(INVALID_REQUEST, message, word, **facts)


def invalid_params(message: str, word: str = "invalidParams", **facts: Json) -> RpcError:
    """Refuse parameters; the message names the field and the rule (-32602)."""
    return RpcError(INVALID_PARAMS, message, word, **facts)


def invalid_member(field: str, rule: str) -> RpcError:
    """Refuse a member of the parameters, by its path and the rule that it breaks (-32602)."""
    return invalid_params(f"Invalid params: `{field}` {rule}", field=field, rule=rule)


def internal_error(message: str, word: str = "internalError", **facts: Json) -> RpcError:
    """Report a failure on our side or behind us (-32603)."""
    return RpcError(INTERNAL_ERROR, message, word, **facts)


def answer_too_large(size: int, limit: int = MAX_ANSWER_CHARS) -> RpcError:
    """Refuse to send what no client may read; both numbers are in characters (-32603)."""
    return internal_error(
        f"the answer is larger than {limit} characters; ask for less at a time",
        "answerTooLarge",
        limit=limit,
        size=size,
    )


def overloaded() -> RpcError:
    """Refuse work because a bound is reached; the client may try again (-32001)."""
    return RpcError(OVERLOADED, OVERLOADED_MESSAGE, "overloaded")
