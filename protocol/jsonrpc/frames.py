"""The frames of JSON-RPC as the schema shows them; `envelope` reads and writes them."""

from typing_extensions import TypeAliasType

from protocol.model import Int64, Json, WireModel, absent_if_none

RequestId = TypeAliasType("RequestId", str | Int64)
"""Chosen by whoever asks, and sent back with the answer."""


class W3cTraceContext(WireModel):
    """W3C Trace Context of the caller."""

    traceparent: str | None = None
    tracestate: str | None = None


class JSONRPCRequest(WireModel):
    """A question that has one answer."""

    id: RequestId
    method: str
    params: Json = absent_if_none()
    trace: W3cTraceContext | None = absent_if_none()


class JSONRPCNotification(WireModel):
    """News that has no answer."""

    method: str
    params: Json = absent_if_none()


class JSONRPCResponse(WireModel):
    """The answer to a request that went well."""

    id: RequestId
    result: Json


class ErrorData(WireModel, extra="allow"):
    """What a program needs to know of an error; further members are its facts."""

    code: str
    """A stable camelCase word, such as `threadNotFound`."""


class JSONRPCErrorError(WireModel):
    """Why a request failed."""

    code: Int64
    message: str
    data: Json = absent_if_none()
    """An `ErrorData`; what an MCP server refused comes with whatever that server said."""


class JSONRPCError(WireModel):
    """The answer to a request that failed."""

    id: RequestId
    error: JSONRPCErrorError


JSONRPCMessage = TypeAliasType(
    "JSONRPCMessage", JSONRPCRequest | JSONRPCNotification | JSONRPCResponse | JSONRPCError
)
"""Anything that can stand in a frame."""
