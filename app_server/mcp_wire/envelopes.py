"""The four messages of JSON-RPC 2.0, as MCP has them.

The SDK's package of types has them too, beside those of every method and version of MCP: to import
it takes a third of a second, which the first list of tools would wait for.
Source: JSON-RPC 2.0; MCP 2025-06-18, "Messages".
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter

RequestId: TypeAlias = Annotated[int, Field(strict=True)] | str

CONNECTION_CLOSED = -32000
"""Code of the error that stands for an answer that did not come."""


class ErrorData(BaseModel):
    """Why a request failed."""

    code: int
    message: str
    data: Any = None


class JSONRPCRequest(BaseModel):
    """A request."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    method: str
    params: dict[str, Any] | None = None


class JSONRPCNotification(BaseModel):
    """A notification, which has no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, Any] | None = None


class JSONRPCResponse(BaseModel):
    """The result of a request."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    result: dict[str, Any]


class JSONRPCError(BaseModel):
    """The failure of a request; without an id where that could not be read."""

    jsonrpc: Literal["2.0"]
    id: RequestId | None
    error: ErrorData


JSONRPCMessage: TypeAlias = JSONRPCRequest | JSONRPCNotification | JSONRPCResponse | JSONRPCError

jsonrpc_message_adapter: TypeAdapter[JSONRPCMessage] = TypeAdapter(JSONRPCMessage)
