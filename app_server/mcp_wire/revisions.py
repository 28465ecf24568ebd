"""The revisions of MCP that are spoken: the form of their requests, and what their results mean.

Up to 2025-11-25 a handshake says once who talks, and a session remembers it. From 2026-07-28 on
every request says it, and a server that wants to know something ends the request with a question.
Source: MCP 2025-06-18, "Lifecycle"; MCP 2026-07-28, "Versioning", "Multi Round-Trip Requests";
docs/mcp.md, "Revisions of the protocol".
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS
from protocol.model import Json, JsonObject

STATELESS = "2026-07-28"
"""The one revision without handshake and session."""

MCP_VERSION = "2025-06-18"
"""Offered in a handshake."""

OLDER_VERSIONS = ("2024-11-05", "2025-03-26")
"""Older protocol versions that a server may answer with."""

HANDSHAKE_VERSIONS = (*OLDER_VERSIONS, MCP_VERSION, "2025-11-25")
"""Protocol versions that begin with a handshake."""

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose requests may be answered with questions, and the member in `mcp-name`."""

META = "io.modelcontextprotocol/"
VERSION_KEY = f"{META}protocolVersion"
CLIENT_KEY = f"{META}clientInfo"
CAPABILITIES_KEY = f"{META}clientCapabilities"
SERVER_KEY = f"{META}serverInfo"
LOG_KEY = f"{META}logLevel"

COMPLETE = "complete"
INPUT_REQUIRED = "input_required"

MAX_INPUTS = 16
"""Questions of one result; a result with more fails its call."""

_PLAIN = re.compile(r"[\x20-\x7e]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")


def header_value(text: str) -> str:
    """Encode a text for a header; what is no plain text of ASCII goes as base64.

    Source: MCP 2026-07-28, "Streamable HTTP", "Value Encoding".
    """
    if _PLAIN.fullmatch(text) and text == text.strip() and not _ENCODED.fullmatch(text):
        return text
    # A lone surrogate has no UTF-8; the body has it as U+FFFD, too.
    return f"=?base64?{base64.b64encode(text.encode(errors='replace')).decode()}?="


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision, as it was agreed on with one server."""

    version: str
    envelope: JsonObject = field(default_factory=dict)
    """Keys of `_meta` of every request; none where a handshake said it."""

    @property
    def is_stateless(self) -> bool:
        """Whether requests say themselves what a handshake would."""
        return bool(self.envelope)

    def dressed(self, params: JsonObject) -> JsonObject:
        """Return the params of a request with all that the revision wants in them."""
        if not self.envelope:
            return params
        return {**params, "_meta": {**(params.get("_meta") or {}), **self.envelope}}

    def headers(self, method: str, params: JsonObject) -> dict[str, str]:
        """Return the headers of HTTP that a request goes with."""
        headers = {VERSION_HEADER: self.version}
        if self.envelope:
            headers[METHOD_HEADER] = method
            name = params.get(NAMED_BY.get(method, ""))
            if isinstance(name, str):
                headers[NAME_HEADER] = header_value(name)
        return headers

    def result(self, method: str, result: JsonObject) -> JsonObject:
        """Return a result without what only belongs to the revision, or one that asks, whole.

        Raises:
            WrongRevision: it means nothing in this revision.
        """
        kind = result.get("resultType", COMPLETE)
        if not self.envelope:
            if kind == INPUT_REQUIRED:
                raise WrongRevision(f"answered {method} as in {STATELESS}", self.version)
            return result
        if kind == INPUT_REQUIRED and method in NAMED_BY:
            return result
        if kind != COMPLETE:
            raise WrongRevision(f"answered {method} with an unknown resultType", self.version)
        kept = {name: value for name, value in result.items() if name != "resultType"}
        meta = kept.get("_meta")
        if isinstance(meta, dict) and SERVER_KEY in meta:
            kept["_meta"] = {name: value for name, value in meta.items() if name != SERVER_KEY}
            if not kept["_meta"]:
                del kept["_meta"]
        return kept


UNSUPPORTED_VERSION = -32022
"""Code of a server that has the revisions in `data.supported`, but not the one of the request."""

NOT_CACHED: JsonObject = {"ttlMs": 0, "cacheScope": "private"}
"""Members of results that a client is not to keep."""


def client_of(params: JsonObject, supported: Sequence[str]) -> tuple[Json, JsonObject] | None:
    """Return who makes a request, and what the client can do; None where a handshake says it.

    `supported` are the revisions of the server, whatever begins them.

    Raises:
        PeerError: -32602, the request does not say all; -32022, its revision is not there.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict) or VERSION_KEY not in meta:
        return None
    version, capabilities = meta[VERSION_KEY], meta.get(CAPABILITIES_KEY)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise PeerError(
            INVALID_PARAMS, f"_meta must have {VERSION_KEY} and {CAPABILITIES_KEY}, an object"
        )
    if version != STATELESS:
        data: JsonObject = {"supported": list(supported), "requested": version}
        raise PeerError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    return meta.get(CLIENT_KEY), capabilities


def stamped(result: JsonObject, server_info: JsonObject) -> JsonObject:
    """Return a result with all that a stateless revision wants in it."""
    meta = result.get("_meta")
    signed = {SERVER_KEY: server_info, **(meta if isinstance(meta, dict) else {})}
    return {"resultType": COMPLETE, **result, "_meta": signed}


class WrongRevision(PeerError):
    """The server does what the agreed revision of MCP does not have."""

    def __init__(self, what: str, agreed: str) -> None:
        self.what = what
        super().__init__(INTERNAL_ERROR, f"the server {what}, but MCP {agreed} was agreed on")


def asks_for_input(result: JsonObject) -> bool:
    """Whether a result of a stateless revision asks something before the call can go on."""
    return result.get("resultType") == INPUT_REQUIRED


def inputs_of(result: JsonObject) -> dict[str, tuple[str, JsonObject]]:
    """Return the questions of a result that asks: method and params, by the server's keys.

    Raises:
        PeerError: they make no sense, or are more than MAX_INPUTS; or there are none, and no
            `requestState`: the call would be made again as it was.
    """
    asked: Json = result.get("inputRequests") or {}
    if not isinstance(asked, dict) or len(asked) > MAX_INPUTS:
        raise PeerError(INTERNAL_ERROR, f"inputRequests must be an object of {MAX_INPUTS} at most")
    if not asked and not isinstance(result.get("requestState"), str):
        raise PeerError(
            INTERNAL_ERROR, f"{INPUT_REQUIRED} must have inputRequests, or requestState, a string"
        )
    found: dict[str, tuple[str, JsonObject]] = {}
    for key, request in asked.items():
        method = request.get("method") if isinstance(request, dict) else None
        params = request.get("params") or {} if isinstance(request, dict) else None
        if not isinstance(method, str) or not isinstance(params, dict):
            raise PeerError(INTERNAL_ERROR, "a question in inputRequests is no request")
        found[key] = method, params
    return found
