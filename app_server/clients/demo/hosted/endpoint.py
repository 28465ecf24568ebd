"""Hosted endpoint on a loopback port: its file store, its tools, authentication and routes.

A file is announced, sent and confirmed; it is hashed and not kept. Everything below `/backend-api`
wants the account's token.
"""

import hashlib
import hmac
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast
from uuid import uuid4

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ServerRequest
from mcp_types import Request as McpRequest
from pydantic import RootModel, SecretStr
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app_server.mcp_wire.revisions import NOT_CACHED, STATELESS, stamped
from app_server.runtime.http.bounded_body import TooManyBytes, read_bounded
from app_server.runtime.http.listening import HOST
from app_server.runtime.http.loopback_server import serve_on_loopback

MAX_FILES = 100
"""Bound on files that are known; the oldest are forgotten."""

MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_BODY_BYTES = 64 * 1024


@dataclass(slots=True)
class StoredFile:
    """One file."""

    id: str
    name: str
    size: int
    sha256: str | None = None
    """Of what was sent; None before that."""


class FileStore:
    """The files of one account."""

    def __init__(self) -> None:
        self.base_url = ""
        """Address of the endpoint, without a slash, once it is served."""
        self._files: dict[str, StoredFile] = {}
        self.retries = 0
        """So many confirmations are answered with `retry`."""

    def find(self, id_: Any) -> StoredFile | None:
        """Return a file by its id; None if there is none."""
        return self._files.get(id_) if isinstance(id_, str) else None

    def routes(self, api: str) -> list[Route]:
        """Return the routes; the first two are below a path, the bytes at `/upload/ID`."""
        return [
            Route(f"{api}/files", self._create, methods=["POST"]),
            Route(f"{api}/files/{{id}}/uploaded", self._finish, methods=["POST"]),
            Route("/upload/{id}", self._put, methods=["PUT"]),
        ]

    async def _create(self, request: Request) -> Response:
        body = await read_json(request)
        match body:
            case {"file_name": str() as name, "file_size": int() as size, "use_case": "codex"}:
                pass
            case _:
                return JSONResponse({"detail": "not a file"}, 400)
        if not 0 <= size <= MAX_FILE_BYTES:
            return JSONResponse({"detail": "too large"}, 413)
        while len(self._files) >= MAX_FILES:
            del self._files[next(iter(self._files))]
        file = StoredFile(f"file_{uuid4().hex}", name, size)
        self._files[file.id] = file
        url = f"{self.base_url}/upload/{file.id}"
        return JSONResponse({"file_id": file.id, "upload_url": url})

    async def _put(self, request: Request) -> Response:
        file = self.find(request.path_params["id"])
        if file is None:
            return Response(status_code=404)
        # Who may upload is in the address: credentials have no business here.
        if "authorization" in request.headers or "chatgpt-account-id" in request.headers:
            return Response(status_code=403)
        if request.headers.get("x-ms-blob-type") != "BlockBlob":
            return Response(status_code=400)
        digest, size = hashlib.sha256(), 0
        async for chunk in request.stream():
            digest.update(chunk)
            size += len(chunk)
            if size > file.size:
                return Response(status_code=400)
        if size != file.size:
            return Response(status_code=400)
        file.sha256 = digest.hexdigest()
        return Response(status_code=201)

    async def _finish(self, request: Request) -> Response:
        file = self.find(request.path_params["id"])
        if file is None or file.sha256 is None:
            return JSONResponse({"status": "error", "error_message": "nothing was uploaded"})
        if self.retries > 0:
            self.retries -= 1
            return JSONResponse({"status": "retry"})
        found = {
            "status": "success",
            "download_url": f"{self.base_url}/download/{file.id}",
            "file_name": file.name,
            "mime_type": "application/octet-stream",
            "error_message": None,
        }
        return JSONResponse(found)


async def read_json(request: Request) -> Any:
    """Read a JSON body; None if it is not JSON, or larger than MAX_BODY_BYTES."""
    try:
        return from_json(await read_bounded(request.stream(), MAX_BODY_BYTES))
    except (ValueError, TooManyBytes):
        return None


JsonObject = dict[str, Any]

ENVELOPE = "_codex_apps"

READS: JsonObject = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
WRITES: JsonObject = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}
"""MCP annotations of a tool: its effects."""


class _Question(McpRequest[dict[str, Any], str]):
    """A request to the client, whatever its method."""


class _Answer(RootModel[dict[str, Any]]):
    """Response of a tool."""


class Caller:
    """Caller of a tool: the client of one MCP session."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._context = context

    def can_be_asked(self, mode: str) -> bool:
        """Whether it declared that users can be asked: `form`, `url`, `openai/form`.

        Never without a session: the questions of the demo are requests.
        """
        if not self._context.session.can_send_request:
            return False
        capabilities = self._context.session.client_capabilities
        if capabilities is None:
            return False
        if mode == "openai/form":
            return mode in (capabilities.extensions or {})
        return getattr(capabilities.elicitation, mode, None) is not None

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Ask the user on the stream of this call, and return the answer as it came.

        Raises:
            mcp.MCPError: the client answered with an error.
        """
        answer = await self._context.session.send_request(
            cast(ServerRequest, _Question(method=method, params=params)),
            _Answer,
            metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
        )
        return answer.root

    async def report(self, progress: float, total: float, message: str) -> None:
        """Report how far the call is, if the client wants to know."""
        await self._context.session.report_progress(progress, total, message)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    arguments: JsonObject
    meta: JsonObject
    """`_meta` of the request."""
    caller: Caller = field(repr=False)


Run = Callable[[Call], Awaitable[JsonObject]]
"""Returns a result of `tools/call`."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """One element of the list of tools."""

    definition: JsonObject
    """As it is listed, `_meta` included."""
    run: Run = field(repr=False)


@dataclass(frozen=True, slots=True)
class HostedConnector:
    """App: its entry in the directory, and its tools."""

    id: str
    name: str
    description: str
    tools: tuple[HostedTool, ...] = ()

    def tool(
        self,
        name: str,
        description: str,
        properties: JsonObject,
        annotations: JsonObject,
        run: Run,
        *,
        meta: JsonObject | None = None,
    ) -> HostedTool:
        """Make a tool that is listed with this app; all its arguments are required."""
        definition = {
            "name": f"{self.name.lower()}_{name}",
            "title": f"{self.name}_{name}",
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
            "annotations": annotations,
            "_meta": {
                "connector_id": self.id,
                "connector_name": self.name,
                "connector_description": self.description,
                ENVELOPE: {"resource_uri": f"/connectors/{self.id}/{name}"},
                **(meta or {}),
            },
        }
        return HostedTool(definition, run)


def text_result(
    text: str, structured: JsonObject | None = None, *, error: bool = False
) -> JsonObject:
    """Return a result with a text, and with a structure if there is one."""
    result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": error}
    return result if structured is None else {**result, "structuredContent": structured}


# Apps of the demo's endpoint: a calendar, a drive, mail, and a survey.
# Creating an event changes something and is asked about. A file of the drive is uploaded to the
# file store before. Mail is read after the user has signed in: the page for that is not played;
# after a refusal, listing the tools again counts as coming back from it. The survey asks with a
# form, with a link, and with the form that ChatGPT has.


MAX_EVENTS = 100
"""The oldest ones make room."""

DAY_URI = "ui://calendar/day"

_CALENDAR = HostedConnector("demo_calendar", "Calendar", "Events of one demonstration calendar.")


def calendar() -> HostedConnector:
    """Return the app with its tools, and the events of one account."""
    events: deque[JsonObject] = deque(
        [{"day": "2030-01-01", "title": "New year"}], maxlen=MAX_EVENTS
    )

    async def list_events(call: Call) -> JsonObject:
        shown = [{**event} for event in events]
        lines = [f"{event['day']}: {event['title']}" for event in shown]
        return text_result("\n".join(lines), {"events": shown})

    async def create_event(call: Call) -> JsonObject:
        event = {key: str(call.arguments.get(key, ""))[:200] for key in ("day", "title")}
        events.append(event)
        return text_result(
            f"{event['title']} is in the calendar, on {event['day']}.", {"event": event}
        )

    text = {"type": "string"}
    listing = _CALENDAR.tool(
        "list_events",
        "List the events of the calendar.",
        {},
        READS,
        list_events,
        meta={"ui": {"resourceUri": DAY_URI}},
    )
    days = {"day": {**text, "description": "Like 2030-01-31."}, "title": text}
    creating = _CALENDAR.tool(
        "create_event", "Put an event into the calendar.", days, WRITES, create_event
    )
    return replace(_CALENDAR, tools=(listing, creating))


_DRIVE = HostedConnector("demo_drive", "Drive", "Keeps files for as long as the demo runs.")


def drive(files: FileStore) -> HostedConnector:
    """Return the app with its tool, which knows the files of a store."""

    async def run(call: Call) -> JsonObject:
        given = call.arguments.get("file")
        stored = files.find(given.get("file_id")) if isinstance(given, dict) else None
        if stored is None or stored.sha256 is None:
            return text_result("There is no such file.", error=True)
        found: JsonObject = {"name": stored.name, "bytes": stored.size, "sha256": stored.sha256}
        return text_result(f"{stored.name} is in the drive, {stored.size} bytes.", {"file": found})

    save = _DRIVE.tool(
        "save_file",
        "Save a file in the drive.",
        {"file": {"type": "object", "description": "The file to save."}},
        WRITES,
        run,
        meta={"openai/fileParams": ["file"]},
    )
    return replace(_DRIVE, tools=(save,))


ACCOUNT_EMAIL = "demo@example.com"

_MAIL = HostedConnector("demo_mail", "Mail", "Messages of one demonstration account.")
_MESSAGES = [{"from": "weather@example.com", "subject": "Sunny, with a light breeze"}]


class Mail:
    """The messages of one account, and whether it has been signed in to."""

    def __init__(self) -> None:
        self.is_signed_in = False
        self.was_refused = False

    def connector(self) -> HostedConnector:
        """Return the app with its tool."""
        envelope = {
            "resource_uri": "/connectors/demo_mail/read_inbox",
            "connected_account_email": ACCOUNT_EMAIL,
        }
        inbox = _MAIL.tool(
            "read_inbox",
            "Read the subjects of the messages in the inbox.",
            {},
            READS,
            self._read,
            meta={"link_id": "link_demo_mail", ENVELOPE: envelope},
        )
        return replace(_MAIL, tools=(inbox,))

    def tools_were_listed(self) -> None:
        """Sign in at the listing that follows a refused call."""
        self.is_signed_in |= self.was_refused

    async def _read(self, call: Call) -> JsonObject:
        if self.is_signed_in:
            lines = [f"{one['from']}: {one['subject']}" for one in _MESSAGES]
            return text_result("\n".join(lines), {"messages": _MESSAGES})
        self.was_refused = True
        failure = {
            "is_auth_failure": True,
            "auth_reason": "missing_link",
            "connector_id": _MAIL.id,
            "error_code": "UNAUTHORIZED",
            "error_http_status_code": 401,
        }
        refusal = text_result("Mail is not linked to this account.", error=True)
        return {**refusal, "_meta": {ENVELOPE: {"connector_auth_failure": failure}}}


_SURVEY = HostedConnector("demo_survey", "Survey", "Asks one question, in one of three ways.")
_SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "title": "Colour"}},
    "required": ["colour"],
}
_QUESTION = "Which colour do you like best?"

QUESTIONS: dict[str, tuple[str, JsonObject]] = {
    "form": ("elicitation/create", {"message": _QUESTION, "requestedSchema": _SCHEMA}),
    "url": (
        "elicitation/create",
        {
            "mode": "url",
            "message": "Please choose a colour there.",
            "url": "https://example.com/colours",
            "elicitationId": "demo-colours",
        },
    ),
    "openai/form": ("openai/form", {"message": _QUESTION, "requestedSchema": _SCHEMA}),
}
"""Method and params of each question."""


def survey() -> HostedConnector:
    """Return the app with its three tools."""
    tools = [
        _SURVEY.tool(
            f"ask_by_{mode.replace('/', '_')}", f"Ask by {mode}.", {}, READS, _asking(mode)
        )
        for mode in QUESTIONS
    ]
    return replace(_SURVEY, tools=tuple(tools))


def _asking(mode: str) -> Run:
    method, params = QUESTIONS[mode]

    async def ask(call: Call) -> JsonObject:
        if not call.caller.can_be_asked(mode):
            return text_result(f"Nobody can be asked by {mode}.", error=True)
        answer = await call.caller.ask(method, params)
        return text_result(f"The answer is: {answer.get('action')}.", {"answer": answer})

    return ask


logger = logging.getLogger(__name__)

RESOURCE_NOT_FOUND = -32002
SKILL = "mcp/skill"
"""The type of a resource that is a skill."""

_CAPABILITIES: JsonObject = {"tools": {}, "resources": {}}

Context: TypeAlias = ServerRequestContext[Any]


class HostedServer:
    """MCP server of the endpoint; its errors show no internals."""

    def __init__(
        self,
        tools: Callable[[], Sequence[HostedTool]],
        resources: Mapping[str, JsonObject],
        on_list: Callable[[], None],
    ) -> None:
        """Take the tools, and resources by URI; `on_list` is called when tools are listed."""
        self._tools = tools
        self._resources = resources
        self._on_list = on_list
        self.page = 100
        """Tools on one page of the list."""
        self.sdk: Server[Any] = Server("hosted-apps-demo", version="1")
        self.sdk.middleware[:] = [self._answer]
        self._methods: dict[str, Callable[[Context, JsonObject], Awaitable[JsonObject]]] = {
            "tools/list": self._list,
            "tools/call": self._call,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read,
        }

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method in ("initialize", "server/discover"):
            hello = await call_next(ctx)
            assert isinstance(hello, dict)
            return {**hello, "capabilities": _CAPABILITIES}
        method = self._methods.get(ctx.method)
        if method is None or ctx.request_id is None:
            return await call_next(ctx)
        try:
            result = await method(ctx, dict(ctx.params or {}))
            if ctx.protocol_version != STATELESS:
                return result
            kept = {} if ctx.method == "tools/call" else NOT_CACHED
            return stamped({**result, **kept}, self.sdk.server_info_stamp)
        except MCPError:
            raise
        except Exception:
            logger.exception("%s failed", ctx.method)
            raise MCPError(INTERNAL_ERROR, "Internal error") from None

    async def _list(self, context: Context, params: JsonObject) -> JsonObject:
        cursor = params.get("cursor") or "0"
        if not isinstance(cursor, str) or not cursor.isdecimal():
            raise MCPError(INVALID_PARAMS, "unknown cursor")
        start, end = int(cursor), int(cursor) + self.page
        if start == 0:
            self._on_list()
        tools = self._tools()
        following = {"nextCursor": str(end)} if end < len(tools) else {}
        return {"tools": [tool.definition for tool in tools[start:end]], **following}

    async def _call(self, context: Context, params: JsonObject) -> JsonObject:
        named = (tool for tool in self._tools() if tool.definition["name"] == params.get("name"))
        tool = next(named, None)
        if tool is None:
            raise MCPError(INVALID_PARAMS, "unknown tool")
        arguments, meta = params.get("arguments") or {}, params.get("_meta") or {}
        if not isinstance(arguments, dict) or not isinstance(meta, dict):
            raise MCPError(INVALID_PARAMS, "arguments and _meta must be objects")
        return await tool.run(Call(arguments, meta, Caller(context)))

    async def _list_resources(self, context: Context, params: JsonObject) -> JsonObject:
        # A skill is not read itself, only its files: all there is of it is in the list.
        skills = [one for one in self._resources.values() if one.get("mimeType") == SKILL]
        files = [uri for uri, one in self._resources.items() if one.get("mimeType") != SKILL]
        return {"resources": [*({"uri": uri, "name": uri} for uri in files), *skills]}

    async def _list_templates(self, context: Context, params: JsonObject) -> JsonObject:
        return {"resourceTemplates": []}

    async def _read(self, context: Context, params: JsonObject) -> JsonObject:
        found = self._resources.get(str(params.get("uri")))
        if found is None:
            raise MCPError(RESOURCE_NOT_FOUND, "Resource not found")
        return {"contents": [found]}


PAGE = 50
"""Apps on one page of the directory."""


class Directory:
    """Directory of all apps, also of ones that the account cannot use."""

    def __init__(self, connectors: Sequence[HostedConnector]) -> None:
        """Take the apps of the account, a list that may change."""
        self._connectors = connectors
        self.others: list[JsonObject] = [
            {"id": "demo_notes", "name": "Notes", "description": "An app that is not linked."}
        ]
        """Entries of apps that the account cannot use yet."""
        self.page = PAGE
        self.settings: JsonObject = {"beta_settings": {"plugins": True}}
        """Of the account's workspace."""

    def routes(self, api: str) -> list[Route]:
        """Return the routes below a path."""
        listing = f"{api}/connectors/directory"
        return [
            Route(f"{listing}/list", self._list, methods=["GET"]),
            Route(f"{listing}/list_workspace", self._list_workspace, methods=["GET"]),
            Route(f"{api}/ps/apps/batch", self._batch, methods=["POST"]),
            Route(f"{api}/accounts/{{id}}/settings", self._settings, methods=["GET"]),
        ]

    def _entries(self) -> list[JsonObject]:
        known = [
            {"id": one.id, "name": one.name, "description": one.description}
            for one in self._connectors
        ]
        return known + self.others

    async def _list(self, request: Request) -> Response:
        token = request.query_params.get("token", "0")
        start = int(token) if token.isdecimal() else 0
        entries = self._entries()
        end = start + self.page
        following = str(end) if end < len(entries) else None
        return JSONResponse({"apps": entries[start:end], "next_token": following})

    async def _list_workspace(self, request: Request) -> Response:
        return JSONResponse({"apps": [], "next_token": None})

    async def _batch(self, request: Request) -> Response:
        body = await read_json(request)
        ids = body.get("app_ids") if isinstance(body, dict) else None
        if not isinstance(ids, list):
            return JSONResponse({"detail": "app_ids is missing"}, 400)
        tools = {one.id: one.tools for one in self._connectors}
        found = [{**entry, "tools": None} for entry in self._entries() if entry["id"] in ids]
        if body.get("include_tools") is True:
            for entry in found:
                entry["tools"] = [_summary(tool) for tool in tools.get(entry["id"], ())]
        return JSONResponse({"apps": found})

    async def _settings(self, request: Request) -> Response:
        return JSONResponse(self.settings)


def _summary(tool: HostedTool) -> dict[str, Any]:
    definition = tool.definition
    return {
        "name": definition["name"],
        "title": definition.get("title"),
        "description": definition.get("description"),
        "is_enabled": True,
        "disabled_reason": None,
        "is_read_only": (definition.get("annotations") or {}).get("readOnlyHint") is True,
    }


API = "/backend-api"
MCP_PATH = f"{API}/ps/mcp"

ACCOUNT_ID = "demo-account"

MAX_SESSIONS = 256
IDLE_S = 600.0
MAX_REQUEST_BYTES = 4 * 1024 * 1024

_DAY = {"uri": DAY_URI, "mimeType": "text/html", "text": "<h1>A day</h1>"}


class HostedEndpoint:
    """One account with its apps, an ASGI application."""

    def __init__(self, connectors: Sequence[HostedConnector] | None = None) -> None:
        """Take the apps of the account; those of the demo by default."""
        self.origin = ""
        """Scheme, address and port, once it is served."""
        self.token = SecretStr(secrets.token_urlsafe(32))
        self.account_id = ACCOUNT_ID
        self.files = FileStore()
        self.mail = Mail()
        if connectors is None:
            connectors = (calendar(), drive(self.files), self.mail.connector(), survey())
        self.connectors = list(connectors)
        self.resources: dict[str, JsonObject] = {DAY_URI: _DAY}
        self.directory = Directory(self.connectors)
        self.mcp = HostedServer(self.tools, self.resources, self.mail.tools_were_listed)
        # In streams of events, because a question belongs to the stream of the call that asks it.
        self._sessions = StreamableHTTPSessionManager(
            self.mcp.sdk,
            session_idle_timeout=IDLE_S,
            max_request_body_size=MAX_REQUEST_BYTES,
            max_sessions=MAX_SESSIONS,
        )
        self._pages = Starlette(routes=[*self.directory.routes(API), *self.files.routes(API)])

    @property
    def base_url(self) -> str:
        """Value for `chatgpt_base_url`."""
        return f"{self.origin}{API}"

    def tools(self) -> list[HostedTool]:
        """Return the tools of all apps."""
        return [tool for connector in self.connectors for tool in connector.tools]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if path.startswith(f"{API}/") and not self._knows(Request(scope)):
            await Response(status_code=401)(scope, receive, send)
        elif path == MCP_PATH:
            await self._sessions.handle_request(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    def _knows(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        expected = f"Bearer {self.token.get_secret_value()}"
        account = request.headers.get("chatgpt-account-id", self.account_id)
        return hmac.compare_digest(given.encode(), expected.encode()) and account == self.account_id

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve on a free port of this machine while the context lasts; once only.

        Raises:
            OSError: no port can be opened.
        """
        async with serve_on_loopback(self) as port, self._sessions.run():
            self.origin = self.files.base_url = f"http://{HOST}:{port}"
            yield
