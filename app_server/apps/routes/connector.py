"""The MCP server of one connector: its tools under local names, and the way of a call upstream.

Source: docs/apps.md, "Local routes".
"""

from dataclasses import dataclass

from app_server.apps.files.files import FileBounds, FileSupport, SandboxState, upload_arguments
from app_server.apps.inventory.annotations import ENVELOPE
from app_server.apps.inventory.inventory import AppTool
from app_server.apps.inventory.names import Route
from app_server.apps.routes.backing import Backing
from app_server.apps.routes.handshakes import SANDBOX_STATE, handshake_of, listed_tool, listed_tools
from app_server.apps.routes.local_server import (
    CALL_ID,
    RESOURCE_NOT_FOUND,
    Context,
    LocalServer,
    meta_of,
    no_list,
    public_part,
    text_of,
)
from app_server.apps.routes.session import LocalSession
from app_server.apps.routes.sign_in import ERROR_CODE, AuthFailure, Refresh, offer_sign_in
from app_server.mcp_wire.errors import PeerError
from app_server.mcp_wire.held_calls import HeldCall
from protocol.jsonrpc.errors import INVALID_PARAMS
from protocol.model import Json, JsonObject

EFFECTIVE_INPUT = "codex/toolInput"

MAX_SHOWN_CHARS = 300
"""Of a name in an error."""

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class _Call:
    """One `tools/call`, taken apart."""

    tool: AppTool
    id: str
    arguments: Json
    """An object, null or absent; see `params`."""
    meta: JsonObject
    """The `_meta` of the upstream call."""
    state: SandboxState | None

    def params(self, arguments: Json) -> JsonObject:
        """Return the params of the call upstream."""
        given = {} if self.arguments is _ABSENT else {"arguments": arguments}
        return {"name": self.tool.name, **given, "_meta": self.meta}


class ConnectorServer:
    """The request handlers of a connector's MCP server."""

    def __init__(
        self, route: Route, backing: Backing, files: FileSupport | None, refresh: Refresh
    ) -> None:
        self._route = route
        self._backing = backing
        self._files = files
        self._refresh = refresh
        self._tools: list[JsonObject] | None = None
        self.server = LocalServer(
            handshake_of(route, has_files=files is not None),
            backing,
            {
                "tools/list": self._list,
                "tools/call": self._call,
                # What its tools declare can be read, but not enumerated.
                "resources/list": no_list("resources"),
                "resources/templates/list": no_list("resourceTemplates"),
                "resources/read": self._read,
            },
            self._schema_of,
        )

    async def _list(
        self, context: Context, params: JsonObject, held: HeldCall | None
    ) -> JsonObject:
        if self._tools is None:
            self._tools = listed_tools(self._route, has_files=self._files is not None)
        return {"tools": self._tools}

    def _schema_of(self, name: str) -> Json:
        if name not in self._route.tools:
            return None
        tool = listed_tool(self._route, name, has_files=self._files is not None)
        return tool.get("inputSchema")

    async def _read(
        self, context: Context, params: JsonObject, held: HeldCall | None
    ) -> JsonObject:
        uri = text_of(params, "uri")
        if not any(uri in tool.resources for tool in self._route.connector.tools):
            raise PeerError(RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})
        return await self.server.forward(context, params, held)

    async def _call(
        self, context: Context, params: JsonObject, held: HeldCall | None
    ) -> JsonObject:
        call = self._taken_apart(context, params)
        session = LocalSession.of(context, self._route.server, self._backing, held)
        async with session.call() as upstream:
            arguments = await self._with_files(call)
            # From here on the call may finish, whatever becomes of the credentials.
            await self._backing.settle()
            result = await upstream.request(
                "tools/call",
                call.params(arguments),
                on_progress=session.progress_of(context, call.meta.get("progressToken")),
            )
            sent = arguments if arguments is not call.arguments else None
            failure = AuthFailure.in_result(result, self._route.connector)
            result = _with_meta(result, failure, sent)
            if failure is None:
                return result
            return await offer_sign_in(
                failure,
                result,
                self._route.connector,
                call.id,
                session,
                self._refresh,
                self._backing.bounds.refresh_s,
            )

    def _taken_apart(self, context: Context, params: JsonObject) -> _Call:
        name = text_of(params, "name")
        tool = self._route.tools.get(name)
        if tool is None:
            raise PeerError(INVALID_PARAMS, f"Unknown tool: {name[:MAX_SHOWN_CHARS]}")
        arguments = params.get("arguments", _ABSENT)
        if arguments not in (None, _ABSENT) and not isinstance(arguments, dict):
            raise PeerError(INVALID_PARAMS, "arguments must be an object")
        given = meta_of(params)
        state = SandboxState.parse(given[SANDBOX_STATE]) if SANDBOX_STATE in given else None
        given_id = given.get(CALL_ID)
        call_id = given_id if isinstance(given_id, str) and given_id else str(context.request_id)
        # Upstream trusts the envelope, so it is never the client's.
        meta = {**public_part(given), ENVELOPE: {**tool.envelope, "call_id": call_id}}
        return _Call(tool, call_id, arguments, meta, state)

    async def _with_files(self, call: _Call) -> Json:
        if self._files is None or not isinstance(call.arguments, dict):
            return call.arguments
        tool = call.tool
        params = {name: FileBounds.of(tool.definition, name) for name in tool.file_params}
        return await upload_arguments(
            self._files, call.arguments, params, call.state, self._backing.check
        )


def _with_meta(
    result: JsonObject, failure: AuthFailure | None, sent: JsonObject | None
) -> JsonObject:
    """Add the sent input and the error code to `_meta` of a result, for this process alone."""
    given = result.get("_meta")
    meta = dict(given) if isinstance(given, dict) else {}
    meta.pop(EFFECTIVE_INPUT, None)
    if sent is not None:
        meta[EFFECTIVE_INPUT] = sent
    if failure is not None and failure.error_code is not None:
        meta.setdefault(ERROR_CODE, failure.error_code)
    if meta or "_meta" in result:
        return {**result, "_meta": meta}
    return result
