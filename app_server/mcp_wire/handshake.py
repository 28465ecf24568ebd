"""The handshake that begins a session with an MCP server, and the version that it agrees on.

Source: MCP 2025-06-18, "Lifecycle".
"""

from app_server.mcp_wire.http.session import VERSION_HEADER
from app_server.mcp_wire.json_rpc_client import JsonRpcClient
from protocol.model import JsonObject

MCP_VERSION = "2025-06-18"
OLDER_VERSIONS = ("2024-11-05", "2025-03-26")
"""Older protocol versions that a server may answer with."""

OPENAI_FORM = "openai/form"
"""An extension, its method, and the mode of its questions: forms with any schema."""


class Handshake:
    """The client's `initialize` request, and the protocol version that the last one agreed on."""

    def __init__(
        self, rpc: JsonRpcClient, client_info: JsonObject, capabilities: JsonObject
    ) -> None:
        self._rpc = rpc
        self._client_info = client_info
        self._capabilities = capabilities
        self._version = MCP_VERSION

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every message after the handshake."""
        return {VERSION_HEADER: self._version}

    async def run(self, timeout_s: float) -> JsonObject:
        """Begin a new session; returns the server's introduction, which may take `timeout_s`.

        A version that we do not know counts as ours.

        Raises:
            PeerError, TransportClosed, RequestTimedOut
        """
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
        self._version = answered if answered in OLDER_VERSIONS else MCP_VERSION
        await self._rpc.notify("notifications/initialized", self.headers)
        return hello
