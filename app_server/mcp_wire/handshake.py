"""The beginning of a conversation with an MCP server, and the revision that it agrees on.

Source: MCP 2025-06-18, "Lifecycle"; MCP 2026-07-28, "Versioning", "Discovery";
docs/mcp.md, "Revisions of the protocol".
"""

from app_server.mcp_wire.errors import (
    EndedByQuestion,
    McpError,
    PeerError,
    RequestTimedOut,
    TransportClosed,
)
from app_server.mcp_wire.http.refusals import UNREACHABLE
from app_server.mcp_wire.json_rpc_client import JsonRpcClient
from app_server.mcp_wire.revisions import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE_VERSIONS,
    MCP_VERSION,
    OLDER_VERSIONS,
    SERVER_KEY,
    STATELESS,
    UNSUPPORTED_VERSION,
    VERSION_HEADER,
    VERSION_KEY,
    Revision,
)
from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.model import Json, JsonObject

OPENAI_FORM = "openai/form"
"""An extension, its method, and the mode of its questions: forms with any schema."""

_MODERN_ERRORS = (-32020, -32021)
"""Codes that only a server of a stateless revision has."""

_UNDECIDED = (401, 403, 407, 408, 425, 429)
"""Statuses from 400 to 499 that say nothing about the revision."""

AGAIN_PART = 4
"""At most this part of the time for an answer goes into the last question to a slow server."""


class Handshake:
    """The choice of a revision: `server/discover`, `initialize`, or one after the other.

    With `auto` the newest revision is asked for first, unless the last answer was an older one; a
    server that then refuses the handshake is asked for the newest. A server that does not answer in
    `probe_s` is sent `initialize` as well. If it refuses that, it is asked for the newest revision
    once more.
    """

    def __init__(
        self,
        rpc: JsonRpcClient,
        client_info: JsonObject,
        capabilities: JsonObject,
        protocol: str = "2025",
        known: str | None = None,
        probe_s: float = 1.0,
    ) -> None:
        """`protocol` is `2025`, `2026-07-28` or `auto`; `known` is the version of before."""
        self._rpc = rpc
        self._client_info = client_info
        self._capabilities = capabilities
        self._protocol = protocol
        self._is_old = known is not None and known != STATELESS
        self._probe_s = probe_s
        self.revision = Revision(MCP_VERSION)
        """As it was agreed on; before that the one of a handshake."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every message after a handshake."""
        return {VERSION_HEADER: self.revision.version}

    def forget(self) -> None:
        """Ask for the newest revision again: the server may have another one now."""
        self._is_old = False

    async def run(self, timeout_s: float) -> JsonObject:
        """Begin anew; returns the server's introduction, each answer to which may take `timeout_s`.

        A version in the answer to `initialize` that we do not know counts as ours.

        Raises:
            PeerError: it refuses, or has no revision that we have.
            TransportClosed, RequestTimedOut
            EndedByQuestion: it ended when it was asked for its revisions; it may be an old one.
        """
        if self._protocol == "2025":
            return await self._initialize(timeout_s)
        if self._protocol == STATELESS:
            return await self._discover(timeout_s)
        if self._is_old:
            try:
                return await self._initialize(timeout_s)
            except PeerError as exc:
                if not _leaves_open(exc):
                    raise
                if exc.code != UNSUPPORTED_VERSION:
                    # What only has the newest revision may say anything.
                    return await self._discover_after(exc, timeout_s / AGAIN_PART)
        return await self._find_out(timeout_s)

    async def _find_out(self, timeout_s: float) -> JsonObject:
        was_answered = True
        try:
            return await self._discover(min(self._probe_s, timeout_s))
        except TransportClosed as exc:
            raise EndedByQuestion from exc
        except RequestTimedOut:
            was_answered = False
        except PeerError as exc:
            if not _leaves_open(exc):
                raise
            if STATELESS in _supported(exc):
                return await self._discover(timeout_s)
        try:
            return await self._initialize(timeout_s)
        except TransportClosed as exc:
            if was_answered:
                raise
            # It was slow to read the question.
            raise EndedByQuestion from exc
        except PeerError as exc:
            # It was slow, and answers the question meanwhile: it takes no handshake after that.
            if STATELESS not in _supported(exc):
                if was_answered or not _leaves_open(exc):
                    raise
                return await self._discover_after(exc, timeout_s / AGAIN_PART)
        return await self._discover(timeout_s)

    async def _discover_after(self, refusal: PeerError, timeout_s: float) -> JsonObject:
        """Ask once more; without a good answer the `refusal` of the handshake is raised."""
        try:
            return await self._discover(timeout_s)
        except McpError:
            raise refusal from None

    async def _discover(self, timeout_s: float) -> JsonObject:
        envelope: JsonObject = {
            VERSION_KEY: STATELESS,
            CLIENT_KEY: self._client_info,
            CAPABILITIES_KEY: self._capabilities,
        }
        revision = Revision(STATELESS, envelope)
        found = await self._rpc.call(
            "server/discover",
            revision.dressed({}),
            headers=revision.headers("server/discover", {}),
            timeout_s=timeout_s,
            may_cancel=False,
        )
        versions = found.get("supportedVersions")
        if not isinstance(versions, list) or STATELESS not in versions:
            raise PeerError(INTERNAL_ERROR, f"the server does not speak MCP {STATELESS}")
        self.revision = revision
        self._is_old = False
        meta = found.get("_meta")
        who = meta.get(SERVER_KEY) if isinstance(meta, dict) else None
        return {**found, "protocolVersion": STATELESS, "serverInfo": who}

    async def _initialize(self, timeout_s: float) -> JsonObject:
        hello = await self._rpc.call(
            "initialize",
            {
                "protocolVersion": MCP_VERSION,
                "capabilities": self._capabilities,
                "clientInfo": self._client_info,
            },
            timeout_s=timeout_s,
            may_cancel=False,
        )
        answered = hello.get("protocolVersion")
        self.revision = Revision(answered if answered in OLDER_VERSIONS else MCP_VERSION)
        self._is_old = True
        await self._rpc.notify("notifications/initialized", self.headers)
        return hello


def _leaves_open(error: PeerError) -> bool:
    """Whether an error leaves open that another request begins the conversation.

    Failures of the way to it decide nothing.
    """
    if error.code in _MODERN_ERRORS:
        return False
    if error.code == UNSUPPORTED_VERSION:
        supported = _supported(error)
        return not supported or any(v in supported for v in (*HANDSHAKE_VERSIONS, STATELESS))
    status = error.data.get("status") if isinstance(error.data, dict) else None
    if error.code != UNREACHABLE or not isinstance(status, int):
        return True
    return status in (500, 501) or (400 <= status < 500 and status not in _UNDECIDED)


def _supported(error: PeerError) -> list[Json]:
    if error.code != UNSUPPORTED_VERSION or not isinstance(error.data, dict):
        return []
    found = error.data.get("supported")
    return found if isinstance(found, list) else []
