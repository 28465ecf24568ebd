"""Error codes and the error object of an answer.

The numbers are JSON-RPC's and the peers'; the stable word that tells failures of one number apart
travels in `data.code`.
"""

from protocol.model import Json, JsonObject, WireModel, absent_if_none

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
OVERLOADED = -32001

OVERLOADED_MESSAGE = "Server overloaded; retry later."
"""Clients compare this text to decide whether a request may be sent again."""


class ErrorObject(WireModel):
    """The `error` member of an answer. Source: JSON-RPC 2.0, section 5.1."""

    code: int
    message: str
    data: Json = absent_if_none()


class RpcError(Exception):
    """A failure that has a place on the wire.

    `word` is the stable name a program can switch on, `facts` what the message says in prose; both
    travel in `error.data`. Without a word there is no `data`, unless `data` is given whole (errors
    of a peer that are passed on as they came).
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
        super().__init__(message)
        self.code = code
        self.message = message
        self.data: Json = data if word is None else JsonObject(code=word, **facts)

    def to_wire(self) -> ErrorObject:
        """Render as the `error` member of an answer."""
        return ErrorObject(code=self.code, message=self.message, data=self.data)


def invalid_request(message: str, word: str, **facts: Json) -> RpcError:
    """Refuse a request that is well formed but cannot be done (-32600)."""
    return RpcError(INVALID_REQUEST, message, word, **facts)


def invalid_params(message: str, word: str = "invalidParams", **facts: Json) -> RpcError:
    """Refuse parameters; the message names the field and the rule (-32602)."""
    return RpcError(INVALID_PARAMS, message, word, **facts)


def internal_error(message: str, word: str = "internalError", **facts: Json) -> RpcError:
    """Report a failure on our side or behind us (-32603)."""
    return RpcError(INTERNAL_ERROR, message, word, **facts)


def overloaded() -> RpcError:
    """Refuse work because a bound is reached; the client may try again (-32001)."""
    return RpcError(OVERLOADED, OVERLOADED_MESSAGE, "overloaded")
