"""The methods of ACP on the threads of the app-server, and its events and questions for the client.

Invariant: a session is a thread, with its id. A question that another client of the thread has
answered is withdrawn.
Source: https://agentclientprotocol.com/protocol/v1/schema; docs/acp.md, "Methods".
"""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import anyio

from app_server.acp.conversation import USUAL_LIMITS, AcpConversation, AcpLimits
from app_server.acp.requests import (
    AuthenticateRequest,
    Implementation,
    InitializeRequest,
    ListSessionsRequest,
    NewSessionRequest,
    PromptRequest,
    SessionPlace,
    SessionRequest,
    SetConfigOptionRequest,
    SetModeRequest,
    StoredSessionRequest,
    read,
)
from app_server.acp.session import Session
from app_server.acp.sign_in import AUTH_REQUIRED, SignIn
from app_server.acp.updates import ThreadUpdates, title_of
from app_server.rpc.in_process import AppClient, open_pipe
from app_server.rpc.message_stream import MessageStream
from protocol.jsonrpc.envelope import Notification, Request, RequestId
from protocol.jsonrpc.errors import METHOD_NOT_FOUND, RpcError, invalid_request
from protocol.model import Json, JsonObject

PROTOCOL_VERSION = 1
RESOURCE_NOT_FOUND = -32002

LIST_PAGE = 50
"""Sessions of one page of `session/list`."""
HISTORY_PAGE = 50
"""Items of one page of the history that is replayed; fewer where the items are large."""
JOINED_TURNS = 5
"""Newest turns that come with the answer which joins a thread: what was added while it was read."""

_CAPABILITIES: JsonObject = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": False},
    "sessionCapabilities": {
        "list": {},
        "resume": {},
        "fork": {},
        "close": {},
        "delete": {},
        "additionalDirectories": {},
    },
    "auth": {"logout": {}},
}
_UNKNOWN_THREAD = ("threadNotFound", "invalidThreadId")

Reply: TypeAlias = Callable[[JsonObject], None]
Tell: TypeAlias = Callable[[Sequence[JsonObject]], ThreadUpdates]
"""Tells of turns, the oldest first; returns who goes on telling."""


class AcpAgent:
    """One client of ACP, which is one client of the app-server."""

    def __init__(
        self, conversation: AcpConversation, app: AppClient, version: str, limits: AcpLimits
    ) -> None:
        self._conversation = conversation
        self._app = app
        self._version = version
        self._limits = limits
        self._sign_in = SignIn(conversation, app)
        self._capabilities: JsonObject | None = None
        """Of the client; None before it has introduced itself."""
        self._sessions: dict[str, Session] = {}
        self._opening = 0
        """Sessions that are being opened."""
        self._questions: dict[RequestId, anyio.CancelScope] = {}
        """Of the app-server that are open, by its ids."""
        self._methods: Mapping[str, Callable[[Json, Reply], Awaitable[None]]] = {
            "initialize": self._initialize,
            "logout": self._log_out,
            "session/new": self._new,
            "session/fork": self._fork,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
            "session/prompt": self._prompt,
        }

    async def run(self) -> None:
        """Serve the client until it or the app-server has gone."""

        async def follow_app() -> None:
            await self._app.run(self)
            self._tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(follow_app)
            await self._conversation.run(self)
            self._tasks.cancel_scope.cancel()

    async def answer(self, request: Request, reply: Reply) -> None:
        """Answer a request of the client; see Methods.answer."""
        method = self._methods.get(request.method)
        if request.method == "authenticate":
            method = partial(self._authenticate, request.id)
        if method is None:
            text = f"Method not found: {request.method}"
            raise RpcError(METHOD_NOT_FOUND, text, "methodNotFound")
        if self._capabilities is None and request.method != "initialize":
            raise invalid_request("`initialize` comes first", "notInitialized")
        try:
            await method(request.params, reply)
        except RpcError as exc:
            if _word(exc) not in _UNKNOWN_THREAD:
                raise
            raise RpcError(RESOURCE_NOT_FOUND, str(exc), data=exc.data) from exc

    async def take(self, notification: Notification) -> None:
        """Take a notification of the client; see Methods.take."""
        if notification.method == "session/cancel":
            with suppress(RpcError):
                session = self._session(read(SessionRequest, notification.params))
                self._tasks.start_soon(session.cancel)

    # The connection.

    async def _initialize(self, params: Json, reply: Reply) -> None:
        request = read(InitializeRequest, params)
        if self._capabilities is not None:
            raise invalid_request("`initialize` was sent already", "alreadyInitialized")
        client = request.client_info or Implementation()
        info = {"name": client.name, "title": client.title, "version": client.version}
        asked = {"clientInfo": info, "capabilities": {"experimentalApi": True}}
        await self._app.call("initialize", asked)
        await self._app.notify("initialized")
        self._capabilities = request.client_capabilities or {}
        about = {"name": "app-server", "title": "App server", "version": self._version}
        methods = self._sign_in.methods(shows_addresses=_shows_addresses(self._capabilities))
        reply(
            {
                "protocolVersion": PROTOCOL_VERSION,
                "agentInfo": about,
                "agentCapabilities": _CAPABILITIES,
                "authMethods": methods,
            }
        )

    async def _authenticate(self, request_id: RequestId, params: Json, reply: Reply) -> None:
        request = read(AuthenticateRequest, params)
        await self._sign_in.sign_in(
            request_id, request, shows_addresses=_shows_addresses(self._capabilities)
        )
        reply({})

    async def _log_out(self, params: Json, reply: Reply) -> None:
        await self._app.call("account/logout", {})
        reply({})

    # Sessions are opened.

    async def _new(self, params: Json, reply: Reply) -> None:
        place = read(NewSessionRequest, params)
        asked: JsonObject = {"cwd": place.cwd}
        if place.additional_directories:
            asked["runtimeWorkspaceRoots"] = place.roots
        await self._begin("thread/start", asked, place, reply)

    async def _fork(self, params: Json, reply: Reply) -> None:
        place = read(StoredSessionRequest, params)
        asked: JsonObject = {"threadId": place.session_id, "excludeTurns": True, "cwd": place.cwd}
        asked["runtimeWorkspaceRoots"] = place.roots
        await self._begin("thread/fork", asked, place, reply)

    async def _begin(
        self, method: str, asked: JsonObject, place: SessionPlace, reply: Reply
    ) -> None:
        """Open a session on a new thread."""
        with self._one_more():
            models = await _models(self._app)

            def opened(answer: Json) -> None:
                # Before the first event of the thread is read.
                session = self._add(answer, models, _updates(place.cwd, self._capabilities))
                reply({"sessionId": session.id, **session.state()})
                session.offer_commands()

            await self._app.call(method, {**asked, **_servers(place)}, opened)

    async def _resume(self, params: Json, reply: Reply) -> None:
        place = read(StoredSessionRequest, params)
        await self._join(
            place, "notLoaded", lambda turns: _updates(place.cwd, self._capabilities), reply
        )

    async def _load(self, params: Json, reply: Reply) -> None:
        place = read(StoredSessionRequest, params)
        updates = _updates(place.cwd, self._capabilities)
        told: set[tuple[str, str]] = set()

        def tell(turn_id: str, item: JsonObject) -> None:
            if (turn_id, item["id"]) not in told:
                for update in updates.of_history(item):
                    params = {"sessionId": place.session_id, "update": update}
                    self._conversation.notify("session/update", params)

        async for entry in _history(self._app, self._conversation, place.session_id):
            # What runs is told as it is when the thread is joined.
            if entry["item"].get("status") != "inProgress":
                tell(entry["turnId"], entry["item"])
                told.add((entry["turnId"], entry["item"]["id"]))

        def tell_newest(turns: Sequence[JsonObject]) -> ThreadUpdates:
            for turn in turns:
                for item in turn["items"]:
                    tell(turn["id"], item)
            return updates

        await self._join(place, "full", tell_newest, reply)

    async def _join(self, place: StoredSessionRequest, view: str, tell: Tell, reply: Reply) -> None:
        """Open a session on a stored thread; `tell` gets its newest turns, in this view."""
        thread_id = place.session_id
        with self._one_more():
            models = await _models(self._app)
            found = await self._app.call("thread/read", {"threadId": thread_id})
            if found["thread"]["status"]["type"] != "notLoaded":
                # A thread that is loaded keeps the servers that it has beside these.
                for name, table in place.server_settings.items():
                    change = {"threadId": thread_id, "name": name, "settings": table}
                    await self._app.call("mcpServer/set", change)

            def opened(answer: Json) -> None:
                turns = answer["initialTurnsPage"]["data"][::-1]
                session = self._add(answer, models, tell(turns))
                reply(session.state())
                session.joined(turns)
                session.offer_commands()

            asked: JsonObject = {
                "threadId": thread_id,
                "excludeTurns": True,
                "initialTurnsPage": {"limit": JOINED_TURNS, "itemsView": view},
                "runtimeWorkspaceRoots": place.roots,
            }
            await self._app.call("thread/resume", {**asked, **_servers(place)}, opened)

    def _add(
        self, answer: JsonObject, models: Sequence[JsonObject], updates: ThreadUpdates
    ) -> Session:
        session = Session(answer, models, updates, self._conversation, self._app)
        if (before := self._sessions.get(session.id)) is not None:
            before.lose()
        self._sessions[session.id] = session
        return session

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        """Count a session that is being opened, while the context lasts.

        Raises:
            RpcError: too many are open.
        """
        most = self._limits.max_sessions
        if len(self._sessions) + self._opening >= most:
            text = f"at most {most} sessions are open at a time: close one first"
            raise invalid_request(text, "tooManySessions")
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    # Sessions that are open.

    def _session(self, request: SessionRequest) -> Session:
        session = self._sessions.get(request.session_id)
        if session is None:
            text = "`sessionId` names no session that is open here: load or resume it"
            raise RpcError(RESOURCE_NOT_FOUND, text, "sessionNotFound", field="sessionId")
        return session

    async def _list(self, params: Json, reply: Reply) -> None:
        request = read(ListSessionsRequest, params)
        asked: JsonObject = {"limit": LIST_PAGE, "sortKey": "updated_at"}
        asked |= {"cursor": request.cursor, "cwd": request.cwd}
        found = await self._app.call("thread/list", asked)
        sessions = [
            {
                "sessionId": thread["id"],
                "cwd": thread["cwd"],
                "title": thread.get("name") or title_of(thread["preview"]) or None,
                "updatedAt": datetime.fromtimestamp(thread["updatedAt"], UTC).isoformat(),
            }
            for thread in found["data"]
        ]
        more = {} if found["nextCursor"] is None else {"nextCursor": found["nextCursor"]}
        reply({"sessions": sessions, **more})

    async def _close(self, params: Json, reply: Reply) -> None:
        session = self._session(read(SessionRequest, params))
        await session.leave()
        self._sessions.pop(session.id, None)
        reply({})

    async def _delete(self, params: Json, reply: Reply) -> None:
        session_id = read(SessionRequest, params).session_id
        if (session := self._sessions.pop(session_id, None)) is not None:
            session.lose()
        try:
            await self._app.call("thread/delete", {"threadId": session_id})
        except RpcError as exc:
            if _word(exc) not in _UNKNOWN_THREAD:
                raise
        reply({})

    async def _set_mode(self, params: Json, reply: Reply) -> None:
        request = read(SetModeRequest, params)
        await self._session(request).choose("mode", request.mode_id)
        reply({})

    async def _set_config_option(self, params: Json, reply: Reply) -> None:
        request = read(SetConfigOptionRequest, params)
        session = self._session(request)
        await session.choose(request.config_id, request.value)
        reply({"configOptions": session.options()})

    async def _prompt(self, params: Json, reply: Reply) -> None:
        request = read(PromptRequest, params)
        reply(await self._session(request).prompt(request.prompt))

    # What the app-server says.

    async def on_event(self, event: Notification) -> None:
        """Take an event of the app-server; see Listener."""
        params = event.params if isinstance(event.params, dict) else {}
        session = self._sessions.get(params.get("threadId") or "")
        match event.method:
            case "serverRequest/resolved":
                if (scope := self._questions.get(params["requestId"])) is not None:
                    scope.cancel()
            case "account/login/completed":
                self._sign_in.login_completed(params)
            case "thread/closed" | "thread/deleted" if session is not None:
                del self._sessions[session.id]
                session.lose()
            case _ if session is not None:
                await self._conversation.wait_for_room()
                session.take_event(event.method, params)

    async def question(self, question: Request) -> None:
        """Take a question of the app-server; see Listener."""
        scope = anyio.CancelScope()
        self._questions[question.id] = scope
        session = self._sessions.get(question.params.get("threadId") or "")
        self._tasks.start_soon(self._put, question, session, scope)

    async def _put(
        self, question: Request, session: Session | None, scope: anyio.CancelScope
    ) -> None:
        """Put a question to the client, until it is answered by this one or another."""
        try:
            with scope, suppress(RpcError):
                result = None
                if session is not None:
                    result = await session.put(question, self._capabilities or {})
                if result is None:
                    # Another client of the thread may know it.
                    unknown = RpcError(METHOD_NOT_FOUND, "this client of ACP is not asked that")
                    await self._app.refuse(question.id, unknown)
                else:
                    await self._app.answer(question.id, result)
        finally:
            del self._questions[question.id]


async def serve_acp_client(
    stream: MessageStream,
    converse: Callable[[MessageStream], Coroutine[Any, Any, None]],
    version: str,
    limits: AcpLimits = USUAL_LIMITS,
) -> None:
    """Serve the client of ACP at the other end of `stream`, until it or the app-server has gone.

    `converse` holds the conversation of the app-server with one client, which this is.
    """
    near, far = open_pipe()
    agent = AcpAgent(AcpConversation(stream, limits), AppClient(near), version, limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(converse, far)
        try:
            await agent.run()
        finally:
            await near.aclose()
            await stream.aclose()


async def _history(
    app: AppClient, conversation: AcpConversation, thread_id: str
) -> AsyncIterator[JsonObject]:
    """Give the stored items of a thread with their turns, as fast as the client takes them."""
    cursor, limit = None, HISTORY_PAGE
    while True:
        try:
            asked = {"threadId": thread_id, "cursor": cursor, "limit": limit}
            page = await app.call("thread/items/list", asked)
        except RpcError as exc:
            if _word(exc) != "answerTooLarge" or limit == 1:
                raise
            limit //= 2
            continue
        for entry in page["data"]:
            await conversation.wait_for_room()
            yield entry
        cursor = page["nextCursor"]
        if cursor is None:
            return


async def _models(app: AppClient) -> Sequence[JsonObject]:
    """Return the models to choose from.

    Raises:
        RpcError: the provider needs an account, and there is none.
    """
    account = await app.call("account/read", {"refreshToken": False})
    if account["requiresOpenaiAuth"] and account["account"] is None:
        raise RpcError(AUTH_REQUIRED, "Authentication required", "authRequired")
    models: Sequence[JsonObject] = (await app.call("model/list", {}))["data"]
    return models


def _updates(cwd: str, capabilities: JsonObject | None) -> ThreadUpdates:
    meta = (capabilities or {}).get("_meta")
    shows_terminals = isinstance(meta, dict) and meta.get("terminal_output") is True
    return ThreadUpdates(cwd, shows_terminals=shows_terminals)


def _shows_addresses(capabilities: JsonObject | None) -> bool:
    """Whether a client shows the user an address, and asks before it is opened."""
    modes = (capabilities or {}).get("elicitation")
    return isinstance(modes, dict) and modes.get("url") is not None


def _servers(place: SessionPlace) -> JsonObject:
    """Return the client's MCP servers as settings of the thread."""
    tables = {f"mcp_servers.{name}": table for name, table in place.server_settings.items()}
    return {"config": tables} if tables else {}


def _word(error: RpcError) -> Json:
    """Return the stable word of an error; None where it has none."""
    return error.data.get("code") if isinstance(error.data, dict) else None
