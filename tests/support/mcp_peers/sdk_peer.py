"""An MCP server of the official SDK for tests, which has both revisions of MCP, on both transports.

Each tool does the same in both: in a session it sends the client a request, without one it answers
with a question and is called again. `main` serves on stdio, and `sdk_app` is for HTTP.
"""

import json
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import (
    StreamableHTTPASGIApp,
    StreamableHTTPSessionManager,
)
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata

STATELESS = "2026-07-28"
LEVELS: tuple[types.LoggingLevel, ...] = ("debug", "warning")
STATE = "opaque: 🔒 =?base64?"

FORM = types.ElicitRequestFormParams(
    message="Which?",
    requested_schema={"type": "object", "properties": {"which": {"type": "string"}}},
)
ASKED: dict[str, types.InputRequest] = {
    "form": types.ElicitRequest(params=FORM),
    "link": types.ElicitRequest(
        params=types.ElicitRequestURLParams(
            message="Go there", url="https://example.com/there", elicitation_id="there"
        )
    ),
    "roots": types.ListRootsRequest(),
    "sample": types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(
            messages=[
                types.SamplingMessage(
                    role="user", content=types.TextContent(type="text", text="Hello?")
                )
            ],
            max_tokens=10,
        )
    ),
}
"""What the tools of these names ask the client."""

RESULTS: dict[str, Any] = {"roots": types.ListRootsResult, "sample": types.CreateMessageResult}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {
            "type": "object",
            "properties": {"number": {"type": "integer", "x-mcp-header": "Number"}},
        },
    },
}
BROKEN: dict[str, Any] = {
    "type": "object",
    "properties": {"list": {"type": "array", "x-mcp-header": "List"}},
}

NAMES = (
    *("form", "link", "roots", "sample", "rounds", "meta", "progress", "slow", "headers", "grow"),
    "log",
    "slowness",
)


def _tool(name: str, schema: dict[str, Any]) -> types.Tool:
    annotations = types.ToolAnnotations(read_only_hint=True)
    return types.Tool(name=name, input_schema=schema, annotations=annotations)


class _Server(Server[Any]):
    """A server that wants to know in which sandbox commands run."""

    def get_capabilities(self, *arguments: Any, **more: Any) -> types.ServerCapabilities:
        found = super().get_capabilities(*arguments, **more)
        more = {
            "experimental": {"codex/sandbox-state-meta": {}},
            "logging": types.LoggingCapability(),
        }
        return found.model_copy(update=more)


class SdkPeer:
    """The server, and what it has seen."""

    def __init__(self) -> None:
        self.tools = [_tool(name, {"type": "object"}) for name in NAMES if name != "headers"]
        self.tools += [_tool("headers", SCHEMA), _tool("broken", BROKEN)]
        self.cancelled = anyio.Event()
        self.started = anyio.Event()
        self.slow: dict[str, list[str]] = {"begun": [], "ended": []}
        """Threads whose call of `slow` has begun, or was cancelled; the tool `slowness` tells."""
        self.bus = InMemorySubscriptionBus()
        self.server: Server[Any] = _Server(
            "sdk",
            version="1",
            instructions="Use it wisely.",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_read_resource=self._read,
            on_list_resource_templates=self._list_templates,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self.tools, ttl_ms=60_000, cache_scope="public")

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        name = params.name
        is_stateless = context.protocol_version == STATELESS
        if name in ASKED:
            asked = ASKED[name]
            if is_stateless:
                return _answered(asked, params)
            answer = await self._ask(context, asked, RESULTS.get(name, types.ElicitResult))
            return _text(answer)
        if name == "rounds":
            return await self._rounds(context, params, is_stateless=is_stateless)
        if name == "meta":
            return _text(context.params["_meta"] if context.params else None)
        if name == "headers":
            request = context.request
            found = {} if request is None else dict(request.headers)
            return _text({key: found[key] for key in sorted(found) if key.startswith("mcp-")})
        if name == "progress":
            await context.session.report_progress(1, 2, "half way")
        if name == "log":
            for level in LEVELS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", MCPDeprecationWarning)
                    sending = context.session.send_log_message(
                        level, params.arguments, "lib", related_request_id=context.request_id
                    )
                await sending
        if name == "grow":
            self.tools.append(_tool(f"grown_{len(self.tools)}", {"type": "object"}))
            if is_stateless:
                await self.bus.publish(ToolsListChanged())
            else:
                await context.session.send_tool_list_changed()
        if name == "slowness":
            return _text(self.slow)
        if name == "slow":
            await self._wait((context.params or {})["_meta"]["threadId"])
        return _text(f"{name} ran")

    async def _read(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        """Ask for the form, and give what is said as the resource."""
        if context.protocol_version != STATELESS:
            said = _text(await self._ask(context, ASKED["form"], types.ElicitResult))
        else:
            answered = _answered(ASKED["form"], params)
            if isinstance(answered, types.InputRequiredResult):
                return answered
            said = answered
        [block] = said.content
        assert isinstance(block, types.TextContent)
        contents = types.TextResourceContents(uri=params.uri, text=block.text)
        return types.ReadResourceResult(contents=[contents])

    async def _list_templates(
        self, context: ServerRequestContext[Any], params: Any
    ) -> types.ListResourceTemplatesResult:
        """Ask for the form where a list may, and name a template by what is said."""
        if context.protocol_version == STATELESS:
            return types.ListResourceTemplatesResult(resource_templates=[])
        said = await self._ask(context, ASKED["form"], types.ElicitResult)
        template = types.ResourceTemplate(name=said.action, uri_template="mem://{x}")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _rounds(
        self,
        context: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        *,
        is_stateless: bool,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Ask for one form after the other, as often as the argument `times` says."""
        times = int((params.arguments or {})["times"])
        if not is_stateless:
            for _ in range(times):
                await self._ask(context, ASKED["form"], types.ElicitResult)
            return _text("asked")
        done = int(params.request_state or 0)
        if done == times:
            return _text("asked")
        return types.InputRequiredResult(
            input_requests={f"round {done}": ASKED["form"]}, request_state=str(done + 1)
        )

    async def _ask(self, context: ServerRequestContext[Any], asked: Any, kind: Any) -> Any:
        metadata = ServerMessageMetadata(related_request_id=context.request_id)
        try:
            return await context.session.send_request(asked, kind, metadata=metadata)
        except MCPError as exc:
            raise MCPError(exc.error.code, exc.error.message) from None

    async def _wait(self, thread_id: str) -> None:
        self.slow["begun"].append(thread_id)
        self.started.set()
        sys.stderr.write("a call waits\n")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            sys.stderr.write("a call was cancelled\n")
            self.slow["ended"].append(thread_id)
            raise


def _text(value: Any) -> types.CallToolResult:
    if isinstance(value, types.Result):
        value = value.model_dump(by_alias=True, mode="json", exclude_none=True)
        value.pop("_meta", None)
    text = value if isinstance(value, str) else json.dumps(value)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def _answered(
    asked: types.InputRequest, params: types.CallToolRequestParams | types.ReadResourceRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    if params.request_state is None:
        return types.InputRequiredResult(input_requests={"q": asked}, request_state=STATE)
    assert params.request_state == STATE
    assert params.input_responses is not None
    return _text(params.input_responses["q"])


@asynccontextmanager
async def sdk_app(
    *, json_response: bool = False, stateless: bool = False
) -> AsyncIterator[tuple[SdkPeer, Any]]:
    """Give the server and an application of Streamable HTTP for it; `stateless`: no sessions."""
    peer = SdkPeer()
    manager = StreamableHTTPSessionManager(
        app=peer.server, json_response=json_response, stateless=stateless
    )
    async with manager.run():
        yield peer, StreamableHTTPASGIApp(manager)


def main() -> None:
    """Serve on stdio until it ends."""
    anyio.run(_serve)


async def _serve() -> None:
    peer = SdkPeer()
    async with stdio_server() as (read, write):
        await peer.server.run(read, write, peer.server.create_initialization_options())


if __name__ == "__main__":
    main()
